"""A network as one file that runs without our code: ONNX, or a program of torch's own.

Both are made for any number of images, and compared with the network before the file is written.
"""

import contextlib
import copy
import io
import json
import logging
import math
import os
import warnings
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, fx, nn

from stiffnet.errors import ExportError, StiffnetError
from stiffnet.files import atomic_write, check_writable
from stiffnet.nested import tensors_in
from stiffnet.scaled_error import scaled_error
from stiffnet.trajectory.wrappers import plain_run, unready

TOLERANCES = {torch.float32: 1e-4, torch.float64: 1e-10}
"""Largest scaled error by dtype. Seven untrained networks, ResNet-164 and a ViT among them, came
back from onnxruntime within 2e-6 in float32; sixty times that is left for deeper and for trained
ones. float64 is for programs alone, which run torch's own operations."""

BATCHES = (1, 2, 5)
"""Numbers of random images on which an export is compared."""

PACKAGES = ("onnx", "onnxscript", "onnxruntime")
MARK = {"written_by": "stiffnet"}
"""Among the facts in every file that is exported here: those may be replaced, and no others."""
ABOUT = "about.json"  # in a program, the facts about it
LARGEST_ABOUT = 2**20  # bytes of such facts

Kind = Literal["onnx", "program"]
NAMES = {"onnx": "an ONNX file", "program": "a program"}
DTYPES = {"onnx": {torch.float32}, "program": set(TOLERANCES)}  # of weights
LARGEST_ONNX = 2**31 - 2**20  # bytes of weights; protobuf ends at two gigabytes


@dataclass(frozen=True)
class ExportReport:
    """What was written, and how far it is from the network that it was made of."""

    path: Path
    kind: Kind
    random_error: float  # largest difference on random images, over the batch's largest output
    real_error: float | None  # the same on the images that were given; None where there were none
    images: int  # that were given
    opset: int | None = None  # version of ONNX's operations


def export_onnx(
    model: nn.Module,
    path: str | os.PathLike[str],
    example: Tensor,
    *,
    inputs: Iterable[Tensor] = (),
    opset: int | None = None,
    facts: Mapping[str, str] | None = None,
) -> ExportReport:
    """Write a network as ONNX, with one input ``images`` of any number of images.

    Outputs that the network returns in a dictionary have its keys as names.

    onnxruntime runs it on random images, in batches of several sizes, and on those that are given;
    only if it agrees with the network is the file written.

    Args:
        model: A network in evaluation mode and float32.
        path: File to write; an earlier one of ours is replaced, and nothing else.
        example: Images that it takes. Only their shape matters; none of them gets into the file.
        inputs: Batches of real images to compare on.
        opset: Version of ONNX's operations; None for torch's choice.
        facts: Text to keep in the file, by name.

    Raises:
        StiffnetError: If a package is missing.
        ExportError: If the network cannot be exported, the export differs from it, or the file is
            somebody's.
        StorageError: If the file cannot be written.
    """
    require_onnx()
    size = sum(t.numel() * t.element_size() for t in (*model.parameters(), *model.buffers()))
    if size > LARGEST_ONNX:
        raise ExportError(
            f"{type(model).__name__} has {size / 2**30:.1f} GiB of weights, and an ONNX file holds "
            "at most 2. Write a torch.export program instead."
        )
    own, program, outputs = _prepared(model, path, example, "onnx")
    try:
        with _quietly():
            made: Any = torch.onnx.export(
                program,
                dynamo=True,
                dynamic_shapes=({0: "batch"},),
                input_names=["images"],
                opset_version=opset,
                verbose=False,
            )
            made.model.metadata_props.update({**(facts or {}), **MARK})
            _name_outputs(made.model.graph, outputs)
            content: bytes = made.model_proto.SerializeToString()
            run = _onnx_runner(content)
    except Exception as error:  # torch's, onnxscript's and onnxruntime's, of many classes
        raise _cannot(model, "as ONNX", error) from error
    written = int(made.model.opset_imports[""])
    if opset is not None and written != opset:
        raise ExportError(
            f"{type(model).__name__} can be written with opset {written}, and not with {opset}. "
            "Leave `opset` out, or ask for a version between 18 and torch's newest."
        )
    errors = _compared(own, run, example, inputs, "ONNX file")
    return ExportReport(atomic_write(path, content), "onnx", *errors, written)


def export_program(
    model: nn.Module,
    path: str | os.PathLike[str],
    example: Tensor,
    *,
    inputs: Iterable[Tensor] = (),
    facts: Mapping[str, str] | None = None,
) -> ExportReport:
    """Write a network as a program of `torch.export`, which `torch.export.load` opens.

    It takes any number of images, and is read back and compared before the file is written. Load
    such a file only from where you trust it: torch's reader is not safe for files from others.

    Arguments and errors are those of `export_onnx`, but that float64 will do too. The file is
    usually called ``.pt2``.
    """
    own, program, _ = _prepared(model, path, example, "program")
    stream = io.BytesIO()
    about = {ABOUT: json.dumps({**(facts or {}), **MARK}, indent=2)}
    try:
        with _quietly():
            torch.export.save(program, stream, extra_files=about)
            stream.seek(0)
            run = torch.export.load(stream).module()
    except Exception as error:  # of many classes
        raise _cannot(model, "as a program", error) from error
    errors = _compared(own, run, example, inputs, "program")
    return ExportReport(atomic_write(path, stream.getvalue()), "program", *errors)


def require_onnx() -> None:
    """See that ONNX files can be made and checked, before long work that ends in one."""
    missing = [name for name in PACKAGES if find_spec(name) is None]
    if missing:
        raise StiffnetError(
            f"ONNX files need {' and '.join(missing)}, which {'is' if len(missing) == 1 else 'are'}"
            " not installed. Install with `pip install 'stiffnet[onnx]'`."
        )


def refuse_replacing(path: str | os.PathLike[str], kind: Kind) -> None:
    """See that nothing is where a file is to be written, or an earlier export of the same kind."""
    there = Path(path)
    if not os.path.lexists(there):
        return
    if not there.is_file() or not (_is_onnx(there) if kind == "onnx" else _is_program(there)):
        raise ExportError(
            f"{there} exists already and is not {NAMES[kind]} that stiffnet wrote; it was not "
            "replaced. Choose another name, or move it away first."
        )


def _is_onnx(path: Path) -> bool:
    import onnx

    try:
        model = onnx.load(path, load_external_data=False)
    except Exception:  # of protobuf: it is something else, or damaged
        return False
    facts = {entry.key: entry.value for entry in model.metadata_props}
    return facts.items() >= MARK.items()


def _is_program(path: Path) -> bool:
    try:
        with zipfile.ZipFile(path) as archive:
            names = [name for name in archive.namelist() if Path(name).name == ABOUT]
            with archive.open(names[0]) as stream:
                facts = json.loads(stream.read(LARGEST_ABOUT))
    except (OSError, ValueError, LookupError, zipfile.BadZipFile):
        return False
    return isinstance(facts, dict) and facts.items() >= MARK.items()


def _prepared(
    model: nn.Module, path: str | os.PathLike[str], example: Tensor, kind: Kind
) -> tuple[nn.Module, torch.export.ExportedProgram, object]:
    """See that a network can be exported to a file: a copy of it, its program, and its outputs."""
    refuse_replacing(path, kind)
    name = type(model).__name__
    reason = unready(model)
    if reason is not None:
        raise ExportError(f"{name} is not ready to be exported: {reason}")
    strange = {p.dtype for p in model.parameters() if p.is_floating_point()} - DTYPES[kind]
    if strange:
        found, known = (
            " and ".join(sorted(str(dtype).removeprefix("torch.") for dtype in group))
            for group in (strange, DTYPES[kind])
        )
        raise ExportError(
            f"{name} has weights in {found}, and only {known} can be compared here. "
            "Call `model.float()` first."
        )
    check_writable(Path(path).parent)
    own = copy.deepcopy(model).cpu()
    images = next(_random(own, example, [2]))
    any_number = torch.export.Dim("batch", min=1)
    try:
        with _quietly(), plain_run(own):
            outputs = own(images.clone())
            before, again = list(tensors_in(outputs)), list(tensors_in(own(images.clone())))
            program = torch.export.export(own, (images,), dynamic_shapes=({0: any_number},))
            _forget_places(program)
    except Exception as error:  # torch's, or whatever the network's own code raises
        raise _cannot(model, "for any number of images", error) from error
    if scaled_error(before, again) > 0:
        raise ExportError(
            f"{name} gives other outputs when it runs on the same images again, by random numbers "
            "or by what it keeps of a pass. Let it do so in training only."
        )
    return own, program, outputs


def _forget_places(program: torch.export.ExportedProgram) -> None:
    """Leave out of a program in which files of this machine, and with which code, it was made."""
    for part in program.graph_module.modules():
        for node in part.graph.nodes if isinstance(part, fx.GraphModule) else ():
            node.meta.pop("stack_trace", None)


def _cannot(model: nn.Module, how: str, error: Exception) -> ExportError:
    lines = [line.strip(" -") for line in str(error).splitlines() if line.strip(" -")]
    said = next((line for line in lines if "Constraints violated" not in line), "")
    return ExportError(
        f"{type(model).__name__} cannot be exported {how}: "
        f"{(said or type(error).__name__).rstrip('.')}. Its code must not depend on the values or "
        "the number of the images."
    )


def _name_outputs(graph: Any, outputs: object) -> None:
    """Give the outputs of an ONNX graph the names that they have in a dictionary, and only them."""
    parts = outputs.items() if isinstance(outputs, Mapping) else ()
    names = [str(key) for key, part in parts for _ in tensors_in(part)]
    if not names or len(set(names)) < len(names):  # a list under one key
        return
    inner = [value for node in graph for value in node.outputs]
    for value in [*inner, *graph.initializers.values()]:
        if value.name in names:
            value.name = f"{value.name}.inner"
    for value, name in zip(graph.outputs, names, strict=True):
        value.name = name


def _onnx_runner(content: bytes) -> Callable[[Tensor], list[Tensor]]:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4  # fatal only; it raises the others too
    session = onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])

    def run(batch: Tensor) -> list[Tensor]:
        return [torch.from_numpy(found) for found in session.run(None, {"images": batch.numpy()})]

    return run


def _dtype(model: nn.Module) -> torch.dtype:
    return next((p.dtype for p in model.parameters() if p.is_floating_point()), torch.float32)


def _random(model: nn.Module, example: Tensor, sizes: Iterable[int]) -> Iterator[Tensor]:
    """Make images as a preparation gives them, around 0 with deviation 1."""
    chance = torch.Generator().manual_seed(0)
    for size in sizes:
        yield torch.randn(size, *example.shape[1:], generator=chance, dtype=_dtype(model))


def _compared(
    model: nn.Module,
    run: Callable[[Tensor], Any],
    example: Tensor,
    inputs: Iterable[Tensor],
    what: str,
) -> tuple[float, float | None, int]:
    """Return the errors on random and on real images, and the number of the latter."""
    random_error, _ = _worst(model, run, _random(model, example, BATCHES), what)
    real_error, count = _worst(model, run, inputs, what)
    return random_error, real_error if count else None, count


def _worst(
    model: nn.Module, run: Callable[[Tensor], Any], batches: Iterable[Tensor], what: str
) -> tuple[float, int]:
    worst, images = 0.0, 0
    dtype = _dtype(model)
    for given in batches:
        batch = given.detach().to("cpu", dtype).contiguous()
        with plain_run(model), _quietly():
            expected = list(tensors_in(model(batch.clone())))  # as it may write into its input
            try:
                result = list(tensors_in(run(batch.clone())))
            except Exception as error:  # of the runtime
                raise _cannot(model, f"for {len(batch)} images", error) from error
        off = scaled_error(expected, result) if expected else math.inf
        if not off <= TOLERANCES[dtype]:
            raise ExportError(
                f"The {what} of {type(model).__name__} differs from it by {off:.1e} of the "
                f"largest output, on {len(batch)} images. Nothing was written; please report it."
            )
        worst, images = max(worst, off), images + len(batch)
    return worst, images


@contextlib.contextmanager
def _quietly() -> Iterator[None]:
    """Keep what exporters print, log and warn of from the user; errors still come through."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)
