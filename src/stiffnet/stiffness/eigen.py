"""Eigenvalues of linear maps that are given by what they do to vectors.

A map takes a batch of vectors, one a row, and returns their images, one a row. All arithmetic is
in float64. Zeros are counted, never guessed from small numbers: a singular matrix M = Q R of rank
r < k has the eigenvalues of the r × r matrix R Q and k - r zeros, and so on until the rank is full.
A plain eigenvalue routine would give noise in their place, as large as the square root of the
rounding where zeros are defective.
"""

import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import scipy.linalg
import torch
from numpy.typing import NDArray
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components
from scipy.sparse.linalg import ArpackError, ArpackNoConvergence, LinearOperator, eigs, svds
from torch import Tensor

from stiffnet.errors import NonFiniteError, StepError
from stiffnet.stiffness.jacobian import Jacobian

Floats = NDArray[np.float64]
Complexes = NDArray[np.complex128]
Map = Callable[[Tensor], Tensor]
Progress = Callable[[float], object]  # is told the share that is done

CHUNK_BYTES = 1 << 28  # of the vectors that are in flight at a time
ARNOLDI = 1e-10  # relative residual that Arnoldi iterations aim at
BLOCKS = 1e-8  # relative residual up to which iterations on blocks count as converged
SPACE = 128  # vectors of a Krylov space
WANTED = 8  # eigenvalues at each end: with two, the very last one was missed now and then
LEAST = 64  # roundings in a number of a small matrix, which products of others have made
DIRECT = 400  # up to this size all eigenvalues are found, which takes less time than iterations
RESTARTS = 100
NOT_FINITE = "The Jacobian has entries that are NaN or infinite. Check the weights and this input."
ENDS = {"LM": "largest", "LR": "rightmost", "SR": "leftmost"}


def matrix_of(
    apply: Map, size: int, rows: int, *, progress: Progress = lambda share: None
) -> Floats:
    """Return the (rows × size) matrix of a map, a few columns at a time.

    Example:
        >>> matrix_of(lambda v: 2 * v[:, :2], 3, 2)
        array([[2., 0., 0.],
               [0., 2., 0.]])
    """
    matrix = np.empty((rows, size))
    for places, units in unit_vectors(size, CHUNK_BYTES // (8 * 8 * max(rows, size, 1))):
        matrix[:, places] = apply(units).numpy().T
        progress(places.stop / size)
    if not np.isfinite(matrix).all():
        raise NonFiniteError(NOT_FINITE)
    return matrix


def unit_vectors(size: int, most: int) -> Iterator[tuple[slice, Tensor]]:
    """Yield the unit vectors of a space as rows, at most so many at a time, and which they are."""
    for start in range(0, size, max(1, most)):
        stop = min(start + max(1, most), size)
        units = torch.zeros(stop - start, size, dtype=torch.float64)
        units[range(stop - start), range(start, stop)] = 1.0
        yield slice(start, stop), units


def eigenvalues(matrix: Floats) -> Complexes:
    """Return all eigenvalues of a square matrix, with exact zeros as zeros.

    Example:
        >>> eigenvalues(np.array([[0.0, 1.0], [0.0, 0.0]]))
        array([0.+0.j, 0.+0.j])
    """
    found = np.zeros(len(matrix), dtype=np.complex128)
    largest = float(np.abs(matrix).max(initial=0.0))
    if not largest:
        return found
    # LAPACK's routine does not scale very large and small numbers back; a power of two is exact.
    scale = float(2.0 ** (np.frexp(largest)[1] - 1))
    done = 0
    for places in _irreducible(matrix):
        part = matrix if len(places) == len(matrix) else matrix[np.ix_(places, places)]
        own = part[0] if len(places) == 1 else scale * _of_part(part / scale)
        found[done : done + len(places)] = own
        done += len(places)
    return found


def _irreducible(matrix: Floats) -> list[NDArray[Any]]:
    """Places of the diagonal blocks of a matrix, put into block-triangular form.

    It has their eigenvalues, whatever stands above them. A routine that does not know loses those
    of a matrix that is far from normal: of a triangular one, the zeros on its diagonal.
    """
    whole = [np.arange(len(matrix))]
    if matrix.all():
        return whole
    count, labels = connected_components(csr_array(matrix != 0), connection="strong")
    if count == 1:
        return whole
    order = np.argsort(labels, kind="stable")
    return np.split(order, np.flatnonzero(np.diff(labels[order])) + 1)


def _of_part(matrix: Floats) -> Complexes:
    """All eigenvalues, after zeros were taken off by rank.

    Its coordinates are scaled alike first, by powers of two, which leave the eigenvalues as they
    are: beside a coordinate of 1e-8 of the others, a number that counts would look like rounding.
    """
    size, scale = len(matrix), None
    q: Any
    r: Any
    balanced: Any = scipy.linalg.matrix_balance(matrix, permute=False)[0]
    matrix = balanced
    while len(matrix):
        q, r, order = scipy.linalg.qr(matrix, pivoting=True, mode="economic", check_finite=False)
        sizes = np.abs(np.diag(r))
        scale = sizes[0] if scale is None else scale  # of the first: rounding is relative to it
        rank = int((sizes > max(size, LEAST) * np.finfo(np.float64).eps * scale).sum())
        if rank == len(matrix):
            break
        back = np.empty_like(order)
        back[order] = np.arange(len(order))
        matrix = r[:rank, back] @ q[:, :rank]
    found = np.zeros(size, dtype=np.complex128)
    if len(matrix):
        found[: len(matrix)] = scipy.linalg.eigvals(matrix, overwrite_a=False, check_finite=False)
    return found


def extremes(apply: Map, size: int) -> tuple[Complexes, float, int]:
    """Find both ends of the real axis and the largest eigenvalue, by Arnoldi iterations.

    Returns:
        Rightmost, leftmost and largest eigenvalues, with their conjugates; the largest residual
        ‖M v - λ v‖ / |λ_max|; and how often the map was applied.

    Raises:
        StepError: If the iterations do not converge.
    """
    if size <= DIRECT:
        return eigenvalues(matrix_of(apply, size, size)), 0.0, 0
    start = np.random.default_rng(0).standard_normal(size)
    products = 0

    def product(v: Floats) -> Floats:
        nonlocal products
        products += 1
        return _times(apply)(v)

    if not np.any(product(start)):
        return np.zeros(1, dtype=np.complex128), 0.0, products
    operator = LinearOperator((size, size), matvec=product, dtype=np.float64)
    found: list[complex] = []
    residual = 0.0
    for end in ("LM", "LR", "SR"):
        values, vectors = _arnoldi(operator, end, start)
        for value, vector in zip(values, vectors.T, strict=True):
            image = product(vector.real) + 1j * product(vector.imag)
            residual = max(residual, float(np.linalg.norm(image - value * vector)))
            found.append(complex(value))
    return np.array(found), residual / max(map(abs, found)), products


def _arnoldi(operator: LinearOperator, end: Any, start: Floats) -> tuple[Complexes, Complexes]:
    try:
        values, vectors = eigs(
            operator, k=WANTED, which=end, v0=start, ncv=SPACE, tol=ARNOLDI, maxiter=RESTARTS
        )
    except ArpackNoConvergence as error:
        raise StepError(
            f"Arnoldi iterations did not converge to the {ENDS[end]} eigenvalue in {RESTARTS} "
            f"restarts of {SPACE} vectors. Use `method='reduced'` or 'dense'."
        ) from error
    except ArpackError as error:
        raise StepError(
            f"Arnoldi iterations broke down: {str(error).rstrip('. ')}. Use `method='reduced'` or "
            "'dense'."
        ) from error
    return values, vectors


def largest_singular_values(jacobian: Jacobian, count: int = 6) -> Floats:
    """Return the largest singular values of a Jacobian, largest first."""
    size, rows, times = jacobian.size, jacobian.rows, _times(jacobian.apply)
    count = min(count, size, rows)
    if min(size, rows) <= SPACE:
        return scipy.linalg.svdvals(matrix_of(jacobian.apply, size, rows))[:count]
    start = np.random.default_rng(0)
    if not np.any(times(start.standard_normal(size))):
        return np.zeros(count)
    back = _times(jacobian.adjoint)
    operator = LinearOperator((rows, size), matvec=times, rmatvec=back, dtype=np.float64)
    values: Any
    try:
        values = svds(operator, count, tol=ARNOLDI, return_singular_vectors=False, rng=start)
    except ArpackError:  # as of an identity, where the first vector is all there is
        values = _by_blocks(operator, count, start)
    return np.sort(values)[::-1]


def _by_blocks(operator: LinearOperator, count: int, start: np.random.Generator) -> Any:
    """Largest singular values where Krylov spaces end early, with their residuals checked."""
    with warnings.catch_warnings():
        # It warns where residuals of 1e-16 are not below the square of its tolerance.
        warnings.simplefilter("ignore", UserWarning)
        _, values, rows = svds(operator, count, tol=ARNOLDI, solver="lobpcg", rng=start)
    square = values**2
    images = np.stack([operator.rmatvec(operator.matvec(row)) for row in rows])
    residual = np.abs(images - square[:, None] * rows).max() / square.max()
    if not residual <= BLOCKS:
        raise StepError(
            f"The largest singular values were found only to {residual:.0e}, relative. Use "
            "`method='reduced'` or 'dense'."
        )
    return values


def _times(apply: Map) -> Callable[[Floats], Floats]:
    """A product with one vector, as SciPy asks for it."""

    def product(vector: Floats) -> Floats:
        image: Floats = apply(torch.from_numpy(np.ravel(vector).copy())[None])[0].numpy()
        if not np.isfinite(image).all():
            raise NonFiniteError(NOT_FINITE)
        return image

    return product
