"""timm's ViT-Ti with small patches, for 32- and for 96-pixel images.

Both take images of other sizes too, if the sides are multiples of the patch's: the position
embedding is interpolated.
"""

from functools import partial
from typing import Any

from timm.models.vision_transformer import VisionTransformer

from stiffnet.backbones.own_model import CIFAR_SIZE, STL_SIZE, OwnModel

TINY: dict[str, Any] = {"embed_dim": 192, "depth": 12, "num_heads": 3, "dynamic_img_size": True}
VARIANTS = {"cifar": (CIFAR_SIZE, 4), "stl": (STL_SIZE, 8)}  # sides of the images and patches


def tiny_vits(name: str, summary: str, **options: Any) -> list[OwnModel]:
    """One network for each size of images, called ``name_SIZE``."""
    return [
        OwnModel(
            f"{name}_{data}",
            partial(VisionTransformer, img_size=size, patch_size=patch, **TINY, **options),
            f"{summary}, {patch}-pixel patches, {size}-pixel images.",
            first_conv="patch_embed.proj",
            classifier="head",
            last_map=None,
            size=size,
        )
        for data, (size, patch) in VARIANTS.items()
    ]


MODELS = tiny_vits("vit_tiny", "timm's ViT-Ti")
