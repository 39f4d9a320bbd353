"""Where the values of a pass come from, also those that torch's functions do not show.

A `TorchFunctionMode` is not shown what happens inside functions of TorchScript, in NumPy or in
other threads. `Below` sees the operators that the first run, so that values are followed through
them. For the rest, `Origins` knows which values cannot depend on the network's input: parameters,
and what was made from constants only. Anything else that comes up from nowhere is a stranger, and
a sum with a stranger may be a step that is not seen.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from stiffnet.trajectory.functions import FROM_OUTSIDE, TO_OUTSIDE

Shapes = frozenset[tuple[int, ...]]


@dataclass(frozen=True)
class StrangeSum:
    """An addition of a value whose origin is not known, and the shapes of what it came from."""

    module: str
    sources: Shapes


@dataclass
class Origins:
    """Remembers which tensors of a pass are constants, and which are strangers."""

    model: nn.Module
    sums: list[StrangeSum] = field(default_factory=list)
    _left: bool = False  # values of the pass were read by code outside torch
    _known: dict[int, tuple[Tensor, Shapes]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.made("", (), (*self.model.parameters(), *self.model.buffers()))

    def read(self, name: str) -> None:
        """Note a function that was given values which depend on the network's input."""
        self._left = self._left or name in TO_OUTSIDE

    def made(self, name: str, given: Iterable[Tensor], results: Iterable[Tensor]) -> None:
        """Note what a function made of values none of which is known to depend on the input."""
        sources: Shapes = frozenset().union(*(self.sources(tensor) for tensor in given))
        for tensor in results:
            own = sources
            if name in FROM_OUTSIDE and self._left:
                own = own or frozenset((tuple(tensor.shape),))
            if own or id(tensor) not in self._known:  # a stranger remains one
                self._known[id(tensor)] = tensor, own

    def sources(self, tensor: Tensor) -> Shapes:
        """Shapes of the strangers that a tensor is or was made from; none of a constant."""
        known = self._known.get(id(tensor))
        return frozenset((tuple(tensor.shape),)) if known is None else known[1]

    def added(self, module: str, lost: Sequence[Tensor]) -> None:
        """Note an addition by those of its operands that are not followed; none may be constant."""
        sources = [self.sources(tensor) for tensor in lost]
        if sources and all(sources):
            self.sums.append(StrangeSum(module, frozenset().union(*sources)))

    def close(self) -> None:
        """Let the tensors go."""
        self._known.clear()


class Below(TorchDispatchMode):
    """Shows every operator to `saw`, after it ran, whatever function called it."""

    def __init__(self, saw: Callable[[Any, tuple[Any, ...], dict[str, Any], Any], None]) -> None:
        super().__init__()
        self._saw = saw

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        with torch._C.DisableTorchFunction():
            result = func(*args, **(kwargs or {}))
        self._saw(func, args, kwargs or {}, result)
        return result
