"""What of a detector's backbone does not learn: its first stages, and the statistics of norms.

Attached modules learn wherever they are: they may be new, and trained weights are not. Of a module
that took the place of a norm (IEBN), the norm's own tensors are not new.
"""

import torch
from torch import nn

from stiffnet.errors import RecipeError
from stiffnet.nested import tensors_in
from stiffnet.network.attach import attached, new_parameters
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
        total = torch.stack([each.sum() for each in maps[:stages]]).sum()
        gradients = torch.autograd.grad(
            total, parameters, allow_unused=True, materialize_grads=False
        )
    new = {id(parameter) for parameter in new_parameters(detector).values()}
    for parameter, gradient in zip(parameters, gradients, strict=True):
        if gradient is not None and id(parameter) not in new:
            parameter.requires_grad_(False)


def hold_norms(detector: nn.Module) -> None:
    """Let the backbone's batch norms use the statistics that they have, and leave them alone."""
    spared = {
        inner
        for sits in attached(detector)
        for inner in detector.get_submodule(sits.name).modules()
        if not getattr(inner, "replaces_norm", False)  # which has a norm's tensors
    }
    for module in body_of(detector).modules():
        if isinstance(module, nn.modules.batchnorm._BatchNorm) and module not in spared:
            module.eval()
