"""Where attention goes in networks without residual steps: a table that users can extend."""

import itertools
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Literal

from torch import nn

from stiffnet.errors import StepError


@dataclass(frozen=True)
class Position:
    """A place for a module that is not a step: what one module of the network gives or takes."""

    name: str
    """Path of that module."""
    side: Literal["output", "input"] = "output"
    """What is scaled: the module's result, or its first argument."""


Finder = Callable[[nn.Module], Iterable[Position]]
Match = str | type[nn.Module] | Callable[[nn.Module], bool]

_TABLE: list[tuple[Match, Finder]] = []


def register_positions(match: Match, finder: Finder) -> None:
    """Say where attention goes in a kind of network that has no residual steps.

    Where it applies, `attach` uses these positions and looks for no steps. The newest entry wins.

    Args:
        match: The network's class or its name, or a predicate on the network.
        finder: Gives the positions of such a network, in the order in which they run.
    """
    _TABLE.insert(0, (match, finder))


def positions(model: nn.Module) -> list[Position] | None:
    """Find the named positions of a network, or None if the table has no entry for it.

    Raises:
        StepError: If an entry gives a module that the network does not have.
    """
    for match, finder in _TABLE:
        if _fits(model, match):
            found = list(finder(model))
            known = {name for name, _ in model.named_modules()}
            for position in found:
                if position.name not in known:
                    raise StepError(
                        f"The positions registered for {type(model).__name__} name "
                        f"{position.name!r}, which it does not have. Correct the finder."
                    )
            return found or None
    return None


def _fits(model: nn.Module, match: Match) -> bool:
    if isinstance(match, type):
        return isinstance(model, match)
    if isinstance(match, str):
        return any(kind.__name__ == match for kind in type(model).__mro__)
    return match(model)


_NORMS = (nn.BatchNorm2d, nn.GroupNorm, nn.InstanceNorm2d)


def _before_activations(model: nn.Module) -> Iterator[Position]:
    """In a chain, after the norm (or convolution) that stands before an activation."""
    for path, chain in model.named_modules():
        if isinstance(chain, nn.Sequential):
            children = list(chain.named_children())
            for (name, before), (_, after) in itertools.pairwise(children):
                activates = type(after).__module__.rpartition(".")[2].startswith("activation")
                if activates and isinstance(before, (*_NORMS, nn.Conv2d)):
                    yield Position(f"{path}.{name}" if path else name)


def _in_shufflenet(model: nn.Module) -> Iterator[Position]:
    """After the last norm of every residual branch."""
    for path, branch in model.named_modules():
        norms = [name for name, module in branch.named_modules() if isinstance(module, _NORMS)]
        if path.endswith(".branch2") and norms:
            yield Position(f"{path}.{norms[-1]}")


def _is_mobilenet_v1(model: nn.Module) -> bool:
    """MobileNet v1 of timm, which builds it as an EfficientNet of separable blocks alone."""
    blocks = [block for block in model.modules() if hasattr(block, "has_skip")]
    return bool(blocks) and all(
        type(block).__name__ == "DepthwiseSeparableConv" and not block.has_skip for block in blocks
    )


def _before(kind: str, parts: Iterable[str], model: nn.Module) -> Iterator[Position]:
    """Before some parts of every block of a class."""
    for path, block in model.named_modules():
        if type(block).__name__ == kind:
            yield from (Position(f"{path}.{part}", "input") for part in parts)


_IN_REPVGG = partial(_before, "RepVggBlock", ("act",))
"""Between the sum of the branches and the activation of every block."""
_IN_MOBILENET_V1 = partial(_before, "DepthwiseSeparableConv", ("bn1.act", "bn2.act"))
"""Between norm and activation, behind both convolutions of every block."""

register_positions("VGG", _before_activations)
register_positions("ShuffleNetV2", _in_shufflenet)
register_positions(lambda model: any(_IN_REPVGG(model)), _IN_REPVGG)
register_positions(_is_mobilenet_v1, _IN_MOBILENET_V1)
