"""One network of ours: its name, how it is built, and what images it is made for."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

CIFAR_MEAN = (0.4914, 0.4822, 0.4465)  # of CIFAR-10's 50,000 training images
CIFAR_STD = (0.2470, 0.2435, 0.2616)
CIFAR_SIZE = 32
STL_SIZE = 96


class Headed:
    """A network that ends in one linear layer, with the methods that timm asks of its models."""

    num_features: int

    def get_classifier(self) -> nn.Module:
        """Return the last layer."""
        return self.fc

    def reset_classifier(self, num_classes: int) -> None:
        """Replace the last layer by a fresh one; without classes there is none."""
        self.num_classes = num_classes
        self.fc = nn.Linear(self.num_features, num_classes) if num_classes else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits of a batch of images."""
        logits: Tensor = self.forward_head(self.forward_features(x))  # type: ignore[attr-defined]
        return logits


@dataclass(frozen=True)
class OwnModel:
    """What timm has to know of a network."""

    name: str  # what users write
    build: Callable[..., nn.Module]  # takes num_classes, in_chans and what else its network takes
    summary: str  # one sentence on the network
    first_conv: str | tuple[str, ...]  # path of the convolution, or of several, that sees the image
    classifier: str  # path of the linear layer that gives the logits; nothing if there are none
    last_map: int | None  # side of the map that is pooled at the end; None if there is none
    size: int = CIFAR_SIZE  # side of the images
    outputs: int = 10
    mean: tuple[float, ...] = CIFAR_MEAN
    std: tuple[float, ...] = CIFAR_STD

    @property
    def config(self) -> dict[str, Any]:
        """The same, as timm writes it."""
        return {
            "num_classes": self.outputs,
            "input_size": (3, self.size, self.size),
            "pool_size": None if self.last_map is None else (self.last_map, self.last_map),
            "crop_pct": 1.0,
            "interpolation": "bilinear",
            "mean": self.mean,
            "std": self.std,
            "first_conv": self.first_conv,
            "classifier": self.classifier,
        }
