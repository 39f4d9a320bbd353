"""A gate on the branch just before the addition, and everything else as it was."""

import copy
import io
import pickle

import pytest
import timm
import torch
from torch import nn
from torch.nn import functional as F

from network.attach_cases import Case, anatomy, images, network, of_timm, scaled
from stiffnet.attention import ATTENTION
from stiffnet.network.attach import attach, attached, detach
from stiffnet.trajectory.record import record
from stiffnet.trajectory.steps import steps
from tolerances import RTOL

SMALL = of_timm("resnet20_cifar", 16, 9)
TINY = of_timm("resnet18", 16, 5, layers=(2, 1, 1, 1), channels=(8, 8, 16, 16))
TINY_DLA = of_timm("dla46x_c", 32, 12)  # blocks that take an argument or None
EVERY_MODULE = [entry.name for entry in ATTENTION if entry.name != "iebn"]


def small(case: Case = SMALL):
    return network(case), images(case)


def basic_block(block, x):
    """What a basic block of timm computes, in the published formula, with its gate."""
    rate = block.bn2(block.conv2(F.relu(block.bn1(block.conv1(x)))))
    state = x if block.downsample is None else block.downsample(x)
    gate = block.step_size
    return F.relu(state + (gate(rate, state) if gate.needs_state else gate(rate)))


@pytest.mark.parametrize("module", ["se", "stepnet"])
@pytest.mark.parametrize("training", [False, True])
def test_the_gate_is_on_the_rate_just_before_the_addition(module, training):
    model, x = small(TINY)
    attach(model.double(), module, example=x.double())
    model.train(training)
    reference = copy.deepcopy(model)
    for path in ("layer1.1", "layer3.0"):  # an identity shortcut and a projection
        state = torch.rand(2, 8, 4, 4, dtype=torch.float64)
        block, same = model.get_submodule(path), reference.get_submodule(path)
        assert scaled(block(state), basic_block(same, state)) <= RTOL["float64"]


@pytest.mark.parametrize("module", EVERY_MODULE)
def test_every_module_starts_at_the_identity_when_asked(module):
    model, x = small()
    options = {"groups": 16} if module == "sge" else {}
    expected = model(x)
    attach(model, module, start="identity", example=x, **options)
    other = torch.rand(3, 3, 32, 32)
    assert scaled(model(x), expected) <= RTOL["identity"]
    assert scaled(model(other), detach(copy.deepcopy(model))(other)) <= RTOL["identity"]


def test_the_published_start_is_another_network():
    model, x = small()
    expected = model(x)
    assert scaled(attach(model, "se", example=x)(x), expected) > RTOL["identity"]


def test_attaching_needs_no_example_and_leaves_the_random_numbers_to_the_gates():
    model, _ = small()
    torch.manual_seed(3)
    attach(model, "se")
    again, _ = small()
    torch.manual_seed(3)
    attach(again, "se")
    for one, other in zip(model.parameters(), again.parameters(), strict=True):
        assert torch.equal(one, other)


class Dropping(nn.Module):
    """Drops some of its rate in evaluation too, as for an estimate of uncertainty."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(8, 8, 1)

    def forward(self, x):
        return x + F.dropout(self.conv(x), 0.5, training=True)


@pytest.mark.parametrize("module", ["se", "eca", "asr:se"])
def test_a_network_that_draws_random_numbers_in_evaluation_takes_modules(module):
    """It gives the same wherever they do, also when modules were initialised in between."""
    model, x = nn.Sequential(Dropping(), Dropping()).eval(), torch.rand(2, 8, 6, 6)
    torch.manual_seed(0)
    expected = model(x)
    attach(model, module, start="identity", example=x)
    torch.manual_seed(0)
    assert scaled(model(x), expected) <= RTOL["identity"]


def test_the_blocks_stay_the_objects_that_they_are():
    model, x = small()
    blocks = dict(model.named_modules())
    kinds = {name: type(module) for name, module in blocks.items()}
    attach(model, "se", example=x)
    for name, module in blocks.items():
        assert model.get_submodule(name) is module
        assert isinstance(module, kinds[name])
        assert repr(type(module)) == repr(kinds[name])


def test_hooks_stay_and_run():
    model, x = small()
    seen = []
    handle = model.layer1[0].register_forward_hook(lambda m, a, y: seen.append(y))
    before = anatomy(model)
    attach(model, "se", example=x)
    seen.clear()
    model(x)
    assert len(seen) == 1
    detach(model)
    assert anatomy(model) == before
    handle.remove()
    seen.clear()
    model(x)
    assert not seen


def test_modes_are_kept_module_by_module():
    model, x = small()
    model.train()
    model.layer2.eval()
    attach(model, "se", example=x)
    assert model.layer1[0].step_size.training
    assert not model.layer2[0].step_size.training
    assert [m.training for m in (model, model.layer1, model.layer2)] == [True, True, False]


def test_attaching_changes_no_buffer_and_no_weight():
    model, x = small()
    old = {key: value.clone() for key, value in model.state_dict().items()}
    attach(model.train(), "se", example=x)
    assert all(torch.equal(model.state_dict()[key], value) for key, value in old.items())


def test_gates_have_the_precision_of_the_network():
    model, x = small()
    attach(model.double(), "stepnet", example=x.double())
    assert {p.dtype for p in model.parameters()} == {torch.float64}
    assert model(x.double()).dtype == torch.float64


def test_gates_have_the_precision_of_their_rate_where_a_block_has_two():
    class Mixed(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm, self.layer = nn.LayerNorm(8), nn.Linear(8, 8).bfloat16()

        def forward(self, x):
            return x + self.layer(self.norm(x.float()).bfloat16()).relu()

    model, x = Mixed().eval(), torch.rand(2, 5, 8).bfloat16()
    attach(model, "se", example=x)
    assert {p.dtype for p in model.step_size.parameters()} == {torch.bfloat16}
    assert model(x).dtype == torch.bfloat16


def test_attaching_twice_stacks():
    model, x = small(TINY)
    expected = model(x)
    attach(model, "se", start="identity", example=x)
    attach(model, "eca", start="identity", example=x, where="layer1.*")
    assert scaled(model(x), expected) <= RTOL["identity"]
    at_first = [(a.name, a.module, a.at) for a in attached(model) if a.at == "layer1.0"]
    assert at_first == [
        ("layer1.0.step_size", "se", "layer1.0"),
        ("layer1.0.step_size_2", "eca", "layer1.0"),
    ]
    with torch.no_grad():  # the second gate sees what the first one made
        model.layer1[0].step_size.unit.zero_()
    seen = []
    model.layer1[0].step_size_2.register_forward_hook(lambda m, a, y: seen.append(a[0]))
    model(x)
    assert not seen[0].any()
    assert attached(detach(model)) == []


def test_the_second_step_of_a_block_has_a_name_of_its_own():
    case = of_timm("vit_tiny_patch16_224", 32, 4, img_size=32, depth=2, embed_dim=48)
    model, x = network(case), images(case)
    attach(model, "se", where="*#1", example=x)
    assert [(a.name, a.at) for a in attached(model)] == [
        ("blocks.0.step_size1", "blocks.0#1"),
        ("blocks.1.step_size1", "blocks.1#1"),
    ]
    assert model.blocks[0].step_size1.channel_axis == -1


def test_a_shared_cell_is_counted_once_and_shared_by_its_stage():
    model, x = small()
    plain = sum(p.numel() for p in model.parameters())
    attach(model, "dia", example=x)
    assert model.layer1[0].step_size.cell is model.layer1[2].step_size.cell
    assert model.layer1[0].step_size.cell is not model.layer2[0].step_size.cell
    added = sum(p.numel() for p in model.parameters()) - plain
    assert sum(a.parameters for a in attached(model)) == added
    copied = copy.deepcopy(model)
    assert copied.layer1[0].step_size.cell is copied.layer1[2].step_size.cell
    assert torch.equal(copied(x), model(x))


@pytest.mark.parametrize("module", ["se", "stepnet"])
def test_the_steps_are_the_same_and_their_rates_are_those_before_the_gate(module):
    model, x = small()
    plain = steps(model, x)
    with record(model) as recording:
        model(x)
    before = recording.trajectory
    attach(model, module, example=x)
    found = steps(model, x)
    for one, other in zip(plain, found, strict=True):
        assert (one.name, one.stage, one.shape, one.counted) == (
            other.name, other.stage, other.shape, other.counted,
        )  # fmt: skip
        assert other.gates == (f"{other.module}.step_size",)
    with record(model) as recording:
        model(x)
    first = recording.trajectory
    assert first.rate_norms[:, 0].equal(before.rate_norms[:, 0])
    assert ((first.step_sizes > 0) & (first.step_sizes < 1)).all()


def test_a_deep_copy_is_a_network_of_its_own():
    model, x = small()
    attach(model, "se", example=x)
    copied = copy.deepcopy(model)
    expected = model(x)
    assert torch.equal(copied(x), expected)
    with torch.no_grad():
        for parameter in copied.parameters():
            parameter.zero_()
    assert torch.equal(model(x), expected)
    assert not copied(x).any()
    plain = detach(copied)
    assert type(plain.layer1[0]) is not type(model.layer1[0])
    assert len(attached(model)) == 9


@pytest.mark.parametrize("case", [TINY, TINY_DLA], ids=lambda case: case.label)
def test_a_pickled_network_is_the_same(case):
    model, x = small(case)
    attach(attach(model, "se", example=x), "stepnet", example=x)
    buffer = io.BytesIO()
    pickle.dump(model, buffer)
    loaded = pickle.loads(buffer.getvalue())
    assert torch.equal(loaded(x), model(x))
    assert attached(loaded) == attached(model)
    assert list(detach(loaded).state_dict()) == list(detach(model).state_dict())


def test_an_average_follows():
    model, x = small()
    attach(model, "se", example=x)
    average = timm.utils.ModelEmaV3(model, decay=0.5)
    with torch.no_grad():
        model.layer1[0].step_size.mlp.fc1.weight.add_(1)
    average.update(model, step=10)
    assert not torch.equal(average.module(x), model(x))
    average.set(model)
    assert torch.equal(average.module(x), model(x))


def test_a_compiled_network_computes_the_same():
    model, x = small(TINY)
    attach(model, "stepnet", example=x, where=["layer1.0", "layer3.0"])
    compiled = torch.compile(model, backend="aot_eager", fullgraph=True)
    with torch.no_grad():
        assert scaled(compiled(x), model(x)) <= RTOL["batch32"]
    torch._dynamo.reset()


def test_an_exported_network_computes_the_same():
    model, x = small(TINY)
    attach(model, "se", example=x)
    exported = torch.export.export(model, (x,)).module()
    assert scaled(exported(x), model(x)) <= RTOL["batch32"]


def test_autocast_works_forwards_and_backwards():
    model, x = small()
    attach(model.train(), "stepnet", example=x)
    with torch.autocast("cpu", torch.bfloat16):
        loss = model(x).float().square().sum()
    loss.backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in model.parameters())


def test_a_network_that_is_itself_the_block():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.stem = nn.Conv2d(3, 8, 3, padding=1)
            self.body = nn.Sequential(nn.Conv2d(8, 8, 3, padding=1), nn.ReLU(), nn.BatchNorm2d(8))

        def forward(self, x):
            x = self.stem(x)
            return x + self.body(x)

    model = Net().eval()
    assert attach(model, "se") is model
    assert [(a.name, a.at) for a in attached(model)] == [("step_size", "")]
    x = torch.rand(2, 3, 8, 8)
    stem = model.stem(x)
    assert torch.equal(model(x), stem + model.step_size(model.body(stem)))
    assert type(detach(model)) is Net
