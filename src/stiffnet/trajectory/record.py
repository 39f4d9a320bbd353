"""One forward pass of a network, recorded as a trajectory of norms."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Self

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from stiffnet.attention_layers import Heard, around_layers, told
from stiffnet.errors import StepError
from stiffnet.nested import tensors_in
from stiffnet.sequences import (
    Arguments,
    Given,
    given_to,
    hides_padding,
    named,
    pads_by_itself,
    parameters_of,
    refuse_unread_padding,
    takes_tokens,
)
from stiffnet.trajectory.batch import Example
from stiffnet.trajectory.norms import sample_norms
from stiffnet.trajectory.recorder import Place, Recorder
from stiffnet.trajectory.steps import Site, Step, steps_of_call
from stiffnet.trajectory.tokens import length_at, with_tokens, without_padding
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
        self.blocks: dict[str, int] = {}
        """How often each module of a class that takes steps ran in the newest pass, by its path."""

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

    Where the network is given an attention mask, norms are over the tokens that it says are there:
    a sentence has the same norms by itself and padded in a batch.

    All passes in the block take the same steps: one in which a block of the network runs more or
    less often than before raises a StepError.

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
    network = unwrap(model)
    with eagerly(model), _Norms(network, steps, recording):
        yield recording


class _Norms(Recorder):
    """Reduces every operand to norms, and makes a trajectory of them at the end of a pass."""

    def __init__(
        self, model: nn.Module, steps: Sequence[Step] | None, recording: Recording
    ) -> None:
        super().__init__(model, steps or ())
        self._recording = recording
        self._norms: dict[Site, Tensor] = {}
        self._scales: dict[Site, float] = {}
        self._entered: dict[str, Tensor] = {}
        self._known = steps is not None
        self._finding = False
        self._given: list[Given | None] = []  # to the calls that run
        self._heard: list[Heard] = []  # by attention layers of torch, in the calls that run

    def __enter__(self) -> Self:
        super().__enter__()
        takers = [module for module in self.paths if takes_tokens(module)]
        layers = [module for module in self.paths if isinstance(module, nn.MultiheadAttention)]
        reads = bool(takers or layers)
        sites = [site for step in self.steps for site in (step.state_at, step.rate_at)]
        if not self._known or (reads and any(site.tokens is None for site in sites)):
            self._first = self._hook(self.model, self._find)
        if not reads:
            self._hook(self.model, self._look)
        for layer in layers:
            self._hook(layer, self._hear)
        for module in around_layers(self.model) if layers else ():
            self._hook(module, lambda *_: self._heard.append(Heard()))
            self._pop_after(module, self._heard)
        for module in takers:
            self._hook(module, self._open)
            self._pop_after(module, self._given)
        return self

    def _hook(self, module: nn.Module, hook: Any) -> RemovableHandle:
        return self.hook_before(module, _Uncopied(hook))

    def _pop_after(self, module: nn.Module, stack: list[Any]) -> None:
        """Take off what a call put on a stack; a pass that was cut short has left none there."""
        hook = _Uncopied(lambda *_: stack and stack.pop())
        self.watching.enter_context(module.register_forward_hook(hook, always_call=True))

    def _find(self, model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Find the steps, or where their tokens are, on the first batch; then never run again."""
        if self._finding:
            return
        self._finding = True
        try:
            call = Example(args, kwargs)
            known = with_tokens(model, self.steps, call) if self._known else None
            self.look_for(steps_of_call(model, call) if known is None else known)
        finally:
            self._finding = False
        self._first.remove()

    def _open(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Note what a call is given; one without tokens runs on those of the call around it."""
        names = parameters_of(module)
        call = named(names, args, kwargs)
        given, around = given_to(names, call), self._given[-1] if self._given else None
        if given is None:
            _refuse_hidden_padding(type(module).__name__, call, self._given)
        self._given.append(around if given is None else given.without_full_masks().within(around))

    def _look(self, model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        refuse_unread_padding(named(parameters_of(model), args, kwargs))

    def _hear(self, layer: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Note what an attention layer of torch is told."""
        call = told(layer, args, kwargs)
        if call is None or self._finding:
            return
        if self._given and self._given[-1] is not None:
            self._given[-1].refuse_other(call.length, call.mask if call.own else None)
        for heard in self._heard:
            heard.hear(call)

    def begin(self) -> None:
        """Forget what a pass before this one left."""
        self._norms.clear()
        self._scales.clear()
        self._entered.clear()
        self._given.clear()
        self._heard.clear()
        self._recording._newest = None

    def enter(self, path: str, module: nn.Module, args: tuple[Any, ...]) -> None:
        """Keep what goes into a block whose code cannot be watched."""
        if self._finding:
            return
        super().enter(path, module, args)
        if self.running and self._due(path):
            self._entered[path] = next(tensors_in(args)).detach().clone()

    def leave(self, module: nn.Module, output: Any) -> None:
        """Compare what comes out of such a block with what went in."""
        if self._finding:
            return
        path = self.paths[module]
        before = self._entered.pop(path, None)
        if before is not None and output is not None:
            after = next(tensors_in(output)).detach()
            for site in self._due(path):
                self.hand_over(site, before if site.operand == 0 else after - before)
        super().leave(module, output)

    def _due(self, path: str) -> Mapping[Site, None]:
        """What is to be met in the call of a module that runs, as a whole block."""
        return self.sites.get(Place(path, "block", self.counts[path, "call"] - 1), {})

    def function(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run one tensor function, which the finding of steps does too."""
        return func(*args, **kwargs) if self._finding else super().function(func, args, kwargs)

    def take(self, site: Site, value: Tensor, scale: float) -> None:
        """Keep the norms of an operand over all but padding, and let it go."""
        told = self._given[-1] if self._given else None
        given: Given | Heard | None = told if told is not None and told.masked else None
        heard = self._heard[-1] if self._heard else Heard()
        if given is None and heard.padded:
            given = heard
        if given is not None:
            value = without_padding(value, site, given)
        elif site.tokens != ():
            heard.asked.add(length_at(value, site))
        self._norms[site] = sample_norms(value, axis=site.axis, entries=site.entries)
        self._scales[site] = abs(scale)

    def end(self) -> None:
        """Put the norms of all steps together."""
        for step in self.steps:
            self.check(step, self._norms)
        states, rates, increments = (
            torch.stack([self._norms[getattr(step, at)] for step in self.steps], dim=1)
            for at in ("state_at", "rate_at", "increment_at")
        )
        scales = [self._scales[step.increment_at] for step in self.steps]
        increments = increments * increments.new_tensor(scales)
        kinds = {type(self.model.get_submodule(step.module)) for step in self.steps}
        paths = [path for module, path in self.paths.items() if type(module) in kinds]
        blocks = {path: self.counts[path, "call"] for path in paths}
        refuse_other_blocks(self._recording.blocks or blocks, blocks)
        self._recording.blocks = blocks
        self._recording._newest = Trajectory(self.steps, states, rates, increments)
        self._norms.clear()


def refuse_other_blocks(before: Mapping[str, int], now: Mapping[str, int]) -> None:
    """Raise a StepError if a block ran more or less often than in a pass before."""
    for path, count in now.items():
        if count != before[path]:
            raise StepError(
                f"Block {path!r} does not run equally often for all samples ({before[path]} and "
                f"{count} times), so that the steps depend on the data. Give samples together "
                "that take the same way through the network."
            )


class _Uncopied:
    """A hook of which a copy of its module, or a pickled one, has none."""

    def __init__(self, hook: Any = None) -> None:
        self._hook = hook

    def __call__(self, *given: Any) -> None:
        if self._hook is not None:
            self._hook(*given)

    def __reduce__(self) -> Any:
        return _Uncopied, ()


def _refuse_hidden_padding(kind: str, call: Arguments, around: Sequence[Given | None]) -> None:
    if around and pads_by_itself(call, around):
        raise StepError(
            f"The network lengthens its sequences before {kind}, and this padding would be "
            "counted. Pad to that length yourself, with 0 in the `attention_mask`."
        )
    if not around and (name := hides_padding(call)):
        raise StepError(
            f"The `{name}` of {kind} has padding and does not say which tokens it is. Give a mask "
            "of two axes, one number a token, or samples of one length without one."
        )
