"""A stage is a run of steps on one state, at every size of the image."""

import pytest
import timm
import torch
from torch import nn

from stiffnet.trajectory.steps import steps


class Block(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.layer = nn.Conv2d(channels, channels, 1)

    def forward(self, x):
        return x + self.layer(x).relu()


class SpaceToDepth(nn.Module):
    """`PixelUnshuffle`, written by hand."""

    def forward(self, x):
        n, c, h, w = x.shape
        x = x.view(n, c, h // 2, 2, w // 2, 2).permute(0, 1, 3, 5, 2, 4)
        return x.reshape(n, 4 * c, h // 2, w // 2)


class Tokens(nn.Module):
    """Steps on a flattened map, (samples, places, channels)."""

    def __init__(self, channels):
        super().__init__()
        self.layer = nn.Linear(channels, channels)

    def forward(self, x):
        x = x.flatten(2).transpose(1, 2)
        return x + self.layer(x).relu()


@pytest.mark.parametrize("change", [nn.PixelUnshuffle(2), SpaceToDepth()])
@pytest.mark.parametrize("shape", [(48, 48), (64, 64), (32, 32), (16, 16), (64, 32), (96, 64)])
def test_a_map_that_is_unshuffled_is_another_state_at_every_size(change, shape):
    model = nn.Sequential(Block(16), Block(16), change, Block(64), Block(64))
    found = steps(model, torch.rand(1, 16, *shape))
    assert [s.stage for s in found] == [0, 0, 1, 1]
    assert [s.counted for s in found] == [False, True, False, True]


@pytest.mark.parametrize("side", [4, 8, 16, 64])
def test_tokens_of_an_unshuffled_map_are_another_state(side):
    model = nn.Sequential(Block(16), nn.PixelUnshuffle(4), Tokens(256))
    assert [s.stage for s in steps(model, torch.rand(1, 16, side, side))] == [0, 1]


@pytest.mark.parametrize("channels", [3, 8, 16])
@pytest.mark.parametrize("shape", [(4, 4), (8, 8), (16, 16), (8, 16), (16, 1)])
def test_a_map_that_is_flattened_is_the_same_state(channels, shape):
    model = nn.Sequential(Block(channels), Tokens(channels))
    assert [s.stage for s in steps(model, torch.rand(1, channels, *shape))] == [0, 0]


def test_windows_of_a_map_are_the_same_state():
    class Windows(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(16, 16)

        def forward(self, x):  # (n, 16, 8, 8) in windows of 4 × 4
            x = x.view(-1, 16, 2, 4, 2, 4).permute(0, 2, 4, 3, 5, 1).reshape(-1, 16, 16)
            return x + self.layer(x).relu()

    found = steps(nn.Sequential(Block(16), nn.BatchNorm2d(16), Windows()), torch.rand(1, 16, 8, 8))
    assert [(s.stage, s.shape) for s in found] == [(0, (16, 8, 8)), (0, (4, 16, 16))]


@pytest.mark.parametrize("side", [32, 64])
def test_stages_of_a_swin_do_not_depend_on_the_size(side):
    model = timm.create_model(
        "swin_tiny_patch4_window7_224",
        img_size=side, window_size=2, depths=(1, 1, 2), embed_dim=24, num_heads=(2, 2, 2),
    )  # fmt: skip
    found = steps(model, torch.rand(1, 3, side, side))
    assert [s.stage for s in found] == [0, 0, 1, 1, 2, 2, 2, 2]
