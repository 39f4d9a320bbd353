"""Measure how stiff a network is on images: a report, a JSON file and a page."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Unpack

from lightning_fabric import Fabric

from stiffnet.data import Data, open_data
from stiffnet.data.images import Preparation
from stiffnet.data.order import part_of
from stiffnet.devices import make_fabric
from stiffnet.jobs.labels import judging_of, remarks_on_images, renumbered, said_number, said_of
from stiffnet.jobs.measure_text import measure_text
from stiffnet.jobs.places import check_places, result_name
from stiffnet.jobs.result_files import Written, write_result
from stiffnet.jobs.subject import Choice, Spec, facts_of, subject_of
from stiffnet.jobs.watching import SILENT, Watcher
from stiffnet.network.loaded import remarks_on
from stiffnet.network.text_model import is_text_model
from stiffnet.observe.measure import KEEP, measure as look
from stiffnet.results.stiffness import StiffnessReport

FILES = ("report.json", "report.html")
Measured = Written[StiffnessReport]


def measure(
    model: Spec,
    data: Spec,
    *,
    classes: str = "",
    limit: int | None = None,
    batch_size: int = 64,
    device: str = "auto",
    workers: int = 0,
    seed: int = 0,
    out: Spec | None = None,
    command: str = "",
    watcher: Watcher = SILENT,
    **choice: Unpack[Choice],
) -> Measured:
    """Measure a network on labelled images, and write ``report.json`` and ``report.html``.

    Under torchrun each rank measures its part of the images, and all get the same report.

    Args:
        model: A timm name, ``torchvision:NAME``, a run, a model folder of ours, timm's or
            transformers', or ``hf-hub:ORG/NAME``; or ``hf:NAME|FOLDER``, a network of transformers
            with its tokenizer, for a text file as `data`.
        data: ``digits``, ``cifar10:DIR``, a folder of class folders, for a detector ``coco:DIR``,
            or another of `open_data`.
        classes: What the outputs stand for, where the network does not know: a file of class
            names, ``"imagenet"``, or ``"data"`` for the data's classes in order.
        limit: Measure this many images, evenly chosen; None for all.
        batch_size: Images at a time.
        device: ``auto``, ``cpu``, ``cuda`` or ``mps``.
        workers: Processes that decode image files.
        seed: Random seed for weights that were not given.
        out: Folder for the files; None for ``stiffness/MODEL``.
        command: What the user typed, for the record.
        watcher: Whoever follows the job.
        **choice: Weights, attention and number of outputs of the network; see `Choice`.

    Raises:
        StiffnetError: One of its kinds, if anything given cannot be used; nothing is written then.
    """
    folder = Path("stiffness", result_name(model)) if out is None else Path(out)
    check_places(folder, *FILES)
    fabric = make_fabric(device=device)
    watcher = watcher if fabric.is_global_zero else SILENT
    if isinstance(model, str) and is_text_model(model):
        report = measure_text(
            model, data, limit=limit, batch_size=batch_size, device=device, command=command,
            watcher=watcher, classes=classes, **choice,
        )  # fmt: skip
    else:
        setting = Setting(fabric, classes, limit, batch_size, workers, seed, command)
        report = report_on(model, open_data(data), setting, watcher=watcher, **choice)
    first = fabric.is_global_zero
    return Measured(report, write_result(folder, FILES, report, watcher, first=first))


@dataclass(frozen=True)
class Setting:
    """What does not depend on the network that is measured; see `measure`."""

    fabric: Fabric
    classes: str
    limit: int | None
    batch_size: int
    workers: int
    seed: int
    command: str


def report_on(
    model: Spec,
    images: Data,
    setting: Setting,
    *,
    keep: int = KEEP,
    watcher: Watcher,
    **choice: Unpack[Choice],
) -> StiffnessReport:
    """Open a network, and measure it on images that are prepared as it wants them."""
    said = said_of(setting.classes)
    guess = said_number(said, images)
    loaded = subject_of(model).open(guess=guess, seed=setting.seed, **choice)
    fabric = setting.fabric
    network = loaded.model.to(fabric.device)
    judged = judging_of(loaded, images, said)
    told = [judged.told] if judged.remarkable else []
    folded = [f"{model} was folded. {loaded.made_by['notes']}"] if "notes" in loaded.made_by else []
    for text in (*told, *remarks_on(loaded), *remarks_on_images(images), *folded):
        watcher.note(text)
    batches = images.batches(
        loaded.preparation,
        batch_size=setting.batch_size,
        limit=setting.limit,
        workers=setting.workers,
    )
    mine = part_of(batches, fabric.global_rank, fabric.world_size)
    total = min(setting.limit or len(images), len(images))
    facts = facts_of(loaded, data=images.name, command=setting.command)
    facts["input"] = _input(loaded.preparation)
    with watcher.progress(f"measuring {loaded.name}", total) as advance:
        report = look(
            network,
            mine if judged.outputs is None else renumbered(mine, judged.outputs),
            keep=keep,
            judge=judged.outputs is not None,
            classes=judged.names,
            facts=facts | {"classes": judged.told},
            on_batch=advance,
        )
    return replace(report, notes=(*report.notes, *folded))


def _input(prepared: Preparation) -> str:
    """Say how a network wants its images."""
    size = "×".join(map(str, prepared.input_size))
    mean, deviation = (
        ", ".join(f"{value:.4g}" for value in values) for values in (prepared.mean, prepared.std)
    )
    return f"{size}, mean {mean}, standard deviation {deviation}"
