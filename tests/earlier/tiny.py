"""A network so small that runs of it can be kept beside the tests; timm knows it by its name."""

import timm
from timm.models import register_model
from torch import Tensor, nn


class Block(nn.Module):
    """Two convolutions and a shortcut."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(channels)
        self.conv2 = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(channels)

    def forward(self, x: Tensor) -> Tensor:
        """Add what the branch makes of x to x."""
        y = self.bn2(self.conv2(self.bn1(self.conv1(x)).relu()))
        return (x + y).relu()


class Tiny(nn.Module):
    """Three blocks of four channels, then three of eight."""

    def __init__(self, num_classes: int = 10, in_chans: int = 3) -> None:
        super().__init__()
        self.num_classes = num_classes
        self.stem = nn.Conv2d(in_chans, 4, 3, padding=1)
        self.stage1 = nn.Sequential(*(Block(4) for _ in range(3)))
        self.down = nn.Conv2d(4, 8, 2, stride=2)
        self.stage2 = nn.Sequential(*(Block(8) for _ in range(3)))
        self.head = nn.Linear(8, num_classes)

    def forward(self, x: Tensor) -> Tensor:
        """Return a row of logits for each image."""
        x = self.stage2(self.down(self.stage1(self.stem(x))))
        return self.head(x.mean((2, 3)))


def tiny_residual(pretrained: bool = False, **options: object) -> Tiny:
    """Build the network."""
    known = {key: options[key] for key in ("num_classes", "in_chans") if key in options}
    model = Tiny(**known)
    model.pretrained_cfg = model.default_cfg = {"input_size": (3, 16, 16), "num_classes": 10}
    return model


def register() -> None:
    """Tell timm of it, once."""
    if not timm.is_model("tiny_residual"):
        register_model(tiny_residual)
