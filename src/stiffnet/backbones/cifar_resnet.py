"""ResNets for 32-pixel images: 6n+2 layers of basic blocks or 9n+2 of bottlenecks.

He, Zhang, Ren and Sun, 2016: "Deep residual learning for image recognition" (post-activation) and
"Identity mappings in deep residual networks" (pre-activation). Three stages of n blocks, widths 16,
32 and 64 (times four for bottlenecks), a 1×1 convolution where the state changes shape. Activations
and additions work in place: on maps this large, memory that is written for the first time is slow.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import partial
from typing import ClassVar

import torch
from torch import Tensor, nn

from stiffnet.backbones.own_model import Headed, OwnModel

WIDTHS = (16, 32, 64)


class Block(nn.Module, ABC):
    """A residual step that turns `inputs` channels into ``width * expansion``."""

    expansion: ClassVar[int]

    @abstractmethod
    def __init__(self, inputs: int, width: int, stride: int) -> None:
        super().__init__()


def _conv(inputs: int, outputs: int, kernel: int, stride: int = 1) -> nn.Conv2d:
    return nn.Conv2d(inputs, outputs, kernel, stride, padding=kernel // 2, bias=False)


class BasicBlock(Block):
    """Two 3×3 convolutions, and the activation after the addition."""

    expansion = 1

    def __init__(self, inputs: int, width: int, stride: int) -> None:
        super().__init__(inputs, width, stride)
        self.conv1 = _conv(inputs, width, 3, stride)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = _conv(width, width, 3)
        self.bn2 = nn.BatchNorm2d(width)
        self.shortcut = projection(inputs, width, stride)

    def forward(self, x: Tensor) -> Tensor:
        """Take one step."""
        rate = torch.relu_(self.bn1(self.conv1(x)))
        rate = self.bn2(self.conv2(rate))
        rate += self.shortcut(x)
        return torch.relu_(rate)


class Bottleneck(Block):
    """1×1, 3×3, 1×1, and the activation after the addition."""

    expansion = 4

    def __init__(self, inputs: int, width: int, stride: int) -> None:
        super().__init__(inputs, width, stride)
        self.conv1 = _conv(inputs, width, 1)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = _conv(width, width, 3, stride)
        self.bn2 = nn.BatchNorm2d(width)
        self.conv3 = _conv(width, 4 * width, 1)
        self.bn3 = nn.BatchNorm2d(4 * width)
        self.shortcut = projection(inputs, 4 * width, stride)

    def forward(self, x: Tensor) -> Tensor:
        """Take one step."""
        rate = torch.relu_(self.bn1(self.conv1(x)))
        rate = torch.relu_(self.bn2(self.conv2(rate)))
        rate = self.bn3(self.conv3(rate))
        rate += self.shortcut(x)
        return torch.relu_(rate)


class PreActBottleneck(Block):
    """Norm and activation before each convolution; nothing after the addition."""

    expansion = 4

    def __init__(self, inputs: int, width: int, stride: int) -> None:
        super().__init__(inputs, width, stride)
        self.bn1 = nn.BatchNorm2d(inputs)
        self.conv1 = _conv(inputs, width, 1)
        self.bn2 = nn.BatchNorm2d(width)
        self.conv2 = _conv(width, width, 3, stride)
        self.bn3 = nn.BatchNorm2d(width)
        self.conv3 = _conv(width, 4 * width, 1)
        outputs = 4 * width
        same = inputs == outputs and stride == 1
        self.shortcut = nn.Identity() if same else _conv(inputs, outputs, 1, stride)

    def forward(self, x: Tensor) -> Tensor:
        """Take one step."""
        rate = self.conv1(torch.relu(self.bn1(x)))
        rate = self.conv2(torch.relu_(self.bn2(rate)))
        rate = self.conv3(torch.relu_(self.bn3(rate)))
        rate += self.shortcut(x)
        return rate  # type: ignore[no-any-return]


def projection(inputs: int, outputs: int, stride: int) -> nn.Module:
    """A shortcut between states of these shapes: nothing if they agree, else 1×1 and a norm."""
    if inputs == outputs and stride == 1:
        return nn.Identity()
    return nn.Sequential(_conv(inputs, outputs, 1, stride), nn.BatchNorm2d(outputs))


class CifarResNet(Headed, nn.Module):
    """Stem, three stages of n blocks, pooling over whatever map is left, one linear layer.

    `stem` makes what is used instead of one convolution and its norm, given both widths.
    """

    def __init__(
        self,
        block: type[Block],
        blocks: int,
        *,
        num_classes: int = 10,
        in_chans: int = 3,
        stem: Callable[[int, int], nn.Module] | None = None,
    ) -> None:
        super().__init__()
        preact = block is PreActBottleneck
        self.num_features = WIDTHS[-1] * block.expansion
        self.conv1 = stem(in_chans, WIDTHS[0]) if stem else _conv(in_chans, WIDTHS[0], 3)
        self.bn1 = nn.Identity() if preact or stem else nn.BatchNorm2d(WIDTHS[0])
        self.act1 = nn.Identity() if preact else nn.ReLU(inplace=True)
        channels = WIDTHS[0]
        for number, width in enumerate(WIDTHS, start=1):
            steps = []
            for index in range(blocks):
                steps.append(block(channels, width, 2 if index == 0 and number > 1 else 1))
                channels = width * block.expansion
            self.add_module(f"layer{number}", nn.Sequential(*steps))
        last = nn.Sequential(nn.BatchNorm2d(channels), nn.ReLU(inplace=True))
        self.norm = last if preact else nn.Identity()
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.reset_classifier(num_classes)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                fan_out = module.kernel_size[0] * module.kernel_size[1] * module.out_channels
                nn.init.normal_(module.weight, std=math.sqrt(2 / fan_out))

    def forward_features(self, x: Tensor) -> Tensor:
        """Return the last state."""
        x = self.act1(self.bn1(self.conv1(x)))
        x = self.get_submodule("layer1")(x)
        x = self.get_submodule("layer2")(x)
        x = self.get_submodule("layer3")(x)
        x = self.norm(x)
        return x  # noqa: RET504  # the name carries the type

    def forward_head(self, x: Tensor, pre_logits: bool = False) -> Tensor:
        """Pool and classify."""
        x = self.pool(x).flatten(1)
        return x if pre_logits else self.fc(x)


VARIANTS: dict[str, tuple[type[Block], int]] = {
    **{f"resnet{6 * n + 2}_cifar": (BasicBlock, n) for n in (3, 5, 7, 9, 18)},
    **{f"resnet{9 * n + 2}_cifar": (Bottleneck, n) for n in (3, 9, 18, 27)},
    **{f"preresnet{9 * n + 2}_cifar": (PreActBottleneck, n) for n in (3, 9, 18, 27)},
}

MODELS = [
    OwnModel(
        name,
        partial(CifarResNet, block, blocks),
        f"Three stages of {blocks} {block.__name__}s for 32-pixel images.",
        first_conv="conv1",
        classifier="fc",
        last_map=8,
    )
    for name, (block, blocks) in VARIANTS.items()
]
