"""``stiffnet measure``: the stiffness of any network on any images."""

from pathlib import Path
from typing import Annotated

from stiffnet.cli import options
from stiffnet.cli.terminal import Terminal, command_line


def measure(
    model: options.Model,
    data: options.Data,
    weights: options.Weights = "",
    weights_key: options.WeightsKey = "",
    attention: options.Attention = "",
    limit: options.Limit = 0,
    batch_size: options.BatchSize = 64,
    num_classes: options.NumClasses = 0,
    classes: options.Classes = "",
    device: options.Where = "auto",
    workers: options.Workers = 0,
    seed: options.Seed = 0,
    out: Annotated[
        Path | None,
        options.text("DIR", "Folder for report.json and report.html. By default stiffness/MODEL."),
    ] = None,
) -> None:
    """Measure how stiff each residual step of a network is.

    Prints a table, and writes a JSON file and an HTML page.

    The report has a loss and an accuracy if it is known what the network's outputs stand for: for
    a run or a model folder, for the published ImageNet weights of timm and torchvision, and with
    --classes. The data's classes are matched to the outputs by name, by WordNet number or, for
    ImageNet, by number.
    """
    from stiffnet.jobs.measure import measure as job

    measured = job(
        model,
        data,
        weights=weights or None,
        weights_key=weights_key,
        attention=attention or None,
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
    if measured.files:
        print(f"Written: {' and '.join(map(str, measured.files))}")
