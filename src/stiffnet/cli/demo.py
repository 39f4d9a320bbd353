"""``stiffnet demo``: train a small network on embedded images, measure it, and fold it."""

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from stiffnet.cli.progress import progress

if TYPE_CHECKING:
    from torch import nn

    from stiffnet.data.images import ImageSet
    from stiffnet.network.loaded import LoadedModel
    from stiffnet.network.model_folder import Fact
    from stiffnet.report.folded import FoldView
    from stiffnet.results.stiffness import StiffnessReport
    from stiffnet.train.recipe import Recipe

COMMAND = "stiffnet demo"
MODEL, ATTENTION = "resnet20_cifar", "asr:se"
SETTINGS = {
    "epochs": 8,
    "batch_size": 32,
    "image_size": 16,  # pixels; the digits have 8
    "learning_rate": 0.1,
    "crop": "none",
    "flip": False,  # a mirrored digit is another one
}
MADE = ("before.json", "after.json", "report.html")
TIMED = 64  # images in a pass that is timed
PASSES = 15  # of each form of the network


def demo(
    out: Annotated[Path, typer.Option(metavar="DIR", help="For what it writes.")] = Path("demo"),
    seed: Annotated[
        int, typer.Option(min=0, max=2**63 - 1, help="Of the weights and the order.")
    ] = 0,
) -> None:
    """Train a small network with attention on digits, measure it, fold it, write a page."""
    from rich.console import Console

    from stiffnet.cli.fold import refuse_strangers
    from stiffnet.cli.following import Follower
    from stiffnet.cli.results import check_places
    from stiffnet.data.digits import digits
    from stiffnet.files import atomic_write_all
    from stiffnet.network.open import open_model
    from stiffnet.report.findings import plain
    from stiffnet.report.folded import saving
    from stiffnet.report.text import number
    from stiffnet.results.stiffness import page
    from stiffnet.train.recipe_file import build_recipe
    from stiffnet.train.run import run

    recipe = build_recipe(
        "quick", SETTINGS, model=MODEL, attention=ATTENTION, data="digits", seed=seed
    )
    folder, folded = out / "run", out / "folded"
    refuse_strangers(folded)
    check_places(out, *MADE)
    with Follower(recipe, folder) as follower:
        # A demo that was there gives way; somebody's own run does not.
        again = _is_demo(folder / "recipe.toml", recipe)
        result = run(recipe, folder, command=COMMAND, again=again, audience=follower)
    trained = open_model(result.folder.final)
    untrained = open_model(MODEL, num_classes=len(trained.classes), attention=ATTENTION, seed=seed)
    test = digits("test")
    before = _look(untrained.model, trained, test, f"random, seed {seed}")
    after = _look(trained.model, trained, test, f"trained for {recipe.epochs} epochs")
    forms = _fold(trained, after, test, folded, source=result.folder.final)
    shown = page(
        [before, after],
        titles=["before training", "after training"],
        heading=f"{MODEL} with {ATTENTION} on digits: trained, measured, folded",
        fold=forms,
    )
    made = zip(MADE, (before.to_json(), after.to_json(), shown), strict=True)
    atomic_write_all({out / name: content for name, content in made})
    console = Console()
    console.print(after)
    console.print(
        f"TNS went from {number(before.tns)} to {number(after.tns)}, "
        f"accuracy from {before.accuracy:.1%} to {after.accuracy:.1%}.\n"
        f"{plain(saving(forms))}\n"
        f"Measure it again: {_measure(result.folder.final)}\n"
        f"Or folded:        {_measure(folded)}\n"
        f"The report: {out / 'report.html'}",
        markup=False,
        highlight=False,
        soft_wrap=True,
    )


def _measure(folder: Path) -> str:
    from stiffnet.cli.results import as_argument

    return shlex.join(["stiffnet", "measure", as_argument(folder), "--data", "digits"])


def _look(
    model: "nn.Module", trained: "LoadedModel", test: "ImageSet", weights: str, form: str = "train"
) -> "StiffnessReport":
    """Measure a form of the network on the test images."""
    from stiffnet.observe.measure import measure

    facts = {"model": MODEL, "attention": ATTENTION, "data": test.name, "command": COMMAND}
    with progress(f"measuring, {weights}", len(test)) as advance:
        return measure(
            model,
            test.batches(trained.preparation, batch_size=120),
            classes=test.classes,
            facts={**facts, "form": form, "weights": weights},
            on_batch=advance,
        )


def _fold(
    trained: "LoadedModel", after: "StiffnessReport", test: "ImageSet", out: Path, *, source: Path
) -> "FoldView":
    """Write the folded network, and run it as it was written, beside the trained and the fused."""
    from stiffnet.fold.cost import costs
    from stiffnet.fold.fold import fold
    from stiffnet.network.folded_folder import write_folded
    from stiffnet.network.open import open_model
    from stiffnet.report.folded import FoldView, Form

    [(images, _)] = test.batches(trained.preparation, batch_size=TIMED, limit=TIMED)
    folded, fused = (fold(trained.model, images, fuse=fuse, passes=0) for fuse in (False, True))
    made_by: dict[str, Fact] = {"folded_by": COMMAND, "source": str(source), "fuse": False}
    write_folded(out, folded.model, folded.report.changes, source=trained, made_by=made_by)
    models = {"folded": open_model(out).model, "fused": fused.model}
    with progress("timing the forms of the network", 1) as advance:
        taken = costs([trained.model, *models.values()], (images,), {}, passes=PASSES)
        advance(1)
    accuracies = [
        after.accuracy,
        *(
            _look(model, trained, test, name, form="folded").accuracy
            for name, model in models.items()
        ),
    ]
    errors = [None, folded.report.scaled_error, fused.report.scaled_error]
    forms = [
        Form(
            name,
            accuracy,
            cost.parameters,
            cost.macs,
            cost.seconds and len(images) / cost.seconds,
            error,
        )
        for name, accuracy, cost, error in zip(
            ("as trained", *models), accuracies, taken, errors, strict=True
        )
    ]
    return FoldView(tuple(forms), tested=len(test), batch=len(images), passes=PASSES)


def _is_demo(path: Path, recipe: "Recipe") -> bool:
    from dataclasses import replace

    from stiffnet.train.recipe_file import build_recipe

    return path.exists() and replace(build_recipe(path), seed=recipe.seed) == recipe
