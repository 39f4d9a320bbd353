"""timm's ViT-Ti with small patches, for 32- and for 96-pixel images.

Both take images of other sizes too, if the sides are multiples of the patch's: the position
embedding is interpolated.
"""

from functools import partial
from typing import Any

from timm.models.vision_transformer import VisionTransformer

from stiffnet.backbones.own_model import CIFAR_SIZE, STL_SIZE, OwnModel

TINY: dict[str, Any] = {"embed_dim": 192, "depth": 12, "num_heads": 3, "dynamic_img_size": True}
VARIANTS = {"vit_tiny_cifar": (CIFAR_SIZE, 4), "vit_tiny_stl": (STL_SIZE, 8)}

MODELS = [
    OwnModel(
        name,
        partial(VisionTransformer, img_size=size, patch_size=patch, **TINY),
        f"timm's ViT-Ti with {patch}-pixel patches for {size}-pixel images.",
        first_conv="patch_embed.proj",
        classifier="head",
        last_map=None,
        size=size,
    )
    for name, (size, patch) in VARIANTS.items()
]
