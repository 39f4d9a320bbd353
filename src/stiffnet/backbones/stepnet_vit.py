"""ViT-Ti for small images whose self-attention is replaced by StepNet.

Huang and others, 2023: "Understanding self-attention mechanism via dynamical system perspective",
Table 7. Of the replacement the paper says only that it is one, and there is no code. Its equation
32 reads a transformer's step as x + f(x) ⊗ F(x): a feature map, the values, times a step size, the
attention weights. Our reading puts StepNet where F is. The values stay, as one linear layer of the
normed tokens; queries, keys and the output's projection, which served the weights, are gone.

Tokens then meet only in the means that StepNet reads, and at its published start these choose
nothing yet. A class token would see no image, so there is none: the mean of all tokens is
classified. To put StepNet *beside* self-attention, attach it to `vit_tiny_cifar`.
"""

from typing import Any

from timm.models.vision_transformer import Block
from torch import Tensor, nn

from stiffnet.attention.stepnet import StepNet
from stiffnet.backbones.small_vit import tiny_vits
from stiffnet.errors import StepError


class StepBlock(Block):
    """timm's transformer block with StepNet in the place of self-attention."""

    def __init__(self, dim: int, num_heads: int, *, proj_bias: bool = True, **options: Any) -> None:
        super().__init__(dim, num_heads, proj_bias=proj_bias, **options)
        self.value = nn.Linear(dim, dim, bias=proj_bias)
        self.attn = StepNet(dim, channel_axis=-1)

    def forward(self, x: Tensor, attn_mask: None = None, is_causal: bool = False) -> Tensor:
        """Take two steps; there are no pairs of tokens that a mask could forbid."""
        if attn_mask is not None or is_causal:
            raise StepError(
                "StepBlock has no attention between tokens to mask. Leave the mask out."
            )
        rate = self.drop_path1(self.ls1(self.value(self.norm1(x))))
        x = x + self.attn(rate, x)
        return x + self.drop_path2(self.ls2(self.mlp(self.norm2(x))))  # type: ignore[no-any-return]


MODELS = tiny_vits(
    "vit_tiny_stepnet",
    "ViT-Ti with StepNet for attention",
    block_fn=StepBlock,
    class_token=False,
    global_pool="avg",
)
