"""The last feature map of networks of many kinds, and what has none."""

import warnings

import pytest
import timm
import torch
import torchvision
from torch import nn

import stiffnet
from stiffnet.errors import FeatureMapError, UnknownNameError
from stiffnet.observe.feature_layer import feature_layer
from stiffnet.observe.gradcam import differentiable

LAST = {
    "resnet18": ("layer4", "channels first", (3, 3)),
    "resnetv2_50": ("norm", "channels first", (3, 3)),
    "tf_efficientnet_lite0": ("bn2", "channels first", (3, 3)),  # with its activation
    "mobilenetv3_small_050": ("blocks", "channels first", (3, 3)),  # before a 1 x 1 convolution
    "convnext_atto": ("stages", "channels first", (3, 3)),
    "mambaout_femto": ("stages", "channels last", (3, 3)),
    "torchvision:densenet121": ("features", "channels first", (3, 3)),
    "torchvision:squeezenet1_1": ("classifier.2", "channels first", (5, 5)),
    "torchvision:googlenet": ("inception5b", "channels first", (3, 3)),
    "torchvision:swin_t": ("norm", "channels last", (3, 3)),
}
SIZE = 96


def found(model, size=SIZE, name=""):
    model.eval()
    with differentiable(model):
        return feature_layer(model, torch.rand(1, 3, size, size), name)


def made(name):
    if not name.startswith("torchvision:"):
        return timm.create_model(name)
    options = {"init_weights": False} if "googlenet" in name else {}
    return torchvision.models.get_model(name.partition(":")[2], **options)


@pytest.mark.parametrize("name", LAST)
def test_it_is_the_last_map_before_pooling(name):
    layer = found(made(name))
    assert (layer.name, layer.layout.kind, layer.layout.size) == LAST[name]


@pytest.mark.parametrize(
    ("name", "layer"),
    [
        ("vit_tiny_patch16_224", "blocks.11.norm1"),  # the class token decides
        ("deit_tiny_distilled_patch16_224", "blocks.11.norm1"),  # two tokens in front
    ],
)
def test_tokens_of_a_vit_are_a_map_where_the_decision_depends_on_them(name, layer):
    network = timm.create_model(name, img_size=SIZE, depth=12)
    assert (found(network).name, found(network).layout.size) == (layer, (6, 6))


def test_tokens_are_read_row_by_row_without_those_in_front():
    network = timm.create_model("vit_tiny_patch16_224", img_size=SIZE, depth=2)
    layout = found(network).layout
    tokens = torch.arange(37.0)[None, :, None].expand(1, 37, 2)
    assert layout.maps(tokens)[0, 1].tolist() == torch.arange(1.0, 37.0).view(6, 6).tolist()


def test_attached_gates_do_not_change_the_layer():
    for attention in (None, "se", "cbam", "stepnet"):
        model = stiffnet.create_model("resnet20_cifar", attention=attention)
        assert found(model, 32).name == "layer3"


def test_any_layer_with_a_map_can_be_chosen():
    model = timm.create_model("resnet18")
    assert found(model, name="layer2.1").layout.size == (12, 12)


NO_CONVOLUTION = nn.Sequential(nn.Flatten(), nn.Linear(3 * SIZE * SIZE, 4))


def scripted():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch would have its users leave it
        return torch.jit.script(nn.Sequential(nn.Conv2d(3, 3, 3)))


class Merging(nn.Module):
    """Patches as tokens, and later a quarter as many, each for four of them."""

    def __init__(self):
        super().__init__()
        self.patches = nn.Sequential(nn.Conv2d(3, 6, 8, stride=8), nn.ReLU(), nn.Conv2d(6, 6, 1))
        self.norm1 = nn.LayerNorm(6)
        self.merge = nn.Linear(24, 5)
        self.norm2 = nn.LayerNorm(5)
        self.head = nn.Linear(5, 4)

    def forward(self, images):
        tokens = self.norm1(self.patches(images).flatten(2).transpose(1, 2))
        merged = self.merge(tokens.unflatten(1, (-1, 4)).flatten(2))
        return self.head(self.norm2(merged).mean(dim=1))


class TwoHeads(nn.Module):
    """Gives what it sees, and what it makes of that: only one of the two are logits."""

    def __init__(self):
        super().__init__()
        self.features = nn.Conv2d(3, 6, 3)
        self.head = nn.Linear(6, 4)

    def forward(self, images):
        seen = self.features(images).mean(dim=(2, 3))
        return seen, self.head(seen)


BAD = {
    "two heads": (TwoHeads, "", r"gives rows of 6 and 4 numbers for an image"),
    "no convolution": (lambda: NO_CONVOLUTION, "", "Sequential has no feature maps"),
    "no middle": (lambda: nn.Sequential(nn.Conv2d(3, 4, SIZE - 1), nn.Flatten()), "", "no feature"),
    "scripted": (scripted, "", "is scripted"),
    "one position": (lambda: nn.Sequential(nn.Conv2d(3, 4, SIZE), nn.Flatten()), "", "no feature"),
    "a segmenter": (lambda: nn.Conv2d(3, 4, 3), "", "no row of logits for an image"),
    "other images": (lambda: nn.Sequential(nn.Conv2d(5, 4, 3)), "", "cannot be run on these"),
    "a vector": (lambda: timm.create_model("resnet18"), "fc", r"shape \(1000,\) for an image"),
    "not run": (lambda: torchvision.models.get_model("googlenet", init_weights=False), "aux1",
                "gives no tensor in a pass"),
    "twice": (lambda: torchvision.models.resnet18(), "layer4.1.relu", "runs 2 times in a pass"),
    "merged tokens": (Merging, "", "goes on with tokens after 'norm1'"),
    "tokens elsewhere": (lambda: timm.create_model("levit_128s"), "", "goes on with tokens after"),
}  # fmt: skip


@pytest.mark.parametrize(("make", "name", "words"), BAD.values(), ids=BAD)
def test_what_has_no_map_is_refused_in_a_sentence(make, name, words):
    with pytest.raises(FeatureMapError, match=words):
        found(make(), 224 if "tokens" in words else SIZE, name)


def test_an_unknown_layer_is_refused_with_the_nearest_names():
    with pytest.raises(UnknownNameError, match=r"no layer called 'layer5'.* mean 'layer4'"):
        found(timm.create_model("resnet18"), name="layer5")
