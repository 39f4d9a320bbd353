"""``stiffnet train``: train a network by a recipe, and continue a run that was stopped."""

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from stiffnet.cli.options import (
    Settings,
    Weights,
    WeightsKey,
    Where,
    Workers,
    argument,
    choice,
    flag,
    number,
    pairs,
    text,
)
from stiffnet.cli.terminal import Terminal, command_line, measuring

if TYPE_CHECKING:
    from stiffnet.jobs.train import Trained


Strategy = Literal["auto", "ddp", "fsdp"]


def train(
    model: Annotated[
        str,
        argument(
            "MODEL",
            "A timm name, torchvision:NAME, hf-hub:ORG/NAME, a run or a model folder; "
            "fasterrcnn:NAME for a detector; style:in, style:bn or style:bn+asr to restyle "
            "photographs.",
        ),
    ] = "",
    data: Annotated[
        str,
        text(
            "DATA",
            "digits, cifar10:DIR, a folder with train/ and val/, or coco:DIR for a detector.",
        ),
    ] = "",
    recipe: Annotated[
        str, text("NAME|FILE", "A name from `stiffnet list recipes`, or a file.")
    ] = "",
    weights: Weights = "",
    weights_key: WeightsKey = "",
    attention: Annotated[
        str, text("NAME", "Attention module for every step, e.g. se or se,reduction=8.")
    ] = "",
    seed: Annotated[
        int | None,
        number("Random seed for the weights, the order of the images and their augmentation."),
    ] = None,
    settings: Settings = [],  # noqa: B006  # typer copies it
    style: Annotated[
        str, text("PICTURE", "Style to learn: a picture file, china or flower. For style:NAME.")
    ] = "",
    loss_weights: Annotated[
        str,
        text(
            "FILE|random",
            "VGG16 weights in torchvision's names, which judge restyled photographs; random: a "
            "small network, for trials.",
        ),
    ] = "",
    out: Annotated[
        Path | None, text("DIR", "Folder of the run. By default runs/MODEL-FINGERPRINT.")
    ] = None,
    resume: Annotated[bool, flag("--resume", "Continue the run in DIR.")] = False,
    again: Annotated[bool, flag("--again", "Delete the run in DIR and start over.")] = False,
    device: Where = "auto",
    devices: Annotated[
        int, number("Number of devices on this machine. Ignored under torchrun.", least=1)
    ] = 1,
    nodes: Annotated[int, number("Number of machines. Ignored under torchrun.", least=1)] = 1,
    strategy: Annotated[
        Strategy, choice(Strategy, "How processes share the work: whole networks or shards.")
    ] = "auto",
    workers: Workers = 0,
    save_every: Annotated[int, number("Steps between checkpoints; 0: only after each epoch.")] = 0,
    tns: Annotated[int, number("Measure TNS on this many test images after each epoch.")] = 0,
    attention_values: Annotated[
        int, number("Store the attention values of this many test images after each epoch.")
    ] = 0,
    skip_bad_images: Annotated[
        bool, flag("--skip-bad-images", "Leave out image files that cannot be read.")
    ] = False,
    tracker: Annotated[
        list[str], text("NAME", "Also log to tensorboard or trackio. Can be given several times.")
    ] = [],  # noqa: B006  # typer copies it
) -> None:
    """Train a network by a recipe.

    A run that was stopped or killed continues with --resume, as if nothing had happened.
    """
    from stiffnet.jobs.train import train as job
    from stiffnet.train.ranks import leave_together
    from stiffnet.train.run import Machinery

    trained = job(
        model or None,
        data or None,
        recipe=recipe or None,
        settings=pairs(settings),
        weights=weights or None,
        weights_key=weights_key or None,
        attention=attention or None,
        seed=seed,
        skip_bad_images=skip_bad_images,
        style=style or None,
        loss_weights=loss_weights or None,
        out=out,
        resume=resume,
        again=again,
        machinery=Machinery(
            device=device,
            devices=devices,
            nodes=nodes,
            strategy=strategy,
            workers=workers,
            save_every=save_every,
            tns=tns,
            attention_values=attention_values,
        ),
        trackers=tracker,
        command=command_line(),
        watcher=Terminal(),
    )
    if trained.result.rank == 0:
        print(_told(trained))
    leave_together()


def _told(trained: "Trained") -> str:
    from stiffnet.jobs.subject import as_argument
    from stiffnet.network.attention_text import split_attention

    result, recipe = trained.result, trained.recipe
    _, constant = split_attention(recipe.attention)
    run = as_argument(result.folder.path)
    measure = measuring(result.folder.final, result.task.data(recipe.data))
    use = f"Use it:      {shlex.join(['stiffnet', 'restyle', run])} PICTURE... --out DIR\n"
    fold = f"Fold it:     {shlex.join(['stiffnet', 'fold', run])}\n"
    return (
        f"{result.conclusion}\n"
        f"The network: {result.folder.final}\n"
        f"{use if recipe.task == 'restyle' else ''}"
        f"Measure it:  {measure}\n"
        f"{fold if constant else ''}"
        f"The log:     {result.folder.log}"
    )
