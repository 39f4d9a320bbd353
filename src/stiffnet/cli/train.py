"""``stiffnet train``: a network, a recipe and data in; a run that survives out."""

import shlex
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from stiffnet.cli.devices import Device, check_device
from stiffnet.cli.options import Workers

if TYPE_CHECKING:
    from stiffnet.train.recipe import Recipe
    from stiffnet.train.run import Result


class Strategy(StrEnum):
    """How the ranks of one run share the work."""

    auto = "auto"
    ddp = "ddp"
    fsdp = "fsdp"


def train(
    model: Annotated[
        str, typer.Argument(metavar="MODEL", help="A timm name, torchvision:NAME, or our folder.")
    ] = "",
    data: Annotated[
        str,
        typer.Option(metavar="D", help="digits, cifar10:DIR, or a folder with train/ and val/."),
    ] = "",
    recipe: Annotated[
        str, typer.Option(metavar="R", help="A name from `stiffnet list recipes`, or a file.")
    ] = "",
    attention: Annotated[
        str, typer.Option(metavar="A", help="A module for every step, e.g. se or se,reduction=8.")
    ] = "",
    seed: Annotated[
        int | None, typer.Option(min=0, max=2**63 - 1, help="Of weights, order and augmentation.")
    ] = None,
    settings: Annotated[
        list[str], typer.Option("--set", metavar="FIELD=VALUE", help="Any field of the recipe.")
    ] = [],  # noqa: B006  # typer copies it
    out: Annotated[
        Path | None, typer.Option(metavar="DIR", help="For the run; else runs/MODEL-FINGERPRINT.")
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the run in DIR.")] = False,
    again: Annotated[
        bool, typer.Option("--again", help="Take the run in DIR away, and begin anew.")
    ] = False,
    device: Annotated[Device, typer.Option(help="Where to compute.")] = Device.auto,
    devices: Annotated[
        int, typer.Option(min=1, help="Of this machine; torchrun and SLURM decide themselves.")
    ] = 1,
    nodes: Annotated[int, typer.Option(min=1, help="Machines.")] = 1,
    strategy: Annotated[Strategy, typer.Option(help="How ranks share the work.")] = Strategy.auto,
    workers: Workers = 0,
    save_every: Annotated[
        int, typer.Option(min=0, help="Steps between checkpoints; 0: after each epoch only.")
    ] = 0,
    tns: Annotated[
        int, typer.Option(min=0, help="Measure TNS on this many test images after each epoch.")
    ] = 0,
    attention_values: Annotated[
        int, typer.Option(min=0, help="Keep the step sizes of this many test images, each epoch.")
    ] = 0,
    skip_bad_images: Annotated[
        bool,
        typer.Option("--skip-bad-images", help="Leave out image files that cannot be read."),
    ] = False,
    tracker: Annotated[
        list[str], typer.Option(metavar="T", help="Also log to tensorboard or trackio.")
    ] = [],  # noqa: B006  # typer copies it
) -> None:
    """Train a network by a recipe. Kill it at any moment: `--resume` loses nothing."""
    from stiffnet.cli.following import Follower
    from stiffnet.cli.results import command, file_name
    from stiffnet.train.run import Machinery, run
    from stiffnet.train.trackers import check_tracker

    check_device(device)
    for name in tracker:
        check_tracker(name)
    if resume:
        _check_resumable(out, again=again, named=bool(model or recipe))
    said: dict[str, object] = {
        "model": model,
        "data": data,
        "attention": attention,
        "seed": seed,
        "skip_bad_images": skip_bad_images or None,
    }
    wanted = _recipe(recipe, said, settings, out if resume else None)
    folder = out or Path("runs") / f"{file_name(wanted.model)}-{wanted.fingerprint}"
    with Follower(wanted, folder, tracker) as follower:
        result = run(
            wanted,
            folder,
            resume=resume,
            again=again,
            command=command(),
            machinery=Machinery(
                device=device.value,
                devices=devices,
                nodes=nodes,
                strategy=strategy.value,
                workers=workers,
                save_every=save_every,
                tns=tns,
                attention_values=attention_values,
            ),
            audience=follower,
        )
    if result.rank == 0:
        print(_told(result, wanted))


def _check_resumable(out: Path | None, *, again: bool, named: bool) -> None:
    """Say what is wrong with a `--resume` before anything else is looked at."""
    from stiffnet.errors import CheckpointError, RecipeError
    from stiffnet.train.run_folder import RunFolder

    if again:
        raise RecipeError(
            "`--resume` goes on with a run, and `--again` takes it away. Give one of the two."
        )
    if out is None and not named:
        raise RecipeError("`--resume` needs the folder of the run. Give it with `--out DIR`.")
    if out is not None and not RunFolder(out).recipe.exists():
        raise CheckpointError(
            f"{out} holds no run to resume. Give the folder of one with `--out`, or leave out "
            "`--resume` to begin one there."
        )


def _recipe(
    recipe: str, said: "dict[str, object]", settings: list[str], there: Path | None
) -> "Recipe":
    """Put the recipe together: the run's own when it is resumed, and what was said on top."""
    from stiffnet.errors import RecipeError
    from stiffnet.train.recipe_file import build_recipe

    if there is not None and not recipe:
        recipe = str(there / "recipe.toml")
    elif not said["model"] and not recipe:
        raise RecipeError(
            "No network was given. Write its name, as in `stiffnet train resnet20_cifar`."
        )
    known = {key: value for key, value in said.items() if value not in ("", None)}
    pairs: dict[str, str] = {}
    for text in settings:
        field, value = _pair(text)
        if field in pairs or field in known:
            raise RecipeError(f"`{field}` is given twice on the command line. Keep one of the two.")
        pairs[field] = value
    return build_recipe(recipe or "quick", pairs, **known)


def _pair(text: str) -> tuple[str, str]:
    from stiffnet.errors import RecipeError

    field, sign, value = text.partition("=")
    if not sign:
        raise RecipeError(f"`--set {text}` names no value. Write `--set FIELD=VALUE`.")
    return field.strip(), value.strip()


def _told(result: "Result", recipe: "Recipe") -> str:
    from stiffnet.cli.results import as_argument
    from stiffnet.network.attention_text import split_attention

    last, best = result.history[-1], result.best
    _, constant = split_attention(recipe.attention)
    final, tests = as_argument(result.folder.final), _tests_of(recipe.data)
    measure = shlex.join(["stiffnet", "measure", final, "--data", tests])
    fold = f"Fold it:     {shlex.join(['stiffnet', 'fold', as_argument(result.folder.path)])}\n"
    return (
        f"Test accuracy after the last epoch: {last['test_top1']:.2%} (top-5 "
        f"{last['test_top5']:.2%}). Best epoch, chosen on the test set: {best['epoch']}, "
        f"{best['test_top1']:.2%}.\n"
        f"The network: {result.folder.final}\n"
        f"Measure it:  {measure}\n"
        f"{fold if constant else ''}"
        f"The log:     {result.folder.log}"
    )


def _tests_of(data: str) -> str:
    """Return what `measure` takes for the test images of the run."""
    from stiffnet.data import spec_of_tests
    from stiffnet.errors import DataError

    try:
        return spec_of_tests(data)
    except DataError:  # a finished run whose data are elsewhere by now
        return data
