"""A constant gate on every step of timm's families, folded."""

import pytest
import timm
import torch
from torch import nn

from stiffnet.attention.asr import asr
from stiffnet.errors import FoldError
from stiffnet.fold.fold import fold
from stiffnet.network.attach import attach

from .test_fold import assert_same, trained

FAMILIES = (
    "convnext_atto", "convmixer_768_32", "crossvit_tiny_240", "cspresnet50", "davit_tiny",
    "efficientformer_l1", "efficientnet_b0", "eva02_tiny_patch14_224", "gcvit_xxtiny",
    "gmlp_s16_224", "hrnet_w18_small", "mobilenetv3_small_100", "mobilenetv4_conv_small",
    "nest_tiny", "poolformer_s12", "pvt_v2_b0", "regnety_002", "res2net50_14w_8s", "resmlp_12_224",
    "resnest14d", "resnetv2_50", "swin_tiny_patch4_window7_224", "twins_svt_small",
    "visformer_tiny", "volo_d1_224",
)  # fmt: skip
OWN_BRANCHES = ("fastvit_t8", "levit_128s", "repvit_m1")  # joined too, so not the plain class
REFUSED = {
    "ghostnet_100": "is used elsewhere too, in blocks.0.0.ghost2.cheap_operation",
    "mixer_s16_224": "channels are mixed between blocks.0.mlp_tokens.fc2 and the gate",
    "seresnet18": "what comes out of layer1.0.se is used elsewhere too, in `mean`",
}


def network(name):
    config = timm.get_pretrained_cfg(name)
    size = config.input_size[-1] if config.fixed_input_size else min(96, config.input_size[-1])
    torch.manual_seed(0)
    x = torch.randn(2, 3, size, size)
    model = attach(timm.create_model(name, num_classes=7), asr("se", init=0.5), example=x)
    trained(model)
    heads = model.get_classifier()
    for head in heads if isinstance(heads, tuple) else (heads,):
        for parameter in head.parameters():  # some of timm's start at zero
            nn.init.normal_(parameter)
    for gate in (m for m in model.modules() if hasattr(m, "psi")):
        nn.init.uniform_(gate.psi, 0.5, 1.5)
    return model, x


@pytest.mark.slow
@pytest.mark.parametrize("name", [*FAMILIES, *OWN_BRANCHES])
def test_families_of_timm(name):
    model, x = network(name)
    result = fold(model, x, passes=0)
    assert_same(model, result.model, x)
    if name not in OWN_BRANCHES:
        plain = timm.create_model(name, num_classes=7)
        assert type(result.model) is type(plain)
        plain.load_state_dict(result.model.state_dict(), strict=True)
        with torch.no_grad():
            assert torch.equal(plain.eval()(x), result.model(x))
    fused = fold(model, x, fuse=True, passes=0)
    assert_same(model, fused.model, x)


@pytest.mark.slow
@pytest.mark.parametrize("name", REFUSED)
def test_families_whose_gates_have_no_layer_to_go_into(name):
    model, x = network(name)
    with pytest.raises(FoldError, match=REFUSED[name]):
        fold(model, x, passes=0)
