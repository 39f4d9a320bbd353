"""Gates on the tokens of a text: they read no padding, and in decoders nothing that comes later.

Whether a step is causal is seen on the network as it is: the later half of its own sequence is
exchanged, and what it adds to the earlier half must stay what it was. Hooks on the modules that
are given tokens and masks, and on the attention layers of torch, tell the gates which tokens are
padding in the call that runs.
"""

import copy
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from stiffnet.attention import Attention
from stiffnet.attention.constant import ConstantGate
from stiffnet.attention.tokens import RunningCalls, TokenMeans
from stiffnet.attention_layers import Heard, holds_layers, told
from stiffnet.errors import StepError
from stiffnet.nested import mapped
from stiffnet.network.gate_places import Socket
from stiffnet.network.gated_block import gates_of
from stiffnet.sequences import (
    MASK,
    TOKENS,
    given_to,
    hides_padding,
    keeps_apart,
    named,
    pads_by_itself,
    parameters_of,
    refuse_unread_padding,
    takes_tokens,
)
from stiffnet.trajectory.batch import Example
from stiffnet.trajectory.recorder import Kept
from stiffnet.trajectory.step import Site, Step
from stiffnet.trajectory.tokens import (
    SAMPLES,
    SequenceArguments,
    axes_by_sequence,
    reads_tokens,
    sequences_of_call,
    tells_padding,
)
from stiffnet.trajectory.wrappers import plain_run

_ROUNDINGS = 100  # of the largest value: what two equal computations may differ by
_ROUNDINGS_OF_HALVES = 2  # a hundred would be most of what bfloat16 can tell apart
_SHARE_OF_HALVES = 0.01  # of entries that differ: more than what rounds to another number by chance


def is_given_tokens(model: nn.Module, call: Example) -> bool:
    """Whether a call gives a network sequences of tokens, which may be padded."""
    return reads_tokens(model) and bool(sequences_of_call(model, call))


def causal_steps(model: nn.Module, steps: Sequence[Step], call: Example) -> set[str]:
    """Name the steps that see nothing of later tokens; a StepError if sequences are too short.

    A step that sees no other token at all is as causal as those that see earlier ones, if there are
    any. Where no step sees another token, it is causal in a text, and not in other sequences.
    """
    causal: set[str] = set()
    for sequence, axes, few in axes_by_sequence(model, steps, call):
        known = {step: _token_axes(step, sequence, axes) for step in steps}
        own = {step: found for step, found in known.items() if found}
        if not own:
            continue
        if sequence.length < 3:
            if not sequence.words:
                continue
            raise StepError(
                f"The example has sequences of {sequence.length} tokens, too few to see whether "
                f"{type(model).__name__} is causal. Give an `example` of at least three."
            )
        seen, marks = _with_others(model, sequence, few, list(own))
        back, forth, alone = set(), set(), set()
        for step, axes_of_step in own.items():
            values = [each[step.increment_at] for each in seen]
            reads = [_reads(values, axis, sequence.length, marks) for axis in axes_of_step]
            if all(later for later, _ in reads):
                back.add(step.name)
            elif any(earlier for later, earlier in reads if not later):
                forth.add(step.name)
            else:
                alone.add(step.name)
        causal |= forth
        if forth or (sequence.words and not back):
            causal |= alone
    return causal


def _reads(values: Sequence[Tensor], axis: int, length: int, marks: int) -> tuple[bool, bool]:
    """Whether tokens read what comes after them, all of it, and what comes before them.

    The values are as usual, then with others in the later half, in the earlier half, and in the
    last token before the `marks`. That one may be hidden although others are not, as after the
    prefix of a prefix language model: then those before it stay the same bit by bit.
    """
    usual, later, earlier, last = (_in_rows(value, axis, length) for value in values)
    end = usual.shape[-1]
    half, at = end * (length // 2) // length, length - marks - 1
    hidden = end == length and torch.equal(usual[..., :at], last[..., :at])
    hidden = hidden and _differ(usual[..., at:], last[..., at:])
    after = _differ(usual[..., :half], later[..., :half]) and not hidden
    return after, _differ(usual[..., half:], earlier[..., half:])


def _in_rows(value: Tensor, axis: int, length: int) -> Tensor:
    """Positions last; where there are several for each token, as many rows of tokens."""
    value = value.movedim(axis, -1)
    whole = value.shape[-1] % length == 0
    return value.unflatten(-1, (-1, length)) if whole else value


def _token_axes(
    step: Step, sequence: SequenceArguments, axes: dict[Site, tuple[int, ...]] | None
) -> tuple[int, ...]:
    """Along which axis the tokens of a step's increment lie; none if they are not of this sequence.

    In a network that runs on one length only, all axes of that length are; and so it is for a step
    that was not met at the other length, as after a loop over the tokens.
    """
    at = step.increment_at
    if at.entries > 1:
        return ()
    if axes is not None and at in axes:
        return axes[at][:1]
    others = [axis for axis in range(at.dims) if axis != at.axis]
    return tuple(axis for axis, n in zip(others, step.shape, strict=True) if n == sequence.length)


def _differ(one: Tensor, two: Tensor) -> bool:
    """Whether two values differ by more than what two equal computations may.

    What half a float can tell apart may be more than what other tokens change in many of them.
    """
    if not one.numel():
        return False
    info = torch.finfo(one.dtype)
    halves = info.bits <= 16
    if halves and float((one != two).double().mean()) > _SHARE_OF_HALVES:
        return True
    roundings = _ROUNDINGS_OF_HALVES if halves else _ROUNDINGS
    scale = max(float(one.abs().max()), float(two.abs().max()))
    return not float((one - two).abs().max()) <= roundings * info.eps * scale


@contextmanager
def _without_zeros(model: nn.Module) -> Iterator[None]:
    """Give parameters that are all zero some noise meanwhile: they hide what the code reads."""
    generator = torch.Generator().manual_seed(0)
    zeros = [p for p in model.parameters() if p.is_floating_point() and not bool(p.any())]
    with torch.no_grad():
        try:
            for parameter in zeros:
                noise = torch.randn(parameter.shape, generator=generator)
                parameter.copy_(0.1 * noise)
            yield
        finally:
            for parameter in zeros:
                parameter.zero_()


def _with_others(
    model: nn.Module, sequence: SequenceArguments, call: Example, steps: Sequence[Step]
) -> tuple[list[dict[Site, Tensor]], int]:
    """The operands of the steps as they are, and with other tokens: later, earlier, the last.

    The first and the last token stay only where the network does not run without its own: some
    look for a mark there; so many marks are returned, too. A shift around the end shows at the last
    token alone.
    """
    for marks in (0, 1):
        try:
            with _without_zeros(model):
                passes = _exchanged(model, sequence, call, marks)
                return [_operands(model, steps, each) for each in passes], marks
        except Exception:  # foreign code
            if marks:
                raise
    raise AssertionError("The loop returns or raises.")


def _exchanged(
    model: nn.Module, sequence: SequenceArguments, call: Example, marks: int
) -> Iterator[Example]:
    """The call on a few samples without padding, then with other tokens: later, earlier, the last.

    So many `marks` at the beginning and at the end stay.
    """
    call = _without_padding(model, call)
    yield call
    masks = [value for name, value in named(parameters_of(model), *call) if name.endswith(MASK)]
    half, last = sequence.length // 2, sequence.length - marks
    for start, end in ((half, last), (marks, half), (last - 1, last)):

        def changed(value: Any, start: int = start, end: int = end) -> Any:
            if not sequence.holds(value) or any(value is mask for mask in masks):
                return value
            if value.dtype == torch.bool or (value.is_floating_point() and value.ndim < 3):
                return value  # a mask of another name
            axis, other = (sequence.axis if value.ndim > 2 else 1), value.clone()
            part = other.narrow(axis, start, end - start)
            part.copy_(_others(value).narrow(axis, start, end - start))
            return other

        yield mapped(call, changed)


def _without_padding(model: nn.Module, call: Example) -> Example:
    """Return the call with masks that say that nothing is padding."""
    whole = [
        value
        for name, value in named(parameters_of(model), *call)
        if name.endswith(MASK) and isinstance(value, Tensor)
    ]
    full: Example = mapped(call, lambda v: torch.ones_like(v) if any(v is m for m in whole) else v)
    if not tells_padding(model, full):
        return full
    boolean: Example = mapped(
        full,
        lambda v: (
            torch.zeros_like(v)
            if isinstance(v, Tensor) and v.ndim == 2 and (v.dtype == torch.bool or _is_scores(v))
            else v
        ),
    )
    if tells_padding(model, boolean):
        raise StepError(
            f"There is padding in the example, which hides whether {type(model).__name__} is "
            "causal. Give an `example` without padding."
        )
    return boolean


def _is_scores(value: Tensor) -> bool:
    return value.is_floating_point() and bool(torch.isneginf(value).any())


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
) -> RunningCalls | None:
    """Make new gates on tokens read no padding, and where a step is causal no later tokens.

    Networks that are given no sequence are left as they are, and so are gates that read no rate. A
    gate that cannot do that is refused by a StepError; but where the sequences are no words, and
    the step is not causal, it reads all positions, and padding is refused when it is met. Returns
    what the gates are to be told of calls; see `follow_calls`.
    """
    found = sequences_of_call(model, call)
    if not found:
        return None
    masked, words = reads_tokens(model), found[0].words
    by_name = any(takes_tokens(module) for module in model.modules())
    steps = [socket.step for socket in sockets if socket.step is not None]
    causal = causal_steps(model, steps, call)
    calls = running_calls(model) or RunningCalls()
    several = len(parameters_of(model)) > 1 or any(isinstance(v, Mapping) for v in call.args)
    calls.told_more = several and not masked
    for socket, gate in zip(sockets, gates, strict=True):
        sees = socket.name in causal
        axes = None if socket.step is None else socket.step.increment_at.tokens
        if isinstance(gate, ConstantGate) or not (masked or sees):
            continue
        beside = axes == () and not sees  # an image, or what else there is beside the tokens
        if beside and (by_name or not isinstance(gate, Attention) or not gate.pools_tokens):
            continue
        strict = not beside and (sees or (words and masked))
        if isinstance(gate, Attention) and gate.pools_tokens:
            if strict or _reads_one_axis(socket, gate, axes or None):
                _refuse(socket, gate, axes or None, causal=sees, by_name=by_name)
                if sees:
                    _refuse_rows(socket, gate, [sequence.length for sequence in found])
                gate.tokens = TokenMeans(calls, sees)
                calls.causal &= sees
            elif not beside:
                calls.unread += (socket.name,)
        elif not _mixes_positions(socket, gate):
            continue
        elif not strict:
            calls.unread += (socket.name,)
        else:
            raise StepError(
                f"{type(gate).__name__} reads the positions of step {socket.name!r} together, "
                "padding and later tokens among them. Choose a module that reads means and leaves "
                "those out ('se', 'eca', 'ie', 'sem', 'dia', 'stepnet'), or a constant ('asr:se')."
            )
    return calls


def _reads_one_axis(socket: Socket, gate: Attention, axes: tuple[int, ...] | None) -> bool:
    positions = tuple(gate.positions(torch.empty(socket.shape, device="meta")))
    return len(positions) == 1 if axes is None else positions == tuple(axes)


def _refuse(socket: Socket, gate: Attention, axes: Any, *, causal: bool, by_name: bool) -> None:
    """Refuse a gate that would read padding, or in a causal step later tokens.

    A mask that a network takes `by_name` may be about any axis of its length, so that the one that
    counts tokens must be known. What an attention layer is told is about the positions.
    """
    name = type(gate).__name__
    positions = tuple(gate.positions(torch.empty(socket.shape, device="meta")))
    if axes is None and not by_name and len(positions) == 1:
        axes = positions
    if axes is None:
        raise StepError(
            f"{name} would read padding at {socket.name!r}, as it is not proved which axis counts "
            "the tokens: the network runs on no other length. Give another `example`."
        )
    if positions != tuple(axes):
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


def _refuse_rows(socket: Socket, gate: Attention, lengths: Sequence[int]) -> None:
    """Refuse a causal step with several positions for each token, of which some come later."""
    (axis,) = gate.positions(torch.empty(socket.shape, device="meta"))
    positions = socket.shape[axis]
    if positions in lengths or all(positions % length for length in lengths):
        return
    raise StepError(
        f"{type(gate).__name__} would read later tokens at step {socket.name!r}, which is causal "
        f"and has {positions} positions for the sequence of the example, several for each token. "
        "Choose other steps with `where=`, or a constant module ('asr:se')."
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
        if given is None and opened and pads_by_itself(self.names, args, kwargs, opened):
            raise StepError(
                f"The network lengthens its sequences before {type(module).__name__}, and an "
                "attached module would read this padding. Pad to that length yourself, with 0 in "
                "the `attention_mask`."
            )
        if given is None:
            again = bool(opened) or self.calls.padded  # a part of a call whose mask is known
            looked = not again and not torch.compiler.is_compiling()
            if looked and (name := hides_padding(self.names, args, kwargs)):
                raise StepError(
                    f"The `{name}` has padding and does not say which tokens it is, so that an "
                    "attached module would read it. Give a mask of two axes, one number a token."
                )
            self._refuse_apart(args, kwargs)
            opened.append(opened[-1] if opened else None)
            return
        self._refuse_apart(args, kwargs)
        if not torch.compiler.is_compiling():
            given = given.without_full_masks()
        given = given.within(opened[-1] if opened else None)
        opened.append(given)
        self.calls.padded |= given.masked and module.training

    def _refuse_apart(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        inner = bool(self.calls.opened) or not any(n.endswith(TOKENS) for n in self.names)
        if inner or torch.compiler.is_compiling():
            return
        if name := keeps_apart(self.names, args, kwargs, causal=self.calls.causal):
            raise StepError(
                f"The `{name}` hides tokens of a sequence from each other, as in packed sequences, "
                "and an attached module would read their mean. Give each sequence as a sample of "
                "its own, and a mask of two axes, one number a token."
            )


class _Look:
    """A hook that refuses padding of which only the network itself can know."""

    def __init__(self, names: tuple[str, ...]) -> None:
        self.names = names

    def __call__(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        refuse_unread_padding(self.names, args, kwargs)


class _Leave:
    """A hook that closes the call again."""

    def __init__(self, calls: RunningCalls) -> None:
        self.calls = calls

    def __call__(self, module: nn.Module, args: tuple[Any, ...], output: Any) -> None:
        if self.calls.opened:
            self.calls.opened.pop()


class _Listen:
    """A hook that opens a call of a part with attention layers of torch in it."""

    def __init__(self, calls: RunningCalls) -> None:
        self.calls = calls

    def __call__(self, module: nn.Module, args: tuple[Any, ...]) -> None:
        self.calls.heard.append(Heard(id(module)))


class _Hear:
    """A hook that notes what such a layer is told."""

    def __init__(self, calls: RunningCalls) -> None:
        self.calls = calls

    def __call__(
        self, module: nn.MultiheadAttention, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> None:
        call = told(module, args, kwargs)
        if call is not None:
            self.calls.hear(call, training=module.training)


class _Hush:
    """A hook that closes the call of the part again."""

    def __init__(self, calls: RunningCalls) -> None:
        self.calls = calls

    def __call__(self, module: nn.Module, args: tuple[Any, ...], output: Any) -> None:
        if self.calls.heard:
            self.calls.heard.pop()


def follow_calls(model: nn.Module, calls: RunningCalls | None) -> None:
    """Tell the gates on tokens of a network what each call is given; again for new gates."""
    blocks = _blocks(model)
    if calls is not None and calls.told_more and blocks and not _has(model, _Look):
        model.register_forward_pre_hook(_Look(parameters_of(model)), with_kwargs=True)
    if calls is None or not (calls.unread or any(True for _ in _token_means(model))):
        return
    scopes: set[str] = set()
    for path, module in model.named_modules():
        around = path == "" or any(f"{block}.".startswith(f"{path}.") for block in blocks)
        if around and takes_tokens(module) and not _has(module, _Enter):
            module.register_forward_pre_hook(_Enter(calls, parameters_of(module)), with_kwargs=True)
            module.register_forward_hook(_Leave(calls), always_call=True)
    for block in blocks:  # whose layers tell it, or else those of the part around it
        parts = block.split(".")
        above = (".".join(parts[:end]) for end in range(len(parts), 0, -1))
        scopes |= {next((p for p in above if holds_layers(model.get_submodule(p))), "")}
    for path in scopes:
        scope = model.get_submodule(path)
        if holds_layers(scope) and not _has(scope, _Listen):
            scope.register_forward_pre_hook(_Listen(calls))
            scope.register_forward_hook(_Hush(calls), always_call=True)
        for layer in scope.modules():
            if isinstance(layer, nn.MultiheadAttention) and not _has(layer, _Hear):
                layer.register_forward_pre_hook(_Hear(calls), with_kwargs=True)


def _blocks(model: nn.Module) -> list[str]:
    """Paths of the blocks with gates that read their rate."""
    return [
        path
        for path, module in model.named_modules()
        for gate in gates_of(module)
        if not isinstance(getattr(module, gate.child), ConstantGate)
    ]


def _has(module: nn.Module, kind: type) -> bool:
    return any(isinstance(hook, kind) for hook in module._forward_pre_hooks.values())


def forget_calls(model: nn.Module) -> None:
    """Take those hooks out of a network on whose tokens no gate is left."""
    if _blocks(model):
        return
    before, after = (_Enter, _Look, _Listen, _Hear), (_Leave, _Hush)
    for module in model.modules():
        for hooks, kinds, flags in (
            (module._forward_pre_hooks, before, module._forward_pre_hooks_with_kwargs),
            (module._forward_hooks, after, module._forward_hooks_always_called),
        ):
            for key in [key for key, hook in hooks.items() if isinstance(hook, kinds)]:
                del hooks[key]
                flags.pop(key, None)


def running_calls(model: nn.Module) -> RunningCalls | None:
    """Return what the hooks of a network tell of its calls, if it has any."""
    hooks = (hook for module in model.modules() for hook in module._forward_pre_hooks.values())
    return next((hook.calls for hook in hooks if isinstance(hook, _Enter | _Hear)), None)


def _token_means(model: nn.Module) -> Iterator[TokenMeans]:
    for module in model.modules():
        if isinstance(module, Attention) and module.tokens is not None:
            yield module.tokens
