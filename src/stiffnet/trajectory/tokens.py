"""Which axes of a step's values count tokens: seen, not guessed, on sequences of another length.

A state of shape (2, 16, 16) may be 16 tokens of 16 channels, either way round. So the network is
run on two samples, then on the same with one sequence after the other cut to half its length (or
doubled, where it takes no shorter one): the axes that change with a sequence count its tokens.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from stiffnet.errors import StepError
from stiffnet.nested import mapped
from stiffnet.sequences import (
    MASK,
    TOKENS,
    Given,
    named,
    parameters_of,
    says_padding,
    takes_tokens,
)
from stiffnet.trajectory.batch import Example, as_arguments, resized, samples_in
from stiffnet.trajectory.recorder import Kept
from stiffnet.trajectory.step import Site, Step
from stiffnet.trajectory.wrappers import plain_run

SAMPLES = 2
_BESIDE = (*TOKENS, MASK, "token_type_ids", "position_ids")


@dataclass(frozen=True)
class SequenceArguments:
    """The arguments of a call that make up one sequence."""

    prefix: str
    """Of their names: none, or ``decoder_``."""
    length: int
    tensors: tuple[Tensor, ...]

    def holds(self, value: Any) -> bool:
        """Whether a value is one of them."""
        return any(value is tensor for tensor in self.tensors)


def reads_tokens(model: nn.Module) -> bool:
    """Whether some part of a network takes an attention mask."""
    return any(takes_tokens(module) for module in model.modules())


def sequences_of_call(model: nn.Module, call: Example) -> list[SequenceArguments]:
    """Sort the arguments of a call into its sequences, by their names and lengths."""
    given = [
        (name, value)
        for name, value in named(parameters_of(model), *call)
        if isinstance(value, Tensor) and value.ndim >= 2
    ]
    lengths: dict[str, int] = {}
    for name, value in given:
        ends = [end for end in (*TOKENS, MASK) if name.endswith(end)]
        if ends and (value.ndim == 2 or ends[0] == TOKENS[1]):
            lengths.setdefault(name.removesuffix(ends[0]), value.shape[1])
    if not lengths:  # whatever it is called, a table of whole numbers is one of tokens
        tables = [t for _, t in given if t.ndim == 2 and not t.is_floating_point()]
        lengths = {"": tables[0].shape[1]} if tables else {}
    found = []
    for prefix, length in lengths.items():
        own = {prefix + end for end in _BESIDE}
        others = {p + end for p in lengths if p != prefix for end in _BESIDE}
        tensors = [
            value
            for name, value in given
            if value.shape[1] == length
            and (name in own or (name not in others and not prefix and value.ndim < 4))
        ]
        found.append(SequenceArguments(prefix, length, tuple(tensors)))
    return found


def what_samples_are(model: nn.Module, inputs: Any) -> dict[str, str]:
    """Say what samples are, where they are texts, alone or beside something else."""
    is_text = reads_tokens(model) and sequences_of_call(model, as_arguments(inputs))
    return {"samples": "samples with text"} if is_text else {}


def refuse_padding(model: nn.Module, inputs: Any, what: str) -> None:
    """Refuse a batch in which an attention mask says that something is padding.

    Raises:
        StepError: If there is any; it says that `what` would count it.
    """
    args, kwargs = as_arguments(inputs)
    for name, value in named(parameters_of(model), args, kwargs):
        if name.endswith(MASK) and isinstance(value, Tensor) and says_padding(value):
            raise StepError(
                f"The `{name}` says that there is padding, which {what} would count among the "
                "tokens. Cut the padding off, and give samples of one length, or one at a time."
            )


def with_tokens(model: nn.Module, steps: Sequence[Step], call: Example) -> list[Step]:
    """Say of every step which axes of its values count tokens.

    A network that takes no attention mask is not run, and its steps are left as they are; so are
    those of a network that runs on no other length.
    """
    if not reads_tokens(model):
        return list(steps)
    found = [axes for _, axes in axes_by_sequence(model, steps, call)]
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
) -> Iterator[tuple[SequenceArguments, dict[Site, tuple[int, ...]] | None]]:
    """For every sequence of a call, the axes of each site that change with it; None if unknown."""
    if samples_in(call) < 1:
        return
    call = resized(call, SAMPLES)
    usual: dict[Site, tuple[int, ...]] | None = None
    for sequence in sequences_of_call(model, call):
        if usual is None:
            usual = _shapes(model, steps, call)
        yield sequence, usual and _changed(model, steps, call, sequence, usual)


def _changed(
    model: nn.Module,
    steps: Sequence[Step],
    call: Example,
    sequence: SequenceArguments,
    usual: dict[Site, tuple[int, ...]],
) -> dict[Site, tuple[int, ...]] | None:
    def halved(tensor: Tensor) -> Tensor:
        return tensor[:, : (tensor.shape[1] + 1) // 2]

    def doubled(tensor: Tensor) -> Tensor:
        return torch.cat([tensor, tensor], dim=1)

    for change in (halved, doubled):
        other = mapped(call, lambda v, f=change: f(v) if sequence.holds(v) else v)  # type: ignore[misc]
        shapes = _shapes(model, steps, other)
        if shapes is None or change(torch.empty(1, sequence.length)).shape[1] == sequence.length:
            continue
        return {
            site: tuple(i for i, n in enumerate(shape) if shapes[site][i] != n)
            for site, shape in usual.items()
            if site in shapes
        }
    return None


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


def without_padding(value: Tensor, site: Site, given: Given) -> Tensor:
    """Return a value with zeros where there is padding in the `given` sequences of its call.

    It is met at `site`, whose `tokens` are known; without tokens it is returned as it is. A
    StepError if it cannot be told which positions are padding.
    """
    if site.tokens is None:
        raise StepError(_refusal(site, "the network runs on no other length, so that it is not "
                                       "proved which axis counts the tokens"))  # fmt: skip
    if not site.tokens:
        return value
    if len(site.tokens) > 1:
        raise StepError(_refusal(site, "several axes of its state count tokens"))
    (axis,) = site.tokens
    rows = value.shape[site.axis] // site.entries
    length = site.entries if axis == site.axis else value.shape[axis]
    if axis != site.axis and site.entries > 1:
        raise StepError(_refusal(site, "its state mixes samples and other positions in one axis"))
    try:
        mask = given.mask_for(rows, length)
    except StepError as error:
        raise StepError(_refusal(site, str(error))) from error
    if mask is None:
        return value
    shape = [1] * value.ndim
    if axis == site.axis:
        mask, shape[axis] = mask.flatten(), rows * length
    else:
        mask = mask if site.axis < axis else mask.transpose(0, 1)
        shape[site.axis], shape[axis] = rows, length
    return torch.where(mask.reshape(shape).to(value.device), value.detach(), 0)


def _refusal(site: Site, reason: str) -> str:
    return (
        f"The batch has padding, and in {site.module!r} {reason}. Give batches without padding: "
        "samples of one length, or one at a time."
    )
