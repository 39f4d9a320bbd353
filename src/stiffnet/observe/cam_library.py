"""Grad-CAM by pytorch-grad-cam, of a network that is only borrowed."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from stiffnet.errors import FeatureMapError
from stiffnet.observe.channel_moments import Floats
from stiffnet.observe.feature_layer import FeatureLayer
from stiffnet.observe.measure import logits_of
from stiffnet.trajectory.wrappers import borrowed

_HALVES = (torch.float16, torch.bfloat16)  # which NumPy, and so the library, cannot rank


class _Logits(nn.Module):
    """A network as pytorch-grad-cam wants it: logits come out, and its gradients are left alone."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, images: Tensor) -> Tensor:
        """Return a row of logits for each image."""
        logits = logits_of(self.network(images))
        assert logits is not None, "the layer was found by a pass that gave some"
        return logits.float() if logits.dtype in _HALVES else logits

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Leave gradients as they are: they are the user's, and no parameter gets any here."""


def grad_cam_of(network: nn.Module, layer: FeatureLayer) -> Any:
    """Return pytorch-grad-cam's Grad-CAM of a layer, with maps before it scales and resizes them.

    Raises:
        FeatureMapError: If it is not installed.
    """
    try:
        from pytorch_grad_cam import GradCAM
    except ImportError:
        raise FeatureMapError(
            "Grad-CAM needs pytorch-grad-cam, which is not installed. Install it with "
            "`pip install 'stiffnet[gradcam]'`."
        ) from None

    class Maps(GradCAM):
        def compute_cam_per_layer(self, images: Tensor, targets: Any, smooth: bool) -> Floats:
            seen = self.activations_and_grads
            if len(seen.activations) != 1 or len(seen.gradients) != 1:
                raise FeatureMapError(
                    f"The layer ran {len(seen.activations)} times in a pass, and a gradient came "
                    f"back {len(seen.gradients)} times. Choose a `layer` that runs once, and turn "
                    "checkpointing of activations off."
                )
            values, slopes = (
                each[0].double().numpy() for each in (seen.activations, seen.gradients)
            )
            [layer] = self.target_layers
            found: Floats = self.get_cam_image(images, layer, targets, values, slopes)
            return np.maximum(found, 0)

        def aggregate_multi_layers(self, maps: Floats) -> Floats:
            return maps

    return Maps(_Logits(network), [layer.module], layer.layout.maps)


@contextmanager
def differentiable(network: nn.Module) -> Iterator[None]:
    """Borrow a network for gradients by its input; parameters need none, and get their own back."""
    needed = [(each, each.requires_grad) for each in network.parameters()]
    with borrowed(network), torch.inference_mode(False), torch.enable_grad():
        try:
            for parameter, _ in needed:
                parameter.requires_grad_(False)
            yield
        finally:
            for parameter, before in needed:
                parameter.requires_grad_(before)
