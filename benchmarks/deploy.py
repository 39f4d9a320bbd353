"""Who gains from folding: forms of a network in the engines that people deploy with.

    python benchmarks/deploy.py                          # an hour or more, most of it compiling
    python benchmarks/deploy.py --backbone mobilenetv2   # only the one whose name contains this
    python benchmarks/deploy.py --engine onnxruntime     # only engines whose name contains this

For each backbone and engine, in one process: the plain network, the one with SE, with ASR(SE) as
trained, folded, and fused (`fold(..., fuse=True)`). Each is timed between two plain ones of the
same engine and compared with their mean, because a machine's speed drifts. Prints the time of each
form over the plain one's (below 1 is faster), and the plain network's images/s in each engine.
"""

import argparse
import statistics
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import numpy as np
import onnxruntime
import torch
from neighbours import Pass, beside, warm_seconds
from onnxruntime.quantization import CalibrationDataReader, QuantFormat, quantize_static
from onnxruntime.quantization.shape_inference import quant_pre_process
from torch import Tensor, nn

import stiffnet
from stiffnet.network.export import export_onnx

BACKBONES = {"resnet164_cifar": 32, "mobilenetv2_100": 224}
FORMS = ("plain", "se", "asr, not folded", "folded", "fused")
CALIBRATION = 16  # batches
Engine = Callable[[nn.Module, Tensor, Path], Pass]


def made(name: str, attention: str | None) -> nn.Module:
    """A network with small steps: with large ones of random weights, outputs are all rounding."""
    model = stiffnet.create_model(name, attention=attention, seed=0)
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            nn.init.constant_(module.weight, 0.1)
    return model.eval()


def forms(name: str, images: Tensor) -> dict[str, nn.Module]:
    """Every form of a backbone, ready for inference."""
    constant = made(name, "asr:se")
    return {
        "plain": made(name, None),
        "se": made(name, "se"),
        "asr, not folded": constant,
        "folded": stiffnet.fold(constant, images, passes=0).model,
        "fused": stiffnet.fold(constant, images, fuse=True, passes=0).model,
    }


def eager(model: nn.Module, images: Tensor, folder: Path) -> Pass:
    """PyTorch, operation by operation."""
    return partial(model, images)


def compiled(model: nn.Module, images: Tensor, folder: Path) -> Pass:
    """PyTorch's compiler with its usual settings."""
    return partial(torch.compile(model), images)


def frozen(model: nn.Module, images: Tensor, folder: Path) -> Pass:
    """PyTorch's compiler, told that weights do not change."""
    return partial(torch.compile(model, options={"freezing": True}), images)


def session(file: Path, images: Tensor) -> Pass:
    """Open a model in ONNX Runtime, on as many threads as PyTorch has."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()
    made = onnxruntime.InferenceSession(str(file), options, providers=["CPUExecutionProvider"])
    return partial(made.run, None, {made.get_inputs()[0].name: images.numpy()})


def onnx(model: nn.Module, images: Tensor, folder: Path) -> Pass:
    """ONNX Runtime."""
    export_onnx(model, folder / "model.onnx", images)
    return session(folder / "model.onnx", images)


class Batches(CalibrationDataReader):
    """Random images by which ranges are chosen; speed does not depend on them."""

    def __init__(self, name: str, shape: tuple[int, ...]) -> None:
        self._given: Iterator[dict[str, np.ndarray]] = (
            {name: np.random.default_rng(i).random(shape, dtype=np.float32)}
            for i in range(CALIBRATION)
        )

    def get_next(self) -> dict[str, np.ndarray] | None:
        """Return the next batch, or None after the last."""
        return next(self._given, None)


def int8(model: nn.Module, images: Tensor, folder: Path) -> Pass:
    """ONNX Runtime with weights and activations of eight bits, ranges fixed beforehand."""
    plain, ready, small = (folder / f"{name}.onnx" for name in ("model", "ready", "int8"))
    export_onnx(model, plain, images)
    quant_pre_process(str(plain), str(ready))
    made = onnxruntime.InferenceSession(str(ready), providers=["CPUExecutionProvider"])
    reader = Batches(made.get_inputs()[0].name, tuple(images.shape))
    quantize_static(str(ready), str(small), reader, quant_format=QuantFormat.QDQ, per_channel=True)
    return session(small, images)


ENGINES: dict[str, Engine] = {
    "eager": eager,
    "compiled": compiled,
    "compiled, frozen": frozen,
    "onnxruntime": onnx,
    "onnxruntime, int8": int8,
}


def measured(name: str, engine: str, rounds: int, batch: int) -> tuple[float, dict[str, float]]:
    """Images/s of the plain network, and each form's time over its own."""
    torch.manual_seed(0)
    torch.compiler.reset()
    images = torch.rand(batch, 3, BACKBONES[name], BACKBONES[name])
    runs: dict[str, Pass] = {}
    with torch.inference_mode(False), torch.no_grad(), tempfile.TemporaryDirectory() as place:
        for form, model in forms(name, images).items():
            folder = Path(place, form)
            folder.mkdir()
            runs[form] = ENGINES[engine](model, images, folder)
            runs[form]()
        others = {form: run for form, run in runs.items() if form != "plain"}
        times, found = beside([runs["plain"]], others, list(others), rounds, warm_seconds)
    ratios = {form: 1 / statistics.median(values) for form, values in found.items()}
    return batch / statistics.median(times), {"plain": 1.0, **ratios}


def main() -> None:
    """Measure and print a table for each backbone."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--backbone", default="")
    parser.add_argument("--engine", default="")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--threads", type=int, default=1)
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    versions = f"torch {torch.__version__}, onnxruntime {onnxruntime.__version__}"
    print(f"{versions}, {given.threads} thread, batches of {given.batch}, {given.rounds} rounds")
    for name in (name for name in BACKBONES if given.backbone in name):
        print(f"\n| {name} | plain, images/s | {' | '.join(FORMS[1:])} |")
        print("|---|--:|" + "--:|" * len(FORMS[1:]))
        for engine in (engine for engine in ENGINES if given.engine in engine):
            speed, ratios = measured(name, engine, given.rounds, given.batch)
            cells = " | ".join(f"{ratios[form]:.2f}" for form in FORMS[1:])
            print(f"| {engine} | {speed:.1f} | {cells} |", flush=True)


if __name__ == "__main__":
    main()
