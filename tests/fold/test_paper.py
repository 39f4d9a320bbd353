"""Every backbone of the ASR paper's Tables 2, 3 and 5 with every module that folds."""

import copy

import pytest
import torch
from torch.nn import functional as F

from stiffnet.attention import ATTENTION
from stiffnet.fold.fold import fold
from stiffnet.network.create import create_model
from tolerances import RTOL

from .test_fold import assert_same

BACKBONES = {
    "torchvision:resnet34": 64, "torchvision:resnet50": 64, "torchvision:resnet101": 64,
    "resnet83_cifar": 32, "resnet164_cifar": 32, "vgg19_cifar": 32, "shufflenetv2_cifar": 32,
    "mobilenet_cifar": 32, "vit_small_patch16_224": 32, "vit_base_patch16_224": 32,
    "repvgg_a0": 64, "repvgg_b3": 64, "acresnet56_cifar": 32, "acresnet110_cifar": 32,
    "acresnet164_cifar": 32,
}  # fmt: skip
FOLDABLE = [entry.name for entry in ATTENTION if entry.name != "sge"]
OPTIONS = {
    ("shufflenetv2_cifar", "fca"): ",frequencies=top2",  # 116 and 58 are no multiples of 16
    ("repvgg_b3", "spa"): ",reduction=64",  # 22 C² / 16 would be 1.4 GB
}
IMPOSSIBLE = {
    ("vit_small_patch16_224", "iebn"), ("vit_base_patch16_224", "iebn"),  # no batch norms
}  # fmt: skip
PAIRS = [
    (name, module) for name in BACKBONES for module in FOLDABLE if (name, module) not in IMPOSSIBLE
]
BRANCHES = ("repvgg", "acresnet")
LARGE = {"repvgg_b3"}  # folds of two such networks in float64 at once do not fit into 24 GB


@pytest.mark.slow
@pytest.mark.parametrize(("name", "module"), PAIRS)
def test_attach_train_fold(name, module):
    size = BACKBONES[name]
    attention = f"asr:{module}{OPTIONS.get((name, module), '')}"
    model = create_model(
        name, num_classes=10, image_size=size if "vit" in name else None, attention=attention
    )
    _train(model, size)
    x = torch.randn(2, 3, size, size, generator=torch.Generator().manual_seed(1))
    result = fold(model.eval(), x, passes=0)
    assert_same(model, result.model, x)
    if name not in LARGE:
        exact = copy.deepcopy(model).double(), x.double()  # the fold's own numbers are not asked
        assert_same(exact[0], fold(*exact, passes=0).model, exact[1], RTOL["float64"])
    if not name.startswith(BRANCHES):
        plain = create_model(
            name, num_classes=10, image_size=size if "vit" in name else None, seed=1
        )
        plain.load_state_dict(result.model.state_dict(), strict=True)
        with torch.no_grad():
            assert torch.equal(plain.eval()(x), result.model(x))


def _train(model, size):
    """Three steps, after which nothing is as it was initialised."""
    torch.manual_seed(0)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)
    for _ in range(3):
        optimizer.zero_grad()
        x, y = torch.randn(4, 3, size, size), torch.arange(4)
        F.cross_entropy(model.train()(x), y).backward()
        optimizer.step()
    optimizer.zero_grad()
