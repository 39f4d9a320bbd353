"""``stiffnet gradcam``: where on the image a network finds its evidence, on average."""

from pathlib import Path
from typing import Annotated, Literal

from stiffnet.cli import options
from stiffnet.cli.terminal import Terminal, command_line

Target = Literal["predicted", "label"]


def gradcam(
    model: options.Model,
    data: options.Data,
    weights: options.Weights = "",
    weights_key: options.WeightsKey = "",
    attention: options.Attention = "",
    images: Annotated[int, options.number("Use this many images, evenly chosen.", least=1)] = 500,
    layer: Annotated[
        str,
        options.text("NAME", "Module whose feature map is used. By default the last one of all."),
    ] = "",
    target: Annotated[
        Target,
        options.choice(Target, "Class whose evidence is shown. For noise, the predicted one."),
    ] = "predicted",
    batch_size: options.BatchSize = 32,
    num_classes: options.NumClasses = 0,
    classes: options.Classes = "",
    device: options.Where = "auto",
    workers: options.Workers = 0,
    seed: options.Seed = 0,
    out: Annotated[
        Path | None,
        options.text("DIR", "Folder for gradcam.json and gradcam.html. By default gradcam/MODEL."),
    ] = None,
) -> None:
    """Average the Grad-CAM of a network over images.

    Says how much of the mean map lies in the central quarter of the image, overall and by class,
    against the same for noise and for images that are shifted by a quarter of their width. Prints a
    table, and writes a JSON file and an HTML page with the mean maps.

    Needs pytorch-grad-cam: pip install 'stiffnet[gradcam]'.
    """
    from stiffnet.jobs.gradcam import gradcam as job

    explained = job(
        model,
        data,
        weights=weights or None,
        weights_key=weights_key,
        attention=attention or None,
        num_classes=num_classes or None,
        classes=classes,
        images=images,
        layer=layer,
        target=target,
        batch_size=batch_size,
        device=device,
        workers=workers,
        seed=seed,
        out=out,
        command=command_line(),
        watcher=Terminal(),
    )
    print(f"Written: {' and '.join(map(str, explained.files))}")
