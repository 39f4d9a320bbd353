"""Measure how stiff a network is on images or sentences: a report, a JSON file and a page."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Unpack

from lightning_fabric import Fabric

from stiffnet.data import Data, open_data
from stiffnet.data.images import Preparation
from stiffnet.data.order import part_of
from stiffnet.data.sentences import read_sentences
from stiffnet.devices import make_fabric
from stiffnet.errors import DataError
from stiffnet.jobs.labels import judging_of, remarks_on_images, renumbered, said_number, said_of
from stiffnet.jobs.places import check_places, result_name
from stiffnet.jobs.result_files import Written, write_result
from stiffnet.jobs.subject import Choice, Spec, facts_of, subject_of
from stiffnet.jobs.watching import SILENT, Watcher
from stiffnet.network.attention_text import attach_text
from stiffnet.network.loaded import remarks_on
from stiffnet.network.text_model import is_text_model, open_text_model
from stiffnet.observe.measure import KEEP, measure as look
from stiffnet.results.stiffness import StiffnessReport
from stiffnet.trajectory.batch import on_device

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
    setting = Setting(fabric, classes, limit, batch_size, workers, seed, command)
    if isinstance(model, str) and is_text_model(model):
        report = _report_on_text(model, data, setting, watcher, **choice)
    else:
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


def _report_on_text(
    model: str, data: Spec, setting: Setting, watcher: Watcher, **choice: Unpack[Choice]
) -> StiffnessReport:
    """Measure a network of transformers on padded batches of sentences; padding is left out."""
    attention = choice.pop("attention", None)
    for name, value in {"classes": setting.classes, **choice}.items():
        if value:
            raise DataError(
                f"`{name}` means nothing for {model}, which is measured on sentences with its own "
                "weights. Leave it out."
            )
    sentences = read_sentences(data, setting.limit)
    opened = open_text_model(model)
    fabric = setting.fabric
    network = opened.model.to(fabric.device)
    if cut := opened.too_long(sentences):
        watcher.note(
            f"{cut} of {len(sentences)} sentences have more than the {opened.longest} tokens that "
            f"{opened.name} takes, and are cut."
        )
    if attention:
        example = on_device(opened.batch(sentences[:2]), network)
        attach_text(network, attention, start="identity", example=example)
    said = {"attention": attention, "command": setting.command}
    facts = {"model": opened.name, "weights": model, "data": str(data), "samples": "sentences"}
    facts |= {key: value for key, value in said.items() if value}
    rank, ranks = fabric.global_rank, fabric.world_size
    first, last = (len(sentences) * number // ranks for number in (rank, rank + 1))
    batches = opened.batches(sentences[first:last], setting.batch_size)
    with watcher.progress(f"measuring {opened.name}", len(sentences)) as advance:
        return look(network, batches, facts=facts, on_batch=advance)


def _input(prepared: Preparation) -> str:
    """Say how a network wants its images."""
    size = "×".join(map(str, prepared.input_size))
    mean, deviation = (
        ", ".join(f"{value:.4g}" for value in values) for values in (prepared.mean, prepared.std)
    )
    return f"{size}, mean {mean}, standard deviation {deviation}"
