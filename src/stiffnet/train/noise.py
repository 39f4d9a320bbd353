r"""Noise attacks on training: noise in every batch norm, or batch statistics for instance norms.

While it trains, a norm with noise computes $[\hat x\,N_a + N_b]\,\gamma + \beta$, where $\hat x$ is
its normalised input. In evaluation it is the ordinary norm. The paper multiplies $N_a$ and $\gamma$
in the same way, and neither its code nor that of the work it follows has any noise, so we read
one number per channel; what its table's caption calls a variance is a standard deviation here.
"""

import math
from dataclasses import dataclass, replace
from typing import Literal, TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from stiffnet.batch_norms import PLAIN
from stiffnet.errors import RecipeError
from stiffnet.network.norm_exchange import exchange
from stiffnet.registry import check_known
from stiffnet.train.synced_norms import Altered, Call, alter

KINDS = ("constant", "random")
BATCH_NORMS: dict[type[nn.Module], type[nn.BatchNorm1d | nn.BatchNorm2d | nn.BatchNorm3d]] = {
    nn.InstanceNorm1d: nn.BatchNorm1d,
    nn.InstanceNorm2d: nn.BatchNorm2d,
    nn.InstanceNorm3d: nn.BatchNorm3d,
}

Model = TypeVar("Model", bound=nn.Module)


@dataclass(frozen=True)
class Noise:
    """The noise of one norm at one step: a pure function of these seven values."""

    kind: Literal["constant", "random"]
    a: float
    b: float
    seed: int
    layer: int
    channels: int
    step: int = 0

    def draw(self) -> Tensor:
        """Return N_a and N_b in two rows of float64, one value per channel.

        Constant noise is `a` and `b` themselves. Random noise is normal, with means 1 and 0 and
        standard deviations `a` and `b`, and drawn anew for each channel, norm and step.

        Example:
            >>> Noise("constant", 0.8, 0.5, seed=0, layer=0, channels=2).draw()
            tensor([[0.8000, 0.8000],
                    [0.5000, 0.5000]], dtype=torch.float64)
        """
        ab = torch.tensor([[self.a], [self.b]], dtype=torch.float64).expand(2, self.channels)
        if self.kind == "constant":
            return ab
        source = np.random.SeedSequence(self.seed, spawn_key=(self.layer, self.step))
        normal = np.random.default_rng(source).standard_normal((2, self.channels))
        return torch.tensor([[1.0], [0.0]], dtype=torch.float64) + ab * torch.from_numpy(normal)


def add_noise(model: Model, kind: str, a: float, b: float, seed: int) -> Model:
    """Put noise into every batch norm of `model`, in place; `plain` takes it out again.

    ``constant`` noise is N_a = a and N_b = b; ``random`` noise is N_a ~ N(1, a²) and N_b ~ N(0,
    b²), so that `a` and `b` are standard deviations, and ranks with equal seeds draw equal noise.
    The norms may be synchronised, before or after.
    """
    check_known("noise", kind, KINDS)
    if not (math.isfinite(a) and math.isfinite(b)) or (kind == "random" and min(a, b) < 0):
        raise RecipeError(
            f"The {kind} noise was given a = {a} and b = {b}; set `noise_a` and `noise_b` to "
            "finite numbers, which for random noise are standard deviations and not negative."
        )
    norms = [module for module in model.modules() if isinstance(module, PLAIN)]
    if not norms:
        raise RecipeError(
            f"Noise goes into batch norms, and {type(model).__name__} has none; "
            "set `noise` to none or train another network."
        )
    for layer, norm in enumerate(norms):
        alter(norm, Noisy)
        assert isinstance(norm, Noisy)
        norm.noise = Noise(kind, a, b, seed, layer, norm.num_features)  # type: ignore[arg-type]
    return model


def set_step(model: nn.Module, step: int) -> None:
    """Tell every norm with noise which training step comes next."""
    for module in model.modules():
        if isinstance(module, Noisy):
            module.noise = replace(module.noise, step=step)


def add_batch_noise(model: nn.Module) -> nn.Module:
    """Replace every instance norm by a batch norm of its width, and so bring batch noise in.

    The affine parameters are the same objects; where there were none, there are none. Running
    statistics start anew. The network is changed in place and returned, unless it is itself one
    instance norm.

    Raises:
        RecipeError: If it has no instance norm, or one whose class may do more than normalise.
    """
    norms = [module for module in model.modules() if isinstance(module, tuple(BATCH_NORMS))]
    if not norms:
        raise RecipeError(
            f"Batch noise needs instance norms to replace, and {type(model).__name__} has none; "
            "set `batch_noise` to false or train another network."
        )
    tensors = (*model.parameters(), *model.buffers())
    like = next((tensor for tensor in tensors if tensor.is_floating_point()), torch.empty(0))
    new = {norm: _batch_norm(norm, like) for norm in norms}
    exchange(model, new)
    return new.get(model, model)


class Noisy(Altered):
    """A norm with noise, as long as it trains."""

    noise: Noise

    def differs(self) -> bool:
        """Whether there is noise: always."""
        return True

    def answer(self, call: Call) -> Tensor:
        """Normalise as ever, with noise in the affine parameters, which comes to the same."""
        if not call.training:
            return super().answer(call)
        like = next(x for x in (call.weight, call.running_mean, call.x) if x is not None)
        wide = torch.promote_types(like.dtype, torch.float32)
        scale, shift = self.noise.draw().to(like.device, wide)
        if call.weight is not None:
            scale, shift = call.weight * scale, call.weight * shift
        if call.bias is not None:
            shift = call.bias + shift
        return super().answer(replace(call, weight=scale.to(like.dtype), bias=shift.to(like.dtype)))

    def forget(self) -> None:
        """Drop the noise."""
        del self.noise
        super().forget()


def _batch_norm(norm: nn.Module, like: Tensor) -> nn.Module:
    assert isinstance(norm, nn.InstanceNorm1d | nn.InstanceNorm2d | nn.InstanceNorm3d)
    if type(norm) not in BATCH_NORMS:
        raise RecipeError(
            f"A norm of class {type(norm).__name__} may do more than an instance norm, so none "
            "can replace it; set `batch_noise` to false or use torch's own instance norms."
        )
    kind = BATCH_NORMS[type(norm)]
    new = kind(norm.num_features, norm.eps, norm.momentum, affine=False).to(like.device, like.dtype)
    new.affine, new.weight, new.bias = norm.affine, norm.weight, norm.bias
    return new.train(norm.training)
