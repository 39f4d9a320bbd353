"""What of a detector's backbone does not learn: its first stages, and the statistics of norms.

Attached modules learn wherever they are: they may be new, and trained weights are not. Of a module
that took the place of a norm (IEBN), the norm's own tensors are not new.
"""

from collections.abc import Iterator

import torch
from torch import Tensor, nn

from stiffnet.errors import RecipeError
from stiffnet.nested import tensors_in
from stiffnet.network.attach import attached
from stiffnet.network.detector import body_of
from stiffnet.trajectory.wrappers import plain_run

SIDE = 64  # pixels of the image with which the stages are told apart


def freeze_stages(detector: nn.Module, stages: int) -> None:
    """Let the parameters that the first `stages` feature maps are made of be what they are.

    Of a ResNet, one stage is the stem and the first group of blocks.

    Raises:
        RecipeError: If there are fewer stages.
    """
    body = body_of(detector)
    like = next(body.parameters())
    with plain_run(body), torch.enable_grad():
        maps = list(tensors_in(body(torch.zeros(1, 3, SIDE, SIDE).to(like))))
        if stages > len(maps):
            raise RecipeError(
                f"`frozen_stages` is {stages}, and the backbone has {len(maps)} stages. Freeze at "
                "most as many."
            )
        parameters = [p for p in body.parameters() if p.requires_grad]
        gradients = torch.autograd.grad(
            _total(maps[:stages]), parameters, allow_unused=True, materialize_grads=False
        )
    new = {id(p) for module in _attached_modules(detector) for p in _new_parameters(module)}
    for parameter, gradient in zip(parameters, gradients, strict=True):
        if gradient is not None and id(parameter) not in new:
            parameter.requires_grad_(False)


def hold_norms(detector: nn.Module) -> None:
    """Let the backbone's batch norms use the statistics that they have, and leave them alone."""
    spared = {
        inner
        for module in _attached_modules(detector)
        for inner in module.modules()
        if not _is_norm(inner)
    }
    for module in body_of(detector).modules():
        if isinstance(module, nn.modules.batchnorm._BatchNorm) and module not in spared:
            module.eval()


def _attached_modules(detector: nn.Module) -> Iterator[nn.Module]:
    for sits in attached(detector):
        yield detector.get_submodule(sits.name)


def _is_norm(module: nn.Module) -> bool:
    """Whether a module took the place of a norm, whose tensors it has."""
    return bool(getattr(module, "replaces_norm", False))


def _new_parameters(module: nn.Module) -> Iterator[nn.Parameter]:
    for name, parameter in module.named_parameters():
        if not (_is_norm(module) and name in ("weight", "bias")):
            yield parameter


def _total(maps: list[Tensor]) -> Tensor:
    return torch.stack([each.sum() for each in maps]).sum()
