"""What a network computed before it began to choose: rounding may reorder what comes after.

Detectors keep the best of many boxes. Two of nearly the same score change places with the last
digit of a weight, and the results can no longer be compared one by one.
"""

from typing import Any

from torch import Tensor, nn

from stiffnet.nested import tensors_in
from stiffnet.trajectory.batch import Example
from stiffnet.trajectory.graph import Watch
from stiffnet.trajectory.wrappers import plain_run

CHOICES = frozenset((
    "topk", "sort", "msort", "argsort", "kthvalue", "argmax", "argmin", "nonzero", "masked_select",
    "unique", "unique_consecutive", "multinomial", "nms", "batched_nms", "searchsorted",
))  # fmt: skip
"""Functions whose results are places in what they are given, or go by its order."""


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
