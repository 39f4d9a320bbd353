"""Folding a constant gate: what comes out, what is refused, and what stays as it was."""

import collections
import copy
import io
import itertools
import sys
import threading
import types

import pytest
import timm
import torch
import torchvision
from rich.console import Console
from torch import nn
from torch.nn import functional as F
from torch.nn.utils import parametrizations
from torchvision.ops import FrozenBatchNorm2d

from stiffnet.attention.asr import asr
from stiffnet.errors import FoldError
from stiffnet.fold.fold import fold
from stiffnet.network.attach import attach, attached, detach
from stiffnet.network.create import create_model
from stiffnet.network.positions import Position, register_positions
from stiffnet.results.fold import INDEX_CHANGES


class Places(nn.Module):
    """Networks of these tests: a gate behind each module whose name says so."""


register_positions(
    lambda model: isinstance(model, Places),
    lambda model: [Position(n) for n, _ in model.named_modules() if n.endswith("_here")],
)


def images(size=32, count=3):
    return torch.randn(count, 3, size, size, generator=torch.Generator().manual_seed(1))


def gates(model):
    return [module for module in model.modules() if hasattr(module, "psi")]


def trained(model):
    """A network as training would leave it: no statistic, weight or gate at its first value."""
    torch.manual_seed(2)
    for module in model.modules():
        if getattr(module, "running_mean", None) is not None:
            module.running_mean.normal_()
            module.running_var.uniform_(0.5, 2)
        if "Norm" in type(module).__name__ and getattr(module, "weight", None) is not None:
            nn.init.uniform_(module.weight, 0.5, 1.5)
            nn.init.normal_(module.bias)
    for gate in gates(model):
        nn.init.normal_(gate.psi)
    return model.eval()


def resnet(attention="asr:se", **options):
    return trained(create_model("resnet20_cifar", num_classes=10, attention=attention, **options))


def assert_same(model, folded, x, tolerance=1e-5):
    with torch.no_grad():
        expected, result = model(x), folded(x)
    assert (result - expected).abs().max() <= tolerance * expected.abs().max()
    assert expected.abs().max() > 0


@pytest.mark.parametrize(
    "module",
    ["se", "eca", "cbam", "srm", "fca", "ie", "iebn", "sem", "spa", "dia", "stepnet", "vector"],
)
def test_every_module_folds_into_the_plain_backbone(module):
    model, x = resnet(f"asr:{module}"), images()
    result = fold(model, x, passes=0)
    assert_same(model, result.model, x)
    plain = create_model("resnet20_cifar", num_classes=10)
    plain.load_state_dict(result.model.state_dict(), strict=True)
    with torch.no_grad():
        assert torch.equal(plain.eval()(x), result.model(x))
    assert not attached(result.model)
    assert type(result.model.layer1[0]) is type(plain.layer1[0])
    report = result.report
    assert report.parameters_after == sum(p.numel() for p in plain.parameters())
    assert report.parameters_before == sum(p.numel() for p in model.parameters())
    assert report.refused == ()
    assert {item.kind for item in report.folded} == {f"asr:{module}"}
    assert report.scaled_error <= 1e-5
    assert report.exact_error <= 1e-12


def test_the_gate_goes_into_the_norm_before_it_and_nowhere_else():
    model = resnet("asr:se,depth=2")
    result = fold(model, images(), passes=0)
    before, after = model.state_dict(), result.model.state_dict()
    changed = {name for name in after if not torch.equal(after[name], before[name])}
    steps = [item.name.removesuffix(".step_size") for item in result.report.folded]
    assert changed == {f"{step}.bn2.{kind}" for step in steps for kind in ("weight", "bias")}
    assert [item.into for item in result.report.folded] == [(f"{step}.bn2",) for step in steps]
    gate = model.layer2[1].step_size.constant()
    expected = (model.layer2[1].bn2.weight.double() * gate.double()).float()
    assert torch.allclose(result.model.layer2[1].bn2.weight, expected, rtol=1e-6, atol=0)


def test_the_given_network_stays_as_it_is_to_the_byte():
    model = resnet()
    before = copy.deepcopy(model.state_dict())
    objects = dict(model.named_modules())
    fold(model, images(), fuse=True, passes=0)
    assert dict(model.named_modules()) == objects
    assert all(torch.equal(before[name], tensor) for name, tensor in model.state_dict().items())
    assert len(attached(model)) == 9


def test_what_is_learnt_counted_and_laid_out_is_kept():
    model = resnet().to(memory_format=torch.channels_last)
    model.bn1.weight.requires_grad_(False)
    model.layer1[0].conv1.weight.requires_grad_(False)
    model.bn1.num_batches_tracked += 7
    model.layer3[0].bn1.eps = 0.5
    made = fold(model, images(), passes=0).model
    assert [n for n, p in made.named_parameters() if not p.requires_grad] == [
        "bn1.weight", "layer1.0.conv1.weight",
    ]  # fmt: skip
    assert made.bn1.num_batches_tracked == 7
    assert made.layer3[0].bn1.eps == 0.5
    assert made.layer1[0].conv1.weight.is_contiguous(memory_format=torch.channels_last)
    shared = {t.data_ptr() for t in model.state_dict().values()}
    assert not shared & {t.data_ptr() for t in made.state_dict().values()}
    assert not made.training


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_other_dtypes(dtype):
    model, x = resnet().to(dtype), images().to(dtype)
    result = fold(model, x, passes=0)
    assert {p.dtype for p in result.model.parameters()} == {dtype}
    assert_same(model, result.model, x, {torch.float64: 1e-12, torch.bfloat16: 5e-2}[dtype])


def test_beside_an_ordinary_module_the_constant_one_folds_and_the_other_stays():
    model, x = resnet("asr:se+se"), images()
    result = fold(model, x, passes=0)
    assert_same(model, result.model, x)
    assert [sits.module for sits in attached(result.model)] == ["se"] * 9
    assert {item.reason for item in result.report.refused} == {
        "the step size of se depends on the input"
    }
    fresh = create_model("resnet20_cifar", num_classes=10, attention="se")
    fresh.load_state_dict(result.model.state_dict(), strict=True)


def test_a_constant_gate_outside_an_ordinary_one_is_refused():
    with pytest.raises(FoldError, match=r"step_size_2' \(it comes after layer1.0.step_size"):
        fold(resnet("se+asr:se"), images(), passes=0)


def test_tokens():
    model = timm.create_model(
        "vit_tiny_patch16_224", img_size=32, depth=2, init_values=0.1, num_classes=5
    )
    model, x = trained(attach(model, asr("srm"))), images(32)
    result = fold(model, x, passes=0)
    assert_same(model, result.model, x)
    assert result.report.folded[0].into == ("blocks.0.ls1.gamma",)
    model = timm.create_model("vit_tiny_patch16_224", img_size=32, depth=2, num_classes=5)
    model = trained(attach(model, asr("se")))
    assert fold(model, x, passes=0).report.folded[0].into == ("blocks.0.attn.proj",)


@pytest.mark.parametrize("fused", [True, False])
def test_attention_without_an_output_projection_takes_it_into_its_values(fused):
    model = timm.create_model("vit_tiny_patch16_224", img_size=32, depth=1, num_classes=5)
    model.blocks[0].attn.proj = nn.Identity()
    model.blocks[0].attn.fused_attn = fused
    model, x = trained(attach(model, asr("ie"), where="blocks.0")), images(32)
    result = fold(model, x, passes=0)
    assert_same(model, result.model, x)
    assert result.report.folded[0].into == ("blocks.0.attn.qkv",)
    before, after = (net.blocks[0].attn.qkv.weight for net in (model, result.model))
    gate = model.blocks[0].step_size.constant()
    assert torch.equal(before[:384], after[:384])  # queries and keys
    assert torch.allclose(after[384:], before[384:] * gate[:, None], rtol=1e-5)


def test_torchs_attention():
    model = torchvision.models.VisionTransformer(32, 16, 2, 2, 16, 32, num_classes=5)
    nn.init.normal_(model.heads.head.weight)
    model, x = trained(attach(model, asr("eca"))), images(32)
    result = fold(model, x, passes=0)
    assert_same(model, result.model, x)
    into = [item.into[0].rpartition("encoder_layer_0.")[2] for item in result.report.folded[:2]]
    assert into == ["self_attention.out_proj", "mlp.3"]


def test_frozen_norms_of_torchvision():
    model = torchvision.models.resnet18(norm_layer=FrozenBatchNorm2d, num_classes=5)
    model, x = trained(attach(model, asr("se"))), images()
    result = fold(model, x, passes=0)
    assert_same(model, result.model, x)
    assert result.report.folded[0].into == ("layer1.0.bn2",)


class Branch(Places):
    """A branch whose code a test writes."""

    def __init__(self, code, **parts):
        super().__init__()
        for name, part in parts.items():
            self.add_module(name, part)
        self.gate_here = nn.Identity()
        self.code = code

    def forward(self, x):
        return self.code(self, x)


def branch(code, **parts):
    torch.manual_seed(0)
    model = Branch(code, **parts)
    return trained(attach(model, asr("vector"), example=images(8)))


def conv(**options):
    return nn.Conv2d(3, 3, 3, padding=1, **options)


FOLDABLE = {
    "a sum of two layers": (lambda m, x: m.gate_here(m.a(x) + m.b(x)), {"a", "b"}),
    "a sum with itself, shrunk": (lambda m, x: m.gate_here(_pooled(m.a(x))), {"a"}),
    "two halves, joined": (lambda m, x: m.gate_here(_joined(m.c(x), m.d(x))), {"c", "d"}),
    "the half of a layer": (lambda m, x: m.gate_here(m.e(x).chunk(2, 1)[1]), {"e"}),
    "a gated linear unit": (lambda m, x: m.gate_here(_glu(m.e(x))), {"e"}),
    "a number times it": (lambda m, x: m.gate_here(-0.5 * m.a(x)), {"a"}),
    "shuffled channels": (lambda m, x: m.gate_here(F.channel_shuffle(m.a(x), 3)), {"a"}),
    "averaged": (lambda m, x: m.gate_here(F.avg_pool2d(m.a(x), 3, 1, 1)), {"a"}),
    "padded and rolled": (lambda m, x: m.gate_here(F.pad(m.a(x), (1, 1)).roll(1, -1)), {"a"}),
    "a mask times it": (lambda m, x: m.gate_here(m.a(x) * (x > 0)), {"a"}),
}


def _pooled(value):
    return F.avg_pool2d(value, 3, 1, 1) - value


def _joined(one, other):
    return torch.cat([one, other], 1)


def _glu(value):
    one, other = value.chunk(2, 1)
    return torch.sigmoid(one) * other


def parts():
    return {
        "a": conv(), "b": conv(bias=False), "c": nn.Conv2d(3, 1, 1), "d": nn.Conv2d(3, 2, 1),
        "e": nn.Conv2d(3, 6, 1),
    }  # fmt: skip


def test_what_lies_between_a_layer_and_the_gate_may_be_anything_that_commutes():
    for name, (code, into) in FOLDABLE.items():
        model, x = branch(code, **parts()).double(), images(8).double()
        result = fold(model, x, passes=0)
        assert_same(model, result.model, x, 1e-12)
        assert set(result.report.folded[0].into) == into, name


def _twice(m, x):
    return m.gate_here(m.a(m.a(x)))


def _used_elsewhere(m, x):
    value = m.a(x)
    return m.gate_here(value) + value.mean()


def _squared(m, x):
    value = m.a(x)
    return m.gate_here(value * value)


def _squeezed(m, x):
    value = m.a(x)
    return m.gate_here(value * torch.sigmoid(value.mean((2, 3), keepdim=True)))


def _tied():
    one, other = conv(), conv()
    other.weight = one.weight
    return {"a": one, "b": other}


class Blur(nn.Module):
    """A fixed filter, kept out of state dicts as in timm's `BlurPool2d`."""

    def __init__(self):
        super().__init__()
        self.register_buffer("filt", torch.full((3, 1, 3, 3), 1 / 9), persistent=False)

    def forward(self, x):
        return F.conv2d(x, self.filt, padding=1, groups=3)


REFUSED = {
    "a layer that is called twice": (_twice, parts, "'a.weight' is used 2 times"),
    "a value that goes elsewhere": (_used_elsewhere, parts, "comes out of a is used elsewhere"),
    "a square": (_squared, parts, "channels are mixed between a and the gate"),
    "attention in between": (_squeezed, parts, "is used elsewhere too, in `mean`"),
    "an activation": (
        lambda m, x: m.gate_here(F.gelu(m.a(x))), parts, "`gelu` in the network does not commute",
    ),
    "a ReLU, at negative values": (
        lambda m, x: m.gate_here(F.relu(m.a(x))), parts, "negative for . of 3 channels",
    ),
    "mixed channels": (
        lambda m, x: m.gate_here(m.a(x) + m.b(x).flip(1)[:, :1]), parts, "several channels",
    ),
    "a constant that is added": (
        lambda m, x: m.gate_here(m.a(x) + 1.0), parts, "a constant is added to it",
    ),
    "nothing before it": (lambda m, x: m.a(m.gate_here(x)), parts, "the network's input"),
    "tied weights": (lambda m, x: m.gate_here(m.b(x)) + m.a(x), _tied, "'a.weight' and 'b.weight'"),
    "a parametrised weight": (
        lambda m, x: m.gate_here(m.a(x)),
        lambda: {"a": parametrizations.weight_norm(conv())},
        "a cannot hold it: its weight is computed again",
    ),
    "a norm without a weight": (
        lambda m, x: m.gate_here(m.n(x)),
        lambda: {"n": nn.BatchNorm2d(3, affine=False)},
        "n cannot hold it: it has no weight",
    ),
    "a norm without statistics": (
        lambda m, x: m.gate_here(m.n(x)),
        lambda: {"n": nn.BatchNorm2d(3, track_running_stats=False)},
        "it has no running statistics",
    ),
    "a filter that is not saved": (
        lambda m, x: m.gate_here(m.blur(F.gelu(m.a(x)))),
        lambda: {**parts(), "blur": Blur()},
        "blur cannot hold it: 'blur.filt' is not in the network's state dict",
    ),
    "a gate that runs twice": (
        lambda m, x: m.gate_here(m.a(x)) + m.gate_here(m.b(x)), parts, "it is called 2 times",
    ),
}  # fmt: skip


def test_what_cannot_be_folded_is_refused_with_its_path_and_reason():
    for code, made, reason in REFUSED.values():
        model = branch(code, **made())
        for gate in gates(model):
            with torch.no_grad():
                gate.psi[0, 0] = -1
        before = copy.deepcopy(model.state_dict())
        expected = f"1 of 1 constant gates.*'gate_here.step_size'.*{reason}"
        with pytest.raises(FoldError, match=expected):
            fold(model, images(8), passes=0)
        assert all(torch.equal(before[name], tensor) for name, tensor in model.state_dict().items())


def test_parameters_in_one_memory_are_tied_though_they_are_two():
    """A copy, and so the state dict of a fold, has two of them: loaded, the last one counts."""
    made = parts()
    made["b"].weight.data = made["a"].weight.data
    model = branch(lambda m, x: m.gate_here(m.a(x)) + m.b(x), **made)
    with pytest.raises(FoldError, match=r"'a\.weight' and 'b\.weight' are in the same memory"):
        fold(model, images(8), passes=0)
    model.b.weight = nn.Parameter(model.a.weight.detach().clone())
    result = fold(model, images(8), passes=0)
    model.load_state_dict(result.model.state_dict(), strict=False)
    assert_same(result.model, detach(model), images(8), 0)


def in_a_part(made):
    memory = torch.randn(made["a"].weight.numel() + 9)
    for name, start in (("a", 0), ("b", 9)):
        weight = made[name].weight
        weight.data = memory[start : start + weight.numel()].view_as(weight)


def as_a_buffer(made):
    made["b"].register_buffer("used", made["a"].weight.data, persistent=False)


@pytest.mark.parametrize("tie", [in_a_part, as_a_buffer])
def test_tensors_that_share_some_memory_are_tied(tie):
    made = parts()
    tie(made)
    model = branch(lambda m, x: m.gate_here(m.a(x)) + m.b(x), **made)
    with pytest.raises(FoldError, match=r"'a\.weight' and 'b\.\w+' are in the same memory"):
        fold(model, images(8), passes=0)


def test_tensors_beside_each_other_in_one_memory_are_not_tied():
    """As where all weights are views of one vector, or every second number is another's."""
    made = parts()
    memory = torch.randn(made["a"].weight.numel(), 2)
    for number, name in enumerate("ab"):
        made[name].weight.data = memory[:, number].view_as(made[name].weight)
    model = branch(lambda m, x: m.gate_here(m.a(x)) + m.b(x), **made)
    assert_same(model, fold(model, images(8), passes=0).model, images(8))


def test_a_relu_is_passed_where_the_gate_is_not_negative():
    model, x = branch(lambda m, x: m.gate_here(F.relu(m.a(x))), a=conv()), images(8)
    nn.init.uniform_(gates(model)[0].psi, 0, 1)
    with torch.no_grad():
        gates(model)[0].psi[0, 1] = 0
    result = fold(model, x, passes=0)
    assert_same(model, result.model, x)


def test_a_network_in_training_is_refused():
    model = resnet()
    with pytest.raises(FoldError, match=r"it is in training mode.*model.eval"):
        fold(copy.deepcopy(model).train(), images(), passes=0)
    model.layer2[0].bn1.train()
    with pytest.raises(FoldError, match=r"its 'layer2.0.bn1' is in training mode"):
        fold(model, images(), passes=0)


def test_nothing_to_fold_is_said():
    with pytest.raises(FoldError, match="Nothing in CifarResNet can be folded: no constant gate"):
        fold(resnet(None), images(), passes=0)
    with pytest.raises(FoldError, match="step size of se depends on the input, and 8 more"):
        fold(resnet("se"), images(), passes=0)
    folded = fold(resnet(), images(), passes=0).model
    with pytest.raises(FoldError, match="as in a network that was folded already"):
        fold(folded, images(), passes=0)
    fused = fold(folded, images(), fuse=True, passes=0).model
    with pytest.raises(FoldError, match="folded already"):
        fold(fused, images(), fuse=True, passes=0)


@pytest.mark.filterwarnings("ignore:.*torch.jit:FutureWarning")
def test_wrapped_networks_and_unsuitable_examples_are_refused():
    model = resnet()
    with pytest.raises(FoldError, match="wrapped or compiled"):
        fold(nn.DataParallel(model).eval(), images(), passes=0)
    with pytest.raises(FoldError, match=r"TorchScript\. Give the Python module"):
        fold(torch.jit.script(nn.Conv2d(3, 4, 1).eval()), images(), fuse=True, passes=0)
    with pytest.raises(FoldError, match=r"CifarResNet cannot be run on this example: .*Give one"):
        fold(model, torch.rand(1, 4, 32, 32), passes=0)
    with pytest.raises(FoldError, match=r"example is empty, and proves nothing"):
        fold(model, images()[:0], passes=0)


def test_a_gate_that_is_not_a_number_is_refused():
    model = resnet()
    with torch.no_grad():
        model.layer1[0].step_size.psi[0, 3] = float("nan")
    with pytest.raises(FoldError, match=r"'layer1.0.step_size' \(its step size is not a finite"):
        fold(model, images(), passes=0)


def _clip(y):
    return y.clamp_(-8, 8)


IN_PLACE = {
    "a part of it": lambda y: (_clip(y[:, :1]), y)[1],
    "a view of it": lambda y: (_clip(y.flatten(1)), y)[1],
    "its data": lambda y: (setattr(y, "data", y.data.clamp(-8, 8)), y)[1],
    "itself, and nothing is returned": lambda y: _clip(y) is None,
}


class Writes(nn.Module):
    """Changes what it is given, as an in-place activation on a part does."""

    def __init__(self, change):
        super().__init__()
        self.change = change

    def forward(self, y):
        result = self.change(y)
        return y if result is False else result


def test_a_value_that_is_changed_in_place_is_found_out():
    def code(m, x):
        value = m.a(x)
        m.w(value)
        return m.gate_here(value)

    for change in IN_PLACE.values():
        model = branch(code, a=conv(), w=Writes(change))
        with pytest.raises(FoldError, match=r"changed in place|does not commute"):
            fold(model, images(8), passes=0)


def test_a_branch_that_is_off_on_the_example_is_folded_too():
    model = branch(lambda m, x: m.gate_here(F.relu(m.a(x)) + F.relu(-m.b(x))), a=conv(), b=conv())
    with torch.no_grad():
        model.b.bias.fill_(50)
        gates(model)[0].psi.abs_()
    made = fold(model, images(8), passes=0).model
    assert_same(model, made, 100 * images(8))


def test_hooks_are_not_lost():
    model = resnet()
    model.layer1[0].step_size.register_forward_hook(lambda m, i, o: o.clamp(-8, 8))
    with pytest.raises(FoldError, match=r"'layer1.0.step_size' \(it has forward hooks"):
        fold(model, images(), passes=0)
    model = resnet(None)
    model.bn1.register_forward_hook(lambda m, i, o: o.clamp(-8, 8))
    result = fold(model, images(), fuse=True, passes=0)
    assert [(left.name, left.reason) for left in result.report.refused] == [
        ("bn1", "it has forward hooks, which would be lost with it")
    ]
    assert_same(model, result.model, 10 * images())


def test_a_network_that_casts_by_itself():
    model = branch(lambda m, x: m.gate_here(m.a(x.float() / 255).type_as(x.float())), a=conv())
    x = torch.randint(0, 256, (2, 3, 8, 8), dtype=torch.uint8)
    result = fold(model, x, passes=0)
    assert result.report.exact_error is None
    assert_same(model, result.model, x)


def test_what_the_caller_has_switched_on_does_not_matter():
    model, x = resnet("asr:iebn+asr:se"), images()
    state = torch.get_rng_state()
    with torch.inference_mode(), torch.autocast("cpu", dtype=torch.bfloat16):
        made = fold(model, x, fuse=True, passes=0).model
    assert torch.equal(torch.get_rng_state(), state)
    assert_same(model, made, x)
    assert not any(parameter.is_inference() for parameter in made.parameters())


class Counts(nn.Linear):
    """A layer that remembers how often it ran."""

    calls = 0

    def forward(self, x):
        self.calls += 1
        return super().forward(x)


def test_the_given_network_is_not_even_run():
    model = nn.Sequential(Counts(4, 4), nn.BatchNorm1d(4)).eval()
    fold(model, torch.randn(3, 4), fuse=True, passes=1)
    assert model[0].calls == 0


class Bare(nn.Module):
    """A convolution of a user's, without a place for a bias."""

    def __init__(self, bias):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(3, 3, 1, 1))
        if bias:
            self.register_parameter("bias", None)

    def forward(self, x):
        return F.conv2d(x, self.weight)


@pytest.mark.parametrize("bias", [False, True])
def test_a_layer_that_takes_no_bias_keeps_its_norm(bias):
    model = nn.Sequential(Bare(bias), nn.BatchNorm2d(3), nn.Conv2d(3, 3, 1), nn.BatchNorm2d(3))
    result = fold(trained(model), images(4), fuse=True, passes=0)
    assert [left.reason for left in result.report.refused] == ["0 has no place for a bias"]
    assert_same(model, result.model, images(4))


def test_unsuitable_networks_get_a_sentence():
    with pytest.raises(FoldError, match=r"this is 'resnet18'. Build it first"):
        fold("resnet18", images())
    model = resnet()
    model.fc.weight.data.fill_(float("nan"))
    with pytest.raises(FoldError, match="gives numbers on this example that are not finite"):
        fold(model, images(), passes=0)
    model = branch(lambda m, x: m.gate_here(m.a(x)) is None, a=conv())
    with pytest.raises(FoldError, match="gives no tensor that could be compared"):
        fold(model, images(8), passes=0)
    model = resnet()
    model.lock = threading.Lock()
    with pytest.raises(FoldError, match="CifarResNet cannot be copied"):
        fold(model, images(), passes=0)


def test_the_report_counts_what_both_networks_cost(monkeypatch):
    model = nn.Sequential(nn.Conv2d(3, 4, 3, bias=False), nn.BatchNorm2d(4), nn.Flatten())
    model.append(nn.Linear(4 * 6 * 6, 5))
    clock = itertools.count()  # a second passes whenever it is looked at
    watch = types.SimpleNamespace(perf_counter=lambda: float(next(clock)))
    monkeypatch.setattr(sys.modules["stiffnet.fold.cost"], "time", watch)
    report = fold(trained(model), images(8), fuse=True, passes=2).report
    assert report.images == 3
    assert report.before.macs == report.after.macs == 4 * 3 * 9 * 36 + 4 * 36 * 5
    assert report.after.flops == 2 * report.after.macs
    assert report.before.parameters == 4 * 3 * 9 + 2 * 4 + 4 * 36 * 5 + 5
    assert report.after.parameters == 4 * 3 * 9 + 4 + 4 * 36 * 5 + 5
    assert (report.before.seconds, report.after.seconds) == (1.0, 1.0)
    assert next(clock) == 2 * 2 * 3  # both networks, before and after, one pass more to warm up


@pytest.mark.parametrize(
    ("attention", "options"),
    [("asr:se", {}), ("asr:se", {"branches": False}), (None, {"fuse": True})],
    ids=["gates", "gates alone", "norms"],
)
def test_networks_run_only_as_often_as_the_proof_and_the_costs_need(attention, options):
    model = create_model("resnet20_cifar", attention=attention).eval()
    seen = []
    model.register_forward_pre_hook(lambda m, args: seen.append((args[0].dtype, args[0].shape)))
    fold(model, images(), passes=0, **options)
    before_and_after = 2
    assert collections.Counter(seen) == {
        (torch.float32, (3, 3, 32, 32)): before_and_after,
        (torch.float64, (2, 3, 32, 32)): before_and_after,
        (torch.float64, (1, 3, 33, 33)): before_and_after,
        (torch.float32, (1, 3, 32, 32)): before_and_after,  # what one image costs
    }


def test_that_nsi_changes_with_a_gate_is_said():
    gated = fold(resnet(), images(), passes=0).report
    assert gated.notes == (INDEX_CHANGES,)
    assert "NSI and TNS of the folded network differ" in written(gated)
    plain = fold(trained(nn.Sequential(conv(), nn.BatchNorm2d(3))), images(8), fuse=True, passes=0)
    assert plain.report.notes == ()
    assert "TNS" not in written(plain.report)


def written(report):
    console = Console(width=1000, record=True, file=io.StringIO())
    console.print(report)
    return console.export_text()


def test_shapes_and_other_kinds_of_arguments():
    """What code often passes to functions: shapes, slices, named tuples, dtypes, formats."""
    pair = collections.namedtuple("Pair", "one other")

    def code(m, x):
        y = m.a(x)
        y = y.reshape(-1).view(y.shape)
        y = F.interpolate(y, size=x.shape[2:])
        y = y.to(dtype=x.dtype, memory_format=torch.contiguous_format, copy=True)
        y = y[:, slice(None), : torch.tensor(7), ...].flip((2,))
        y = y.permute(torch.Size((0, 1, 3, 2))).clone(memory_format=torch.preserve_format)
        return m.gate_here(torch.cat(tuple(pair(y, y)), 2))

    model = branch(code, a=conv()).double()
    result = fold(model, images(8).double(), passes=0)
    assert_same(model, result.model, images(9).double(), 1e-12)


def test_an_example_that_is_a_named_tuple_stays_one():
    pair = collections.namedtuple("Pair", "image mask")

    def code(m, given):
        return m.gate_here(m.a(given.image) * given.mask)

    model = trained(attach(Branch(code, a=conv()), asr("vector"), example=(given(pair),)))
    result = fold(model, (given(pair),), passes=0)
    with torch.no_grad():
        assert torch.allclose(model(given(pair)), result.model(given(pair)), rtol=1e-5, atol=1e-6)


def given(pair):
    return pair(images(8), torch.ones(3, 1, 8, 8))
