"""torchvision's ShuffleNetV2 ×1 for 32-pixel images: a stem without stride and without pooling.

Ma, Zhang, Zheng and Sun, 2018: "ShuffleNet V2: practical guidelines for efficient CNN architecture
design".
"""

from torch import Tensor, nn
from torchvision.models import ShuffleNetV2

from stiffnet.backbones.own_model import Headed, OwnModel

BLOCKS = [4, 8, 4]
WIDTHS = [24, 116, 232, 464, 1024]  # stem, three stages, last convolution


class CifarShuffleNetV2(Headed, ShuffleNetV2):
    """torchvision's network behind another stem."""

    def __init__(self, *, num_classes: int = 10, in_chans: int = 3) -> None:
        super().__init__(BLOCKS, WIDTHS)
        self.num_features = WIDTHS[-1]
        self.conv1[0] = nn.Conv2d(in_chans, WIDTHS[0], 3, padding=1, bias=False)
        self.maxpool = nn.Identity()
        self.reset_classifier(num_classes)

    def forward_features(self, x: Tensor) -> Tensor:
        """Return the last map."""
        x = self.maxpool(self.conv1(x))
        x = self.stage4(self.stage3(self.stage2(x)))
        x = self.conv5(x)
        return x  # noqa: RET504  # the name carries the type

    def forward_head(self, x: Tensor, pre_logits: bool = False) -> Tensor:
        """Pool and classify."""
        x = x.mean((2, 3))
        return x if pre_logits else self.fc(x)


MODELS = [
    OwnModel(
        "shufflenetv2_cifar",
        CifarShuffleNetV2,
        "torchvision's ShuffleNetV2 for 32-pixel images.",
        first_conv="conv1.0",
        classifier="fc",
        last_map=4,
    )
]
