"""The network that restyles photographs (Johnson, Alahi and Fei-Fei, 2016), with either norm.

Pictures go in and come out as pixels from 0 to 1, of any size from 5 pixels. Two strided
convolutions shrink a picture to a quarter of its side, five residual blocks work on it there, and
two convolutions after nearest-neighbour upsampling bring it back. Every convolution reflects the
picture at its edges. Instance norms are the usual choice for this task; batch norms, whose
statistics are those of other pictures, are what the ASR paper calls batch noise.
"""

from functools import partial

import torch
from torch import Tensor, nn

from stiffnet.backbones.own_model import OwnModel

WIDTH = 32  # channels at full resolution
BLOCKS = 5
CHANNELS = 3  # of a picture
# The last convolution adds up 2,592 features, all of them positive, so that one step of Adam moves
# it by about 1,300 times the learning rate. A gentle slope keeps pixels from saturating then.
SLOPE = 1 / 8
SMALLEST = 5  # pixels of a side that the first convolution can still reflect
SIZE = 256  # pixels of a side of the crops that it is usually trained on
NORMS: dict[str, type[nn.Module]] = {
    "in": partial(nn.InstanceNorm2d, affine=True),  # type: ignore[dict-item]
    "bn": nn.BatchNorm2d,
}
TITLES = {"in": "instance", "bn": "batch"}


def _convolution(before: int, after: int, kernel: int, *, stride: int = 1) -> nn.Conv2d:
    """Return one without a bias, since a norm follows."""
    return nn.Conv2d(
        before, after, kernel, stride, kernel // 2, bias=False, padding_mode="reflect"
    )  # fmt: skip


class Layer(nn.Sequential):
    """Convolution, norm, ReLU."""

    def __init__(
        self, norm: type[nn.Module], before: int, after: int, kernel: int, *, stride: int = 1
    ) -> None:
        super().__init__(
            _convolution(before, after, kernel, stride=stride), norm(after), nn.ReLU()
        )  # fmt: skip


class ResidualBlock(nn.Module):
    """Two convolutions beside an identity; nothing after the addition."""

    def __init__(self, norm: type[nn.Module], channels: int) -> None:
        super().__init__()
        self.conv1 = _convolution(channels, channels, 3)
        self.norm1 = norm(channels)
        self.act = nn.ReLU()
        self.conv2 = _convolution(channels, channels, 3)
        self.norm2 = norm(channels)

    def forward(self, x: Tensor) -> Tensor:
        """Return the state after the step."""
        rate = self.norm2(self.conv2(self.act(self.norm1(self.conv1(x)))))
        return x + rate  # type: ignore[no-any-return]


class StyleTransfer(nn.Module):
    """Pictures in, pictures out."""

    def __init__(self, norm: str, *, num_classes: int = CHANNELS, in_chans: int = CHANNELS) -> None:
        super().__init__()
        made, width = NORMS[norm], WIDTH
        self.num_classes = num_classes  # channels that come out: what timm calls it
        self.shrink = nn.Sequential(
            Layer(made, in_chans, width, 9),
            Layer(made, width, 2 * width, 3, stride=2),
            Layer(made, 2 * width, 4 * width, 3, stride=2),
        )
        self.blocks = nn.Sequential(*(ResidualBlock(made, 4 * width) for _ in range(BLOCKS)))
        self.enlarge = nn.Sequential(
            nn.Upsample(scale_factor=2),
            Layer(made, 4 * width, 2 * width, 3),
            nn.Upsample(scale_factor=2),
            Layer(made, 2 * width, width, 3),
        )
        self.last = nn.Conv2d(width, num_classes, 9, padding=4, padding_mode="reflect")

    def forward(self, pictures: Tensor) -> Tensor:
        """Restyle pictures of one size; they keep it."""
        height, width = pictures.shape[2:]
        states = self.blocks(self.shrink(2 * pictures - 1))
        made = torch.sigmoid(SLOPE * self.last(self.enlarge(states)))  # a scaled tanh
        return made[..., :height, :width]  # a quarter of a side was rounded up


MODELS = [
    OwnModel(
        f"style_{name}",
        partial(StyleTransfer, name),
        f"Johnson's network for style transfer, with {TITLES[name]} norms.",
        first_conv="shrink.0.0",
        classifier="",
        last_map=None,
        size=SIZE,
        outputs=CHANNELS,
        mean=(0.0,) * CHANNELS,
        std=(1.0,) * CHANNELS,
    )
    for name in NORMS
]
