"""``stiffnet compare``: two or more networks on the same images."""

from pathlib import Path
from typing import Annotated

from stiffnet.cli import options
from stiffnet.cli.terminal import Terminal, command_line


def compare(
    models: Annotated[
        list[str],
        options.argument(
            "MODEL MODEL",
            "Two or more networks: timm names, torchvision:NAME, run or model folders. The "
            "others are compared with the first.",
        ),
    ],
    data: options.Data,
    weights: Annotated[
        list[str],
        options.text(
            "FILE|pretrained",
            "As for measure. Given once, for all networks that are built from a name; or "
            "once for each network, with none where it does not apply.",
        ),
    ] = [],  # noqa: B006  # typer copies it
    weights_key: Annotated[
        list[str],
        options.text(
            "KEY",
            "Which weights of a checkpoint with several, e.g. state_dict_ema, given as "
            "--weights is.",
        ),
    ] = [],  # noqa: B006  # typer copies it
    attention: Annotated[
        list[str],
        options.text(
            "NAME", "Attention module on every step of a named network, given as --weights is."
        ),
    ] = [],  # noqa: B006  # typer copies it
    limit: options.Limit = 0,
    batch_size: options.BatchSize = 64,
    num_classes: options.NumClasses = 0,
    classes: options.Classes = "",
    device: options.Where = "auto",
    workers: options.Workers = 0,
    seed: options.Seed = 0,
    out: Annotated[
        Path | None,
        options.text(
            "DIR",
            "Folder for comparison.json and comparison.html. By default comparison/FIRST-SECOND.",
        ),
    ] = None,
) -> None:
    """Compare networks on the same images, step by step.

    Every network is measured on the same images, each prepared as that network wants them. The
    values are paired image by image, so that small differences show. Steps are compared where
    the networks have the same number of them in every stage; other networks are compared by TNS,
    accuracy, loss and the shares of their stages.
    """
    from stiffnet.jobs.compare import compare as job

    compared = job(
        models,
        data,
        weights=weights,
        weights_key=weights_key,
        attention=attention,
        num_classes=num_classes or None,
        classes=classes,
        limit=limit or None,
        batch_size=batch_size,
        device=device,
        workers=workers,
        seed=seed,
        out=out,
        command=command_line(),
        watcher=Terminal(),
    )
    if compared.files:
        print(f"Written: {' and '.join(map(str, compared.files))}")
