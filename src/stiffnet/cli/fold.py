"""``stiffnet fold``: a trained network in, the one to deploy out, and proof that they agree."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from stiffnet.cli.progress import note, progress

if TYPE_CHECKING:
    from torch import Tensor

    from stiffnet.network.export import ExportReport
    from stiffnet.network.loaded import LoadedModel
    from stiffnet.network.model_folder import Fact

RANDOM = 8  # made-up images that the fold is compared on, beside real ones


def fold(
    source: Annotated[
        Path, typer.Argument(metavar="RUN|CHECKPOINT", help="A run, or a model folder of ours.")
    ],
    fuse: Annotated[
        bool, typer.Option("--fuse", help="Also merge every norm into the layer before it.")
    ] = False,
    onnx: Annotated[
        Path | None, typer.Option(metavar="F", help="Also write ONNX, checked in onnxruntime.")
    ] = None,
    program: Annotated[
        Path | None, typer.Option(metavar="F", help="Also write a torch.export program (.pt2).")
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="For the network; else RUN/folded, CHECKPOINT-folded."),
    ] = None,
    data: Annotated[
        str, typer.Option(metavar="D", help="Images to compare on; else the run's own.")
    ] = "",
    limit: Annotated[
        int, typer.Option(min=1, help="Compare on this many of them, evenly chosen.")
    ] = 16,
) -> None:
    """Fold constant attention and branches into the weights: the plain network, as accurate."""
    import torch
    from rich.console import Console

    from stiffnet.cli.results import command
    from stiffnet.files import check_writable
    from stiffnet.fold.fold import STAGES, fold as run
    from stiffnet.network.export import export_onnx, export_program, require_onnx
    from stiffnet.network.folded_folder import write_folded
    from stiffnet.network.open import open_model

    model_folder, default = places(source)
    folder = out or default
    check_writable(folder)
    refuse_source(folder, source, model_folder)
    refuse_strangers(folder)
    if onnx is not None:
        require_onnx()
    _check_files(folder, onnx=onnx, program=program)
    loaded = open_model(model_folder)
    _refuse_folded(loaded, model_folder, fuse=fuse)
    real = _real_images(loaded, model_folder, data, limit)
    chance = torch.Generator().manual_seed(0)
    made_up = torch.randn(RANDOM, *loaded.preparation.input_size, generator=chance)
    example = torch.cat([made_up, *real])
    made_by = command()
    exports: list[ExportReport] = []
    steps = STAGES + 1 + bool(onnx) + bool(program)
    with progress(f"folding {loaded.name}", steps) as advance:
        result = run(loaded.model, example, fuse=fuse, on_stage=lambda: advance(1))
        origin: dict[str, Fact] = {"folded_by": made_by, "source": str(model_folder), "fuse": fuse}
        if result.report.notes:
            origin["notes"] = " ".join(result.report.notes)
        write_folded(folder, result.model, result.report.changes, source=loaded, made_by=origin)
        advance(1)
        facts = {"form": "folded", "model": loaded.name, "made_by": made_by}
        if onnx is not None:
            exports.append(export_onnx(result.model, onnx, example, inputs=real, facts=facts))
            advance(1)
        if program is not None:
            exports.append(export_program(result.model, program, example, inputs=real, facts=facts))
            advance(1)
    console = Console()
    console.print(result.report)
    lines = [f"Compared on {RANDOM} random and {sum(map(len, real))} real images."]
    lines += [f"The folded network: {folder}", *map(_told, exports)]
    console.print("\n".join(lines), markup=False, highlight=False, soft_wrap=True)


def places(source: Path) -> tuple[Path, Path]:
    """Return the folder with the network, and where its folded one goes if nobody says."""
    from stiffnet.errors import CheckpointError
    from stiffnet.network.model_folder import MANIFEST
    from stiffnet.train.run_folder import RunFolder

    run = RunFolder(source)
    if (source / MANIFEST).exists():
        whole = source.resolve()
        return source, source.with_name(f"{whole.name}-folded") if source.name else whole
    if run.finished:
        return run.final, run.folded
    if run.recipe.exists():
        raise CheckpointError(
            f"The run in {source} is not finished. Finish it with `stiffnet train --resume --out "
            f"{source}`, or give one of {run.checkpoints}."
        )
    raise CheckpointError(
        f"{source} is neither a run nor a model folder of ours. Give what `stiffnet train` wrote."
    )


def refuse_strangers(folder: Path) -> None:
    """Let a folded network be replaced by a new one, and nothing else."""
    from stiffnet.errors import CheckpointError, FoldError
    from stiffnet.network.model_folder import FOLDED, read_folder

    if not folder.exists() or not any(folder.iterdir()):
        return
    try:
        form = read_folder(folder).form
    except CheckpointError:
        form = ""
    if form != FOLDED:
        raise FoldError(
            f"{folder} holds something else than a folded network, which stays. Choose another "
            "folder with `--out`."
        )


def refuse_source(folder: Path, *sources: Path) -> None:
    """Keep the result off what it is made of, however that is spelled."""
    from stiffnet.errors import FoldError

    for source in sources:
        if _spelled(folder) == _spelled(source) or (folder.exists() and folder.samefile(source)):
            raise FoldError(
                f"{folder} is what is being folded, and stays. Choose another folder with `--out`."
            )


def _spelled(path: Path) -> str:
    """One spelling for all that could mean the same file, also where capitals do not count."""
    return str(path.resolve()).casefold()


def _check_files(folder: Path, **files: Path | None) -> None:
    from stiffnet.errors import ExportError, FoldError, StorageError
    from stiffnet.files import check_writable
    from stiffnet.network.export_mark import refuse_replacing
    from stiffnet.network.model_folder import MANIFEST, WEIGHTS
    from stiffnet.network.structure import STRUCTURE

    wanted = {kind: path for kind, path in files.items() if path is not None}
    own = {_spelled(folder / name) for name in (MANIFEST, WEIGHTS, STRUCTURE)}
    for kind, path in wanted.items():
        if path.is_dir() or _spelled(path) == _spelled(folder):
            raise StorageError(f"{path} is a folder. Give the name of a file to write.")
        if _spelled(path) in own:
            raise ExportError(
                f"{path} will be a part of the folded network. Choose another name for `--{kind}`."
            )
        check_writable(path.parent)
        refuse_replacing(path, kind)  # type: ignore[arg-type]  # both are kinds
    if len(set(map(_spelled, wanted.values()))) < len(wanted):
        raise FoldError(
            f"`--onnx` and `--program` would both be {next(iter(wanted.values()))}. Give each a "
            "file of its own."
        )


def _refuse_folded(loaded: "LoadedModel", folder: Path, *, fuse: bool) -> None:
    from stiffnet.errors import FoldError
    from stiffnet.network.model_folder import FOLDED

    if loaded.form == FOLDED and not fuse:
        raise FoldError(
            f"{folder} is folded already. Fold what it was made of, or add `--fuse` to merge its "
            "norms too."
        )


def _real_images(loaded: "LoadedModel", folder: Path, data: str, limit: int) -> "list[Tensor]":
    """Return a batch of the images that were asked for, or of the run's own where they are."""
    from stiffnet.data import open_data
    from stiffnet.errors import StiffnetError
    from stiffnet.train.checkpoint import RECIPE
    from stiffnet.train.recipe_file import build_recipe

    try:
        if data:
            images = open_data(data)
        elif (folder / RECIPE).exists():
            images = open_data(build_recipe(folder / RECIPE).data, "test")
        else:
            return []
        batches = images.batches(loaded.preparation, batch_size=limit, limit=limit)
        return [batch for batch, _ in batches]
    except StiffnetError as error:
        if data:
            raise
        note(f"the run's own images cannot be compared on, so only random ones are: {error}")
        return []


def _told(made: "ExportReport") -> str:
    what = "The program" if made.kind == "program" else f"The ONNX file (opset {made.opset})"
    real = "" if made.real_error is None else f", {made.real_error:.1e} on {made.images} real ones"
    return (
        f"{what}: {made.path}; outputs differ by {made.random_error:.1e} of the largest on random "
        f"images{real}."
    )
