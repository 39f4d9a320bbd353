"""``stiffnet stripes``: how constant the attention of a trained network is."""

from pathlib import Path
from typing import Annotated

from stiffnet.cli import options
from stiffnet.cli.terminal import Terminal, command_line


def stripes(
    model: options.Model,
    data: options.Data,
    weights: options.Weights = "",
    weights_key: options.WeightsKey = "",
    attention: options.Attention = "",
    limit: options.Limit = 0,
    growth: Annotated[
        int, options.number("Also follow noise through the steps, for this many images.")
    ] = 0,
    batch_size: options.BatchSize = 64,
    num_classes: options.NumClasses = 0,
    device: options.Where = "auto",
    workers: options.Workers = 0,
    seed: options.Seed = 0,
    out: Annotated[
        Path | None,
        options.text("DIR", "Folder for stripes.json and stripes.html. By default stripes/MODEL."),
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
        device=device,
        workers=workers,
        seed=seed,
        out=out,
        command=command_line(),
        watcher=Terminal(),
    )
    print(f"Written: {' and '.join(map(str, striped.files))}")
