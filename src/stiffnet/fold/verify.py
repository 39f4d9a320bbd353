"""Two networks run on the same example, and how far they are apart."""

import math
from collections.abc import Collection, Sequence
from contextlib import ExitStack
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from stiffnet.errors import FoldError
from stiffnet.fold.report import Folded
from stiffnet.trajectory.graph import tensors_in
from stiffnet.trajectory.wrappers import plain_run

TOLERANCES = {torch.float64: 1e-12, torch.float32: 1e-5, torch.bfloat16: 5e-2, torch.float16: 1e-2}
"""Largest scaled error by dtype. Rounding a weight anew moves it by half a unit in its last place
(6e-8 in float32, 2e-3 in bfloat16), and a deep network adds such moves up."""


def compare(
    model: nn.Module, made: nn.Module, args: Any, kwargs: Any, places: Collection[str] = ()
) -> float:
    """Run a network and its folded form, in their own dtype, and return the scaled error.

    Args:
        model: The network.
        made: Its folded form.
        args: What to run them on.
        kwargs: The same, by name.
        places: Paths of modules that must give the same too.

    Raises:
        FoldError: If they differ by more than rounding.
    """
    name = type(model).__name__
    expected, failed = attempt(model, args, kwargs, places)
    if failed is not None:
        raise FoldError(
            f"{name} cannot be run on this example: {first_line(failed)}. Give one that it takes."
        )
    if not expected:
        raise FoldError(f"{name} gives no tensor that could be compared. Let it return its result.")
    if not all(bool(tensor.isfinite().all()) for tensor in expected):
        raise FoldError(
            f"{name} gives numbers on this example that are not finite, so that nothing can be "
            "compared. Look for NaN in its weights, or give another example."
        )
    result, failed = attempt(made, args, kwargs, places)
    if failed is not None:
        raise FoldError(
            f"{name} cannot be run after folding: {first_line(failed)}. Nothing was changed; if "
            "its modules have methods called `fuse` or the like, try `branches=False`."
        )
    error = scaled_error(expected, result)
    dtype = next((p.dtype for p in model.parameters() if p.is_floating_point()), torch.float32)
    if not error <= TOLERANCES.get(dtype, TOLERANCES[torch.float32]):
        raise FoldError(
            f"The folded {name} differs from the original by {error:.1e} of its largest output, in "
            f"{str(dtype).removeprefix('torch.')}. Nothing was changed; fold it with "
            "`branches=False` or in float64, or report it."
        )
    return error


def attempt(
    model: nn.Module, args: Any, kwargs: Any, places: Collection[str] = ()
) -> tuple[list[Tensor], Exception | None]:
    """Run a network; return its outputs and those of some of its modules, or what was raised."""
    inside: dict[str, list[Tensor]] = {place: [] for place in places}

    def keep(kept: list[Tensor], module: nn.Module, args: Any, output: Any) -> None:
        kept[:] = [tensor.clone() for tensor in tensors_in(output)]

    with ExitStack() as hooks, plain_run(model):
        for place, kept in inside.items():
            module = model.get_submodule(place)
            hooks.enter_context(module.register_forward_hook(partial(keep, kept)))
        try:
            output = model(*args, **kwargs)
        except Exception as error:  # whatever foreign code raises
            return [], error
    return [*tensors_in(output), *(t for place in inside for t in inside[place])], None


def scaled_error(expected: Sequence[Tensor], result: Sequence[Tensor]) -> float:
    """Largest difference in a tensor over its largest number; infinite where shapes differ."""
    if not expected or [t.shape for t in expected] != [t.shape for t in result]:
        return math.inf
    return max(
        (_tensor_error(*pair) for pair in zip(expected, result, strict=True) if pair[0].numel()),
        default=0.0,
    )


def _tensor_error(expected: Tensor, result: Tensor) -> float:
    largest = float(expected.double().abs().max())
    error = float((expected.double() - result.double()).abs().max())
    return error / largest if largest else error


def unchanged(folded: Sequence[Folded], made: nn.Module) -> list[str]:
    """Paths of modules in which something was folded and whose own results stay what they were.

    Those are the modules around both ends of every fold that they have a part in, as far as they
    are still there.
    """
    paths = {path for item in folded for path in _around(item.name)}
    paths &= {path for path, _ in made.named_modules()}
    return sorted(
        path
        for path in paths
        if all(len({_is_in(end, path) for end in (item.name, *item.into)}) == 1 for item in folded)
    )


def _around(path: str) -> list[str]:
    parts = path.split(".")
    return [".".join(parts[:end]) for end in range(1, len(parts))]


def _is_in(path: str, outer: str) -> bool:
    return path.startswith(f"{outer}.")


def first_line(error: Exception) -> str:
    """What an exception of others' says, in short."""
    lines = str(error).strip().splitlines()
    return (lines[0] if lines else type(error).__name__).rstrip(".")
