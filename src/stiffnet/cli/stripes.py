"""``stiffnet stripes``: how constant the attention of a trained network is."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from stiffnet.cli.devices import Device, check_device
from stiffnet.cli.options import BatchSize, Data, Workers
from stiffnet.cli.progress import note, progress

if TYPE_CHECKING:
    from stiffnet.results.drift import Drift


def stripes(
    source: Annotated[
        str, typer.Argument(metavar="MODEL|RUN", help="A model folder of ours, or a run.")
    ],
    data: Data,
    limit: Annotated[
        int, typer.Option(min=0, help="Look at this many images, evenly chosen; 0 means all.")
    ] = 0,
    growth: Annotated[
        int, typer.Option(min=0, help="Also follow noise through the steps for this many images.")
    ] = 0,
    batch_size: BatchSize = 64,
    device: Annotated[Device, typer.Option(help="Where to compute.")] = Device.auto,
    workers: Workers = 0,
    out: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="For stripes.json and stripes.html; else stripes/MODEL."),
    ] = None,
) -> None:
    """Say how constant attention is over images: a table, a JSON file and a page with pictures.

    Of a run that was trained with `--attention-values`, also how the values settled.
    """
    from stiffnet.cli.fold import places
    from stiffnet.cli.results import check_places, facts_of, file_name, show
    from stiffnet.data import open_data
    from stiffnet.network.model_names import is_model_name
    from stiffnet.network.open import open_model
    from stiffnet.observe.growth import growth as follow
    from stiffnet.observe.stripes import stripes as look
    from stiffnet.results.stripes import page
    from stiffnet.train.ranks import make_fabric
    from stiffnet.train.run_folder import RunFolder

    folder = out or Path("stripes") / file_name(str(Path(source).resolve()))
    check_places(folder, "stripes.json", "stripes.html")
    images = open_data(data)
    named = is_model_name(source) or not Path(source).exists()
    loaded = open_model(source if named else places(Path(source))[0])
    check_device(device)
    model = loaded.model.to(make_fabric(device=device.value).device)
    facts = facts_of(loaded, images.name)
    seen = min(limit or len(images), len(images))
    with progress(f"looking at {loaded.name}", seen + growth) as advance:
        batches = images.batches(
            loaded.preparation, batch_size=batch_size, limit=limit or None, workers=workers
        )
        report = look(model, batches, facts=facts, on_batch=advance)
        if growth:
            [(few, _)] = images.batches(loaded.preparation, batch_size=growth, limit=growth)
            report = report.adding(growth=follow(model, few))
            advance(growth)
    if not named and RunFolder(Path(source)).attention.is_dir():
        report = report.adding(drift=_drift(source))
    heading = f"Attention in {loaded.name} on {images.name}"
    show(
        report,
        folder,
        {"stripes.json": report.to_json(), "stripes.html": page(report, heading=heading)},
    )


def _drift(run: str) -> "Drift | None":
    """Return how the values of a run moved, or say why that is left out."""
    from stiffnet.errors import DataError
    from stiffnet.observe.epochs import stripes_over_epochs

    try:
        return stripes_over_epochs(run)
    except DataError as error:
        note(f"how the values moved from epoch to epoch is left out: {error}")
        return None
