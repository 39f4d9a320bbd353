"""Eigenvalues of the Jacobian of a function at a point: four methods, one answer.

`dense` forms the n × n Jacobian and is the oracle. `reduced` forms a product of the size of the
smallest cut (see `cut`) and adds zeros: the same eigenvalues, of a far smaller matrix. `krylov`
finds both ends of the real axis and the largest eigenvalue by iterations on vectors. `planes` is
another quantity, under its own name (see `planes`).
"""

import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal, get_args

import numpy as np
import scipy.linalg
import torch
from torch import Tensor

from stiffnet.errors import ShapeChangesError, StepError
from stiffnet.stiffness.cut import Traced
from stiffnet.stiffness.eigen import (
    Complexes,
    Floats,
    Map,
    Progress,
    eigenvalues,
    extremes,
    largest_singular_values,
    matrix_of,
)
from stiffnet.stiffness.jacobian import Jacobian
from stiffnet.stiffness.planes import counts, plane_eigenvalues

Method = Literal["auto", "reduced", "dense", "krylov", "planes"]
METHODS: tuple[str, ...] = get_args(Method)

TOLERANCE = 1e-9  # a real part up to this share of the largest |λ| is zero: float64, with room
CAP = 8 << 30  # bytes that matrices may take


@dataclass(frozen=True)
class Plan:
    """What a method will do, before it does it."""

    method: str
    size: int
    """n, of the Jacobian."""
    inner: int
    """k, of the matrix whose eigenvalues are taken; 0 where none is formed."""
    cut: str
    """Where the function was cut, in words."""
    bytes: int
    """That matrices will take at a time."""
    seconds: float | None
    """A rough estimate, from a few products and a small matrix; None where there is none."""


@dataclass(frozen=True, eq=False)
class Found:
    """Eigenvalues, and how they were found."""

    plan: Plan
    values: Complexes
    """All of them; for `krylov` the extremes, for `planes` a choice."""
    count: int
    """How many there are in all."""
    negative: int | None
    """How many have a real part below zero; None where not all are known."""
    outside: int | None
    """How many are outside of Euler's disc |1 + λ| ≤ 1; None likewise."""
    tolerance: float
    residual: float | None = None
    """Of the iterations; None for direct methods."""
    products: int | None = None
    """How often iterations applied the Jacobian; None likewise."""
    condition: float | None = None
    """Of the eigenvalue of the largest |Re|: how far a perturbation of the Jacobian moves it."""
    norm: float | None = None
    """‖J‖₂, the largest singular value; over the largest |λ| it says how far from normal J is."""
    singular: Floats | None = None
    """The largest singular values, where there are no eigenvalues."""
    elements: int | None = None
    """Entries of the Jacobian, for `planes`."""


def spectrum_of(
    function: Callable[[Tensor], Tensor],
    x: Tensor,
    *,
    method: Method = "auto",
    cap: int = CAP,
    on_plan: Callable[[Plan], object] = lambda plan: None,
    progress: Progress = lambda share: None,
) -> Found:
    """Find the eigenvalues of the Jacobian of `function` at `x`.

    Args:
        function: Of one tensor of shape (1, ...), with a tensor (1, ...) for a result. It gives the
            same values each time.
        x: The point, in float64.
        method: See the top of this module; ``"auto"`` is `reduced` where its matrix fits under the
            cap, and `krylov` otherwise.
        cap: Bytes that matrices may take.
        on_plan: Is told what will be done, before it is.
        progress: Is told the share that is done.

    Raises:
        StepError: If there are no eigenvalues because the shape changes, the matrix does not fit,
            or iterations do not converge.
        NonFiniteError: If a value or a derivative is NaN or infinite.
    """
    if method not in METHODS:
        raise StepError(f"`method` is {method!r}. Give one of {', '.join(METHODS)}.")
    if cap < 1:
        raise StepError(f"`cap` is {cap} bytes. Give the bytes that matrices may take.")
    traced = Traced(function, x)
    inputs, outputs = tuple(x.shape[1:]), tuple(traced.value.shape[1:])
    if method == "planes":
        return _planes(traced, inputs, outputs, on_plan, progress)
    if x.shape != traced.value.shape:
        return _singular(traced, method, inputs, outputs, on_plan)
    if method == "dense":
        return _dense(traced, cap, on_plan, progress)
    return _cut(traced, method, cap, on_plan, progress)


def _planes(
    traced: Traced,
    inputs: tuple[int, ...],
    outputs: tuple[int, ...],
    on_plan: Callable[[Plan], object],
    progress: Progress,
) -> Found:
    jacobian = Jacobian(traced, traced.x)
    elements, count = counts(inputs, outputs)
    plan = Plan("planes", jacobian.size, 0, "", 16 * jacobian.size, None)
    on_plan(plan)
    found = plane_eigenvalues(
        jacobian.adjoint, inputs, outputs, tolerance=TOLERANCE, progress=progress
    )
    return Found(
        plan, found.values, count, found.negative, found.outside, TOLERANCE, elements=elements
    )


def _singular(
    traced: Traced,
    method: str,
    inputs: tuple[int, ...],
    outputs: tuple[int, ...],
    on_plan: Callable[[Plan], object],
) -> Found:
    if method != "krylov":
        raise ShapeChangesError(
            f"The shape changes from {_shape(inputs)} to {_shape(outputs)}, so the Jacobian is not "
            "square and has no eigenvalues. Use `method='krylov'` for its largest singular "
            "values, or 'planes' for what the block-level paper computed."
        )
    jacobian = Jacobian(traced, traced.x)
    plan = Plan("krylov", jacobian.size, 0, "", 0, None)
    on_plan(plan)
    values = largest_singular_values(jacobian.apply, jacobian.adjoint, jacobian.size, jacobian.rows)
    none = np.zeros(0, dtype=np.complex128)
    norm = float(values[0]) if len(values) else 0.0
    return Found(plan, none, 0, None, None, TOLERANCE, norm=norm, singular=values)


def _dense(
    traced: Traced, cap: int, on_plan: Callable[[Plan], object], progress: Progress
) -> Found:
    jacobian = Jacobian(traced, traced.x)
    size = jacobian.size
    plan = Plan("dense", size, size, "", _bytes(size), None)
    _refuse_large(plan, cap, "Use `method='reduced'`, or 'krylov' for the extremes alone.")
    plan = replace(plan, seconds=_seconds(jacobian.apply, size))
    on_plan(plan)
    matrix = matrix_of(jacobian.apply, size, size, progress=progress)
    values = eigenvalues(matrix)
    condition = None
    if values.any():
        condition = _condition(*_vectors(matrix, values[np.abs(values.real).argmax()]))
    return _counted(plan, values, condition=condition, norm=_norm(jacobian))


def _cut(
    traced: Traced, method: str, cap: int, on_plan: Callable[[Plan], object], progress: Progress
) -> Found:
    """Reduce to the smallest cut, and take eigenvalues or iterate there."""
    kept, rest = traced.without_shortcut()
    whole, size = Jacobian(traced, traced.x), traced.x.numel()
    cut = rest.cut()
    if kept is not None and int(kept.sum()) <= cut.size:  # fewer pass behind the sum than inside
        return _kept(whole, kept, method, cap, on_plan, progress)
    inner, outer = Jacobian(cut.inner, rest.x), Jacobian(cut.outer, cut.at)
    mask = None if kept is None else kept.double()

    def lift(vectors: Tensor) -> Tensor:
        images = outer.apply(vectors)
        return images if mask is None else images * mask

    def product(vectors: Tensor) -> Tensor:
        return inner.apply(lift(vectors))

    plan = Plan("reduced", size, cut.size, cut.where, _bytes(cut.size), None)
    if method == "auto" and plan.bytes > cap:
        method = "krylov"
    if method == "krylov":
        plan = replace(plan, method="krylov", bytes=0)
        on_plan(plan)
        ends = extremes(product if mask is None else lambda v: v + product(v), cut.size)
        values = np.concatenate([ends.values, _idle(kept, cut.size, size)])
        return Found(
            plan, values, size, None, None, TOLERANCE, residual=ends.residual,
            products=ends.products, norm=_norm(whole),
        )  # fmt: skip
    _refuse_large(plan, cap, "Use `method='krylov'`, which finds the extremes in little memory.")
    plan = replace(plan, seconds=_seconds(product, cut.size))
    on_plan(plan)
    matrix = matrix_of(product, cut.size, cut.size, progress=progress)
    found = eigenvalues(matrix)
    values = _assembled(found[found != 0], kept, size)
    condition = None
    if found.any():
        chosen = found[np.abs(found.real + (mask is not None)).argmax()]
        right, left = _vectors(matrix, chosen)
        left = _complex(inner.adjoint, left)
        if kept is not None:  # what is not kept has a share in left eigenvectors all the same
            left[~kept.numpy()] *= np.conj(chosen / (1 + chosen)) if chosen != -1 else 0
        condition = _condition(_complex(lift, right), left)
    return _counted(plan, values, condition=condition, norm=_norm(whole))


def _kept(
    whole: Jacobian,
    kept: Tensor,
    method: str,
    cap: int,
    on_plan: Callable[[Plan], object],
    progress: Progress,
) -> Found:
    """Take eigenvalues on the coordinates behind the sum that are not zero whatever x is."""
    places = kept.nonzero()[:, 0]
    inner, size = len(places), whole.size

    def product(vectors: Tensor) -> Tensor:
        full = torch.zeros(len(vectors), size, dtype=torch.float64)
        full[:, places] = vectors
        return whole.apply(full)[:, places]

    plan = Plan("reduced", size, inner, "the sum", _bytes(inner), None)
    zeros = np.zeros(1 if inner < size else 0, dtype=np.complex128)
    if method == "krylov" or (method == "auto" and plan.bytes > cap):
        plan = replace(plan, method="krylov", bytes=0)
        on_plan(plan)
        ends = extremes(product, inner)
        return Found(
            plan, np.concatenate([ends.values, zeros]), size, None, None, TOLERANCE,
            residual=ends.residual, products=ends.products, norm=_norm(whole),
        )  # fmt: skip
    _refuse_large(plan, cap, "Use `method='krylov'`, which finds the extremes in little memory.")
    plan = replace(plan, seconds=_seconds(product, inner))
    on_plan(plan)
    matrix = matrix_of(product, inner, inner, progress=progress)
    found = eigenvalues(matrix)
    values = np.zeros(size, dtype=np.complex128)
    values[:inner] = found
    condition = None
    if found.any():
        right, left = _vectors(matrix, found[np.abs(found.real).argmax()])
        lifted = np.zeros(size, dtype=np.complex128)
        lifted[places.numpy()] = left
        spread = np.zeros(size, dtype=np.complex128)
        spread[places.numpy()] = right
        condition = _condition(spread, _complex(whole.adjoint, lifted))
    return _counted(plan, values, condition=condition, norm=_norm(whole))


def _assembled(nonzero: Complexes, kept: Tensor | None, size: int) -> Complexes:
    """All eigenvalues, from those of the product that are not zero.

    Without a shortcut the others are zero. D (1 + A B), with D the coordinates that are kept, has
    one and each of them added, ones up to the number of kept coordinates, and zeros.
    """
    values = np.zeros(size, dtype=np.complex128)
    if kept is not None:
        values[: int(kept.sum())] = 1.0
    values[: len(nonzero)] += nonzero
    return values


def _idle(kept: Tensor | None, inner: int, size: int) -> Complexes:
    """Eigenvalues that the product does not have, each once."""
    if kept is None:
        found = [0.0] if inner < size else []
    else:
        found = ([0.0] if not bool(kept.all()) else []) + ([1.0] if int(kept.sum()) > inner else [])
    return np.array(found, dtype=np.complex128)


def _counted(
    plan: Plan, values: Complexes, *, condition: float | None, norm: float | None
) -> Found:
    near = TOLERANCE * float(np.abs(values).max(initial=0.0))
    return Found(
        plan,
        values,
        len(values),
        int((values.real < -near).sum()),
        int((np.abs(1 + values) > 1 + near).sum()),
        TOLERANCE,
        condition=condition,
        norm=norm,
    )


def _vectors(matrix: Floats, value: complex) -> tuple[Complexes, Complexes]:
    """Right and left eigenvector of an eigenvalue, by inverse iteration."""
    shifted = matrix - value * (1 + 1e-10) * np.eye(len(matrix))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", scipy.linalg.LinAlgWarning)  # it is nearly singular
        factors = scipy.linalg.lu_factor(shifted, overwrite_a=True, check_finite=False)
    vectors = []
    for transposed in (0, 2):
        vector = np.random.default_rng(0).standard_normal(len(matrix)).astype(complex)
        for _ in range(3):
            vector = scipy.linalg.lu_solve(factors, vector, trans=transposed, check_finite=False)
            with np.errstate(all="ignore"):  # a defective one has no vectors of its own
                vector /= np.linalg.norm(vector)
        vectors.append(vector)
    return vectors[0], vectors[1]


def _condition(right: Complexes, left: Complexes) -> float | None:
    sizes = float(np.linalg.norm(right) * np.linalg.norm(left))
    overlap = float(abs(np.vdot(left, right)))
    return sizes / overlap if overlap and np.isfinite(sizes) and np.isfinite(overlap) else None


def _complex(apply: Map, vector: Complexes) -> Complexes:
    parts = torch.from_numpy(np.stack([vector.real, vector.imag]))
    real, imaginary = apply(parts).numpy()
    whole: Complexes = real + 1j * imaginary
    return whole


def _norm(jacobian: Jacobian) -> float | None:
    found = largest_singular_values(
        jacobian.apply, jacobian.adjoint, jacobian.size, jacobian.rows, count=1
    )
    return float(found[0]) if len(found) else None


def _bytes(size: int) -> int:
    """Of the matrix, the factors by which its rank is seen, and what LAPACK works in."""
    return 4 * 8 * size**2


def _refuse_large(plan: Plan, cap: int, advice: str) -> None:
    if plan.bytes > cap:
        raise StepError(
            f"The matrix of this method has {plan.inner:,} rows and would take "
            f"{plan.bytes / 2**30:.1f} GiB with what is needed to find its eigenvalues, above the "
            f"cap of {cap / 2**30:.1f} GiB. {advice}"
        )


def _seconds(apply: Map, size: int) -> float:
    """Estimate the time from one product and the eigenvalues of a small matrix."""
    if not size:
        return 0.0
    few = torch.zeros(min(16, size), size, dtype=torch.float64)
    start = time.perf_counter()
    apply(few)
    products = (time.perf_counter() - start) / len(few) * size
    small = np.random.default_rng(0).standard_normal((160, 160))
    start = time.perf_counter()
    scipy.linalg.eigvals(small, check_finite=False)
    return products + (time.perf_counter() - start) * (size / 160) ** 3


def _shape(shape: tuple[int, ...]) -> str:
    return "×".join(map(str, shape))
