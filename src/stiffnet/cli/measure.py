"""``stiffnet measure``: the stiffness of any network on any images."""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from stiffnet.cli.devices import Device, check_device
from stiffnet.cli.options import BatchSize, Classes, Data, Workers
from stiffnet.cli.progress import note, progress

if TYPE_CHECKING:
    from torch import Tensor

    from stiffnet.data.classes import ClassNames
    from stiffnet.data.folder import ImageFolder
    from stiffnet.data.images import ImageSet
    from stiffnet.network.classes import Judging
    from stiffnet.network.loaded import LoadedModel


def measure(
    model: Annotated[
        str, typer.Argument(metavar="MODEL", help="A timm name, torchvision:NAME, or our folder.")
    ],
    data: Data,
    weights: Annotated[
        str,
        typer.Option(metavar="F", help="'pretrained', a .safetensors or a .pth. Random if none."),
    ] = "",
    attention: Annotated[
        str, typer.Option(metavar="A", help="A module for every step; our folder knows its own.")
    ] = "",
    limit: Annotated[
        int, typer.Option(min=0, help="Measure this many images, evenly chosen; 0 means all.")
    ] = 0,
    batch_size: BatchSize = 64,
    num_classes: Annotated[
        int,
        typer.Option(
            min=0,
            max=1_000_000,
            help="Outputs of the network; 0 means as it, `--classes` or the data have.",
        ),
    ] = 0,
    classes: Classes = "",
    device: Annotated[Device, typer.Option(help="Where to compute.")] = Device.auto,
    workers: Workers = 0,
    seed: Annotated[int, typer.Option(min=0, max=2**63 - 1, help="Of random weights.")] = 0,
    out: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="For report.json and report.html; else stiffness/MODEL."),
    ] = None,
) -> None:
    """Say how stiff every residual step of a network is: a table, a JSON file and a page.

    There are a loss and an accuracy where it is known what the network's outputs stand for: in our
    folders, with the published ImageNet weights of timm and torchvision, and with --classes. The
    data's classes are then found among them by name, WordNet number or, for ImageNet, number.
    """
    from stiffnet.cli.results import check_places, facts_of, file_name, show
    from stiffnet.data import open_data
    from stiffnet.data.images import part_of
    from stiffnet.observe.measure import measure as run
    from stiffnet.results.stiffness import page
    from stiffnet.train.ranks import make_fabric

    folder = out or Path("stiffness") / file_name(model)
    check_places(folder, "report.json", "report.html")
    images = open_data(data)
    said = _said(classes)
    loaded = _open(model, weights, attention, num_classes, said, images, seed)
    check_device(device)
    fabric = make_fabric(device=device.value)
    network = loaded.model.to(fabric.device)
    judged = _judging(loaded, images, said)
    batches = images.batches(
        loaded.preparation, batch_size=batch_size, limit=limit or None, workers=workers
    )
    mine = part_of(batches, fabric.global_rank, fabric.world_size)
    facts = facts_of(loaded, images.name) | {"classes": judged.told}
    with progress(f"measuring {loaded.name}", min(limit or len(images), len(images))) as advance:
        report = run(
            network,
            mine if judged.outputs is None else _renumbered(mine, judged.outputs),
            judge=judged.outputs is not None,
            classes=judged.names,
            facts=facts,
            on_batch=advance,
        )
    if fabric.is_global_zero:
        show(report, folder, {"report.json": report.to_json(), "report.html": page([report])})


def _said(classes: str) -> "ClassNames | str | None":
    """Read what the user says of the network's outputs."""
    from stiffnet.data.class_file import read_classes
    from stiffnet.network.classes import DATA, IMAGENET, imagenet

    if classes == IMAGENET:
        return imagenet()
    return read_classes(classes) if classes not in ("", DATA) else classes or None


def _open(
    model: str,
    weights: str,
    attention: str,
    num_classes: int,
    said: "ClassNames | str | None",
    images: "ImageSet | ImageFolder",
    seed: int,
) -> "LoadedModel":
    """Open the network, with as many classes as the data where nothing else decides."""
    from stiffnet.network.model_names import is_model_name
    from stiffnet.network.open import open_model
    from stiffnet.network.pretrained import PRETRAINED

    outputs: int | None = num_classes or None
    if outputs is None and weights != PRETRAINED and is_model_name(model):
        outputs = len(images.classes) if said is None or isinstance(said, str) else len(said)
    return open_model(
        model,
        weights=weights or None,
        num_classes=outputs,
        attention=attention or None,
        seed=seed,
    )


def _judging(
    loaded: "LoadedModel", images: "ImageSet | ImageFolder", said: "ClassNames | str | None"
) -> "Judging":
    """Decide which outputs stand for the labels, from a pass of one image; say what is unusual."""
    from stiffnet.data.folder import ImageFolder
    from stiffnet.network.classes import judging
    from stiffnet.observe.measure import logit_width

    (first, _) = next(iter(images.batches(loaded.preparation, batch_size=1, limit=1)))
    judged = judging(
        loaded,
        images.classes,
        logit_width(loaded.model, first),
        said=said,
        folders=isinstance(images, ImageFolder),
    )
    if judged.remarkable:
        note(judged.told)
    return judged


def _renumbered(
    batches: Iterable[tuple["Tensor", "Tensor"]], outputs: Sequence[int]
) -> Iterator[tuple["Tensor", "Tensor"]]:
    """Give each image the number of its class's output for a label."""
    from torch import tensor

    table = tensor(outputs)
    for images, labels in batches:
        yield images, table[labels]
