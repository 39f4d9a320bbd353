"""Parallel branches (RepVGG, ACNet, MobileOne) made one layer, by their modules' own methods."""

from torch import nn

from stiffnet.errors import FoldError
from stiffnet.network.deployed import Change, join_branches, with_branches


def fold_branches(model: nn.Module) -> tuple[nn.Module, list[Change]]:
    """Join the branches of every module that knows how, and say which those were.

    Args:
        model: A network in evaluation mode; it is changed.

    Raises:
        FoldError: If a module's own method fails.
    """
    changes: list[Change] = []
    for path in list(with_branches(model)):
        before = _structure(model.get_submodule(path))
        try:
            model = join_branches(model, path)
        except Exception as error:  # foreign code
            raise FoldError(
                f"The branches of {path or type(model).__name__} cannot be joined by its own "
                f"method: {error}. Fold with `branches=False`."
            ) from error
        if _structure(model.get_submodule(path)) != before:
            changes.append(Change("branches", path))
    return model, changes


def _structure(module: nn.Module) -> tuple[object, ...]:
    return type(module), tuple(module.state_dict())
