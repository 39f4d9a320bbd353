"""Which parameters the weight decay acts on, and which learn more slowly."""

from collections.abc import Callable, Collection
from typing import Any

from torch import nn

from stiffnet.errors import RecipeError
from stiffnet.registry import check_known

DECAYS = ("all", "weights")


def parameter_groups(
    model: nn.Module,
    weight_decay: float,
    decay: str,
    *,
    fast: Collection[str] = (),
    slow_rate: float = 1.0,
) -> list[dict[str, Any]]:
    """Sort the trainable parameters into groups for one of torch's optimizers.

    Every trainable parameter is in exactly one group, a shared one under its first name, in the
    order of ``model.named_parameters()``. The first group is decayed and the second is not; an
    empty one is left out. The optimizer keeps the names beside the parameters, as the group's
    ``param_names``. What a group's learning rate is to be multiplied by is its ``lr_scale``, as
    timm calls it; groups of slow parameters come before those of fast ones.

    Args:
        model: Network to train; all its modules are asked for parameters that they exempt.
        weight_decay: Of the first group.
        decay: ``all`` parameters that are not exempt, or only ``weights``: those with two axes or
            more, which leaves out biases and the parameters of norms.
        fast: Names of the parameters that learn at the full rate, if others do not.
        slow_rate: Share of the rate at which all others learn.

    Raises:
        UnknownNameError: If `decay` is another word.
        RecipeError: If nothing is to be trained.

    Example:
        >>> [group["weight_decay"] for group in parameter_groups(nn.Linear(2, 1), 0.1, "weights")]
        [0.1, 0.0]
    """
    check_known("choice of `decay`", decay, DECAYS)
    exempt = _exempt(model)
    scales = dict.fromkeys((slow_rate, 1.0))
    groups: list[dict[str, Any]] = [
        {"params": [], "weight_decay": amount, "lr_scale": scale}
        for scale in scales
        for amount in (weight_decay, 0.0)
    ]
    for name, parameter in model.named_parameters():
        if not parameter.requires_grad:
            continue
        small = decay == "weights" and parameter.dim() < 2
        spared = small or id(parameter) in exempt
        quick = len(scales) > 1 and name in fast
        groups[2 * quick + spared]["params"].append((name, parameter))
    if not any(group["params"] for group in groups):
        raise RecipeError(
            f"{type(model).__name__} has no parameter that requires a gradient, so there is "
            "nothing to train; call `requires_grad_()` on what is to be trained."
        )
    return [group for group in groups if group["params"]]


def _exempt(model: nn.Module) -> set[int]:
    """Identities of the parameters that some module exempts, whatever names they have.

    By timm's convention its method ``no_weight_decay`` returns names, relative to the module; those
    that it does not have mean nothing.
    """
    found: set[int] = set()
    for module in model.modules():
        exempted: Callable[[], Collection[str]] | None = getattr(module, "no_weight_decay", None)
        if exempted is not None:
            own = dict(module.named_parameters(remove_duplicate=False))
            found.update(id(own[name]) for name in exempted() if name in own)
    return found
