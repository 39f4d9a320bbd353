"""Measure how constant the attention of a network is: a report, a JSON file and a page."""

from pathlib import Path
from typing import Unpack

from stiffnet.data import open_data, open_labelled
from stiffnet.data.boxes import BoxedImages
from stiffnet.devices import make_fabric
from stiffnet.errors import DataError
from stiffnet.jobs.places import check_places, result_name
from stiffnet.jobs.result_files import Written, write_result
from stiffnet.jobs.subject import Choice, Spec, facts_of, subject_of
from stiffnet.jobs.watching import SILENT, Watcher
from stiffnet.network.loaded import remarks_on
from stiffnet.observe.epochs import stripes_over_epochs
from stiffnet.observe.growth import growth as follow
from stiffnet.observe.stripes import stripes as look
from stiffnet.results.drift import Drift
from stiffnet.results.stripes import StripeReport
from stiffnet.train.run_folder import RunFolder

FILES = ("stripes.json", "stripes.html")
Striped = Written[StripeReport]


def stripes(
    model: Spec,
    data: Spec,
    *,
    limit: int | None = None,
    growth: int = 0,
    batch_size: int = 64,
    device: str = "auto",
    workers: int = 0,
    seed: int = 0,
    out: Spec | None = None,
    command: str = "",
    watcher: Watcher = SILENT,
    **choice: Unpack[Choice],
) -> Striped:
    """Look at the attention of a network, and write ``stripes.json`` and ``stripes.html``.

    Of a run whose attention values were kept, the report also says how they settled.

    Arguments and errors are those of `stiffnet.jobs.measure.measure`. `growth` says for how many
    images to follow noise through the steps too. The folder is ``stripes/MODEL`` if `out` is not
    given.
    """
    folder = Path("stripes", result_name(model)) if out is None else Path(out)
    check_places(folder, *FILES)
    chosen = make_fabric(device=device).device
    subject = subject_of(model)
    images = open_labelled(data) if growth else open_data(data)
    loaded = subject.open(guess=len(images.classes), seed=seed, **choice)
    for text in remarks_on(loaded):
        watcher.note(text)
    network = loaded.model.to(chosen)
    seen = min(limit or len(images), len(images))
    with watcher.progress(f"looking at {loaded.name}", seen + growth) as advance:
        batches = images.batches(
            loaded.preparation, batch_size=batch_size, limit=limit, workers=workers
        )
        facts = facts_of(loaded, data=images.name, command=command)
        report = look(network, batches, facts=facts, on_batch=advance)
        if growth:
            assert not isinstance(images, BoxedImages)  # as `open_labelled` saw to
            [(few, _)] = images.batches(loaded.preparation, batch_size=growth, limit=growth)
            report = report.adding(growth=follow(network, few))
            advance(growth)
    if choice.get("weights") is None and subject.run is not None:
        report = report.adding(drift=_drift(subject.run, watcher))
    heading = f"Attention in {loaded.name} on {images.name}"
    return Striped(report, write_result(folder, FILES, report, watcher, heading=heading))


def _drift(run: RunFolder, watcher: Watcher) -> Drift | None:
    """Return how the values moved, if they were kept, or say why that is left out."""
    try:
        return stripes_over_epochs(run.path) if run.attention.is_dir() else None
    except DataError as error:
        watcher.note(f"how the values moved from epoch to epoch is left out: {error}")
        return None
