"""Fold a network into the one to deploy: a model folder, and exports beside it."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Unpack

import torch
from torch import Tensor

from stiffnet.data import open_data
from stiffnet.data.boxes import BoxedImages
from stiffnet.errors import ExportError, FoldError, StiffnetError, StorageError
from stiffnet.files import check_replaceable, check_writable
from stiffnet.fold.fold import STAGES, FoldResult, fold as run
from stiffnet.jobs.places import SIGNS, file_name, refuse_strangers
from stiffnet.jobs.subject import Choice, Spec, Subject, facts_of, subject_of
from stiffnet.jobs.watching import SILENT, Watcher
from stiffnet.network.described_folder import TRANSFORMERS
from stiffnet.network.export import (
    ExportReport,
    export_onnx,
    export_program,
    refuse_replacing,
    require_onnx,
)
from stiffnet.network.folded_folder import STRUCTURE, write_folded
from stiffnet.network.loaded import LoadedModel, remarks_on
from stiffnet.network.model_folder import FOLDED, MANIFEST, WEIGHTS, Fact
from stiffnet.network.model_names import is_detector_name, is_model_name
from stiffnet.provenance import provenance
from stiffnet.train.recipe_file import RECIPE, build_recipe
from stiffnet.train.tasks import task_of

RANDOM = 8  # random images that the fold is compared on, beside real ones


@dataclass(frozen=True)
class FoldedNetwork:
    """A folded network, where it was written, and what it was compared on."""

    result: FoldResult
    folder: Path
    exports: tuple[ExportReport, ...]
    random: int
    """Random images that it was compared on."""
    real: int
    """Real images that it was compared on."""


def fold(
    model: Spec,
    *,
    fuse: bool = False,
    onnx: Spec | None = None,
    program: Spec | None = None,
    html: Spec | None = None,
    data: Spec | None = None,
    limit: int = 16,
    out: Spec | None = None,
    command: str = "",
    watcher: Watcher = SILENT,
    **choice: Unpack[Choice],
) -> FoldedNetwork:
    """Fold constant attention and branches into the weights, and write a model folder.

    Args:
        model: A run, a model folder, or the name of a network whose weights are given.
        fuse: Also fuse every norm with the layer before it.
        onnx: ONNX file to write as well.
        program: `torch.export` program to write as well.
        html: Page on the fold to write as well.
        data: Images to compare on; None for those of the run, if there is one.
        limit: Compare on this many of them, evenly chosen.
        out: Folder for the network; None for ``RUN/folded``, ``FOLDER-folded`` or ``folded/NAME``.
        command: What the user typed, for the record.
        watcher: Whoever follows the job.
        **choice: Weights, attention and number of outputs of the network; see `Choice`.

    Raises:
        StiffnetError: One of its kinds, if anything given cannot be used, nothing can be folded,
            or the folded network differs; nothing is written then.
    """
    subject = subject_of(model)
    if subject.named and choice.get("weights") is None and is_model_name(str(model)):
        raise FoldError(
            f"{model} is the name of a network, and its weights would be random. Give them with "
            f"`--weights`, or give a folder, as in `./{model}`."
        )
    folder = _default(subject) if out is None else Path(out)
    files = {
        kind: Path(file)
        for kind, file in (("onnx", onnx), ("program", program), ("html", html))
        if file is not None
    }
    check_writable(folder)
    _refuse_source(folder, subject)
    refuse_strangers(folder)
    if onnx is not None:
        require_onnx()
    _check_files(folder, files)
    loaded = subject.open(**choice)
    if loaded.name.startswith(TRANSFORMERS):
        raise FoldError(
            f"{model} is a network of transformers, which a model folder of ours cannot hold. Fold "
            "it in Python with `stiffnet.fold`, and save it with `save_pretrained`."
        )
    if is_detector_name(loaded.name) and (onnx is not None or program is not None):
        raise ExportError(
            f"{loaded.name} finds another number of things in each image, which is not exported. "
            "Leave out `--onnx` and `--program`."
        )
    if loaded.form == FOLDED and not fuse:
        raise FoldError(
            f"{subject.folder} is already folded. Fold the network that it was made from, or add "
            "`--fuse` to fuse its norms too."
        )
    for text in remarks_on(loaded):
        watcher.note(text)
    real = _real_images(loaded, subject, data, limit, watcher)
    chance = torch.Generator().manual_seed(0)
    made_up = torch.randn(RANDOM, *loaded.preparation.input_size, generator=chance)
    images = [*made_up, *real]
    detects = is_detector_name(loaded.name)  # which take images by name, each of its own size
    example: Any = {"images": images} if detects else torch.stack(images)
    made_by = command or "stiffnet.jobs.fold"
    exports = []
    with watcher.progress(f"folding {loaded.name}", STAGES + 1 + len(files)) as advance:
        made = run(loaded.model, example, fuse=fuse, on_stage=lambda: advance(1))
        seen = f"{RANDOM} random images" + (f" and {len(real)} real ones" if real else "")
        about = facts_of(loaded, data=seen, command=command)
        report = replace(made.report, facts=about | provenance(loaded.model))
        result = FoldResult(made.model, report)
        origin: dict[str, Fact] = {
            "folded_by": made_by,
            "source": str(subject.folder or subject.spec),
            "fuse": fuse,
        }
        if result.report.notes:
            origin["notes"] = " ".join(result.report.notes)
        write_folded(folder, result.model, result.report.changes, source=loaded, made_by=origin)
        advance(1)
        facts = {
            "form": "folded",
            "model": loaded.name,
            "made_by": made_by,
            "preparation": json.dumps(asdict(loaded.preparation)),
            "classes": json.dumps(loaded.classes),
        }
        for kind, file in files.items():
            if kind == "html":
                result.report.html(file)
            else:
                export = export_onnx if kind == "onnx" else export_program
                inputs = [torch.stack(real)] if real else []
                exports.append(export(result.model, file, example, inputs=inputs, facts=facts))
            advance(1)
    return FoldedNetwork(result, folder, tuple(exports), RANDOM, len(real))


def _default(subject: Subject) -> Path:
    if subject.folder is None:
        return Path("folded", file_name(subject.spec))
    if subject.run is not None:
        return subject.run.folded
    whole = subject.folder.resolve()
    beside = subject.folder.name and subject.folder.with_name(f"{whole.name}-folded")
    return beside or whole


def _refuse_source(folder: Path, subject: Subject) -> None:
    """Keep the result off what it is made of, however that is spelled."""
    sources = [Path(subject.spec), subject.folder] if subject.folder else []
    for source in sources:
        if _spelled(folder) == _spelled(source) or (folder.exists() and folder.samefile(source)):
            raise FoldError(
                f"{folder} is the network that is being folded; nothing was overwritten. Choose "
                "another folder with `--out`."
            )


def _spelled(path: Path) -> str:
    """One spelling for all that could mean the same file, also where capitals do not count."""
    return str(path.resolve()).casefold()


def _check_files(folder: Path, files: Mapping[str, Path]) -> None:
    own = {_spelled(folder / name) for name in (MANIFEST, WEIGHTS, STRUCTURE)}
    for kind, path in files.items():
        if path.is_dir() or _spelled(path) == _spelled(folder):
            raise StorageError(f"{path} is a folder. Give the name of a file to write.")
        if _spelled(path) in own:
            raise ExportError(
                f"{path} will be a part of the folded network. Choose another name for `--{kind}`."
            )
        check_writable(path.parent)
        if kind == "html":
            check_replaceable(path, SIGNS[".html"])
        else:
            refuse_replacing(path, kind)  # type: ignore[arg-type]  # both are kinds
    taken = {_spelled(path): kind for kind, path in files.items()}
    for kind, path in files.items():
        if (other := taken[_spelled(path)]) != kind:
            raise FoldError(
                f"`--{kind}` and `--{other}` would both be {path}. Give each a file of its own."
            )


def _real_images(
    loaded: LoadedModel, subject: Subject, data: Spec | None, limit: int, watcher: Watcher
) -> list[Tensor]:
    """Return the images that were asked for, or some of the run's own where they are."""
    recipe = None if subject.folder is None else subject.folder / RECIPE
    try:
        if data is not None:
            images = open_data(data)
        elif recipe is not None and recipe.exists():
            began = build_recipe(recipe)
            images = open_data(task_of(began).data(began.data), "test")
        else:
            return []
        if isinstance(images, BoxedImages):
            boxed = images.batches(loaded.preparation, batch_size=1, limit=limit)
            return [image for batch in boxed for image in batch["images"]]
        batches = images.batches(loaded.preparation, batch_size=limit, limit=limit)
        return [image for batch, _ in batches for image in batch]
    except StiffnetError as error:
        if data is not None:
            raise
        watcher.note(f"only random images are compared, as the run's own cannot be: {error}")
        return []
