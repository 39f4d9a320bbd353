"""What a pass costs."""

import pytest
import timm
import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from stiffnet.fold.cost import costs


def encoder() -> nn.Module:
    """A network whose layers torch runs as one where no gradients are wanted."""
    layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)
    return nn.Sequential(nn.Flatten(2), nn.Linear(1024, 16), nn.TransformerEncoder(layer, 1))


@pytest.mark.parametrize(
    "make",
    [
        encoder,
        lambda: timm.create_model("resnet18", num_classes=10),
        lambda: timm.create_model("vit_tiny_patch16_224", depth=1, img_size=32),
        lambda: timm.create_model("test_convnext"),
    ],
    ids=["encoder", "resnet", "vit", "convnext"],
)
def test_multiplications_are_those_of_torchs_own_counter(make):
    model, image = make().eval(), torch.rand(1, 3, 32, 32)
    with FlopCounterMode(display=False) as counter:
        model(image)
    (cost,) = costs([model], ((image.expand(3, -1, -1, -1),), {}), passes=0)
    assert cost.macs == counter.get_total_flops() // 2
    assert cost.seconds is None
