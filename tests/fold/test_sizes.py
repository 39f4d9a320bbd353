"""What is folded on an example of one size is right on others, or is refused."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from stiffnet.errors import FoldError
from stiffnet.fold.fold import fold
from tolerances import RTOL

from .test_fold import branch, images, trained


class Between(nn.Module):
    """A convolution, something of a test's, a norm; and a pair of them that can be merged."""

    def __init__(self, between):
        super().__init__()
        self.conv, self.norm = nn.Conv2d(3, 4, 1), nn.BatchNorm2d(4)
        self.first, self.second = nn.Conv2d(4, 4, 1), nn.BatchNorm2d(4)
        self.between = between

    def forward(self, x):
        return self.second(self.first(self.norm(self.between(self.conv(x)))))


def _even(y):
    return F.pad(y, (0, y.shape[-1] % 2, 0, y.shape[-2] % 2))


def _summed(y):
    return F.avg_pool2d(y, 4).sum((2, 3), keepdim=True)  # one number at 4 pixels


def _windows(y):
    size = y.shape[-1] // 2 * 2
    columns = F.unfold(y[..., :size, :size], 2, stride=2)
    return F.fold(columns, (size, size), 2, stride=2)


KEPT = {  # norms that stay
    "a pool that ends beyond the border": lambda y: F.avg_pool2d(
        y, 2, ceil_mode=True, divisor_override=4
    ),
    "zeros at odd sizes": _even,
    "a sum over all there is": _summed,
    "windows put together again": _windows,
    "zeros counted in": lambda y: F.avg_pool2d(y, 3, 1, 1),
    "a number that is the size's": lambda y: y * (y.shape[-1] / 4),
}
MERGED = {  # norms that go, right at all sizes
    "a pool with whole windows": lambda y: F.avg_pool2d(y, 2),
    "a pool that counts what is there": lambda y: F.avg_pool2d(y, 2, ceil_mode=True),
    "zeros not counted": lambda y: F.avg_pool2d(y, 3, 1, 1, count_include_pad=False),
    "an adaptive pool": lambda y: F.adaptive_avg_pool2d(y, 3),
    "a mean": lambda y: y.mean((2, 3), keepdim=True),
    "a larger image": lambda y: F.interpolate(y, scale_factor=2, mode="bilinear"),
    "the size of another": lambda y: F.interpolate(y, size=y.shape[2:], mode="nearest"),
    "copies at the border": lambda y: F.pad(y, (1, 1, 1, 1), mode="replicate"),
    "a view of its own shape": lambda y: y.reshape(-1).view(y.shape),
}


def error(model, made, x):
    with torch.no_grad():
        expected, result = model(x), made(x)
    return float((result - expected).abs().max() / expected.abs().max())


@pytest.mark.parametrize("stays", [True, False], ids=["kept", "merged"])
def test_norms_behind_what_goes_by_the_size(stays):
    for name, between in (KEPT if stays else MERGED).items():
        torch.manual_seed(0)
        model = trained(Between(between)).double()
        result = fold(model, images(4).double(), fuse=True, passes=0)
        assert ("norm" in {left.name for left in result.report.refused}) == stays, name
        assert "second" in {item.name for item in result.report.folded}, name
        for size in (4, 5, 6, 7, 8, 9):
            off = error(model, result.model, images(size, 2).double())
            assert off <= RTOL["float64"], (name, size)


def test_a_gate_whose_channels_depend_on_the_size_is_refused():
    def code(m, x):
        return m.gate_here(m.a(x).flatten(1).reshape(len(x), 3, -1, x.shape[-1] // 8 * 8))

    model = branch(code, a=nn.Conv2d(3, 3, 1)).double()
    result = fold(model, images(8).double(), passes=0)  # 9 pixels it does not take
    assert error(model, result.model, images(16).double()) <= RTOL["float64"]

    def other(m, x):
        value = m.a(x)
        return m.gate_here(value + (x.shape[-1] - 8))

    with pytest.raises(FoldError, match="a constant is added to it"):
        fold(branch(other, a=nn.Conv2d(3, 3, 1)).double(), images(9).double(), passes=0)
    with pytest.raises(
        FoldError, match=r"differs from the original by .*, in float64 on a single image.*please"
    ):
        fold(branch(other, a=nn.Conv2d(3, 3, 1)).double(), images(8).double(), passes=0)


def test_code_that_goes_by_the_number_of_images_is_found_out():
    def code(m, x):
        value = m.a(x)
        return m.gate_here(value) if len(x) > 1 else m.gate_here(value) + value

    with pytest.raises(FoldError, match="on a single image of another size"):
        fold(branch(code, a=nn.Conv2d(3, 3, 1)), images(8), passes=0)
