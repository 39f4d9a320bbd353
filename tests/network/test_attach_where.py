"""Which steps get a module, what networks without steps offer, and what bad requests get."""

from types import SimpleNamespace

import pytest
import timm
import torch
import torchvision
from torch import nn

from network.attach_cases import anatomy, images, network, of_timm, of_torchvision, scaled
from stiffnet.attention import SE
from stiffnet.errors import StepError, UnknownNameError
from stiffnet.network import positions as table
from stiffnet.network.attach import attach, attached, detach
from stiffnet.network.channel_axis import LARGER, channel_axis, steady_axis
from stiffnet.network.example import example_for
from stiffnet.network.positions import Position, register_positions
from stiffnet.network.where import top_k
from stiffnet.trajectory.steps import steps
from tolerances import RTOL

SMALL = of_timm("resnet20_cifar", 16, 9)


@pytest.fixture(scope="module")
def found():
    return steps(network(SMALL), images(SMALL))


def places(model):
    return [attachment.at for attachment in attached(model)]


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        ("layer1.0", ["layer1.0"]),
        ("layer?.0", ["layer1.0", "layer2.0", "layer3.0"]),
        (["layer3.2", "layer1.1"], ["layer1.1", "layer3.2"]),
        (lambda step: step.stage == 1 and step.counted, ["layer2.1", "layer2.2"]),
    ],
)
def test_where_chooses_steps(where, expected):
    assert places(attach(network(SMALL), "se", where=where, example=images(SMALL))) == expected


def test_top_k_names_the_stiffest_steps_that_count(found):
    values = [float(v) for v in (90, 3, 1, 80, 2, 5, 70, 4, 0)]
    report = SimpleNamespace(steps=found, summary=SimpleNamespace(nsi_mean=values))
    assert top_k(report, 3) == ("layer1.1", "layer2.2", "layer3.1")
    assert len(top_k(report, 6)) == 6
    for k in (0, 7):
        with pytest.raises(StepError, match=rf"`k` is {k}, and 6 .*Give 1 to 6"):
            top_k(report, k)
    model = attach(network(SMALL), "se", where=top_k(report, 2), example=images(SMALL))
    assert places(model) == ["layer2.2", "layer3.1"]


@pytest.mark.parametrize(
    ("options", "kind", "message"),
    [
        (
            {"module": "sse"},
            UnknownNameError,
            "no attention module called 'sse'. Did you mean 'se'",
        ),
        ({"start": "identiy"}, UnknownNameError, "no start called 'identiy'. Did you mean 'ident"),
        ({"reductoin": 4}, UnknownNameError, "no option of SE called 'reductoin'. Did you mean"),
        ({"where": "layer9.*"}, StepError, r"No step of CifarResNet is called 'layer9.\*'. There"),
        ({"where": []}, StepError, "`where` is .*give 'all', names or patterns of steps"),
        ({"where": None}, StepError, "`where` is None; give 'all', names or patterns of steps"),
        ({"where": 5}, StepError, "`where` is 5; give 'all', names or patterns of steps"),
        ({"where": lambda step: False}, StepError, "holds for none of the 9 steps of CifarResNet"),
        ({"module": SE(16)}, StepError, "would be shared by all steps.*Give the class"),
        ({"module": 3}, StepError, "3 makes no modules. Give a registered name"),
        ({"module": "sge"}, StepError, "SGE cannot be attached to 6 of 9 steps: .*groups=16"),
        ({"module": "iebn", "eps": 1}, UnknownNameError, "IEBN takes its settings from the norms"),
        ({"module": nn.BatchNorm2d, "start": "identity"}, StepError, "starts as the identity"),
        ({"module": nn.BatchNorm2d, "depth": 1}, StepError, "cannot be made with these options"),
    ],
)
def test_a_bad_request_is_explained_and_changes_nothing(options, kind, message):
    model = network(SMALL)
    before = anatomy(model)
    with pytest.raises(kind, match=message):
        attach(model, **{"module": "se", "example": images(SMALL)} | options)
    assert anatomy(model) == before


def test_a_spatial_gate_on_tokens_is_refused():
    case = of_timm("vit_tiny_patch16_224", 32, 4, img_size=32, depth=2, embed_dim=48)
    with pytest.raises(StepError, match=r"CBAM cannot be attached to 4 of 4 steps: .*not on token"):
        attach(network(case), "cbam", example=images(case))


def test_a_module_that_knows_no_layout_is_refused_on_tokens():
    case = of_timm("vit_tiny_patch16_224", 32, 4, img_size=32, depth=2, embed_dim=48)
    with pytest.raises(StepError, match="SEModule takes no `channel_axis`"):
        attach(network(case), timm.layers.SEModule, example=images(case))


def test_any_class_or_function_of_the_width_makes_modules():
    model = network(SMALL)
    attach(model, timm.layers.SEModule, where="layer1.*", example=images(SMALL))
    attach(
        model, lambda channels: nn.BatchNorm2d(channels), where="layer2.0", example=images(SMALL)
    )
    assert [a.module for a in attached(model)] == ["SEModule"] * 3 + ["BatchNorm2d"]


def test_wrapped_and_compiled_networks_are_refused():
    model = network(SMALL)
    with pytest.raises(StepError, match=r"DataParallel around a network.*attach to the network"):
        attach(nn.DataParallel(model), "se")
    with pytest.raises(StepError, match="OptimizedModule around a network"):
        attach(torch.compile(model, backend="eager"), "se")
    model.layer1[0].compile(backend="eager")
    with pytest.raises(StepError, match=r"Parts of CifarResNet are compiled already.*then compile"):
        attach(model, "se")


def test_detaching_nothing_is_an_error():
    with pytest.raises(StepError, match=r"Nothing is attached to CifarResNet. Attach a module"):
        detach(network(SMALL))


VGG = of_timm("vgg11_bn", 32, 8)
POSITIONS = [
    (of_timm("mobilenetv1_100", 32, 26), "blocks.0.0.bn1.act"),
    (of_timm("repvgg_a0", 32, 22), "stem.act"),
    (of_torchvision("shufflenet_v2_x0_5", 32, 16), "stage2.0.branch2.6"),
]


@pytest.mark.parametrize(
    ("case", "first"), POSITIONS, ids=lambda value: getattr(value, "label", "")
)
def test_networks_without_steps_have_named_positions(case, first):
    model, x = network(case), images(case)
    expected, before, old = model(x), anatomy(model), model.state_dict()
    attach(model, "se", start="identity", example=x)
    assert len(attached(model)) == case.steps
    assert places(model)[0] == first
    assert scaled(model(x), expected) <= RTOL["identity"]
    assert not model.load_state_dict(old, strict=False).unexpected_keys
    model(x).sum().backward()
    gates = [p for a in attached(model) for p in model.get_submodule(a.name).parameters()]
    assert all(parameter.grad is not None for parameter in gates)
    detach(model)
    assert anatomy(model) == before
    assert torch.equal(model(x), expected)


def test_a_gate_of_a_vgg_is_between_norm_and_activation():
    model = torchvision.models.vgg.VGG(
        torchvision.models.vgg.make_layers([8, "M", 16], batch_norm=True), 4, init_weights=False
    ).eval()
    with pytest.raises(StepError, match=r"VGG cannot be run on inputs of shape \(2, 3, 16, 16\)"):
        attach(model, "se", example=torch.rand(2, 3, 16, 16))
    model.classifier = nn.Linear(16 * 7 * 7, 4)
    attach(model, "se", example=torch.rand(2, 3, 16, 16))
    assert places(model) == ["features.1", "features.5"]
    x = torch.rand(2, 3, 16, 16)
    normed = model.features[:2](x)
    plain = nn.BatchNorm2d.forward(model.features[1], model.features[0](x))
    assert torch.equal(normed, model.features[1].step_size(plain))
    with pytest.raises(StepError, match=r"StepNet reads the state too, and a position .* has none"):
        attach(model, "stepnet", example=x)


class Chain(nn.Sequential):
    """A network that the table does not know."""


def chain():
    return Chain(nn.Conv2d(3, 4, 3, padding=1), nn.ReLU(), nn.Conv2d(4, 8, 3), nn.Tanh()).eval()


def test_users_say_where_modules_go_in_their_networks(monkeypatch):
    monkeypatch.setattr(table, "_TABLE", list(table._TABLE))
    with pytest.raises(StepError, match=r"Chain has no residual steps to attach to.*register_pos"):
        attach(chain(), "se")
    register_positions("Chain", lambda model: [Position("0"), Position("3", "input")])
    model = attach(chain(), "se")
    assert [(a.name, a.parameters) for a in attached(model)] == [
        ("0.step_size", SE.parameter_count(4)),
        ("3.step_size", SE.parameter_count(8)),
    ]
    assert places(attach(chain(), "se", where="3")) == ["3"]
    register_positions(Chain, lambda model: [Position("2")])
    assert places(attach(chain(), "se")) == ["2"]
    table._TABLE.pop(0)
    with pytest.raises(StepError, match="No position of Chain is called '7'"):
        attach(chain(), "se", where="7")
    register_positions(lambda model: isinstance(model, Chain), lambda model: [Position("9")])
    with pytest.raises(StepError, match=r"name '9', which it does not have. Correct the finder"):
        attach(chain(), "se")


def test_an_example_is_asked_for_where_none_can_be_made():
    with pytest.raises(StepError, match=r"No example could be made for .*Give one batch as `exam"):
        attach(nn.Sequential(nn.Linear(4, 4)), "se")


def test_an_example_has_the_size_and_channels_that_the_network_was_built_for():
    vit = timm.create_model("vit_tiny_patch16_224", img_size=48, in_chans=1, depth=1, embed_dim=12)
    assert example_for(vit).shape == (2, 1, 48, 48)
    vit = vit.double().train()
    state = torch.get_rng_state()
    assert example_for(vit).dtype == torch.float64
    assert vit.training
    assert torch.equal(torch.get_rng_state(), state)


CONV, LINEAR = nn.Conv2d(24, 24, 1), nn.Linear(24, 24)


@pytest.mark.parametrize(
    ("shape", "branch", "axis"),
    [
        ((2, 24, 7, 7), [CONV], 1),
        ((2, 7, 7, 24), [LINEAR], -1),
        ((2, 24, 7, 7), [nn.Conv2d(3, 24, 1), LINEAR], 1),  # ConvNeXt permutes around its layers
        ((2, 7, 7, 24), [CONV, LINEAR], -1),
        ((2, 49, 24), [LINEAR], -1),
        ((2, 49, 24), [nn.LayerNorm(24), nn.Linear(49, 49)], -1),  # an MLP over tokens
        ((2, 49, 24), [nn.Linear(49, 49)], -1),  # the same, and nothing else in the branch
        ((2, 24, 49), [nn.Conv1d(3, 24, 1)], 1),
        ((2, 24, 24), [LINEAR], -1),
        ((2, 24, 24), [nn.Conv1d(3, 24, 1)], None),
        ((2, 24, 24), [nn.BatchNorm1d(24), LINEAR], None),
        ((2, 24, 24, 24, 24), [nn.ConvTranspose3d(3, 24, 1)], 1),
        ((2, 24, 24, 24), [CONV, CONV], 1),
        ((2, 24, 24, 24), [LINEAR], -1),
        ((2, 24, 24, 24), [LINEAR, CONV], None),  # ConvNeXt permutes around its layers, or not
        ((2, 24, 24, 24), [CONV, LINEAR], None),
        ((2, 24, 7, 7), [CONV, nn.Linear(24, 7)], 1),
        ((2, 7, 7, 24), [LINEAR, nn.Conv2d(3, 7, 1)], -1),
        ((2, 48, 7, 7), [CONV, CONV], 1),  # GhostNet concatenates two halves
        ((2, 48, 24, 24), [CONV, CONV], None),  # the same, or a width that is permuted to the end
        ((2, 12, 10, 24), [CONV], None),
        ((2, 5, 24, 7, 7), [CONV], None),  # frames before channels
        ((2, 24, 4, 7, 7), [nn.Conv3d(3, 24, 1)], 1),
        ((2, 4, 7, 7, 24), [LINEAR], -1),
        ((2, 5, 7, 9), [LINEAR], None),
        ((2, 24), [LINEAR], None),
    ],
)
def test_the_axis_of_the_channels_is_told_by_widths_and_squares(shape, branch, axis):
    assert channel_axis(shape, branch) == axis


def test_a_larger_input_is_larger_along_every_axis_of_positions():
    for shape in ((2, 8, 8), (2, 8, 8, 8), (2, 8, 8, 8, 8)):
        for larger in LARGER:
            assert steady_axis(shape, tuple(larger(torch.zeros(shape)).shape)) == 1


def test_channels_are_not_taken_for_a_width_of_the_same_length():
    maps = timm.create_model("convnext_atto", depths=(1, 1, 1, 1), dims=(8, 16, 24, 32))
    last = timm.create_model(
        "convnext_atto", depths=(1, 1, 1, 1), dims=(8, 16, 24, 32), conv_mlp=True
    )
    for model in (maps, last):
        attach(model, "se", example=torch.rand(2, 3, 32, 32))  # 8 channels of 8 x 8 pixels
        axes = [model.get_submodule(a.name).channel_axis for a in attached(model)]
        assert axes == [1, 1, 1, 1]
        model(torch.rand(1, 3, 64, 96))


def test_channels_are_proven_by_another_size_or_asked_for():
    class Square(nn.Module):
        def __init__(self, fixed):
            super().__init__()
            self.conv, self.mlp, self.fixed = nn.Conv2d(8, 8, 1), nn.Linear(8, 8), fixed

        def forward(self, x):
            if self.fixed and x.shape[-1] != 8:
                raise ValueError("one size only")
            return x + self.mlp(self.conv(x).permute(0, 2, 3, 1)).permute(0, 3, 1, 2).relu()

    model = attach(Square(fixed=False), "se", example=torch.rand(2, 8, 8, 8))
    assert model.step_size.channel_axis == 1
    with pytest.raises(StepError, match=r"\(2, 8, 8, 8\) lie cannot be told; give an `example`"):
        attach(Square(fixed=True), "se", example=torch.rand(2, 8, 8, 8))


def test_iebn_replaces_every_norm_but_those_of_shortcuts_and_gives_them_back():
    model, x = network(SMALL), images(SMALL)
    seen = []
    model.bn1.register_forward_hook(lambda m, a, y: seen.append(y))
    expected, before = model(x), anatomy(model)
    keys = list(model.state_dict())
    attach(model, "iebn", start="identity", example=x)
    norms = [a.at for a in attached(model)]
    assert {"bn1", "layer1.0.bn1", "layer3.2.bn2"} <= set(norms)
    assert not [name for name in norms if "downsample" in name or "shortcut" in name]
    seen.clear()
    assert scaled(model(x), expected) <= RTOL["identity"]
    assert len(seen) == 1
    assert set(keys) <= set(model.state_dict())
    with torch.no_grad():
        model.bn1.weight.mul_(1)
    detach(model)
    assert anatomy(model) == before
    assert list(model.state_dict()) == keys
    assert torch.equal(model(x), expected)


def test_iebn_goes_into_the_branches_of_chosen_steps():
    model, x = network(SMALL), images(SMALL)
    attach(model, "iebn", where="layer2.1", example=x)
    assert places(model) == ["layer2.1.bn1", "layer2.1.bn2"]
    attach(model, "iebn", where="bn1", example=x)
    assert places(model) == ["bn1", "layer2.1.bn1", "layer2.1.bn2"]
    attach(model, "iebn", where=lambda step: step.name == "layer3.0", example=x)
    assert places(model)[-2:] == ["layer3.0.bn1", "layer3.0.bn2"]
    with pytest.raises(StepError, match="No norm of CifarResNet is called 'conv1'"):
        attach(model, "iebn", where="conv1", example=x)
    attach(model, "iebn", example=x)
    with pytest.raises(StepError, match="Every batch norm of CifarResNet is replaced already"):
        attach(model, "iebn", example=x)
    with pytest.raises(StepError, match="ConvNeXt has no batch norm to replace"):
        attach(timm.create_model("convnext_atto", depths=(1, 1, 1, 1), dims=(4, 4, 4, 4)), "iebn")
