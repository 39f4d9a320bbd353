"""Gates on the tokens of a text: they read no padding, and in decoders nothing that comes later.

Whether a step is causal is seen on the network as it is: the later half of its own sequence is
exchanged, and what it adds to the earlier half must stay what it was. Hooks on the modules that
are given tokens and masks tell the gates which tokens are padding in the call that runs.
"""

import copy
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from stiffnet.attention import Attention
from stiffnet.attention.constant import ConstantGate
from stiffnet.attention.tokens import RunningCalls, TokenMeans
from stiffnet.errors import StepError
from stiffnet.nested import mapped
from stiffnet.network.gate_places import Socket
from stiffnet.sequences import MASK, given_to, hides_padding, named, parameters_of, takes_tokens
from stiffnet.trajectory.batch import Example, resized
from stiffnet.trajectory.recorder import Kept
from stiffnet.trajectory.step import Site, Step
from stiffnet.trajectory.tokens import (
    SAMPLES,
    SequenceArguments,
    axes_by_sequence,
    reads_tokens,
    sequences_of_call,
)
from stiffnet.trajectory.wrappers import plain_run

_ROUNDINGS = 100  # of the largest value: what two equal computations may differ by


def is_given_tokens(model: nn.Module, call: Example) -> bool:
    """Whether a call gives a network token sequences, which may be padded."""
    return reads_tokens(model) and bool(sequences_of_call(model, call))


def causal_steps(model: nn.Module, steps: Sequence[Step], call: Example) -> set[str]:
    """Name the steps that see nothing of later tokens; a StepError if sequences are too short."""
    causal: set[str] = set()
    for sequence, axes in axes_by_sequence(model, steps, call):
        if axes is None:
            continue
        own = [step for step in steps if axes.get(step.increment_at)]
        if not own:
            continue
        half = sequence.length // 2
        if sequence.length < 3:
            raise StepError(
                f"The example has sequences of {sequence.length} tokens, too few to see whether "
                f"{type(model).__name__} is causal. Give an `example` of at least three."
            )
        usual, other = (_operands(model, own, each) for each in _exchanged(model, sequence, call))
        for step in own:
            (axis,) = axes[step.increment_at][:1]
            one, two = (v[step.increment_at].narrow(axis, 0, half) for v in (usual, other))
            rounding = _ROUNDINGS * torch.finfo(one.dtype).eps * float(one.abs().max())
            if float((one - two).abs().max()) <= rounding:
                causal.add(step.name)
    return causal


def _exchanged(model: nn.Module, sequence: SequenceArguments, call: Example) -> Iterator[Example]:
    """The call on a few samples without padding, then with other tokens in its later half.

    The last token stays: some networks look for a mark there.
    """
    call = resized(call, SAMPLES)
    whole = [
        value
        for name, value in named(parameters_of(model), *call)
        if name.endswith(MASK) and isinstance(value, Tensor)
    ]
    call = mapped(call, lambda v: torch.ones_like(v) if any(v is m for m in whole) else v)
    yield call
    again = {each.prefix: each for each in sequences_of_call(model, call)}[sequence.prefix]
    masks = [value for name, value in named(parameters_of(model), *call) if name.endswith(MASK)]

    def changed(value: Any) -> Any:
        if not again.holds(value) or any(value is mask for mask in masks):
            return value
        half, other = sequence.length // 2, value.clone()
        other[:, half:-1] = _others(value)[:, half:-1]
        return other

    yield mapped(call, changed)


def _others(value: Tensor) -> Tensor:
    """Another value in each place: for whole numbers, one that is there somewhere."""
    if value.is_floating_point():
        return -value
    known, places = value.unique(return_inverse=True)
    if len(known) > 1:
        following: Tensor = known[(places + 1) % len(known)]
        return following
    return torch.where(value > 0, value - 1, value + 1)


def _operands(model: nn.Module, steps: Sequence[Step], call: Example) -> dict[Site, Tensor]:
    with plain_run(model), Kept(model, steps, lambda value: value.detach().clone()) as seen:
        call.on(model)
    return seen.values


def read_tokens(
    model: nn.Module, sockets: Sequence[Socket], gates: Sequence[nn.Module], call: Example
) -> None:
    """Make new gates on tokens read no padding, and where a step is causal no later tokens.

    Networks that are given no tokens are left as they are, and so are gates that read no rate. A
    gate that cannot do that is refused by a StepError.
    """
    if not is_given_tokens(model, call):
        return
    steps = [socket.step for socket in sockets if socket.step is not None]
    causal = causal_steps(model, steps, call)
    calls = running_calls(model) or RunningCalls()
    for socket, gate in zip(sockets, gates, strict=True):
        if isinstance(gate, ConstantGate):
            continue
        axes = None if socket.step is None else socket.step.increment_at.tokens
        if axes == ():
            continue  # an image beside the text
        if isinstance(gate, Attention) and gate.pools_tokens:
            _refuse(socket, gate, axes, causal=socket.name in causal)
            gate.tokens = TokenMeans(calls, socket.name in causal)
        elif _mixes_positions(socket, gate):
            raise StepError(
                f"{type(gate).__name__} reads the positions of step {socket.name!r} together, "
                "padding and later tokens among them. Choose a module that reads means and leaves "
                "those out ('se', 'eca', 'ie', 'sem', 'dia', 'stepnet'), or a constant ('asr:se')."
            )


def _refuse(socket: Socket, gate: Attention, axes: Any, *, causal: bool) -> None:
    name = type(gate).__name__
    if axes is None:
        raise StepError(
            f"{name} would read padding at {socket.name!r}, as it is not proved which axis counts "
            "the tokens: the network runs on no other length. Give another `example`."
        )
    positions = gate.positions(torch.empty(socket.shape, device="meta"))
    if tuple(positions) != tuple(axes):
        raise StepError(
            f"{name} would read padding at step {socket.name!r}, whose rate of shape "
            f"{socket.shape} has its tokens along axes {tuple(axes)} and other positions beside "
            "them. Choose other steps with `where=`, or a constant module ('asr:se')."
        )
    norms = [m for m in gate.modules() if isinstance(m, nn.modules.batchnorm._BatchNorm)]
    if causal and norms:
        raise StepError(
            f"{name} has a batch norm, which in training would mix later tokens into step "
            f"{socket.name!r}, and the network is causal. Choose a module without one, such as "
            "'se' or 'ie', or `adaptor='narrow'` for StepNet."
        )


def _mixes_positions(socket: Socket, gate: nn.Module) -> bool:
    """Whether what a gate makes of a position depends on another, whatever its weights are."""
    probe = copy.deepcopy(gate).eval()
    generator = torch.Generator().manual_seed(0)

    def noise(like: Tensor) -> Tensor:
        return torch.randn(like.shape, generator=generator).to(like)

    with torch.no_grad():
        for parameter in probe.parameters():
            parameter.add_(noise(parameter))
        like = next((p for p in probe.parameters() if p.is_floating_point()), torch.empty(0))
        shape = (SAMPLES, *socket.shape[1:])
        rate, state = (noise(torch.empty(shape, dtype=like.dtype)).to(like) for _ in range(2))
        axis = socket.axis % len(shape)
        position = next((i for i in range(1, len(shape)) if i != axis), None)
        if position is None or shape[position] < 2:
            return True
        half = shape[position] // 2
        others = [value.clone() for value in (rate, state)]
        for value in others:
            value.narrow(position, half, shape[position] - half).neg_()
        with_state = bool(getattr(gate, "needs_state", False))
        one, two = (
            probe(*given[: 1 + with_state]).narrow(position, 0, half)
            for given in ((rate, state), others)
        )
    rounding = _ROUNDINGS * torch.finfo(one.dtype).eps * float(one.abs().max())
    return not float((one - two).abs().max()) <= rounding


class _Enter:
    """A hook that opens a call: an object, so that a copy of the network has its own."""

    def __init__(self, calls: RunningCalls, names: tuple[str, ...]) -> None:
        self.calls, self.names = calls, names

    def __call__(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        opened = self.calls.opened
        given = given_to(self.names, args, kwargs)
        if given is None:
            again = bool(opened) or self.calls.padded  # a part of a call whose mask is known
            looked = not again and not torch.compiler.is_compiling()
            if looked and (name := hides_padding(self.names, args, kwargs)):
                raise StepError(
                    f"The `{name}` has padding and does not say which tokens it is, so that an "
                    "attached module would read it. Give a mask of two axes, one number a token."
                )
            opened.append(opened[-1] if opened else None)
            return
        if not torch.compiler.is_compiling():
            given = given.without_full_masks()
        opened.append(given)
        masked = any(tokens.mask is not None for tokens in given.sequences)
        self.calls.padded |= masked and module.training


class _Leave:
    """A hook that closes the call again."""

    def __init__(self, calls: RunningCalls) -> None:
        self.calls = calls

    def __call__(self, module: nn.Module, args: tuple[Any, ...], output: Any) -> None:
        if self.calls.opened:
            self.calls.opened.pop()


def follow_calls(model: nn.Module) -> None:
    """Tell the gates on tokens of a network what each call is given; once is enough."""
    calls = next((c.calls for c in _token_means(model)), None)
    if calls is None or running_calls(model) is calls:
        return
    blocks = [
        path
        for path, module in model.named_modules()
        if any(isinstance(c, Attention) and c.tokens is not None for c in module.children())
    ]
    for path, module in model.named_modules():
        around = path == "" or any(f"{block}.".startswith(f"{path}.") for block in blocks)
        if around and takes_tokens(module):
            module.register_forward_pre_hook(_Enter(calls, parameters_of(module)), with_kwargs=True)
            module.register_forward_hook(_Leave(calls), always_call=True)


def forget_calls(model: nn.Module) -> None:
    """Take those hooks out of a network on whose tokens no gate is left."""
    if any(True for _ in _token_means(model)):
        return
    for module in model.modules():
        for hooks, kinds, flags in (
            (module._forward_pre_hooks, _Enter, module._forward_pre_hooks_with_kwargs),
            (module._forward_hooks, _Leave, module._forward_hooks_always_called),
        ):
            for key in [key for key, hook in hooks.items() if isinstance(hook, kinds)]:
                del hooks[key]
                flags.pop(key, None)


def running_calls(model: nn.Module) -> RunningCalls | None:
    """Return what the hooks of a network tell of its calls, if it has any."""
    hooks = (hook for module in model.modules() for hook in module._forward_pre_hooks.values())
    return next((hook.calls for hook in hooks if isinstance(hook, _Enter)), None)


def _token_means(model: nn.Module) -> Iterator[TokenMeans]:
    for module in model.modules():
        if isinstance(module, Attention) and module.tokens is not None:
            yield module.tokens
