"""``stiffnet measure``: the stiffness of any network on any images."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from stiffnet.cli.devices import Device, check_device
from stiffnet.cli.options import BatchSize, Data, Workers
from stiffnet.cli.progress import note, progress

if TYPE_CHECKING:
    from stiffnet.data.folder import ImageFolder
    from stiffnet.data.images import ImageSet
    from stiffnet.network.load import LoadedModel


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
            min=0, max=1_000_000, help="Outputs of the network; 0 means as it or the data have."
        ),
    ] = 0,
    device: Annotated[Device, typer.Option(help="Where to compute.")] = Device.auto,
    workers: Workers = 0,
    seed: Annotated[int, typer.Option(min=0, max=2**63 - 1, help="Of random weights.")] = 0,
    out: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="For report.json and report.html; else stiffness/MODEL."),
    ] = None,
) -> None:
    """Say how stiff every residual step of a network is: a table, a JSON file and a page."""
    from stiffnet.cli.results import check_places, facts_of, file_name, show
    from stiffnet.data import open_data
    from stiffnet.data.images import part_of
    from stiffnet.measure import measure as run
    from stiffnet.report.stiffness import page
    from stiffnet.train.ranks import make_fabric

    folder = out or Path("stiffness") / file_name(model)
    check_places(folder, "report.json", "report.html")
    images = open_data(data)
    loaded = _open(model, weights, attention, num_classes, images, seed)
    check_device(device)
    fabric = make_fabric(device=device.value)
    judge = _comparable(loaded, images)
    batches = images.batches(
        loaded.preparation, batch_size=batch_size, limit=limit or None, workers=workers
    )
    facts = facts_of(loaded, images.name)
    with progress(f"measuring {loaded.name}", min(limit or len(images), len(images))) as advance:
        report = run(
            loaded.model.to(fabric.device),
            part_of(batches, fabric.global_rank, fabric.world_size),
            judge=judge,
            classes=images.classes,
            facts=facts,
            on_batch=advance,
        )
    if fabric.is_global_zero:
        show(report, folder, {"report.json": report.to_json(), "report.html": page([report])})


def _open(
    model: str,
    weights: str,
    attention: str,
    num_classes: int,
    images: "ImageSet | ImageFolder",
    seed: int,
) -> "LoadedModel":
    """Open the network, with as many classes as the data where nothing else decides."""
    from stiffnet.network.load import PRETRAINED, is_model_name, open_model

    classes: int | None = num_classes or None
    if classes is None and weights != PRETRAINED and is_model_name(model):
        classes = len(images.classes)
    return open_model(
        model,
        weights=weights or None,
        num_classes=classes,
        attention=attention or None,
        seed=seed,
    )


def _comparable(loaded: "LoadedModel", images: "ImageSet | ImageFolder") -> bool:
    """Whether the labels are the network's classes; says so if they are not."""
    outputs = getattr(loaded.model, "num_classes", len(images.classes))
    if loaded.classes and tuple(loaded.classes) != tuple(images.classes):
        note(
            f"the network knows the classes {_few(loaded.classes)}, the data have "
            f"{_few(images.classes)}; loss and accuracy are left out."
        )
        return False
    if outputs != len(images.classes):
        note(
            f"the network has {outputs} classes and the data {len(images.classes)}; "
            "loss and accuracy are left out."
        )
        return False
    return True


def _few(names: tuple[str, ...]) -> str:
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
