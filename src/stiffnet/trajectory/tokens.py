"""Which axes of a step's values count tokens: seen, not guessed, on sequences of another length.

A state of shape (2, 16, 16) may be 16 tokens of 16 channels, either way round. So the network is
run on two samples, then on the same with one sequence after the other cut to half its length (or
doubled, where it takes no shorter one): the axes that change with a sequence count its tokens.
"""

import itertools
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from stiffnet.attention_layers import Heard, holds_layers, told
from stiffnet.errors import StepError
from stiffnet.nested import mapped
from stiffnet.sequences import (
    MASK,
    TOKENS,
    Given,
    named,
    parameters_of,
    refuse_unread_padding,
    says_padding,
    takes_tokens,
)
from stiffnet.trajectory.batch import Example, as_arguments, resized, samples_in
from stiffnet.trajectory.recorder import Kept
from stiffnet.trajectory.step import Site, Step
from stiffnet.trajectory.wrappers import plain_run

SAMPLES = 2
_BESIDE = (*TOKENS, MASK, "token_type_ids", "position_ids")
_MOST_BESIDE = 5  # arguments that may go with a sequence: every choice of them is tried
_WHOLE = (torch.int64, torch.int32, torch.int16, torch.uint8, torch.int8)


@dataclass(frozen=True)
class SequenceArguments:
    """The arguments of a call that make up one sequence."""

    prefix: str
    """Of their names: none, or ``decoder_``."""
    length: int
    tensors: tuple[Tensor, ...]
    axis: int = 1
    """Of these tensors, along which their tokens lie."""
    words: bool = True
    """They hold whole numbers or are known by their names; otherwise they are just sequences."""
    nameless: bool = False
    """They are known by their shapes and not by their names."""

    def holds(self, value: Any) -> bool:
        """Whether a value is one of them."""
        return any(value is tensor for tensor in self.tensors)


def reads_tokens(model: nn.Module) -> bool:
    """Whether some part of a network takes an attention mask, or is an attention layer of torch."""
    return holds_layers(model) or any(takes_tokens(module) for module in model.modules())


def sequences_of_call(model: nn.Module, call: Example) -> list[SequenceArguments]:
    """Sort the arguments of a call into its sequences, by their names and lengths."""
    given = [
        (name, value)
        for name, value in named(parameters_of(model), *call)
        if isinstance(value, Tensor) and value.ndim >= 2
    ]
    lengths = _named_lengths(given)
    if not lengths:
        return _nameless([tensor for _, tensor in given])
    found = []
    for prefix, length in lengths:
        own = {prefix + end for end in _BESIDE}
        others = {p + end for p, _ in lengths if p != prefix for end in _BESIDE}
        tensors = [
            value
            for name, value in given
            if value.shape[1] == length
            and (name in own or (name not in others and not prefix and value.ndim < 4))
        ]
        found.append(SequenceArguments(prefix, length, tuple(tensors)))
    return found


def _named_lengths(given: Sequence[tuple[str, Tensor]]) -> list[tuple[str, int]]:
    """Prefixes and lengths of the sequences that are known by their names, each once.

    Two of one name are in dictionaries. A mask may be longer than its tokens, if those go on from a
    cache, and counts where there are none.
    """
    lengths: dict[str, dict[int, None]] = {}
    for ends in (TOKENS, (MASK,)):
        before = set(lengths)
        for name, value in given:
            for end in ends:
                prefix = name.removesuffix(end)
                counts = value.ndim == 2 or end == TOKENS[1]
                if name.endswith(end) and counts and prefix not in before:
                    lengths.setdefault(prefix, {})[value.shape[1]] = None
    return [(prefix, length) for prefix, own in lengths.items() for length in own]


def _nameless(given: Sequence[Tensor]) -> list[SequenceArguments]:
    """Read arguments of any names: a table of whole numbers has tokens, whatever it is called.

    Without one, tensors of three axes are sequences: samples, tokens and channels, or the latter
    two the other way round. Images have none. Masks and the like go with what is as long.
    """
    tables = [t for t in given if t.ndim == 2 and t.dtype in _WHOLE]
    values = [t for t in given if t.is_floating_point() and t.ndim > 2]
    if not tables and any(t.ndim > 3 for t in values):
        return []
    found = []
    for tensor in tables or values:
        for axis in (1,) if tables else (1, 2):
            length = tensor.shape[axis]
            fits = [t for t in given if t.ndim < 4 and t.shape[axis if t.ndim > 2 else 1] == length]
            own = (tensor, *(t for t in fits if t is not tensor))
            found.append(
                SequenceArguments("", length, own, axis, words=bool(tables), nameless=True)
            )
    return found


def what_samples_are(model: nn.Module, inputs: Any) -> dict[str, str]:
    """Say what samples are, where they are texts, alone or beside something else."""
    found = sequences_of_call(model, as_arguments(inputs)) if reads_tokens(model) else []
    return {"samples": "samples with text"} if any(each.words for each in found) else {}


def refuse_padding(model: nn.Module, inputs: Any, what: str) -> None:
    """Refuse a batch in which an attention mask says that something is padding.

    Raises:
        StepError: If there is any; it says that `what` would count it.
    """
    call = as_arguments(inputs)
    given = named(parameters_of(model), *call)
    masks = [
        f"The `{name}` says"
        for name, value in given
        if name.endswith(MASK) and isinstance(value, Tensor) and says_padding(value)
    ]
    if not reads_tokens(model):
        refuse_unread_padding(given)
    if masks or tells_padding(model, call):
        raise StepError(
            f"{[*masks, 'Attention layers are told'][0]} that there is padding, which {what} would "
            "count among the tokens. Cut the padding off, and give samples of one length, or one "
            "at a time."
        )


def tells_padding(model: nn.Module, call: Example) -> bool:
    """Whether a call makes a network tell some attention layer of torch that keys are padding.

    A network without such layers is not run, and one that cannot be run tells nothing here.
    """
    if not holds_layers(model):
        return False
    padded = []

    def look(layer: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        heard = told(layer, args, kwargs)
        padded.append(heard is not None and heard.mask is not None)

    with ExitStack() as hooks, plain_run(model):
        for module in model.modules():
            if isinstance(module, nn.MultiheadAttention):
                hooks.enter_context(module.register_forward_pre_hook(look, with_kwargs=True))
        try:
            call.on(model)
        except StepError:
            raise
        except Exception:  # said by whoever runs it next
            return False
    return any(padded)


def with_tokens(model: nn.Module, steps: Sequence[Step], call: Example) -> list[Step]:
    """Say of every step which axes of its values count tokens.

    A network that takes no attention mask is not run, and its steps are left as they are; so are
    those of a network that runs on no other length.
    """
    if not reads_tokens(model):
        return list(steps)
    found = [axes for _, axes, _ in axes_by_sequence(model, steps, call)]
    axes = [each for each in found if each is not None]
    if not axes or len(axes) < len(found):
        return list(steps)

    def known(site: Site) -> Site:
        if not all(site in each for each in axes):
            return site
        return replace(site, tokens=tuple(sorted({i for each in axes for i in each[site]})))

    return [
        replace(
            step,
            state_at=known(step.state_at),
            increment_at=known(step.increment_at),
            rate_at=known(step.rate_at),
        )
        for step in steps
    ]


def axes_by_sequence(
    model: nn.Module, steps: Sequence[Step], call: Example
) -> Iterator[tuple[SequenceArguments, dict[Site, tuple[int, ...]] | None, Example]]:
    """For every sequence of a call, the axes of each site that change with it; None if unknown.

    The last of each is the call on a few samples whose tensors the sequence has.
    """
    if samples_in(call) < 1:
        return
    call = resized(call, SAMPLES)
    found = sequences_of_call(model, call)
    usual = _shapes(model, steps, call) if found else None
    if usual is None:
        for each in found:
            yield each, None, call
        return
    done: list[Tensor] = []
    for _, others in itertools.groupby(found, key=lambda each: id(each.tensors[0])):
        ways = list(others)
        if any(ways[0].tensors[0] is tensor for tensor in done):
            continue
        read = ((way, _changed(model, steps, call, way, usual)) for way in _ways(ways, found))
        sequence, axes = next((each for each in read if each[1] is not None), (ways[0], None))
        done += sequence.tensors if axes is not None else ()
        yield sequence, axes, call


def _ways(
    choices: Sequence[SequenceArguments], found: Sequence[SequenceArguments]
) -> Iterator[SequenceArguments]:
    """In which ways the arguments of a call may make up one of its sequences, likely ones first.

    Where there are several sequences without names, any of the others may go with this one.
    """
    alone = len({id(each.tensors[0]) for each in found}) == 1
    for each in choices:
        first, *others = each.tensors
        if alone or not each.nameless:
            yield each
            continue
        for count in range(len(others[:_MOST_BESIDE]) + 1):
            for some in itertools.combinations(others[:_MOST_BESIDE], count):
                yield replace(each, tensors=(first, *some))


def _changed(
    model: nn.Module,
    steps: Sequence[Step],
    call: Example,
    sequence: SequenceArguments,
    usual: dict[Site, tuple[int, ...]],
) -> dict[Site, tuple[int, ...]] | None:
    for length in ((sequence.length + 1) // 2, 2 * sequence.length):
        shapes = _shapes(model, steps, at_length(call, sequence, length))
        if shapes is None or length == sequence.length:
            continue
        return {
            site: tuple(i for i, n in enumerate(shape) if shapes[site][i] != n)
            for site, shape in usual.items()
            if site in shapes
        }
    return None


def at_length(call: Example, sequence: SequenceArguments, length: int) -> Example:
    """Return a call with its sequence cut, or repeated once, to another length.

    A square of its length, which is no sequence of samples, says who reads whom: it is changed
    along both axes.
    """
    square = (sequence.length, sequence.length)

    def along(value: Tensor, axis: int) -> Tensor:
        whole = torch.cat([value, value], axis) if length > sequence.length else value
        return whole.narrow(axis, 0, length)

    def changed(value: Any) -> Any:
        if isinstance(value, Tensor) and value.shape == square and len(value) != SAMPLES:
            return along(along(value, 0), 1)
        if not sequence.holds(value):
            return value
        return along(value, sequence.axis if value.ndim > 2 else 1)

    other: Example = mapped(call, changed)
    return other


def _shapes(
    model: nn.Module, steps: Sequence[Step], call: Example
) -> dict[Site, tuple[int, ...]] | None:
    """Shapes of the values at all sites in a pass; None if it cannot be run."""
    try:
        with plain_run(model), Kept(model, steps, lambda value: tuple(value.shape)) as seen:
            call.on(model)
    except Exception:  # made for one length
        return None
    return seen.values


def length_at(value: Tensor, site: Site) -> int | None:
    """Return how many tokens a value has that is met at `site`; None where that is not known."""
    if site.tokens is None or len(site.tokens) != 1:
        return None
    (axis,) = site.tokens
    return site.entries if axis == site.axis else value.shape[axis]


def without_padding(value: Tensor, site: Site, given: Given | Heard) -> Tensor:
    """Return a value with zeros where there is padding in the `given` sequences of its call.

    It is met at `site`, whose `tokens` are known; without tokens it is returned as it is. A
    StepError if it cannot be told which positions are padding.
    """
    if site.tokens == ():
        return value
    rows, length = value.shape[site.axis] // site.entries, length_at(value, site)
    try:
        if site.tokens is None:
            raise StepError(
                "the network runs on no other length, so that it is not proved which axis counts "
                "the tokens"
            )
        if length is None:
            raise StepError("several axes of its state count tokens")
        (axis,) = site.tokens
        if axis != site.axis and site.entries > 1:
            raise StepError("its state mixes samples and other positions in one axis")
        mask = given.mask_for(rows, length)
    except StepError as error:
        raise StepError(
            f"The batch has padding, and in {site.module!r} {error}. Give batches without padding: "
            "samples of one length, or one at a time."
        ) from error
    if mask is None:
        return value
    shape = [1] * value.ndim
    if axis == site.axis:
        mask, shape[axis] = mask.flatten(), rows * length
    else:
        mask = mask if site.axis < axis else mask.transpose(0, 1)
        shape[site.axis], shape[axis] = rows, length
    return torch.where(mask.reshape(shape).to(value.device), value.detach(), 0)
