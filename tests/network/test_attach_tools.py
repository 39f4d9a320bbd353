"""What can be done with a network can be done with modules attached: traced, scripted, resized."""

import copy

import pytest
import timm
import torch
import torchvision
from timm.models import shvit
from timm.models._features_fx import FeatureGraphNet
from timm.models.mvitv2 import MultiScaleVit, MultiScaleVitCfg
from timm.utils.model import reparameterize_model
from torch import fx, nn
from torchvision.models.feature_extraction import create_feature_extractor

from network.attach_cases import images, network, of_timm, of_torchvision, scaled
from stiffnet.errors import StepError
from stiffnet.network.attach import attach, attached, detach
from tolerances import RTOL

TINY = {
    "resnet": of_timm("resnet18", 32, 5, layers=(2, 1, 1, 1), channels=(8, 8, 16, 16)),
    "ours": of_timm("resnet20_cifar", 16, 9),
    "convnext": of_timm("convnext_atto", 32, 4, depths=(1, 1, 1, 1), dims=(8, 16, 24, 32)),
    "vit": of_timm("vit_tiny_patch16_224", 32, 4, img_size=32, depth=2, embed_dim=48),
    "mobilenet": of_torchvision("mobilenet_v2", 32, 10, width_mult=0.25),
    "positions": of_timm("repvgg_a0", 32, 22),
}
MODULES = ("se", "eca", "stepnet")


def gated(case, module="se"):
    if module == "stepnet" and case is TINY["positions"]:
        pytest.skip("no state at a position")
    model, x = network(case), images(case)
    attach(model, module, example=x)
    return model, torch.rand(3, 3, case.size, case.size)


@pytest.mark.parametrize("case", TINY.values(), ids=TINY)
def test_an_attached_network_is_traced_by_fx(case):
    for module in MODULES:
        if module == "stepnet" and case is TINY["positions"]:
            continue
        model, x = gated(case, module)
        traced = fx.symbolic_trace(model)
        inside = "act" if case is TINY["positions"] else "step_size"  # an activation is a leaf
        assert any(inside in str(node.target) for node in traced.graph.nodes), module
        with torch.no_grad():
            assert torch.equal(traced(x), model(x)), module


@pytest.mark.parametrize("case", [TINY["resnet"], TINY["mobilenet"]], ids=lambda case: case.label)
def test_features_of_an_attached_network_are_extracted(case):
    model, x = gated(case)
    name = "layer1.0" if case is TINY["resnet"] else "features.3"
    extractor = create_feature_extractor(model, [name])
    seen = []
    model.get_submodule(name).register_forward_hook(lambda m, a, y: seen.append(y))
    with torch.no_grad():
        model(x)
        assert torch.equal(extractor(x)[name], seen[0])


def test_timm_features_of_an_attached_network():
    model, x = gated(TINY["resnet"])
    features = FeatureGraphNet(model, out_indices=(1, 2))
    with torch.no_grad():
        expected = model.forward_intermediates(x, indices=(1, 2), intermediates_only=True)
        for one, other in zip(features(x), expected, strict=True):
            assert torch.equal(one, other)


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
@pytest.mark.parametrize("name", ["resnet", "convnext", "mobilenet"])
def test_an_attached_network_is_scripted(name):
    case = TINY[name]
    for module in ("se", "stepnet"):
        model, x = gated(case, module)
        scripted = torch.jit.script(model)
        with torch.no_grad():
            assert scaled(scripted(x), model(x)) <= RTOL["batch32"], module


class Dropping(nn.Module):
    """Stochastic depth on a way of its own, as EfficientViT has it."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.drop = nn.Conv2d(3, 3, 3, padding=1), 0.0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.training and self.drop > 0:
            keep = torch.rand(x.size(0), 1, 1, 1).ge_(self.drop).div(1 - self.drop)
            return x + self.conv(x).relu() * keep
        return x + self.conv(x).relu()


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
def test_code_with_another_way_is_scripted_and_that_way_refused_there_too():
    model, x = Dropping(), torch.rand(2, 3, 6, 6)
    attach(model, "se", example=x)
    scripted = torch.jit.script(model)
    assert scaled(scripted(x), model(x)) <= RTOL["batch32"]
    model.drop = 0.5
    with pytest.raises(StepError, match="takes another way in this call"):
        model(x)
    with pytest.raises(torch.jit.Error, match="a step where no module was attached"):
        torch.jit.script(model)(x)


@pytest.mark.parametrize("case", [TINY["convnext"], TINY["vit"]], ids=lambda case: case.label)
def test_an_attached_network_is_exported_and_compiled(case):
    model, x = gated(case, "stepnet")
    exported = torch.export.export(model, (x,)).module()
    compiled = torch.compile(copy.deepcopy(model), backend="eager", fullgraph=True)
    with torch.no_grad():
        assert scaled(exported(x), model(x)) <= RTOL["batch32"]
        assert scaled(compiled(x), model(x)) <= RTOL["batch32"]
    torch._dynamo.reset()


@pytest.mark.filterwarnings("ignore::UserWarning")  # of timm, which resizes tables
def test_a_network_takes_another_input_size_and_keeps_its_modules():
    case = of_timm(
        "swin_tiny_patch4_window7_224", 32, 4,
        img_size=32, window_size=4, embed_dim=12, depths=(1, 1), num_heads=(1, 2),
    )  # fmt: skip
    model, _ = gated(case)
    gates = [a.name for a in attached(model)]
    model.set_input_size((64, 64))
    assert model(torch.rand(1, 3, 64, 64)).shape == (1, 4)
    assert [a.name for a in attached(model)] == gates
    plain = detach(copy.deepcopy(model))
    x = torch.rand(1, 3, 64, 64)
    assert not torch.equal(plain(x), model(x))


ODD = {
    "tiny_vit": lambda: timm.create_model(
        "tiny_vit_5m_224", num_classes=3, depths=(1, 1, 1, 1),
        embed_dims=(8, 16, 24, 32), num_heads=(1, 1, 1, 1), window_sizes=(4, 4, 4, 2),
    ),
    "mvitv2": lambda: MultiScaleVit(
        MultiScaleVitCfg(depths=(1, 1), embed_dim=(12, 24), num_heads=(1, 2)),
        img_size=(64, 64), num_classes=3,
    ),
}  # fmt: skip


@pytest.mark.parametrize("build", ODD.values(), ids=ODD)
def test_networks_whose_code_goes_by_shapes_take_modules(build):
    torch.manual_seed(0)
    model, x = build().eval(), torch.rand(2, 3, 64, 64)
    expected = model(x)
    attach(model, "se", start="identity", example=x)
    assert scaled(model(x), expected) <= RTOL["identity"]
    assert torch.equal(detach(model)(x), expected)


@pytest.mark.parametrize("norm_first", [False, True])
def test_layers_of_torch_itself_take_modules(norm_first):
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True, norm_first=norm_first)
    model = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False).double()
    x, mask = torch.rand(2, 5, 16).double(), torch.zeros(2, 5, dtype=torch.bool)
    mask[1, 3:] = True
    model.train()
    for module in model.modules():
        if isinstance(module, nn.Dropout | nn.MultiheadAttention):
            module.eval()
            module.dropout = 0.0
    expected = model(x, src_key_padding_mask=mask)
    attach(model, "se", start="identity", example=x)
    assert len(attached(model)) == 4
    assert scaled(model(x, src_key_padding_mask=mask), expected) <= RTOL["identity"]


def test_a_detector_takes_modules_in_its_backbone():
    model = torchvision.models.detection.fasterrcnn_mobilenet_v3_large_320_fpn(
        weights=None, weights_backbone=None, num_classes=3
    ).eval()
    backbone = model.backbone
    attach(backbone, "se", start="identity", example=torch.rand(2, 3, 64, 64))
    assert attached(model)
    with torch.no_grad():
        assert len(model([torch.rand(3, 64, 64), torch.rand(3, 64, 80)])) == 2


def test_a_block_that_would_become_a_layer_without_its_module_is_not_reparameterised():
    torch.manual_seed(0)
    model = nn.Sequential(shvit.Residual(shvit.Conv2dNorm(8, 8, 3, 1, 1, groups=8))).eval()
    x = torch.rand(2, 8, 6, 6)
    plain = model(x)
    attach(model, "se", example=x)
    before = model(x)
    with pytest.raises(StepError, match=r"`fuse` of Residual makes a layer.*stiffnet\.fold"):
        reparameterize_model(model)
    assert torch.equal(model(x), before)
    joined = reparameterize_model(detach(model))
    assert isinstance(joined[0], nn.Conv2d)
    assert scaled(joined(x), plain) <= RTOL["batch32"]


def test_a_block_that_joins_its_branches_in_its_own_place_keeps_its_module():
    model, x = gated(TINY["positions"])  # RepVGG
    model.eval()
    joined = reparameterize_model(model)
    assert len(attached(joined)) == len(attached(model))
    assert scaled(joined(x), model(x)) <= RTOL["batch32"]
