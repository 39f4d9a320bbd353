"""Gates of a learnt constant in networks: plugged in, spelled, saved, taken out."""

import copy
import io
import pickle

import pytest
import torch
from timm.layers import BatchNormAct2d
from torch import nn

import stiffnet
from network.attach_cases import anatomy, images, network, of_timm, of_torchvision, scaled
from stiffnet.attention.asr import ConstantGate, ConstantIEBN, asr
from stiffnet.cli.main import main
from stiffnet.errors import RecipeError, StepError, UnknownNameError
from stiffnet.network.attach import attach, attached, detach
from stiffnet.network.attention_text import read_attention
from stiffnet.network.create import create_model
from stiffnet.network.step_sizes import step_sizes
from stiffnet.trajectory.record import record
from stiffnet.trajectory.steps import steps
from tolerances import RTOL

SMALL = of_timm("resnet20_cifar", 16, 9)
TINY = of_timm("resnet18", 16, 5, layers=(2, 1, 1, 1), channels=(8, 8, 16, 16))
VIT = of_timm("vit_tiny_patch16_224", 32, 4, img_size=32, depth=2, embed_dim=48)
MOBILE = of_timm("mobilenet_cifar", 32, 0)
FAMILIES = [
    SMALL,
    VIT,
    of_torchvision("resnet18", 32, 8),
    of_timm("vgg19_cifar", 32, 0),
    MOBILE,
    of_timm("shufflenetv2_cifar", 32, 0),
    of_timm("repvgg_a0", 32, 0),
]


def gates(model):
    return [module for module in model.modules() if isinstance(module, ConstantGate)]


@pytest.mark.parametrize("case", FAMILIES, ids=lambda case: case.label)
def test_every_family_takes_it_starts_unchanged_and_is_given_back(case):
    model, x = network(case), images(case)
    before, expected = anatomy(model), model(x)
    attach(model, asr("se"), start="identity", example=x)
    found = attached(model)
    assert {a.module for a in found} == {"asr:se"}
    assert len(found) == len(gates(model)) >= max(case.steps, 1)
    assert scaled(model(x), expected) <= RTOL["identity"]
    axis = -1 if case is VIT else 1
    assert {gate.channel_axis for gate in gates(model)} == {axis}
    assert anatomy(detach(model)) == before
    assert torch.equal(model(x), expected)


@pytest.mark.parametrize("name", ["stepnet", "dia", "cbam", "spa", "vector"])
@pytest.mark.parametrize("case", [TINY, VIT], ids=lambda case: case.label)
def test_every_kind_of_module_is_plugged_in(case, name):
    model, x = network(case), images(case)
    expected = model(x)
    attach(model, asr(name, depth=2), start="identity", example=x)
    assert scaled(model(x), expected) <= RTOL["identity"]
    attach(detach(model), asr(name), example=x)
    model.train()(x).square().sum().backward()
    assert [n for n, p in model.named_parameters() if p.grad is None] == []
    assert len(steps(model, x)) == case.steps


@pytest.mark.parametrize("case", [TINY, MOBILE], ids=lambda case: case.label)
def test_norms_are_replaced_and_come_back(case):
    model, x = network(case), images(case)
    before, expected = anatomy(model), model(x)
    attach(model, asr("iebn", depth=2), start="identity", example=x)
    assert {a.module for a in attached(model)} == {"asr:iebn"}
    assert all(isinstance(gate, ConstantIEBN) for gate in gates(model))
    assert scaled(model(x), expected) <= RTOL["identity"]
    for twin in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert torch.equal(twin(x), model(x))
        assert torch.equal(detach(twin)(x), expected)
    assert anatomy(detach(model)) == before


LAYERS = {
    "1d": (nn.Conv1d, nn.BatchNorm1d, (12,)),
    "2d": (nn.Conv2d, nn.BatchNorm2d, (6, 7)),
    "3d": (nn.Conv3d, nn.BatchNorm3d, (3, 4, 5)),
}


class Block(nn.Module):
    def __init__(self, conv, norm, inputs, width):
        super().__init__()
        self.conv1, self.bn1 = conv(inputs, width, 3, padding=1, bias=False), norm(width)
        self.conv2, self.bn2 = conv(width, width, 3, padding=1, bias=False), norm(width)
        same = inputs == width
        self.shortcut = nn.Identity() if same else nn.Sequential(conv(inputs, width, 1))

    def forward(self, x):
        rate = self.bn2(self.conv2(torch.relu(self.bn1(self.conv1(x)))))
        return torch.relu(rate + self.shortcut(x))


@pytest.mark.parametrize("names", [("iebn", "se"), ("se", "iebn"), ("iebn", "dia")], ids="+".join)
@pytest.mark.parametrize("layers", LAYERS)
def test_one_behind_the_other_on_positions_along_any_number_of_axes(layers, names):
    torch.manual_seed(0)
    conv, norm, size = LAYERS[layers]
    model = nn.Sequential(*(Block(conv, norm, *widths) for widths in ((3, 8), (8, 8)))).eval()
    for module in model.modules():
        if isinstance(module, norm):
            module.running_mean.normal_()
            module.running_var.uniform_(0.5, 2)
    x = torch.randn(2, 3, *size)
    before, expected = anatomy(model), model(x)
    for name in names:
        attach(model, asr(name, init="normal:0.5"), start="identity", example=x)
        assert scaled(model(x), expected) <= RTOL["identity"]
    with torch.no_grad():
        for gate in gates(model):
            gate.psi.normal_()
    result = stiffnet.fold(model, x)
    assert result.report.refused == ()
    assert scaled(model(x), expected) > 1e-2
    assert scaled(result.model(x), model(x)) <= RTOL["batch32"]
    assert anatomy(detach(model)) == before
    assert torch.equal(model(x), expected)


def test_the_activation_of_a_norm_survives():
    model, x = network(MOBILE), images(MOBILE)
    acts = [m.act for m in model.modules() if isinstance(m, BatchNormAct2d)]
    attach(model, "asr:iebn", example=x)
    kept = [m.act for m in model.modules() if isinstance(m, ConstantIEBN)]
    assert acts
    assert [id(act) for act in kept if not isinstance(act, nn.Identity)] == [id(a) for a in acts]


def test_the_parameters_of_a_shared_cell_are_counted_once():
    model, x = network(TINY), images(TINY)
    plain = sum(p.numel() for p in model.parameters())
    attach(model, "asr:dia", example=x)
    added = sum(p.numel() for p in model.parameters()) - plain
    assert sum(a.parameters for a in attached(model)) == added
    assert model.layer1[0].step_size.inner[0].cell is model.layer1[1].step_size.inner[0].cell
    assert model.layer1[0].step_size.psi is not model.layer1[1].step_size.psi


def test_what_is_measured_is_the_constant():
    model, x = network(TINY), images(TINY)
    attach(model, "asr:se", example=x)
    values = step_sizes(model, [(x, torch.zeros(2))])
    for gate, seen in zip(gates(model), values.values(), strict=True):
        theirs = gate.constant().detach().expand(2, -1)
        assert torch.allclose(seen, theirs, rtol=RTOL["norm"], atol=0.0, equal_nan=True)
    with record(model) as recording:
        model(x)
    assert ((recording.trajectory.step_sizes > 0) & (recording.trajectory.step_sizes < 1)).all()


def test_text_and_maker_make_the_same_network():
    one, other, x = network(TINY), network(TINY), images(TINY)
    torch.manual_seed(3)
    attach(one, "asr:se", depth=2, init="normal:0.1", reduction=4, where="layer1.*", example=x)
    torch.manual_seed(3)
    maker = asr("se", depth=2, init="normal:0.1", reduction=4)
    attach(other, maker, where="layer1.*", example=x)
    assert [a.at for a in attached(one)] == ["layer1.0", "layer1.1"]
    assert attached(one) == attached(other)
    assert list(one.state_dict()) == list(other.state_dict())
    for key, value in one.state_dict().items():
        assert torch.equal(other.state_dict()[key], value)


def test_a_pickled_network_is_the_same():
    model, x = network(TINY), images(TINY)
    attach(attach(model, asr("srm"), example=x), "se", example=x)
    buffer = io.BytesIO()
    pickle.dump(model, buffer)
    loaded = pickle.loads(buffer.getvalue())
    assert torch.equal(loaded(x), model(x))
    assert attached(loaded) == attached(model)


def test_an_exported_network_computes_the_same():
    model, x = network(TINY), images(TINY)
    attach(model, "asr:se", example=x, where="layer1.0")
    assert scaled(torch.export.export(model, (x,)).module()(x), model(x)) <= RTOL["batch32"]


@pytest.mark.slow
def test_a_compiled_network_computes_the_same():
    model, x = network(TINY), images(TINY)
    attach(model, "asr:dia", example=x)
    with torch.no_grad():
        compiled = torch.compile(model, backend="aot_eager", fullgraph=True)
        assert scaled(compiled(x), model(x)) <= RTOL["batch32"]
    torch._dynamo.reset()


@pytest.mark.parametrize(
    "text",
    [
        "asr:se,depth=2,init=normal:0.1,learnable=false,where=layer1.0",
        "asr:ie,weights=1e-3,activation=tanh,where=layer1.0",
        "asr:iebn",
        "asr:dia,where=layer1.*+se,reduction=4,where=layer1.0",
    ],
)
def test_a_name_and_its_text_build_the_network_that_a_checkpoint_is_of(text):
    model = create_model("resnet20_cifar", num_classes=4, attention=text, seed=1).eval()
    again = create_model("resnet20_cifar", num_classes=4, attention=text, seed=2).eval()
    again.load_state_dict(model.state_dict(), strict=True)
    x = images(SMALL)
    assert torch.equal(again(x), model(x))
    assert attached(again) == attached(model)


def test_modules_that_a_plus_joins_sit_one_behind_the_other():
    text = "asr:se,where=layer1.0 + se,where=layer1.*"
    model = create_model("resnet20_cifar", num_classes=4, attention=text).eval()
    first = [(a.name, a.module) for a in attached(model) if a.at == "layer1.0"]
    assert first == [("layer1.0.step_size", "asr:se"), ("layer1.0.step_size_2", "se")]
    block, seen = model.layer1[0], []
    block.step_size.register_forward_hook(lambda m, a, y: seen.append(y))
    block.step_size_2.register_forward_hook(lambda m, a, y: seen.append(a[0]))
    model(images(SMALL))
    assert seen[0] is seen[1]
    inner, outer = block.step_size.inner[0].mlp.fc1.weight, block.step_size_2.mlp.fc1.weight
    assert not torch.equal(inner, outer)


def test_the_backbone_is_the_same_with_it_and_without():
    plain = create_model("resnet20_cifar", num_classes=4, seed=5)
    gated = create_model("resnet20_cifar", num_classes=4, seed=5, attention="asr:se,where=layer1.0")
    for key, value in plain.state_dict().items():
        assert torch.equal(gated.state_dict()[key], value)


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ("se", [("se", {})]),
        (" asr:se , depth=2", [("asr:se", {"depth": 2})]),
        ("asr:se,init=normal:0.1+ie", [("asr:se", {"init": "normal:0.1"}), ("ie", {})]),
        ("stepnet,input=x_t+1", [("stepnet", {"input": "x_t+1"})]),
        ("stepnet,input=x_t+1 + eca", [("stepnet", {"input": "x_t+1"}), ("eca", {})]),
        ("asr:ie,weights=1e+1", [("asr:ie", {"weights": 10.0})]),
        ("asr:ie,learnable=false", [("asr:ie", {"learnable": False})]),
    ],
)
def test_a_plus_joins_modules_and_is_also_part_of_values(text, read):
    assert read_attention(text) == read


@pytest.mark.parametrize("text", ["asr:se,depth", "se+ie,x=", "se,a=1,a=2", "se,init=nan"])
def test_text_that_cannot_be_read_is_refused(text):
    with pytest.raises(RecipeError, match=r"in the attention .* is not an? "):
        read_attention(text)


@pytest.mark.parametrize(
    ("text", "error", "message"),
    [
        ("asr:see", UnknownNameError, "no attention module called 'see'. Did you mean 'se'"),
        ("asr", StepError, "say which, as in 'asr:se'"),
        ("asr:sge", StepError, "SGE's step size differs between positions"),
        ("asr:se,depth=0", StepError, "depth=0; `depth` counts the modules"),
        ("asr:se,inti=1", UnknownNameError, "option of asr:se called 'inti'. Did you mean 'init'"),
        ("se+asr:ie,example=1", UnknownNameError, "no option of 'asr:ie' called 'example'"),
        ("se+", UnknownNameError, r"no attention module called 'se\+'. Did you mean 'se'"),
        ("asr:fca,frequencies=top32", StepError, "asr:fca cannot be attached to .* 'top16'"),
    ],
)
def test_a_bad_request_says_what_to_do(text, error, message):
    with pytest.raises(error, match=message.replace("'top16'", ".*takes .*top16")):
        create_model("resnet20_cifar", num_classes=4, attention=text)


def test_options_that_come_too_late_are_refused():
    model, x = network(TINY), images(TINY)
    before = anatomy(model)
    for name in ("se", "iebn"):
        message = f"depth cannot be given to asr:{name}; give such options to `asr` itself"
        with pytest.raises(StepError, match=message):
            attach(model, asr(name), depth=2, example=x)
    with pytest.raises(StepError, match="asr:srm starts with step sizes of 0"):
        attach(model, asr("srm", activation="tanh"), start="identity", example=x)
    assert anatomy(model) == before


def test_the_list_of_modules_says_how_it_is_spelled(capsys):
    assert main(["list", "attention"]) == 0
    assert "asr:se,depth=2" in capsys.readouterr().out.splitlines()[-1]
    assert main(["list", "attention", "se*"]) == 0
    assert "asr" not in capsys.readouterr().out


def test_it_is_a_public_name():
    assert stiffnet.asr is asr
