"""From source to networks: imported from a file, or compiled from text that nobody finds again."""

import copy
import importlib.util
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryDirectory
from types import ModuleType
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import set_checkpoint_early_stop

import stiffnet
from fuzz.networks import Written, written
from fuzz.oracle import Noted, Probe, noted

ATTEMPTS = 20


@dataclass(frozen=True)
class Case:
    """A random network, its reference, and batches."""

    made: Written
    plain: nn.Module
    reference: nn.Module
    probe: Probe
    example: Tensor
    others: tuple[Tensor, ...]
    """Batches of other sizes, of more and other samples."""
    learns: bool = False
    """It can be trained."""

    @cached_property
    def found(self) -> list[stiffnet.Step]:
        """The steps that are found in it."""
        return stiffnet.steps(self.plain, self.example)

    @cached_property
    def taken(self) -> list[Noted]:
        """The steps that the reference takes on the example, in evaluation."""
        taken = noted(self.twin(), self.probe, self.example)
        self.probe.count(taken)
        return taken

    @cached_property
    def expected(self) -> "Ran":
        """What the plain network does with the first of the other batches, in evaluation."""
        return run(copy.deepcopy(self.plain), self.others[0], training=False)

    def twin(self) -> nn.Module:
        """A copy of the reference, which is the one that the probe knows from now on."""
        copied = copy.deepcopy(self.reference)
        self.probe.know(copied)
        self.probe.gates = {}
        return copied


@contextmanager
def case(seed: int) -> Iterator[Case]:
    """Make the network of a seed; its module can be imported as long as the context lasts."""
    with TemporaryDirectory() as folder:
        for attempt in range(ATTEMPTS):
            made = written(seed, attempt)
            name = f"fuzz_case_{seed}_{attempt}"
            try:
                found = _case(made, name, Path(folder))
                if _runs(found):
                    yield replace(found, learns=_learns(found))
                    return
            finally:
                sys.modules.pop(name, None)
        raise AssertionError(f"Seed {seed}: no network that runs in {ATTEMPTS} attempts.")


def _case(made: Written, name: str, folder: Path) -> Case:
    batch_axis = 1 if made.layout.sequence_first else 0
    probe = Probe(batch_axis)
    module = _module(made.plain, name, folder if made.has_source else None)
    twin = _module(made.reference, f"{name}_reference", None)
    twin.AT = probe
    torch.manual_seed(made.seed)
    plain = module.Net().double().eval()
    _trained(plain)
    reference = twin.Net().double().eval()
    reference.load_state_dict(plain.state_dict())
    samples = (3, 2)
    others = tuple(
        torch.randn(n, *shape, dtype=torch.float64)
        for n, shape in zip(samples, made.others, strict=True)
    )
    example = torch.randn(2, *made.shape, dtype=torch.float64)
    return Case(made, plain, reference, probe, example, others)


def _module(text: str, name: str, folder: Path | None) -> Any:
    """Execute source as a module; from a file, if there is a folder for it."""
    if folder is None:
        module = ModuleType(name)
        exec(compile(text, f"<{name}>", "exec"), vars(module))
        return module
    path = folder / f"{name}.py"
    path.write_text(text)
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def _trained(network: nn.Module) -> None:
    """Give norms the statistics and weights of a network that has seen something."""
    for module in network.modules():
        if "Norm" in type(module).__name__:
            for name, tensor in (*module.named_parameters(), *module.named_buffers()):
                if tensor.is_floating_point():
                    shift = 0.0 if "bias" in name or "mean" in name else 0.5
                    tensor.data = torch.rand_like(tensor) + shift


def _runs(found: Case) -> bool:
    """Whether the network can be run; the reference must agree with it to the last bit."""
    plain = copy.deepcopy(found.plain)
    for x in (found.example, *found.others):
        try:
            one = run(plain, x, training=False)
        except (RuntimeError, ValueError):
            return False
        if not all(bool(t.isfinite().all()) for t in one.outputs):
            return False
    difference = found.expected.differs(run(found.twin(), found.others[0], training=False), 0.0)
    assert difference is None, f"Seed {found.made.seed}: the reference differs: {difference}"
    return True


def _learns(found: Case) -> bool:
    """Whether it can be trained too: autograd refuses some writes in place."""
    batch = found.others[0]
    try:
        one = run(copy.deepcopy(found.plain), batch, training=True)
    except (RuntimeError, ValueError):
        return False
    difference = one.differs(run(found.twin(), batch, training=True), 0.0)
    assert difference is None, f"Seed {found.made.seed}: the reference differs: {difference}"
    return True


@dataclass(frozen=True)
class Ran:
    """Everything that can be seen of one pass, forward and backward."""

    outputs: list[Tensor]
    gradients: dict[str, Tensor | None]
    memory: dict[str, Any]
    """Buffers, and what modules noted about the pass."""
    chance: Tensor

    def differs(self, other: "Ran", tolerance: float) -> str | None:
        """Say what is not the same; None if everything is. Parameters of gates are left out."""
        if len(self.outputs) != len(other.outputs):
            return "number of outputs"
        for one, two in zip(self.outputs, other.outputs, strict=True):
            if not close(one, two, tolerance):
                return f"output ({distance(one, two):.1e})"
        for kind in ("gradients", "memory"):
            mine, its = (_without_gates(getattr(ran, kind)) for ran in (self, other))
            if mine.keys() != its.keys():
                return f"{kind} of {sorted(mine.keys() ^ its.keys())}"
            for name, value in mine.items():
                if not same(value, its[name], tolerance):
                    return f"{kind} of {name}"
        return None if torch.equal(self.chance, other.chance) else "random numbers drawn"


def _without_gates(named: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in named.items() if "step_size" not in name}


def same(one: Any, other: Any, tolerance: float) -> bool:
    """Compare tensors, lists of them and plain values."""
    if isinstance(one, Tensor) and isinstance(other, Tensor):
        return close(one, other, tolerance)
    if isinstance(one, list) and isinstance(other, list):
        pairs = zip(one, other, strict=False)
        return len(one) == len(other) and all(same(a, b, tolerance) for a, b in pairs)
    return type(one) is type(other) and bool(one == other)


def close(one: Tensor, other: Tensor, tolerance: float) -> bool:
    """Equal in shape and type, and in numbers up to a share of the largest."""
    if one.shape != other.shape or one.dtype != other.dtype:
        return False
    return bool(torch.equal(one, other)) or distance(one, other) <= tolerance


def distance(one: Tensor, other: Tensor) -> float:
    """Largest difference over the largest number."""
    if one.shape != other.shape:
        return float("inf")
    largest = max(float(other.abs().max()), 1e-300)
    return float((one - other).abs().max()) / largest


def run(network: nn.Module, x: Tensor, *, training: bool, seed: int = 1) -> Ran:
    """Run a network, in training backward too, with random numbers of its own."""
    network.train(training)
    return run_as_it_is(network, x, seed=seed)


def run_as_it_is(network: nn.Module, x: Tensor, *, seed: int = 1) -> Ran:
    """Run a network in the modes that its modules are in."""
    torch.manual_seed(seed)
    network.zero_grad()
    before = dict(_memory(network))
    x = x.clone().requires_grad_(network.training)
    with torch.set_grad_enabled(network.training), set_checkpoint_early_stop(False):
        outputs = list(_tensors(network(x)))
        chance = torch.get_rng_state()
        if network.training:
            weighted = [
                (t * torch.linspace(0.5, 1.5, t.numel()).to(t).view(t.shape)).sum() for t in outputs
            ]
            losses = [loss for m in network.modules() for loss in getattr(m, "losses", ())]
            torch.stack([t.double() for t in (*weighted, *losses)]).sum().backward()
    gradients = {n: p.grad for n, p in network.named_parameters(remove_duplicate=False)}
    memory = dict(_memory(network))
    for name, value in memory.items():
        if isinstance(value, int):  # a count: what this pass added
            memory[name] = value - before.get(name, 0)
    for module in network.modules():
        if hasattr(module, "losses"):
            module.losses = []
    return Ran(
        [t.detach().clone() for t in outputs],
        {n: None if g is None else g.clone() for n, g in gradients.items()} | {"": x.grad},
        memory,
        chance,
    )


def _tensors(value: Any) -> Iterator[Tensor]:
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, dict):
        for item in value.values():
            yield from _tensors(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _tensors(item)


def _memory(network: nn.Module) -> Iterator[tuple[str, Any]]:
    for name, buffer in network.named_buffers():
        yield name, buffer.clone()
    for path, module in network.named_modules():
        if not type(module).__module__.startswith("torch."):
            for name, value in vars(module).items():
                if isinstance(value, int | float | Tensor | list) and not name.startswith("_"):
                    yield f"{path}.{name}", _kept(value)


def _kept(value: Any) -> Any:
    if isinstance(value, Tensor):
        return value.detach().clone()
    return [_kept(item) for item in value] if isinstance(value, list) else value
