"""The largest singular value of a Jacobian that is known only by its products."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.autograd.graph import GradientEdge

Product = Callable[[Tensor], Tensor]

NOTHING = 1e-10  # of a vector, below which what is left of it is rounding


@dataclass(frozen=True)
class Layout:
    """Which axis of a value counts the samples, and how many of its entries each sample has."""

    axis: int = 0
    entries: int = 1

    def rows(self, value: Tensor) -> Tensor:
        """Return a value as float64 of shape (samples, entries)."""
        apart = value.movedim(self.axis, 0)
        return apart.reshape(len(apart) // self.entries, -1).double()

    def like(self, rows: Tensor, value: Tensor) -> Tensor:
        """Return rows in the shape and precision of a value: the opposite of `rows`."""
        apart = value.movedim(self.axis, 0)
        return rows.reshape(apart.shape).movedim(0, self.axis).to(value)


def largest_singular_value(
    forward: Product, backward: Product, start: Tensor, *, iterations: int, nothing: float = NOTHING
) -> Tensor:
    """Estimate ‖J‖ for every sample, by Golub and Kahan's bidiagonalisation.

    The estimate is from below and exact once there are as many iterations as entries. Each vector
    is made orthogonal to the one before it alone: rounding then brings known singular values up
    again, and never one that is larger than all of them. Vectors are (samples, entries); `forward`
    is J v, `backward` is Jᵀ u, and there are as many of either as iterations; fewer where the space
    that they span is exhausted, as for a shortcut that passes some entries and drops others.
    `nothing` is the share of a product below which what is left of it is rounding.
    """
    count = min(iterations, start.shape[1])
    v, _ = _unit(start)
    u, beyond = start.new_zeros(()), start.new_zeros(len(start))
    band = start.new_zeros(len(start), count, count)
    for k in range(count):
        u, band[:, k, k] = _unit(_less(forward(v), beyond, u, nothing))
        if k + 1 == count:
            break
        v, beyond = _unit(_less(backward(u), band[:, k, k], v, nothing))
        band[:, k, k + 1] = beyond
        if not bool(beyond.any()):  # every sample's space is exhausted
            break
    norm: Tensor = torch.linalg.matrix_norm(band, ord=2)
    return norm


def jacobian_norm(
    outputs: Tensor,
    inputs: tuple[GradientEdge, Tensor],
    layouts: tuple[Layout, Layout],
    *,
    iterations: int,
    generator: torch.Generator,
) -> Tensor | None:
    """Return ‖∂outputs/∂inputs‖ of every sample at this point, in the graph that made `outputs`.

    None where they do not depend on the inputs, which are a place in the graph and the value that
    was there. Products with J are gradients of products with its transpose, so whatever can be
    differentiated twice will do. The generator draws the vectors to begin with, on the CPU.
    """
    edge, value = inputs
    inner, outer = layouts
    if not outputs.requires_grad:
        return None
    probe = torch.zeros_like(outputs, requires_grad=True)
    gradients: tuple[Tensor | None, ...] = torch.autograd.grad(
        outputs, edge, probe, create_graph=True, retain_graph=True, allow_unused=True
    )
    pulled = gradients[0]
    if pulled is None:
        return None

    def forward(v: Tensor) -> Tensor:
        (pushed,) = torch.autograd.grad(
            pulled, probe, inner.like(v, value), retain_graph=True, materialize_grads=True
        )
        return outer.rows(pushed)

    def backward(u: Tensor) -> Tensor:
        (found,) = torch.autograd.grad(outputs, edge, outer.like(u, outputs), retain_graph=True)
        return inner.rows(found)

    rows = inner.rows(value)
    start = torch.randn(rows.shape, generator=generator, dtype=torch.float64).to(rows.device)
    rounding = max(NOTHING, 10 * torch.finfo(value.dtype).eps)  # of the products, not of ours
    return largest_singular_value(forward, backward, start, iterations=iterations, nothing=rounding)


def _less(vector: Tensor, length: Tensor, unit: Tensor, nothing: float) -> Tensor:
    """Take a multiple of a unit vector off; zeros where that leaves nothing but rounding."""
    before = torch.linalg.vector_norm(vector, dim=1, keepdim=True)
    vector = vector - length[:, None] * unit
    left = torch.linalg.vector_norm(vector, dim=1, keepdim=True)
    return torch.where(left > nothing * before, vector, 0.0)


def _unit(vector: Tensor) -> tuple[Tensor, Tensor]:
    """Return unit vectors and lengths; where there is nothing left, zeros."""
    length = torch.linalg.vector_norm(vector, dim=1)
    return vector / torch.where(length > 0, length, 1.0)[:, None], length
