"""Find the eigenvalues behind a network's stiffness on images: a report, JSON files and a page."""

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Unpack

from torch import Tensor

from stiffnet.data import open_labelled
from stiffnet.data.fingerprint import fingerprint
from stiffnet.data.folder import ImageFolder
from stiffnet.data.images import ImageSet
from stiffnet.data.order import part_of
from stiffnet.devices import make_fabric
from stiffnet.errors import StepError
from stiffnet.jobs.labels import judging_of, renumbered, said_number, said_of
from stiffnet.jobs.places import check_places, result_name
from stiffnet.jobs.result_files import Written, write_result
from stiffnet.jobs.spectrum_parts import Parts, weights_digest
from stiffnet.jobs.subject import Choice, Spec, facts_of, subject_of
from stiffnet.jobs.watching import SILENT, Watcher
from stiffnet.network.loaded import LoadedModel, remarks_on
from stiffnet.observe.spectrum import Of, spectra as look, step_called
from stiffnet.results.spectra import SpectrumReport
from stiffnet.stiffness.spectrum import METHODS, Method, Plan
from stiffnet.trajectory.steps import Step, steps as find_steps
from stiffnet.words import duration

FILES = ("spectrum.json", "spectrum.html")
PARTS = "parts"
IMAGES = 8
GIB = 8  # that matrices may take
Spectra = Written[SpectrumReport]
LONG = 10.0  # seconds for one spectrum from which the user is told beforehand


def spectrum(
    model: Spec,
    data: Spec,
    *,
    steps: Sequence[str] = (),
    of: Of = "branch",
    method: Method = "auto",
    images: int | None = IMAGES,
    cap: int = GIB,
    resume: bool = False,
    classes: str = "",
    seed: int = 0,
    out: Spec | None = None,
    command: str = "",
    watcher: Watcher = SILENT,
    **choice: Unpack[Choice],
) -> Spectra:
    """Find spectra of a network on images, and write ``spectrum.json`` and ``spectrum.html``.

    It computes on the CPU in float64, whatever the weights are. Every spectrum is kept in ``parts``
    as it is found, so that nothing is lost if the job is stopped. Under torchrun the images are
    shared out, and all ranks get the same report.

    The arguments are those of `stiffnet.jobs.measure.measure`, with `images` for its `limit`, and:
    `steps`, names of steps, none for all of them; `of` and `method`, as for `stiffnet.spectrum`;
    `cap`, GiB that matrices may take; `resume`, to take the spectra that are there and compute the
    others. The folder is ``spectrum/MODEL`` if `out` is not given.

    Raises:
        StiffnetError: One of its kinds, if anything given cannot be used, or the folder holds
            spectra of other work.
    """
    if method not in METHODS:
        raise StepError(f"`method` is {method!r}. Give one of {', '.join(METHODS)}.")
    for name, value in (("images", images), ("cap", cap)):
        if value is not None and value < 1:
            raise StepError(f"`{name}` is {value}. Give 1 or more.")
    folder = Path("spectrum", result_name(model)) if out is None else Path(out)
    check_places(folder, *FILES)
    fabric = make_fabric(device="cpu")
    watcher = watcher if fabric.is_global_zero else SILENT
    subject = subject_of(model)
    source = open_labelled(data)
    said = said_of(classes)
    loaded = subject.open(guess=said_number(said, source), seed=seed, **choice)
    judged = judging_of(loaded, source, said)
    for text in (*([judged.told] if judged.remarkable else []), *remarks_on(loaded)):
        watcher.note(text)
    batches = source.batches(loaded.preparation, batch_size=1, limit=images)
    chosen = _chosen(loaded, next(iter(batches))[0], steps)
    key = _key(loaded, source, of=of, method=method, cap=cap)
    parts = Parts(folder / PARTS, key)
    if resume:
        parts.read(on_damage=watcher.note)
    else:
        parts.refuse_any()
    if fabric.is_global_zero:
        every = [int(number) for few in batches.indices for number in few]
        parts.sweep([step.name for step in chosen], every)
    fabric.barrier()  # nobody writes a part before everybody has seen what was there
    mine = part_of(batches, fabric.global_rank, fabric.world_size)
    labelled = mine if judged.outputs is None else renumbered(mine, judged.outputs)
    numbers = [int(few[0]) for few in mine.indices]
    with watcher.progress(f"spectra of {loaded.name}", len(mine.indices) * len(chosen)) as advance:
        report = look(
            loaded.model,
            ((number, *pair) for number, pair in zip(numbers, labelled, strict=True)),
            chosen,
            of=of,
            method=method,
            cap=cap << 30,
            classes=judged.names,
            judge=judged.outputs is not None,
            facts=facts_of(loaded, data=source.name, command=command) | {"classes": judged.told},
            store=parts,
            on_plan=_telling(watcher),
            on_spectrum=lambda: advance(1),
        )
    heading, first = f"Eigenvalues of {loaded.name} on {source.name}", fabric.is_global_zero
    files = write_result(folder, FILES, report, watcher, heading=heading, first=first)
    return Spectra(report, files)


def _chosen(loaded: LoadedModel, image: Tensor, names: Sequence[str]) -> list[Step]:
    """Return the steps of these names, or all, in the order in which they run."""
    there = find_steps(loaded.model, image)
    wanted = {step_called(name, there, of=loaded.name).name for name in names}
    return [step for step in there if step.name in wanted or not names]


def _key(
    loaded: LoadedModel, source: ImageSet | ImageFolder, *, of: str, method: str, cap: int
) -> dict[str, str]:
    """Return what a spectrum depends on beside its step and image."""
    marks = ", ".join(f"{name} {mark}" for name, mark in fingerprint(source).items())
    # With `auto` it is the cap that decides which method is taken.
    asked = f"auto up to {cap} GiB" if method == "auto" else method
    return {
        "network": f"{loaded.name}, {loaded.form}, {json.dumps(dict(loaded.options), default=str)}",
        "digest of the weights": weights_digest(loaded.model),
        "data": source.name,
        "fingerprint of the data": marks,
        "part": of,
        "method asked for": asked,
        "preparation": json.dumps(asdict(loaded.preparation)),
    }


def _telling(watcher: Watcher) -> Callable[[str, Plan], None]:
    """Return a function that tells, once for each step, of work that will take long."""
    told: set[str] = set()

    def tell(step: str, plan: Plan) -> None:
        if step in told or plan.seconds is None or plan.seconds < LONG:
            return
        told.add(step)
        size = f"n = {plan.size:,}"
        if plan.method == "reduced":
            size += f", reduced to k = {plan.inner:,} behind {plan.cut}"
        watcher.note(
            f"{step}: {size}; about {plan.bytes / 2**30:.2g} GiB and {duration(plan.seconds)} for "
            "each image."
        )

    return tell
