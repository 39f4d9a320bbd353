"""Modules as graphs: traced, scripted, exported and compiled at one size, right at every other."""

import copy

import pytest
import timm.models
import torch
from torch import fx, nn
from torch.testing import assert_close
from torchvision.models.feature_extraction import create_feature_extractor

from attention.cases import ENTRIES, IMAGES_ONLY, MAPS_ONLY, WIDTH, made, pair, random, shaken
from stiffnet.attention import ATTENTION, Attention
from stiffnet.attention.asr import asr
from stiffnet.attention.dia import DIA
from stiffnet.errors import StepError
from tolerances import RTOL

pytestmark = [
    pytest.mark.filterwarnings("ignore:.torch.jit.script. is "),  # deprecated, and still used
    pytest.mark.filterwarnings("ignore:.torch.jit.script_method. is "),
]

LAYOUTS = {  # sizes of the example, then others
    "maps": (1, [(3, WIDTH, 8, 9), (2, WIDTH, 14, 5), (1, WIDTH, 1, 1)]),
    "tokens": (-1, [(3, 20, WIDTH), (2, 7, WIDTH), (1, 1, WIDTH)]),
    "channels last": (-1, [(3, 8, 9, WIDTH), (2, 14, 5, WIDTH), (1, 1, 1, WIDTH)]),
}


def gate(label, axis=1):
    """A module by its name, or an ASR gate whose constant is learnt or fixed."""
    torch.manual_seed(0)
    kind, _, name = label.rpartition(":")
    if not kind:
        return made(ATTENTION[name], channel_axis=axis)
    maker = asr(name, depth=2, learnable=kind == "asr")
    if maker.replaces_norm:
        return maker.from_norm(nn.BatchNorm2d(WIDTH))
    return maker(WIDTH, channel_axis=axis)


def labels():
    for entry in ENTRIES:
        yield entry.name
        if entry.name != "sge":
            yield from (f"asr:{entry.name}", f"fixed asr:{entry.name}")
    yield from ("asr:vector", "fixed asr:vector")


LABELS = list(labels())


def layouts(label):
    if label in IMAGES_ONLY or label.endswith("iebn"):
        return ["maps"]
    return ["maps", "channels last"] if label in MAPS_ONLY else list(LAYOUTS)


CASES = [
    pytest.param(label, layout, id=f"{label}-{layout}")
    for label in LABELS
    for layout in layouts(label)
]
FEWER = [
    pytest.param(label, layout, id=f"{label}-{layout}")
    for label in [*(entry.name for entry in ENTRIES), "asr:se", "asr:srm", "asr:dia", "asr:iebn"]
    for layout in layouts(label)[: 1 if label.startswith("asr") else 2]
]
"""For what takes a second each."""


def batches(layout):
    return [pair(*shape) for shape in LAYOUTS[layout][1]]


def agree(graph, module, layout, *, sizes=3, rtol=0.0):
    """Whether both give the same numbers at every size, bit by bit unless told otherwise."""
    for rate, state in batches(layout)[:sizes]:
        given = (rate, state) if module.needs_state else (rate,)
        assert_close(graph(*given), module(*given), rtol=rtol, atol=rtol)


def prepared(label, layout):
    return shaken(gate(label, LAYOUTS[layout][0]))


@pytest.mark.parametrize(("label", "layout"), CASES)
def test_a_traced_module_gives_the_same_bits_at_every_size(label, layout):
    module = prepared(label, layout)
    agree(fx.symbolic_trace(module), module, layout)


@pytest.mark.parametrize(("label", "layout"), CASES)
def test_a_scripted_module_gives_the_same_numbers_at_every_size(label, layout):
    module = prepared(label, layout)
    scripted = torch.jit.script(module)
    agree(scripted, module, layout, rtol=RTOL["float64"])  # it fuses operations when it likes


@pytest.mark.parametrize(("label", "layout"), FEWER)
def test_an_exported_module_gives_the_same_bits_for_every_batch(label, layout):
    module = prepared(label, layout)
    example = batches(layout)[0][: 1 + module.needs_state]
    free = tuple({0: torch.export.Dim("batch")} for _ in example)
    program = torch.export.export(module, example, dynamic_shapes=free).module()
    for count in (1, 5):
        shape = (count, *example[0].shape[1:])
        given = pair(*shape, seed=count)[: 1 + module.needs_state]
        assert torch.equal(program(*given), module(*given))


@pytest.mark.parametrize(("label", "layout"), FEWER)
def test_a_compiled_module_is_one_graph_and_gives_the_same_bits(label, layout):
    torch.compiler.reset()
    module = prepared(label, layout)
    agree(torch.compile(module, backend="eager", fullgraph=True), module, layout, sizes=2)


@pytest.mark.parametrize("label", ["srm", "iebn", "asr:iebn", "stepnet"])
def test_a_trace_in_training_learns_the_same_statistics(label):
    module = prepared(label, "maps").train()
    counted = [count.item() for name, count in module.named_buffers() if "batches" in name]
    traced = fx.symbolic_trace(copy.deepcopy(module))
    scripted = torch.jit.script(copy.deepcopy(module))
    for rate, state in batches("maps")[:2]:
        expected = module(rate, state)
        for other in (traced, scripted):
            assert torch.equal(other(rate, state), expected)
    for other in (traced, scripted):
        held = dict(other.named_buffers())
        used = {name: value for name, value in module.named_buffers() if "running" in name}
        assert all(torch.equal(held[name], value) for name, value in used.items())
        counts = [count.item() for name, count in other.named_buffers() if "batches" in name]
        assert counts == [count + 2 for count in counted]


def test_a_norm_that_weighs_all_batches_alike_does_so_in_a_trace():
    torch.manual_seed(0)
    module = made(ATTENTION["iebn"], momentum=None).double()
    plain = nn.BatchNorm2d(WIDTH, momentum=None).double()
    traced = fx.symbolic_trace(copy.deepcopy(module))
    for rate, _ in batches("maps")[:2]:
        plain(rate)
        assert torch.equal(traced(rate), module(rate))
    for norm in (module, traced):
        assert torch.equal(norm.running_mean, plain.running_mean)
        assert torch.equal(norm.running_var, plain.running_var)


@pytest.mark.parametrize("label", ["asr:se", "fixed asr:se", "fixed asr:vector", "iebn"])
def test_a_trace_keeps_no_value_that_can_still_change(label):
    module = prepared(label, "maps")
    traced = fx.symbolic_trace(module)
    assert [name for name in vars(traced) if name.startswith("_tensor_constant")] == []
    other = shaken(gate(label), seed=9)
    traced.load_state_dict(
        {k: v for k, v in other.state_dict().items() if k in traced.state_dict()}
    )
    agree(traced, other, "maps")


class Step(nn.Module):
    def __init__(self, step_size):
        super().__init__()
        self.conv = nn.Conv2d(WIDTH, WIDTH, 1)
        self.step_size = step_size

    def forward(self, x):
        return x + self.step_size(torch.relu(self.conv(x)), x)


def network(label):
    """Two steps, which share a cell if the module has one."""
    torch.manual_seed(0)
    kind, _, name = label.rpartition(":")
    maker = ATTENTION[name].value if not kind else asr(name, learnable=kind == "asr")
    if getattr(maker, "replaces_norm", False):
        gates = [gate(label), gate(label)]
    else:
        gates = maker.for_stage(WIDTH, 2)
    model = nn.Sequential(*(Step(step_size) for step_size in gates))
    return shaken(model)


EXTRACTORS = {
    "torchvision": lambda model: create_feature_extractor(model, {"0.add": "0", "1.add": "1"}),
    "timm": lambda model: timm.models.create_feature_extractor(model, {"0.add": "0", "1.add": "1"}),
    "torchvision, scripted": lambda model: torch.jit.script(EXTRACTORS["torchvision"](model)),
}


@pytest.mark.parametrize("kind", EXTRACTORS)
@pytest.mark.parametrize("label", [*(entry.name for entry in ENTRIES), "asr:se", "asr:dia"])
def test_features_are_extracted_at_every_size(label, kind):
    model = network(label)
    features = EXTRACTORS[kind](model)
    rtol = RTOL["float64"] if "scripted" in kind else 0.0
    for shape in LAYOUTS["maps"][1]:
        x = random(*shape)
        found, expected = features(x), (one := model[0](x), model[1](one))
        assert_close(found["0"], expected[0], rtol=rtol, atol=rtol)
        assert_close(found["1"], expected[1], rtol=rtol, atol=rtol)


def test_a_stage_that_shares_a_cell_is_exported_whole():
    model = network("dia")
    x = random(3, WIDTH, 4, 5)
    free = ({0: torch.export.Dim("batch")},)
    program = torch.export.export(model, (x,), dynamic_shapes=free).module()
    assert torch.equal(program(x[:2]), model(x[:2]))


@pytest.mark.parametrize("label", ["dia", "asr:dia"])
def test_a_stage_that_shares_a_cell_is_not_scripted(label):
    message = r"2 steps of a DIA stage share a memory, .* cannot express; use `torch\.export`"
    with pytest.raises(StepError, match=message):
        torch.jit.script(network(label))


def test_a_step_does_not_go_on_from_a_trace_of_the_step_before():
    first, second = (gate.double() for gate in DIA.for_stage(WIDTH, 2))
    rate = random(2, WIDTH, 4, 4)
    traced = fx.symbolic_trace(first)
    for run in (traced, lambda rate: None):
        run(rate)
        with pytest.raises(StepError, match=r"Step 2 of 2 .* ran without the step before"):
            second(rate)
    assert torch.equal(first(rate), traced(rate))
    assert second(rate).shape == rate.shape
    with pytest.raises(StepError, match=r"Step 2 of 2 .* ran without the step before"):
        fx.symbolic_trace(second)


class Users(Attention):
    """As the page on attention tells users to write theirs."""

    def describe(self, rate, state=None):
        return rate.mean(self.positions(rate))

    def excite(self, descriptor):
        return descriptor.sigmoid()


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_module_of_the_users_is_traced_too(layout):
    module = Users(WIDTH, channel_axis=LAYOUTS[layout][0]).double()
    agree(fx.symbolic_trace(module), module, layout)
