"""What torch's own attention layers are told: which of their keys are padding, and what is hidden.

``nn.MultiheadAttention`` is told of padding by its ``key_padding_mask``, whatever the modules
around it call that, and ``nn.TransformerEncoderLayer`` and its like hand theirs on to one. True, or
a score of -inf, stands for padding. A layer whose queries are its keys attends to the tokens that
the block around it works on, so that its mask is about that block's steps.
"""

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from stiffnet.errors import StepError
from stiffnet.sequences import named, parameters_of

_NO_WEIGHT = -1e4  # a score whose exponential is zero in every precision
_REMEDY = "Give samples of one length without padding, or one at a time."


@dataclass(frozen=True)
class Told:
    """What one call of a layer was told."""

    length: int
    """Number of its keys."""
    mask: Tensor | None
    """(samples, length), True for a token and False for padding; None where nothing is padding."""
    own: bool
    """The queries are the keys: the layer attends to the sequence that it is in."""
    scores: Tensor | None = None
    """What hides keys from queries, if anything does: its ``attn_mask``."""
    said_causal: bool = False

    def causal(self) -> bool:
        """Whether every token is hidden from all that stand before it; asks the device."""
        if self.said_causal or self.scores is None:
            return self.said_causal
        if self.scores.shape[-1] != self.scores.shape[-2] or self.length < 2:
            return False
        above = torch.ones_like(self.scores, dtype=torch.bool).triu(1)
        return bool(_hidden(self.scores)[above].all())

    def apart(self) -> bool:
        """Whether other tokens are hidden in one sample than in another; asks the device."""
        if self.scores is None or self.scores.ndim != 3:
            return False
        hidden = _hidden(self.scores)
        return bool((hidden != hidden[:1]).any())


def holds_layers(module: nn.Module) -> bool:
    """Whether torch's attention layers are among the parts of a module."""
    return any(isinstance(part, nn.MultiheadAttention) for part in module.modules())


def around_layers(model: nn.Module) -> list[nn.Module]:
    """List the parts of a network that have such layers in them, itself among them."""
    layers = nn.MultiheadAttention
    return [m for m in model.modules() if not isinstance(m, layers) and holds_layers(m)]


def told(
    layer: nn.MultiheadAttention, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Told | None:
    """Read a call of a layer; None where it says nothing of a batch.

    Raises:
        StepError: If a mask says that something is padding in a way that cannot be read.
    """
    call = dict(named(parameters_of(layer), args, kwargs))
    query, key, scores = (call.get(name) for name in ("query", "key", "attn_mask"))
    padding = call.get("key_padding_mask")
    if not isinstance(key, Tensor) or key.is_nested:
        return None
    if key.ndim != 3:
        if padding is not None and not bool(_tokens(padding).all()):
            raise StepError(
                "An attention layer is given one sample after the other, without an axis for the "
                f"batch, and padding in it. {_REMEDY}"
            )
        return None
    own = query is key
    eager = not torch.compiler.is_compiling()
    mask = None if padding is None else _tokens(padding)
    if mask is not None and eager and bool(mask.all()):
        mask = None
    if own and scores is not None and eager and bool(_hidden(scores).all(dim=-2).any()):
        raise StepError(
            "The `attn_mask` of an attention layer hides some token from all others, as padding "
            "is. Say what is padding by its `key_padding_mask`, or give samples without any."
        )
    length = key.shape[1] if layer.batch_first else key.shape[0]
    return Told(length, mask, own, scores, bool(call.get("is_causal")))


def _hidden(scores: Tensor) -> Tensor:
    """True where a mask of either kind leaves no weight at all."""
    if scores.dtype == torch.bool:
        return scores
    return scores <= _NO_WEIGHT


def _tokens(padding: Tensor) -> Tensor:
    """True for tokens, from a mask that has True or -inf for padding."""
    if padding.dtype == torch.bool:
        return ~padding
    hidden = _hidden(padding)
    if not torch.compiler.is_compiling() and bool(((padding != 0) & ~hidden).any()):
        raise StepError(
            "The `key_padding_mask` of an attention layer has scores that are neither 0 nor -inf, "
            "so that it does not say what is padding. Give a boolean mask, True for padding."
        )
    return ~hidden


@dataclass
class Heard:
    """What the attention layers in one call of a block have been told so far."""

    of: int = 0
    """Identity of the block."""
    own: dict[int, Told] = field(default_factory=dict)
    """The newest of those that attend to their own sequence, by its length."""
    unclear: set[int] = field(default_factory=set)
    """Lengths of which it is not known what is padding."""
    asked: set[int | None] = field(default_factory=set)
    """Lengths that somebody wanted to know of, None for one that is not known."""

    @property
    def padded(self) -> bool:
        """Whether some layer was told of padding."""
        return bool(self.unclear) or any(each.mask is not None for each in self.own.values())

    def hear(self, call: Told) -> None:
        """Take note of a call.

        Raises:
            StepError: If somebody asked already, and was not told of this padding.
        """
        known = self.own.get(call.length)
        if known is None:
            early = call.mask is not None and not self.asked.isdisjoint({call.length, None})
            unclear = call.mask is not None and not call.own
        else:
            unclear = call.own and not _same(known.mask, call.mask)
            early = unclear and call.length in self.asked
        if early:
            raise StepError(
                "An attention layer is told of padding that the steps before it were not told of, "
                f"so that they would count it. {_REMEDY}"
            )
        if unclear:
            self.unclear.add(call.length)
        if call.own:
            self.own[call.length] = call

    def mask_for(self, samples: int, length: int) -> Tensor | None:
        """Return the mask of the sequence of this length; None where it has none.

        Raises:
            StepError: If that is not known.
        """
        self.asked.add(length)
        if length in self.unclear:
            raise StepError(
                f"several sequences of {length} tokens are attended to, and it is not known whose "
                "padding counts here"
            )
        if length not in self.own:
            if not self.padded:
                return None
            lengths = " and ".join(map(str, sorted({*self.own, *self.unclear})))
            raise StepError(
                f"there are {length} positions where attention layers have {lengths} tokens, so "
                "that it is not known which of them are padding"
            )
        mask = self.own[length].mask
        if mask is not None and len(mask) != samples:
            raise StepError(f"a padding mask for {len(mask)} samples was given with {samples}")
        return mask


def _same(one: Tensor | None, other: Tensor | None) -> bool:
    if one is None or other is None or torch.compiler.is_compiling():
        return (one is None) == (other is None)
    return one is other or (one.shape == other.shape and torch.equal(one, other))
