"""``stiffnet stripes``: how constant the attention of a trained network is."""

from pathlib import Path
from typing import Annotated

from stiffnet.cli.options import (
    Attention,
    BatchSize,
    Data,
    Device,
    Limit,
    Model,
    NumClasses,
    Seed,
    Weights,
    WeightsKey,
    Where,
    Workers,
    number,
    text,
)
from stiffnet.cli.terminal import Terminal, command_line


def stripes(
    model: Model,
    data: Data,
    weights: Weights = "",
    weights_key: WeightsKey = "",
    attention: Attention = "",
    limit: Limit = 0,
    growth: Annotated[
        int, number("Also follow noise through the steps, for this many images.")
    ] = 0,
    batch_size: BatchSize = 64,
    num_classes: NumClasses = 0,
    device: Where = Device.auto,
    workers: Workers = 0,
    seed: Seed = 0,
    out: Annotated[
        Path | None,
        text("DIR", "Folder for stripes.json and stripes.html. By default stripes/MODEL."),
    ] = None,
) -> None:
    """Measure how constant attention is over images.

    Prints a table, and writes a JSON file and an HTML page with pictures. For a run that was
    trained with --attention-values, the page also shows how the values settled.
    """
    from stiffnet.jobs.stripes import stripes as job

    striped = job(
        model,
        data,
        weights=weights or None,
        weights_key=weights_key,
        attention=attention or None,
        num_classes=num_classes or None,
        limit=limit or None,
        growth=growth,
        batch_size=batch_size,
        device=device.value,
        workers=workers,
        seed=seed,
        out=out,
        command=command_line(),
        watcher=Terminal(),
    )
    print(f"Written: {' and '.join(map(str, striped.files))}")
