"""The Jacobian of a function at a point, as what it does to vectors."""

import warnings
from collections.abc import Callable
from functools import cache

import torch
from torch import Tensor

from stiffnet.errors import StepError
from stiffnet.words import first_line


class Jacobian:
    """Products of ∂f/∂x at one point with vectors from the right and from the left.

    Args:
        function: f, of one tensor, with a tensor for a result.
        x: The point, in float64.

    Example:
        >>> j = Jacobian(lambda x: x.square(), torch.tensor([1.0, 2.0]).double())
        >>> j.apply(torch.eye(2).double())
        tensor([[2., 0.],
                [0., 4.]], dtype=torch.float64)
    """

    def __init__(self, function: Callable[[Tensor], Tensor], x: Tensor) -> None:
        prepare_forward_mode()
        self._function, self._x = function, x.detach()
        self.size = x.numel()
        self._backward: Callable[[Tensor], tuple[Tensor]] | None = None
        with torch.no_grad():
            self.shape = function(self._x).shape
        self.rows = self.shape.numel()

    def apply(self, vectors: Tensor) -> Tensor:
        """Map rows of vectors of the inputs' space into rows of the outputs' space."""

        def along(vector: Tensor) -> Tensor:
            point, direction = (self._x,), (vector.view(self._x.shape),)
            image: Tensor = torch.func.jvp(self._function, point, direction)[1]
            return image.flatten()

        return self._batched(along, vectors)

    def adjoint(self, vectors: Tensor) -> Tensor:
        """Map rows of vectors of the outputs' space back, by the transposed matrix."""
        if self._backward is None:
            self._backward = torch.func.vjp(self._function, self._x)[1]
        backward = self._backward

        def along(vector: Tensor) -> Tensor:
            return backward(vector.view(self.shape))[0].flatten()

        return self._batched(along, vectors)

    def _batched(self, along: Callable[[Tensor], Tensor], vectors: Tensor) -> Tensor:
        try:
            if len(vectors) == 1:
                return along(vectors[0]).detach()[None]
            with warnings.catch_warnings():  # torch warns where it loops over a batch
                warnings.filterwarnings("ignore", "There is a performance drop")
                return torch.func.vmap(along)(vectors).detach()
        except (NotImplementedError, RuntimeError) as error:
            raise StepError(
                f"The step cannot be differentiated: {first_line(error)}. Choose another step, or "
                "write its operation in others that torch can differentiate."
            ) from error


@cache
def prepare_forward_mode() -> None:
    """Let torch make its rules for forward differentiation, and keep its own warnings to itself."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        zero = torch.zeros(())
        torch.func.jvp(torch.sin, (zero,), (zero,))
