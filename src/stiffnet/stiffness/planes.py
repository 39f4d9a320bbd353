"""Eigenvalues of the slices of an unflattened Jacobian, as the block-level paper counted them.

The Jacobian of a block, as automatic differentiation returns it, has the axes (channels, rows,
columns) of the output and then those of the input. A routine that takes eigenvalues of the last two
axes gives those of every H × W slice. They are no eigenvalues of the Jacobian: a slice maps columns
of an input channel to its rows. They are kept under this name, because the paper's numbers of
eigenvalues are those of this computation.
"""

import math
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from stiffnet.errors import NonFiniteError, StepError
from stiffnet.stiffness.eigen import NOT_FINITE, Complexes, eigenvalues, unit_vectors

CHUNK_BYTES = 1 << 27
SMALL = 1e-2  # of a slice's size: up to which rounding moves eight zeros of one eigenvector
KEEP = 2_000  # eigenvalues for pictures, which show about as many


def counts(inputs: tuple[int, ...], outputs: tuple[int, ...]) -> tuple[int, int]:
    """Return the number of entries of a Jacobian and of the eigenvalues of its slices.

    Example:
        The first block of a ResNet-18 with 64 maps of 16 × 16 pixels.

        >>> counts((64, 16, 16), (64, 16, 16))
        (268435456, 16777216)
    """
    elements = math.prod(inputs) * math.prod(outputs)
    return elements, elements // inputs[-1]


def plane_eigenvalues(
    adjoint: Callable[[Tensor], Tensor],
    inputs: tuple[int, ...],
    outputs: tuple[int, ...],
    *,
    tolerance: float,
    progress: Callable[[float], object] = lambda share: None,
) -> tuple[Complexes, int, int, int]:
    """Take the eigenvalues of all slices.

    Args:
        adjoint: Rows of vectors of the outputs' space ↦ rows of vectors of the inputs' space.
        inputs: Shape of the input, without the batch; its last two axes must be equal.
        outputs: Shape of the output, without the batch.
        tolerance: A real part up to this share of the size of its slice counts as zero.
        progress: Is told the share that is done.

    Returns:
        A few of them: those at both ends of the real axis, the largest, and every so-many-th of the
        others. Then how many there are in all, with a real part below zero, and outside of Euler's
        disc |1 + λ| ≤ 1, both beyond rounding.

    Raises:
        StepError: If the slices are not square.
        NonFiniteError: If an entry is NaN or infinite.
    """
    if len(inputs) < 2 or inputs[-1] != inputs[-2]:
        raise StepError(
            f"The slices of a state of shape {inputs} are not square, so they have no "
            "eigenvalues. Use another method."
        )
    side, rows = inputs[-1], math.prod(outputs)
    _, count = counts(inputs, outputs)
    stride = max(1, count // KEEP)
    negative = outside = seen = 0
    kept, ends = [], []
    for places, units in unit_vectors(rows, CHUNK_BYTES // (16 * math.prod(inputs))):
        slices = adjoint(units).reshape(-1, side, side)
        near = tolerance * torch.linalg.matrix_norm(slices)[:, None]
        if not bool(near.isfinite().all()):
            raise NonFiniteError(NOT_FINITE)
        found = _eigenvalues(slices)
        negative += int((found.real < -near).sum())
        outside += int(((1 + found).abs() > 1 + near).sum())
        flat = found.flatten()
        three = [int(flat.real.argmax()), int(flat.real.argmin()), int(flat.abs().argmax())]
        ends.append(flat[three].numpy())
        kept.append(flat[-seen % stride :: stride].numpy())
        seen += len(flat)
        progress(places.stop / rows)
    return np.concatenate([*ends, *kept]), count, negative, outside


def _eigenvalues(slices: Tensor) -> Tensor:
    """Return the eigenvalues of all slices, with exact zeros as zeros.

    Rounding makes small numbers of several zeros with one eigenvector. A slice with such numbers is
    looked at by itself.
    """
    found: Tensor = torch.linalg.eigvals(slices)
    small = found.abs() <= SMALL * torch.linalg.matrix_norm(slices)[:, None]
    several = ((found != 0) & small).sum(1) > 1  # of one zero, rounding makes a number within 1e-9
    for index in several.nonzero()[:, 0].tolist():
        found[index] = torch.from_numpy(eigenvalues(slices[index].numpy()))
    return found
