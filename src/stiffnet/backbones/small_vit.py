"""timm's ViT-Ti with small patches, for 32- and for 96-pixel images.

Both take images of other sizes too, if the sides are multiples of the patch's: the position
embedding is interpolated.
"""

from functools import partial
from typing import Any

from timm.models.vision_transformer import VisionTransformer

from stiffnet.backbones.small_images import CIFAR_SIZE, STL_SIZE, register

TINY: dict[str, Any] = {"embed_dim": 192, "depth": 12, "num_heads": 3, "dynamic_img_size": True}
VARIANTS = {"vit_tiny_cifar": (CIFAR_SIZE, 4), "vit_tiny_stl": (STL_SIZE, 8)}

for _name, (_size, _patch) in VARIANTS.items():
    register(
        _name,
        partial(VisionTransformer, img_size=_size, patch_size=_patch, **TINY),
        f"timm's ViT-Ti with {_patch}-pixel patches for {_size}-pixel images.",
        first_conv="patch_embed.proj",
        classifier="head",
        last_map=None,
        size=_size,
    )
