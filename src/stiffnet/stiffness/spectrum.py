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
from stiffnet.stiffness.planes import plane_eigenvalues

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
    inner: int = 0
    """k, of the matrix whose eigenvalues are taken; 0 where none is formed."""
    cut: str = ""
    """Where the function was cut, in words."""
    bytes: int = 0
    """That the matrix, the factors by which its rank is seen, and LAPACK's work will take."""
    seconds: float | None = None
    """A rough estimate, from a few products and a small matrix; None where there is none."""


@dataclass(frozen=True, eq=False)
class Found:
    """Eigenvalues, and how they were found."""

    plan: Plan
    values: Complexes
    """All of them; for `krylov` the extremes, for `planes` a choice."""
    count: int
    """How many there are in all."""
    negative: int | None = None
    """How many have a real part below zero; None where not all are known."""
    outside: int | None = None
    """How many are outside of Euler's disc |1 + λ| ≤ 1; None likewise."""
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
    if method == "planes":
        return _planes(traced, on_plan, progress)
    if x.shape != traced.value.shape:
        return _singular(traced, method, on_plan)
    reduced = _uncut(traced) if method == "dense" else _cut(traced)
    return _found(reduced, method, cap, on_plan, progress)


def _planes(traced: Traced, on_plan: Callable[[Plan], object], progress: Progress) -> Found:
    jacobian = Jacobian(traced, traced.x)
    plan = Plan("planes", jacobian.size, bytes=16 * jacobian.size)
    on_plan(plan)
    shapes = tuple(traced.x.shape[1:]), tuple(traced.value.shape[1:])
    found = plane_eigenvalues(jacobian.adjoint, *shapes, tolerance=TOLERANCE, progress=progress)
    return Found(plan, *found)


def _singular(traced: Traced, method: str, on_plan: Callable[[Plan], object]) -> Found:
    if method != "krylov":
        before, after = ("×".join(map(str, v.shape[1:])) for v in (traced.x, traced.value))
        raise ShapeChangesError(
            f"The shape changes from {before} to {after}, so the Jacobian is not "
            "square and has no eigenvalues. Use `method='krylov'` for its largest singular "
            "values, or 'planes' for what the block-level paper computed."
        )
    jacobian = Jacobian(traced, traced.x)
    plan = Plan("krylov", jacobian.size)
    on_plan(plan)
    values = largest_singular_values(jacobian)
    none = np.zeros(0, dtype=np.complex128)
    norm = float(values[0]) if len(values) else 0.0
    return Found(plan, none, 0, norm=norm, singular=values)


@dataclass(frozen=True, eq=False)
class _Reduced:
    """A matrix that has the eigenvalues of a Jacobian, but for zeros and ones."""

    whole: Jacobian
    product: Map
    """What the matrix does to vectors."""
    size: int
    """Of the matrix."""
    where: str
    """Where the function was cut, in words; empty where it was not."""
    lifted: Callable[[Complexes, Complexes, complex], tuple[Complexes, Complexes]]
    """Right and left vector of an eigenvalue of the matrix ↦ those of the Jacobian."""
    kept: int | None = None
    """Of D (1 + A B), how many coordinates D keeps; the matrix is B A. None without a shortcut."""

    def values(self, found: Complexes) -> Complexes:
        """All eigenvalues, from those of the matrix; others are ones where D keeps, or zeros."""
        values = np.zeros(self.whole.size, dtype=np.complex128)
        values[: self.kept or 0] = 1.0
        values[: self.size] += found
        return values

    def ends(self) -> tuple[Complexes, float, int]:
        """As `extremes` gives them, with a one and a zero that the matrix may not have."""
        shifted: Map = self.product if self.kept is None else lambda v: v + self.product(v)
        found, residual, products = extremes(shifted, self.size)
        zeros = (self.kept or self.size) < self.whole.size
        others = [0.0] * zeros + [1.0] * (self.kept is not None)
        return np.concatenate([found, np.array(others, complex)]), residual, products


def _uncut(traced: Traced) -> _Reduced:
    whole = Jacobian(traced, traced.x)
    return _Reduced(whole, whole.apply, whole.size, "", lambda right, left, value: (right, left))


def _cut(traced: Traced) -> _Reduced:
    """Reduce to the smallest cut."""
    kept, rest = traced.without_shortcut()
    whole, cut = Jacobian(traced, traced.x), rest.cut()
    if kept is not None and int(kept.sum()) <= cut.size:  # fewer pass behind the sum than inside
        return _behind_the_sum(whole, kept)
    inner, outer = Jacobian(cut.inner, rest.x), Jacobian(cut.outer, cut.at)

    def lift(vectors: Tensor) -> Tensor:
        images = outer.apply(vectors)
        return images if kept is None else images * kept.double()

    def lifted(right: Complexes, left: Complexes, value: complex) -> tuple[Complexes, Complexes]:
        left = _complex(inner.adjoint, left)
        if kept is not None:  # what is not kept has a share in left eigenvectors all the same
            left[~kept.numpy()] *= np.conj(value / (1 + value)) if value != -1 else 0
        return _complex(lift, right), left

    ones = None if kept is None else int(kept.sum())
    return _Reduced(whole, lambda v: inner.apply(lift(v)), cut.size, cut.where, lifted, ones)


def _behind_the_sum(whole: Jacobian, kept: Tensor) -> _Reduced:
    """Reduce to the coordinates behind the sum that are not zero whatever x is."""
    places = kept.nonzero()[:, 0]

    def product(vectors: Tensor) -> Tensor:
        full = torch.zeros(len(vectors), whole.size, dtype=torch.float64)
        full[:, places] = vectors
        return whole.apply(full)[:, places]

    def lifted(right: Complexes, left: Complexes, value: complex) -> tuple[Complexes, Complexes]:
        full = np.zeros((2, whole.size), dtype=np.complex128)
        full[:, places.numpy()] = right, left
        return full[0], _complex(whole.adjoint, full[1])

    return _Reduced(whole, product, len(places), "the sum", lifted)


def _found(
    reduced: _Reduced, method: str, cap: int, on_plan: Callable[[Plan], object], progress: Progress
) -> Found:
    """Form the matrix and take its eigenvalues, or iterate with it."""
    size, inner = reduced.whole.size, reduced.size
    plan = Plan("reduced", size, inner, reduced.where, bytes=4 * 8 * inner**2)
    advice = "Use `method='krylov'`, which finds the extremes in little memory."
    if method == "dense":
        plan = replace(plan, method=method)
        advice = "Use `method='reduced'`, or 'krylov' for the extremes alone."
    if method == "krylov" or (method == "auto" and plan.bytes > cap):
        plan = replace(plan, method="krylov", bytes=0)
        on_plan(plan)
        values, residual, products = reduced.ends()
        norm = _norm(reduced.whole)
        return Found(plan, values, size, residual=residual, products=products, norm=norm)
    if plan.bytes > cap:
        raise StepError(
            f"The matrix of this method has {inner:,} rows and would take "
            f"{plan.bytes / 2**30:.1f} GiB with what is needed to find its eigenvalues, above the "
            f"cap of {cap / 2**30:.1f} GiB. {advice}"
        )
    plan = replace(plan, seconds=_seconds(reduced.product, inner))
    on_plan(plan)
    matrix = matrix_of(reduced.product, inner, inner, progress=progress)
    found = eigenvalues(matrix)
    values = reduced.values(found)
    condition = None
    if found.any():
        chosen = found[np.abs(found.real + (reduced.kept is not None)).argmax()]
        condition = _condition(*reduced.lifted(*_vectors(matrix, chosen), chosen))
    near = TOLERANCE * float(np.abs(values).max(initial=0.0))
    return Found(
        plan,
        values,
        len(values),
        int((values.real < -near).sum()),
        int((np.abs(1 + values) > 1 + near).sum()),
        condition=condition,
        norm=_norm(reduced.whole),
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
    found = largest_singular_values(jacobian, count=1)
    return float(found[0]) if len(found) else None


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
