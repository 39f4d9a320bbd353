"""The token sequences that a call is given: their lengths, and which of their tokens are padding.

The arguments are known by the names that the transformers library gives them: ``input_ids`` or
``inputs_embeds``, ``attention_mask``, and the same with ``decoder_`` before it. In a call within a
call the inner one is nearer to the values: the decoder of an encoder-decoder network is given its
own tokens and its own mask.
"""

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from stiffnet.errors import StepError

MASK = "attention_mask"
TOKENS = ("input_ids", "inputs_embeds")
CACHE = "past_key_values"

Arguments = Sequence[tuple[str, Any]]
"""What a call was given, by name; see `named`."""


@dataclass(frozen=True)
class Tokens:
    """One sequence of a call."""

    length: int
    mask: Tensor | None
    """(samples, length), True for a token and False for padding; None where no mask was given."""


@dataclass(frozen=True)
class Given:
    """The sequences that one call was given."""

    sequences: tuple[Tokens, ...]
    cached: bool = False
    """The tokens go on from earlier ones, whose keys and values come in a cache."""
    single: bool = True
    """The module takes no other sequence than this."""
    lengths: frozenset[int] = frozenset()
    """Of all that it was given by these names."""

    @property
    def masked(self) -> bool:
        """Whether some sequence has a mask."""
        return any(tokens.mask is not None for tokens in self.sequences)

    def within(self, around: "Given | None") -> "Given":
        """Return what is known of this call inside of another one.

        Without a mask of its own it works on what that was given, if that was a single sequence.
        """
        if around is None or not around.single or self.masked:
            return self
        return replace(around, cached=self.cached)

    def without_full_masks(self) -> "Given":
        """Return the same without masks that say nothing is padding; asks the device."""
        kept = [
            replace(tokens, mask=None)
            if tokens.mask is not None and bool(tokens.mask.all())
            else tokens
            for tokens in self.sequences
        ]
        return replace(self, sequences=tuple(kept))

    def refuse_other(self, length: int, mask: Tensor | None) -> None:
        """Refuse a mask that an attention layer is given for the same tokens and that says else."""
        own = [tokens.mask for tokens in self.sequences if tokens.length == length]
        if mask is None or len(own) != 1 or torch.compiler.is_compiling():
            return
        if own[0] is not None and (own[0].shape != mask.shape or not torch.equal(own[0], mask)):
            raise StepError(
                "The attention mask of a call says that other tokens are padding than what an "
                "attention layer in it is told. Name a mask `attention_mask` only if it is 1, or "
                "True, for tokens and 0 for padding."
            )

    def mask_for(self, samples: int, length: int) -> Tensor | None:
        """Return the mask of the one sequence of this length; None where it has none.

        Raises:
            StepError: If there is no such sequence, or two that differ in their masks.
        """
        if all(tokens.mask is None for tokens in self.sequences):
            return None
        fitting = [tokens.mask for tokens in self.sequences if tokens.length == length]
        if not fitting:
            lengths = " and ".join(str(tokens.length) for tokens in self.sequences)
            raise StepError(
                f"there are {length} positions where the call has {lengths} tokens, so that it is "
                "not known which of them are padding"
            )
        mask = fitting[0]
        if len(fitting) > 1 and any(each is not None for each in fitting):
            raise StepError(
                f"two sequences of the call have {length} tokens, and it is not known whose "
                "padding counts here"
            )
        if mask is not None and len(mask) != samples:
            raise StepError(f"an attention mask for {len(mask)} samples was given with {samples}")
        return mask


def parameters_of(module: nn.Module) -> tuple[str, ...]:
    """Names of the arguments of a module's `forward`; none where Python cannot tell."""
    if isinstance(module, torch.jit.ScriptModule):  # whose class has none that can be asked for
        return ()
    own = vars(module).get("forward")  # put in by somebody, as accelerate does
    return _parameters(type(module).forward)[1:] if own is None else _parameters(own)


@functools.lru_cache(maxsize=1024)
def _parameters(function: Callable[..., Any]) -> tuple[str, ...]:
    try:
        return tuple(inspect.signature(function).parameters)
    except (TypeError, ValueError):
        return ()


def takes_tokens(module: nn.Module) -> bool:
    """Whether a module's `forward` has an argument for an attention mask."""
    return any(name.endswith(MASK) for name in parameters_of(module))


def named(names: Sequence[str], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Arguments:
    """Arguments of a call with their names; those in a dictionary by its keys.

    >>> named(["x", "y"], [1, {"z": 2}], {"w": 3})
    [('x', 1), ('z', 2), ('w', 3)]
    """
    unnamed = [""] * max(0, len(args) - len(names))
    found: list[tuple[str, Any]] = []
    for name, value in [*zip([*names, *unnamed], args, strict=False), *kwargs.items()]:
        found += named((), (), value) if isinstance(value, Mapping) else [(name, value)]
    return found


def given_to(names: Sequence[str], given: Arguments) -> Given | None:
    """Read the sequences of a call, given the names of the module's arguments; None without any."""
    call = dict(given)
    found = []
    for prefix in dict.fromkeys(name.removesuffix(MASK) for name in names if name.endswith(MASK)):
        tokens = next((t for n in TOKENS if (t := _rows(call.get(prefix + n))) is not None), None)
        mask = call.get(prefix + MASK)
        if tokens is None and (prefix or mask is None):
            continue
        if mask is not None and not _is_padding_mask(mask):
            return None
        counted: Any = mask if tokens is None else tokens
        length = counted.shape[1]
        if mask is not None and mask.shape[1] < length:
            return None
        # A mask that is longer is one of the tokens in the cache, too.
        found.append(Tokens(length, None if mask is None else mask[:, -length:] != 0))
    if not found:
        return None
    ways = {name.removesuffix(end) for end in TOKENS for name in names if name.endswith(end)}
    values = (call.get(n) for n in names if n.endswith((MASK, *TOKENS)))
    lengths = frozenset(v.shape[1] for value in values if (v := _rows(value)) is not None)
    cached = _holds_tokens(call.get(CACHE))
    return Given(tuple(found), cached=cached, single=len(ways) < 2, lengths=lengths)


def _rows(value: Any) -> Tensor | None:
    return value if isinstance(value, Tensor) and value.ndim >= 2 and value.shape[1] else None


def _is_padding_mask(mask: Any) -> bool:
    """Whether it has one number a token, and none that is added to scores, such as -inf."""
    if not isinstance(mask, Tensor) or mask.ndim != 2:
        return False
    return not mask.is_floating_point() or torch.compiler.is_compiling() or bool((mask >= 0).all())


def says_padding(mask: Tensor) -> bool:
    """Whether an attention mask of any kind has tokens like padding; asks the device.

    That is a token which is hidden from all, or, where padding reads itself, from all others: by
    itself alone, before tokens that it reads, or between two that go together. A last token which
    the others do not see may be an ordinary one of a causal network.

    >>> says_padding(torch.tensor([[1, 1, 0]])), says_padding(torch.ones(1, 1, 3, 3).tril().bool())
    (True, False)
    >>> says_padding(torch.tensor([[[1, 1, 0], [1, 1, 0], [0, 0, 1]]]))
    True
    """
    if mask.ndim > 2 and 1 < mask.shape[-1] == mask.shape[-2]:
        reads = (~_hidden(mask)).flatten(1, -3).any(dim=1) if mask.ndim > 3 else ~_hidden(mask)
        if bool(_left_out(reads).any()):
            return True
    return _hides_from_all(mask)


def _left_out(reads: Tensor) -> Tensor:
    """Tokens that only they themselves read, though tokens around them go together.

    `reads` has the shape (samples, length, length).
    """
    length = reads.shape[-1]
    place = torch.arange(length, device=reads.device)
    itself = torch.eye(length, dtype=torch.bool, device=reads.device)
    unread = ~(reads & ~itself).any(dim=1)
    reads = reads | itself
    first = torch.where(reads, place, length).amin(dim=2)
    last = torch.where(reads, place, -1).amax(dim=2)
    between = ((first[:, :, None] < place) & (place < last[:, :, None])).any(dim=1)
    return unread & (between | (last > place) | (first == last))


def _hides_from_all(mask: Tensor) -> bool:
    hidden = _hidden(mask)
    if mask.ndim > 2:
        hidden = hidden.flatten(1, -2).all(dim=1)  # by every token that could read it
    return bool(hidden.any())


def _hidden(mask: Tensor) -> Tensor:
    """True where an attention mask of any kind hides a token."""
    counts = mask.ndim == 2 or not mask.is_floating_point() or bool((mask > 0).any())
    return mask == 0 if counts and not bool((mask < 0).any()) else mask < 0  # added to scores


def keeps_apart(call: Arguments, *, causal: bool) -> str | None:
    """Name an argument that hides tokens of a sequence from each other, if any does.

    That is a mask of more than two axes, unless all it does is to hide later tokens and those are
    hidden anyway (`causal`), or positions that begin anew, as in packed sequences.
    """
    for name, value in call:
        if not isinstance(value, Tensor):
            continue
        if name.endswith(MASK) and value.ndim > 2:
            hidden = _hidden(value)
            later = hidden.new_ones(hidden.shape[-2:]).triu(1 + hidden.shape[-1] - hidden.shape[-2])
            if bool(hidden.any()) and not (causal and bool((hidden == later).all())):
                return name
        if name == "position_ids" and value.ndim == 2 and bool((value.diff(dim=1) < 0).any()):
            return name
    return None


def hides_padding(call: Arguments) -> str | None:
    """Name the mask of a call that has padding and does not say which tokens it is, if any does.

    That is a mask of more than two axes, or one that is added to scores.
    """
    for name, value in call:
        is_mask = name.endswith(MASK) and isinstance(value, Tensor)
        if is_mask and not _is_padding_mask(value) and says_padding(value):
            return name
    return None


def pads_by_itself(call: Arguments, around: Sequence[Given | None]) -> bool:
    """Whether the mask of an inner call hides positions that no call `around` it was given.

    Some networks lengthen a sequence to a multiple of their window.
    """
    mask = dict(call).get(MASK)
    if not isinstance(mask, Tensor) or mask.ndim < 2 or torch.compiler.is_compiling():
        return False
    length = mask.shape[-1]
    known = any(outer is None or length in outer.lengths for outer in around)
    return not known and (mask.ndim == 2 or mask.shape[-2] == length) and _hides_from_all(mask)


def refuse_unread_padding(call: Arguments) -> None:
    """Refuse an argument that seems to say what is padding, which only the network can read.

    That is a mask with one entry for each token, or lengths of which the longest fits a sequence,
    unless they say the same of all.
    """
    if torch.compiler.is_compiling():
        return
    given = [(n, v) for n, v in call if isinstance(v, Tensor) and v.ndim]
    for name, value in given:
        others = [v.shape for _, v in given if v is not value and len(v) == len(value)]
        if value.ndim == 2 and any(word in name for word in ("mask", "pad")):
            fits = any(value.shape[1] in shape[1:] for shape in others)
        elif value.ndim == 1 and "len" in name and not value.is_floating_point():
            fits = any(int(value.max()) in shape[1:] for shape in others)
        else:
            continue
        if fits and bool((value != value.flatten()[0]).any()):
            raise StepError(
                f"The argument `{name}` seems to say that some tokens are padding, which would "
                "count like the others. Give samples of one length, one at a time; or take a mask "
                "as `attention_mask` in `forward`, with 1 for tokens and 0 for padding."
            )


def _holds_tokens(cache: Any) -> bool:
    """Whether a cache of keys and values has tokens in it already."""
    length = getattr(cache, "get_seq_length", None)
    return bool(length()) if callable(length) else cache is not None
