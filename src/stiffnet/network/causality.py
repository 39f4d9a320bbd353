"""Which steps of a network see nothing of later tokens: seen on the network as it is.

The later half of its own sequence is exchanged, and what a step adds to the earlier half must stay
what it was.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from stiffnet.errors import StepError
from stiffnet.nested import mapped
from stiffnet.sequences import MASK, named, parameters_of
from stiffnet.trajectory.batch import Example
from stiffnet.trajectory.recorder import Kept
from stiffnet.trajectory.step import Site, Step
from stiffnet.trajectory.tokens import SequenceArguments, axes_by_sequence, tells_padding
from stiffnet.trajectory.wrappers import plain_run

ROUNDINGS = 100  # of the largest value: what two equal computations may differ by
_ROUNDINGS_OF_HALVES = 2  # a hundred would be most of what bfloat16 can tell apart
_SHARE_OF_HALVES = 0.01  # of entries that differ: more than what rounds to another number by chance


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
    roundings = _ROUNDINGS_OF_HALVES if halves else ROUNDINGS
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

    def seen(marks: int) -> tuple[list[dict[Site, Tensor]], int]:
        values = []
        with _without_zeros(model):
            for each in _exchanged(model, sequence, call, marks):
                with plain_run(model), Kept(model, steps, torch.clone) as kept:
                    each.on(model)
                values.append(kept.values)
        return values, marks

    try:
        return seen(marks=0)
    except Exception:  # foreign code
        return seen(marks=1)


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

    def shown(value: Any) -> Any:
        if not isinstance(value, Tensor) or value.ndim != 2:
            return value
        scores = value.is_floating_point() and bool(torch.isneginf(value).any())
        return torch.zeros_like(value) if scores or value.dtype == torch.bool else value

    boolean: Example = mapped(full, shown)
    if tells_padding(model, boolean):
        raise StepError(
            f"There is padding in the example, which hides whether {type(model).__name__} is "
            "causal. Give an `example` without padding."
        )
    return boolean


def _others(value: Tensor) -> Tensor:
    """Another value in each place: for whole numbers, one that is there somewhere."""
    if value.is_floating_point():
        return -value
    known, places = value.unique(return_inverse=True)
    if len(known) > 1:
        following: Tensor = known[(places + 1) % len(known)]
        return following
    return torch.where(value > 0, value - 1, value + 1)
