"""What is left of a batch norm that would see one constant only: its weight and its shift."""

from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm


class NormAffine(nn.Module):
    """A weight and a shift per channel, axis 1, under the names that they had in the norm."""

    def __init__(self, norm: _BatchNorm) -> None:
        super().__init__()
        self.weight, self.bias = norm.weight, norm.bias

    def forward(self, x: Tensor) -> Tensor:
        """Scale and shift."""
        shape = [-1] + [1] * (x.dim() - 2)  # a trace cannot unpack a list
        return self.bias.view(shape).addcmul(x, self.weight.view(shape))


def norms_to_affine(module: nn.Module) -> None:
    """Exchange every batch norm inside a module for its affine part."""
    for parent in list(module.modules()):
        for name, child in parent.named_children():
            if isinstance(child, _BatchNorm):
                setattr(parent, name, NormAffine(child) if child.affine else nn.Identity())
