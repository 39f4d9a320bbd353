"""Two networks run on the same example, and how far they are apart."""

from collections.abc import Collection, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from stiffnet.errors import FoldError
from stiffnet.nested import tensors_in
from stiffnet.results.fold import Folded
from stiffnet.scaled_error import scaled_error
from stiffnet.trajectory.batch import Example
from stiffnet.trajectory.wrappers import plain_run
from stiffnet.words import first_line

TOLERANCES = {torch.float64: 1e-12, torch.float32: 1e-5, torch.bfloat16: 5e-2, torch.float16: 1e-2}
"""Largest scaled error by dtype. Rounding a weight again moves it by half a unit in its last place
(6e-8 in float32, 2e-3 in bfloat16), and a deep network adds such moves up."""

OUTPUT = ""
"""Where the outputs of a network are, among those of its modules."""


class DifferenceError(FoldError):
    """Two networks that do not give the same numbers."""


_NOBODY = nullcontext()


Outcome = Mapping[str, list[Tensor]]
"""What a network and some of its modules gave in one pass, by path."""


def ran(
    model: nn.Module,
    example: Example,
    places: Collection[str] = (),
    watch: AbstractContextManager[object] = _NOBODY,
) -> Outcome:
    """Run a network, and keep what it and the modules at some places gave, in every call of them.

    The pass is run within `watch`. A FoldError, from what was raised, if it does not take its
    example.
    """
    inside: dict[str, list[Tensor]] = {place: [] for place in places}

    def keep(kept: list[Tensor], module: nn.Module, args: Any, output: Any) -> None:
        with torch._C.DisableTorchFunction():  # a copy is none of the network's operations
            kept += [tensor.clone() for tensor in tensors_in(output)]

    with ExitStack() as hooks, plain_run(model):
        for place, kept in inside.items():
            module = model.get_submodule(place)
            hooks.enter_context(module.register_forward_hook(partial(keep, kept)))
        try:
            with watch:
                output = example.on(model)
        except Exception as error:  # whatever foreign code raises
            raise FoldError(
                f"{type(model).__name__} cannot be run on this example: {first_line(error)}. Give "
                "one that it takes."
            ) from error
    return {**inside, OUTPUT: list(tensors_in(output))}


def comparable(outcome: Outcome, name: str) -> Outcome:
    """What the given network gave; a FoldError if that is nothing, or not finite."""
    if not any(outcome.values()):
        raise FoldError(f"{name} gives no tensor that could be compared. Let it return its result.")
    strange = _not_finite(outcome)
    if strange is not None:
        raise FoldError(
            f"{_at(strange, name)} gives numbers on this example that are not finite, so that "
            "nothing can be compared. Look for NaN in its weights, or give another example."
        )
    return outcome


def compare(
    expected: Outcome,
    made: nn.Module,
    example: Example,
    *,
    advice: str = "report it",
    on: str = "",
) -> float:
    """Run a folded network, and return the scaled error of what it and its modules give.

    A message says what else to do if they differ, and what they were run `on`, if not the example.

    Raises:
        DifferenceError: If they differ by more than rounding.
        FoldError: If it cannot be run, gives something that is not a number, or another dtype.
    """
    name = type(made).__name__
    try:
        result = ran(made, example, expected.keys() - {OUTPUT})
    except FoldError as error:
        raise FoldError(
            f"{name} cannot be run after folding: {first_line(error.__cause__ or error)}. Nothing "
            "was changed; if its modules have methods called `fuse` or the like, try "
            "`branches=False`."
        ) from error.__cause__
    strange = _not_finite(result)
    if strange is not None:
        raise FoldError(
            f"{_at(strange, name)} gives NaN or infinity after folding, where it gave finite "
            f"numbers before. Nothing was changed; {advice}."
        )
    _refuse_other_dtypes(expected, result, name)
    dtype = next((p.dtype for p in made.parameters() if p.is_floating_point()), torch.float32)
    errors = {place: scaled_error(values, result[place]) for place, values in expected.items()}
    worst = max(errors, key=lambda place: errors[place])
    if not errors[worst] <= tolerance(dtype):
        raise DifferenceError(
            f"The folded {name} differs from the original by {errors[worst]:.1e} of its largest "
            f"output{f' in {worst}' if worst else ''}, in {_plain(dtype)}{on}. Nothing was "
            f"changed; {advice}."
        )
    return errors[worst]


def tolerance(dtype: torch.dtype) -> float:
    """Largest scaled error that rounding explains."""
    return TOLERANCES.get(dtype, TOLERANCES[torch.float32])


def _refuse_other_dtypes(expected: Outcome, result: Outcome, name: str) -> None:
    for place, values in expected.items():
        for before, after in zip(values, result[place], strict=False):
            if before.dtype == after.dtype:
                continue
            raise FoldError(
                f"The folded {name} returns {_plain(after.dtype)} where the original returned "
                f"{_plain(before.dtype)}, so tensors of another pass are kept somewhere. Nothing "
                "was changed; take the cache out of its code, or key it by dtype."
            )


def _not_finite(outcome: Outcome) -> str | None:
    for place, values in outcome.items():
        if not all(bool(tensor.isfinite().all()) for tensor in values):
            return place
    return None


def unchanged(folded: Sequence[Folded], made: nn.Module) -> list[str]:
    """Paths of modules in which something was folded and whose own results stay what they were.

    Those are the modules around both ends of every fold that they have a part in, as far as they
    are still there.
    """
    paths = {path for item in folded for path in around(item.name)}
    paths &= {path for path, _ in made.named_modules()}
    return sorted(
        path
        for path in paths
        if all(len({is_in(end, path) for end in (item.name, *item.into)}) == 1 for item in folded)
    )


def around(path: str) -> list[str]:
    """Paths of the modules around one, without the network itself."""
    parts = path.split(".")
    return [".".join(parts[:end]) for end in range(1, len(parts))]


def is_in(path: str, outer: str) -> bool:
    """Whether a module is inside another."""
    return path.startswith(f"{outer}.")


def _at(place: str, name: str) -> str:
    return f"{place!r} of {name}" if place else name


def _plain(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
