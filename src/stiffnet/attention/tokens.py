"""Means over tokens: of those that are there, or, in causal networks, of those so far.

The mean over all positions that is right for an image reads padding, which is no part of a
sentence, and the tokens to come, which a decoder must not see. A gate that is put on the tokens of
a network has `TokenMeans`, which asks for the call that is running what is padding in it.
"""

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from stiffnet.attention_layers import Heard, Told
from stiffnet.errors import StepError
from stiffnet.sequences import Given


@dataclass
class RunningCalls:
    """The calls that are running and were given tokens, the outermost first: hooks open them."""

    opened: list[Given | None] = field(default_factory=list)
    heard: list[Heard] = field(default_factory=list)
    """By attention layers of torch, in the running calls of parts that have such layers."""
    padded: bool = False
    """Some call in training had padding: what is computed again later would have to know it."""
    causal: bool = True
    """No gate reads later tokens."""
    told_more: bool = False
    """The network takes no known mask, but may be told of padding by another argument."""
    unread: tuple[str, ...] = ()
    """Steps whose gates read all positions, so that there may be no padding."""

    def __getstate__(self) -> dict[str, Any]:
        return vars(self) | {"opened": [], "heard": []}

    def hear(self, call: Told, *, training: bool) -> None:
        """Take note of what an attention layer is told, or refuse it by a StepError."""
        given = self.opened[-1] if self.opened else None
        if given is not None:
            given.refuse_other(call.length, call.mask if call.own else None)
        elif call.mask is not None and self.unread:
            raise StepError(
                f"The module attached to {self.unread[0]!r} reads all positions, and an attention "
                "layer is told that some are padding. Give samples of one length without padding, "
                "or detach it and attach a constant one, 'asr:se'."
            )
        inside: set[int] = set()
        for each in reversed(self.heard):
            if each.of in inside:  # a call within one of the same part, which has not begun
                break
            inside.add(each.of)
            each.hear(call)
        self.padded |= call.mask is not None and training


@dataclass
class TokenMeans:
    """Takes means over the tokens of a sequence."""

    calls: RunningCalls
    causal: bool
    """Each token has a mean of its own, over itself and those before it."""

    def mean(self, x: Tensor, axes: list[int]) -> Tensor:
        """Means of (samples, channels); in causal networks (samples · tokens, channels).

        With padding or without, the same products and sums are written down in its code, which are
        what a step's place is counted by: `divide` is none of them, as it is for a mean.

        Args:
            x: A batch of values.
            axes: Of its positions: one, the tokens.
        """
        (axis,) = axes
        mask = self.mask(x.shape[0], x.shape[axis])
        if mask is None and not self.causal:
            return x.mean(axis)
        kept = x.movedim(axis, 1)
        dtype = torch.promote_types(x.dtype, torch.float32)
        if mask is None:
            there = torch.ones(1, x.shape[axis], 1, dtype=dtype, device=x.device)
        else:
            there = mask.to(x.device).unsqueeze(-1)
            kept, there = torch.where(there, kept, 0), there.to(dtype)
        if self.causal:
            means = kept.cumsum(1, dtype=dtype).divide(there.cumsum(1).clamp(min=1))
            return means.flatten(0, 1).to(x.dtype)
        return kept.sum(1, dtype=dtype).divide(there.sum(1).clamp(min=1)).to(x.dtype)

    def alone(self, x: Tensor, axes: list[int]) -> tuple[Tensor, Tensor]:
        """Return values with zeros at padding, and the number of tokens, (samples, 1)."""
        (axis,) = axes
        mask = self.mask(x.shape[0], x.shape[axis])
        if mask is None:
            return x, x.new_full((x.shape[0], 1), x.shape[axis])
        there = mask.to(x.device)
        kept = torch.where(there.unsqueeze(-1), x.movedim(axis, 1), 0).movedim(1, axis)
        return kept, there.sum(1, keepdim=True).to(x.dtype)

    def spread(self, gate: Tensor, rate: Tensor, channel_axis: int) -> Tensor:
        """Lay out the step sizes of `mean`'s rows so that they broadcast over the rate."""
        samples, length, channels = rate.movedim(channel_axis, -1).shape
        rows = gate.reshape(samples, length if self.causal else 1, channels)
        return rows.movedim(-1, channel_axis).to(rate.dtype)

    def mask(self, samples: int, length: int) -> Tensor | None:
        """Return (samples, length), False where the running call has padding; None without any.

        Raises:
            StepError: If that cannot be told.
        """
        given: Given | Heard | None = self.calls.opened[-1] if self.calls.opened else None
        if given is None and self.calls.heard:
            given = self.calls.heard[-1]
        if given is None:
            if self.calls.padded:
                raise StepError(
                    "An attached module ran outside of a call of its network that says what is "
                    "padding, as gradient checkpointing runs it. Turn checkpointing off, give "
                    "batches without padding, or fold or detach the module."
                )
            return None
        if isinstance(given, Heard):
            self._refuse_hidden(given, length)
        elif given.cached:
            raise StepError(
                "An attached module reads the mean of all tokens so far, and this call has only "
                "the newest of them beside a cache of keys and values. Call the network with "
                "`use_cache=False`, on whole sequences."
            )
        try:
            return given.mask_for(samples, length)
        except StepError as error:
            raise StepError(
                f"An attached module reads the mean of the tokens, and {error}. Give it the "
                "network's own tokens and their `attention_mask`, of one number a token, or "
                "samples without padding."
            ) from error

    def _refuse_hidden(self, heard: Heard, length: int) -> None:
        """Refuse a call that hides tokens that the gate reads."""
        call = heard.own.get(length)
        if call is None or torch.compiler.is_compiling():
            return
        if call.apart():
            raise StepError(
                "An attention layer is told to hide other tokens in one sample than in another, as "
                "in packed sequences, and an attached module reads the mean of all. Give each "
                "sequence as a sample of its own."
            )
        if self.causal or not call.causal():
            return
        raise StepError(
            "An attention layer is told to hide later tokens, and a module is attached that reads "
            "them, since they were not hidden in the example. Detach, and attach on an `example` "
            "that hides them."
        )
