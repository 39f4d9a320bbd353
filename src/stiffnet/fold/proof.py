"""Proof that a folded network is the one that was given: in float64, then in its own dtype.

Where a network chooses, rounding may reorder what comes after. Detectors keep the best of many
boxes: two of nearly the same score change places with the last digit of a weight, and the results
can no longer be compared one by one. So what they computed before is compared.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import nullcontext, suppress
from functools import cached_property, partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from stiffnet.errors import FoldError
from stiffnet.fold.compare import (
    OUTPUT,
    DifferenceError,
    Outcome,
    around,
    comparable,
    compare,
    is_in,
    ran,
    tolerance,
    unchanged,
)
from stiffnet.fold.copies import copied, deployed, doubled, in_float64, tensors_of
from stiffnet.fold.operations import Reading
from stiffnet.nested import mapped, tensors_in
from stiffnet.network.deployed import Change
from stiffnet.results.fold import Folded, as_folded
from stiffnet.scaled_error import scaled_error
from stiffnet.trajectory.batch import Example
from stiffnet.trajectory.graph import Watch
from stiffnet.trajectory.wrappers import plain_run

CHOICES = frozenset((
    "topk", "sort", "msort", "argsort", "kthvalue", "argmax", "argmin", "nonzero", "masked_select",
    "unique", "unique_consecutive", "multinomial", "nms", "batched_nms", "searchsorted",
))  # fmt: skip
"""Functions whose results are places in what they are given, or go by its order."""

SAMPLES = 2  # of the example on which a pass is read; verified on all of it
OTHERS = 1  # samples of another size: code may also go by whether there is one
LARGER = (1, 32)
"""Pixels by which images of another size are larger: an odd number of them changes how pools and
strided layers end at the border, and some networks take multiples of 32 only."""


class Proof:
    """Keeps a network as it was given and what it gave, and holds folded ones against it.

    `places` are the modules that may be folded; `closely` keeps a `reading` of a pass of `work`.
    """

    def __init__(
        self, model: nn.Module, example: Example, places: Collection[str], *, closely: bool
    ) -> None:
        self.given = model
        self.original = copied(model)
        self.whole = example
        self._expected = ran(self.original, example)  # before any pass in float64
        self._places = [path for path in _around(places) if model.get_submodule(path)._modules]
        self.small = example.resized(SAMPLES)
        self.exact, self.work, self.reading, outcome = self._first_pass(closely=closely)
        """Two copies in float64, the one to compare with and the one to fold."""
        self._first = (self.small, outcome)
        floating = (p.dtype for p in self.exact.parameters() if p.is_floating_point())
        self._dtype = next(floating, torch.float64)
        self.exact_error: float | None = None
        self.scaled_error = 0.0
        self.places: tuple[str, ...] = ()
        """Modules that were compared in the network's own dtype instead of its outputs."""
        self.made = self.tried = model
        """The folded network, which was never run, and a copy of it that was."""

    def _first_pass(self, *, closely: bool) -> tuple[nn.Module, nn.Module, Reading | None, Outcome]:
        """Run the network in float64, or in its own dtype if it casts by itself.

        What is to be folded is not run before, but for its reading.
        """
        copy: Callable[[nn.Module], nn.Module] = in_float64
        for copy, example in ((in_float64, doubled(self.small)), (copied, self.small)):
            first, other = copy(self.given), copy(self.given)
            reading = Reading(first, example) if closely else None
            try:
                outcome = ran(first, example, self._places, reading or nullcontext())
                break
            except FoldError:
                if copy is copied:
                    raise
        self.small = example
        exact, work = (other, first) if closely else (first, other)
        return exact, work, reading, outcome

    def hold(
        self,
        work: nn.Module,
        gates: Sequence[Folded],
        gated: Mapping[str, Tensor],
        changes: Sequence[Change],
    ) -> None:
        """Keep a folded network, in its own dtype, unless a FoldError says how it differs."""
        folded = [*gates, *map(as_folded, changes)]
        self.exact_error = self._hold_exactly(work, folded, changes)
        self.made = deployed(
            self.given, [gate.name for gate in gates], gated, changes, tensors_of(work)
        )
        self.tried = copied(self.made)
        own = next((p.dtype for p in self.made.parameters() if p.is_floating_point()), None)
        advice = _advice(changes, None if own == torch.float64 else self.exact_error)
        comparable(self._expected, type(self.made).__name__)
        try:
            self.places = ()
            self.scaled_error = compare(self._expected, self.tried, self.whole, advice=advice)
        except DifferenceError:
            self.places = self._before_choice(work, folded) if self.exact_error is not None else ()
            if not self.places:
                raise
            inside = _at(self.places, ran(self.original, self.whole, self.places))
            self.scaled_error = compare(inside, self.tried, self.whole, advice=advice)

    def _hold_exactly(
        self, work: nn.Module, folded: Sequence[Folded], changes: Sequence[Change]
    ) -> float | None:
        """Compare in float64, block by block, at the example's size and at another.

        Where outputs differ because equal numbers changed places, all that was folded must lie in
        modules that finish before anything is chosen, and those are compared.
        """
        advice = _advice(changes)
        errors = []
        for example, outcome in (self._first, *self._of_another_size):
            on = "" if example is self.small else " on a single image of another size"
            places = [place for place in unchanged(folded, work) if place in outcome]
            expected = comparable(_at((*places, OUTPUT), outcome), type(self.given).__name__)
            try:
                errors.append(compare(expected, work, example, advice=advice, on=on))
            except DifferenceError:
                early = before_choice(self.exact, example)
                if not all(any(is_in(item.name, place) for place in early) for item in folded):
                    raise
                before = _at(early, ran(self.exact, example, early))
                errors.append(compare(before, work, example, advice=advice, on=on))
        return max(errors) if self._dtype == torch.float64 else None

    @cached_property
    def _of_another_size(self) -> list[tuple[Example, Outcome]]:
        """One sample of the example, in another size if the network takes any."""
        for more in (*LARGER, 0):
            grow = partial(_larger, more=more)
            other: Example = mapped(self.small.resized(OTHERS), grow)
            with suppress(FoldError):
                return [(other, ran(self.exact, other, self._places))]
        return []

    def _before_choice(self, work: nn.Module, folded: Sequence[Folded]) -> tuple[str, ...]:
        """Modules that give the same in float64 and finish before anything is chosen.

        There are none unless something was folded in one of them.
        """
        found = before_choice(self.exact, self.small)
        before, after = (ran(model, self.small, found) for model in (self.exact, work))
        same = [
            place
            for place in found
            if scaled_error(before[place], after[place]) <= tolerance(self._dtype)
        ]
        seen = any(is_in(item.name, place) for item in folded for place in same)
        return tuple(same) if seen else ()


def _at(places: Iterable[str], outcome: Outcome) -> Outcome:
    """What the modules at some places gave."""
    return {place: outcome[place] for place in places}


def _around(paths: Collection[str]) -> list[str]:
    """Paths of modules and of those around them, without the network itself."""
    found = dict.fromkeys(outer for path in paths for outer in (*around(path), path))
    return [path for path in found if path]


def _advice(changes: Sequence[Change], exact: float | None = None) -> str:
    """What to try where a folded network differs; `exact` is by how much in float64, if it held."""
    branches = any(change.kind == "branches" for change in changes)
    tries = ["with `branches=False`"] if branches else []
    if exact is None:
        return f"fold it in Python {tries[0]}, or report it" if tries else "please report it"
    others = " or ".join([*tries, "as `model.double()`"])
    return (
        f"in float64 they agree to {exact:.0e}, so that this is rounding, of outputs that are "
        "small or nearly cancel. Compare on images that the network was trained for (`--data` on "
        f"the command line), or fold it in Python {others}"
    )


def _larger(value: Any, *, more: int) -> Any:
    """Images stretched along their last one, two or three axes; vectors stay as they are.

    Stretched and not repeated: equal numbers would tie wherever a network chooses by their order.
    """
    if not (isinstance(value, Tensor) and value.is_floating_point() and value.ndim in _STRETCHED):
        return value
    size = [side + more for side in value.shape[2:]]
    mode = _STRETCHED[value.ndim]
    return F.interpolate(value, size, mode=mode, align_corners=True) if more else value


_STRETCHED = {3: "linear", 4: "bilinear", 5: "trilinear"}


class _UntilChoice(Watch):
    """Notes which modules had finished when the first choice was made, the outermost of them."""

    def __init__(self, model: nn.Module, inputs: Any) -> None:
        super().__init__(model, inputs)
        self.finished: list[str] | None = None

    def saw(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> None:
        if self.finished is None and self._stack and _chooses(func, args):
            frame = self._stack[-1]
            if any(frame.find(tensor) is not None for tensor in tensors_in((args, kwargs))):
                done = (f.path for f in self.frames if any(f.parent is o for o in self._stack))
                self.finished = list(dict.fromkeys(done))
        super().saw(func, args, kwargs, result)


def _chooses(func: Any, args: tuple[Any, ...]) -> bool:
    name = getattr(func, "__name__", "").partition(".")[0]
    if name == "where":
        return len(args) == 1
    if name == "__getitem__":
        picked = args[1] if isinstance(args[1], tuple) else (args[1],)
        return any(isinstance(part, Tensor) and not part.is_floating_point() for part in picked)
    return name in CHOICES


def before_choice(model: nn.Module, example: Example) -> list[str]:
    """Paths of the modules that finish before the network chooses anything; none if it does not."""
    with plain_run(model), _UntilChoice(model, example) as watch:
        example.on(model)
    return watch.finished or []
