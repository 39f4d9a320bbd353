"""One forward pass of a network, recorded as a trajectory of norms."""

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils.hooks import RemovableHandle

from stiffnet.errors import StepError
from stiffnet.trajectory.functions import name_of
from stiffnet.trajectory.graph import KINDS, ModuleStack, operands_of, tensors_in
from stiffnet.trajectory.norms import sample_norms
from stiffnet.trajectory.steps import Site, Step, steps_of_call
from stiffnet.trajectory.wrappers import eagerly, unwrap


@dataclass(frozen=True)
class Trajectory:
    """What one batch did at every step, reduced to one norm per sample and step.

    Each tensor is float64, of shape (samples, steps).
    """

    steps: tuple[Step, ...]
    state_norms: Tensor
    """‖x_t‖, the shortcut operand of the addition."""
    rate_norms: Tensor
    """‖f_t‖, the branch before any step-size gate."""
    increment_norms: Tensor
    """‖Δt_t ⊗ f_t‖, what was added."""

    @property
    def step_sizes(self) -> Tensor:
        """‖Δt_t ⊗ f_t‖ / ‖f_t‖: one without a gate, NaN where the rate is zero."""
        return self.increment_norms / self.rate_norms

    def __len__(self) -> int:
        """Return the number of samples."""
        return len(self.state_norms)


class Recording:
    """Holds the trajectory of the newest forward pass; older ones are let go."""

    def __init__(self) -> None:
        self._newest: Trajectory | None = None

    @property
    def trajectory(self) -> Trajectory:
        """The trajectory of the newest finished forward pass.

        Raises:
            StepError: If no forward pass has finished yet.
        """
        if self._newest is None:
            raise StepError(
                "No forward pass has finished since recording began. "
                "Call the model inside the `with record(...)` block first."
            )
        return self._newest


@contextmanager
def record(model: nn.Module, steps: Sequence[Step] | None = None) -> Iterator[Recording]:
    """Record the states, rates and step sizes of every forward pass in the block.

    Values are reduced to norms as they come up and nothing else is kept, so memory grows neither
    with the number of passes nor with the size of the states. The model is not changed: mode,
    hooks, buffers, gradients and random numbers are its own, also when a forward pass raises.
    Compiled modules run eagerly meanwhile.

    Args:
        model: The network; compiled, data-parallel and Fabric wrappers are looked through.
        steps: Its steps; found on the first batch if not given.

    Example:
        >>> import timm, torch
        >>> model = timm.create_model("resnet18").eval()
        >>> with record(model) as recording:
        ...     logits = model(torch.rand(2, 3, 64, 64))
        >>> recording.trajectory.rate_norms.shape
        torch.Size([2, 8])
    """
    recording = Recording()
    with eagerly(model), _Recorder(unwrap(model), steps, recording):
        yield recording


_OTHER_CODE = (
    "The code of {!r} did not add and multiply as it did when its step was found, in evaluation "
    "mode. Call `.eval()` on the model first."
)


class _Recorder(ModuleStack):
    """Meets the operands at every `Site` while the model runs."""

    def __init__(
        self, model: nn.Module, steps: Sequence[Step] | None, recording: Recording
    ) -> None:
        super().__init__(model)
        self._recording = recording
        self._paths: list[str] = []
        self._counts: Counter[tuple[str, str]] = Counter()
        self._norms: dict[Site, Tensor] = {}
        self._scales: dict[Site, float] = {}
        self._entered: dict[str, Tensor] = {}
        self._finding = False
        self._first: RemovableHandle | None = None
        self._functions = _Meet(self)
        self._steps: tuple[Step, ...] | None = None
        if steps is not None:
            self._prepare(steps)

    def _prepare(self, steps: Sequence[Step]) -> None:
        self._steps = tuple(steps)
        self._sites: defaultdict[tuple[str, str, int], set[Site]] = defaultdict(set)
        for step in steps:
            for site in (step.state_at, step.increment_at, step.rate_at):
                self._sites[site.module, site.kind, site.number].add(site)
        self._blocks = {site[0] for site in self._sites if site[1] == "block"}

    def __enter__(self) -> "_Recorder":
        super().__enter__()
        if self._steps is None:  # on the model itself, because only such a hook sees keywords
            self._first = self.model.register_forward_pre_hook(self._find, with_kwargs=True)
        self._functions.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        self._functions.__exit__(*error)
        if self._first is not None:
            self._first.remove()
        super().__exit__(*error)

    def _find(self, model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Find the steps on the first batch, then never be called again."""
        if self._finding:
            return
        self._finding = True
        try:
            self._prepare(steps_of_call(model, args, kwargs))
        finally:
            self._finding = False
        assert self._first is not None
        self._first.remove()

    def enter(self, path: str, module: nn.Module, args: tuple[Any, ...]) -> None:
        """Follow which module's code runs; the root's beginning starts a pass."""
        if self._finding or not (self._paths or module is self.model):
            return
        if module is self.model:  # also after a pass that an interrupt cut short
            self._paths.clear()
            self._counts.clear()
            self._norms.clear()
            self._scales.clear()
            self._entered.clear()
            self._recording._newest = None
        self._paths.append(path)
        if self._steps is not None and path in self._blocks:
            self._entered[path] = next(tensors_in(args)).detach().clone()

    def leave(self, module: nn.Module, output: Any) -> None:
        """Follow which module's code runs; the root's end makes a trajectory."""
        if self._finding or not self._paths:
            return
        path = self._paths.pop()
        if path in self._entered and output is not None:
            self._meet_block(path, self._entered.pop(path), next(tensors_in(output)))
        if not self._paths and output is not None:
            self._recording._newest = self._assemble()
            self._norms.clear()

    def meet(self, kind: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Take the norms that are due at one addition or product, before it happens."""
        if self._finding or not self._paths:
            return
        key = (self._paths[-1], kind, self._counts[self._paths[-1], kind])
        self._counts[key[:2]] += 1
        for site in self._sites.get(key, ()):
            self._take(site, operands_of(args, kwargs)[site.operand])
            if site.operand == 1 and "alpha" in kwargs:  # torch.add(x, f, alpha=a) adds a·f
                self._scales[site] = abs(float(kwargs["alpha"]))

    def _meet_block(self, path: str, before: Tensor, after: Tensor) -> None:
        key = (path, "block", self._counts[path, "block"])
        self._counts[path, "block"] += 1
        for site in self._sites.get(key, ()):
            self._take(site, before if site.operand == 0 else after.detach() - before)

    def _take(self, site: Site, value: Any) -> None:
        if not isinstance(value, Tensor):
            raise StepError(_OTHER_CODE.format(site.module))
        if value.ndim != site.dims:
            raise StepError(
                f"In {site.module!r} a state has {value.ndim} axes, and had {site.dims} when the "
                "steps were found. If the code squeezes a batch of one, give it larger batches."
            )
        self._norms[site] = sample_norms(value, axis=site.axis, fold=site.entries)

    def _assemble(self) -> Trajectory:
        assert self._steps is not None
        for step in self._steps:
            self._check(step)
        states, rates, increments = (
            torch.stack([self._norms[getattr(step, at)] for step in self._steps], dim=1)
            for at in ("state_at", "rate_at", "increment_at")
        )
        scales = [self._scales.get(step.increment_at, 1.0) for step in self._steps]
        return Trajectory(self._steps, states, rates, increments * increments.new_tensor(scales))

    def _check(self, step: Step) -> None:
        """Refuse a pass whose code was not that in which the steps were found."""
        for site in (step.state_at, step.rate_at):
            if site not in self._norms:
                raise StepError(
                    f"Step {step.name!r} did not run in this pass, though it did when the steps "
                    "were found. Find the steps again with `stiffnet.steps` on such a batch."
                )
            if site.kind != "block" and self._counts[site.module, site.kind] != site.of:
                raise StepError(_OTHER_CODE.format(site.module))


class _Meet(TorchFunctionMode):
    """Shows additions and products to a recorder, before they run."""

    def __init__(self, recorder: _Recorder) -> None:
        super().__init__()
        self._recorder = recorder

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        kind = KINDS.get(name_of(func))
        if kind is not None:
            self._recorder.meet(kind, args, kwargs or {})
        return func(*args, **(kwargs or {}))
