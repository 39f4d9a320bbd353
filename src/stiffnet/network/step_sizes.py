"""The step sizes that attached modules choose: one number for each image and channel."""

from collections.abc import Iterable
from functools import partial

import torch
from torch import Tensor, nn

from stiffnet.attention import Attention
from stiffnet.errors import StepError
from stiffnet.network.attach import attached
from stiffnet.trajectory.wrappers import plain_run


def step_sizes(model: nn.Module, batches: Iterable[tuple[Tensor, Tensor]]) -> dict[str, Tensor]:
    """Run some images and return what each attached module multiplied their rates with.

    A module's value for an image and a channel is the number that, multiplied with the rate, comes
    closest to what the module made of it, in the sense of least squares over the positions:
    exactly its gate where that is one number a channel, a weighted mean where it differs between
    positions. It is NaN where the rate is zero everywhere.

    Args:
        model: A network with attached modules; it is run in evaluation mode and left as it was.
        batches: Images and labels, as data sets give them.

    Returns:
        For each step or position a float32 tensor of shape (images, channels), on the CPU.

    Raises:
        StepError: If nothing is attached that multiplies a rate.
    """
    found: dict[str, list[Tensor]] = {}
    with plain_run(model), torch.no_grad():
        handles = [
            module.register_forward_hook(partial(_take, found.setdefault(name, [])))
            for name, module in choosers(model).items()
        ]
        try:
            if not handles:
                raise StepError(
                    f"Nothing is attached to {type(model).__name__} that chooses step sizes. "
                    "Attach a module first, with `stiffnet.attach`."
                )
            parameter = next(model.parameters())
            for images, _ in batches:
                model(images.to(parameter.device, parameter.dtype))
        finally:
            for handle in handles:
                handle.remove()
    return {name: torch.cat(parts) for name, parts in found.items()}


def choosers(model: nn.Module) -> dict[str, Attention]:
    """Return the attached modules that scale a rate, by their steps.

    Where a step has several, the first goes by the step's name, the others by their own paths.
    """
    found: dict[str, Attention] = {}
    for sits in attached(model):
        module = model.get_submodule(sits.name)
        if isinstance(module, Attention) and not module.replaces_norm:
            found[sits.name if sits.at in found else sits.at] = module
    return found


def _take(
    kept: list[Tensor], module: Attention, inputs: tuple[Tensor, ...], output: Tensor
) -> None:
    rate, scaled = inputs[0].double(), output.double()
    axes = module.positions(inputs[0])
    kept.append(((scaled * rate).sum(axes) / rate.square().sum(axes)).float().cpu())
