"""Blocks whose code is awkward: a gate goes in and nothing else changes, or a reason is given."""

import ast
import copy
import linecache
import pickle
import subprocess
import sys
from types import SimpleNamespace

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from network.attach_cases import anatomy, scaled
from network.awkward import Augmented, Base, Block, Chain, Named, Parameter
from stiffnet.errors import StepError
from stiffnet.network import attach as attach_module
from stiffnet.network.attach import attach, attached, detach
from tolerances import RTOL


def test_calls_may_differ_from_the_one_that_was_watched():
    model, x = Chain(Named).eval(), torch.rand(2, 3, 6, 6)
    attach(model, "se", example=x)
    block, y = model.blocks[0], torch.rand(2, 4, 6, 6)
    assert torch.equal(block(y, scale=3.0), y + block.step_size(block.rate(y) * 3.0))
    assert torch.equal(block(y, keep=False), block.rate(y))


def test_arguments_may_come_in_tuples_of_any_length():
    class Pair(Block):
        def forward(self, x):
            x = torch.cat(x, dim=1) if isinstance(x, tuple) else x
            return (x + self.rate(x)).chunk(2, dim=1)

    def call(block, x):
        halves = block(tuple(x.chunk(2, dim=1)))
        return torch.cat(halves, dim=1)

    model, x = Chain(Pair, call).eval(), torch.rand(2, 3, 6, 6)
    expected = model(x)
    attach(model, "se", start="identity", example=x)
    assert scaled(model(x), expected) <= RTOL["identity"]
    y, block = torch.rand(2, 4, 6, 6), model.blocks[0]
    quarters = block(tuple(y.split(1, dim=1)))
    assert torch.equal(torch.cat(quarters, 1), y + block.step_size(block.rate(y)))


class Settings(Block):
    factor = 1.0

    def __init__(self):
        super().__init__()
        self._hidden, self.entries, self.config = 1.0, {"k": 1.0}, SimpleNamespace(c=1.0)
        self.drop = nn.Dropout(0.5)

    def forward(self, x):
        scale = self._hidden * self.entries["k"] * self.config.c * self.factor * self.p
        return x + self.drop(self.rate(x)) * scale


def test_settings_are_read_when_the_code_runs():
    model, x = Chain(Settings).eval(), torch.rand(2, 3, 6, 6)
    attach(model, "se", example=x)
    block, y = model.blocks[0], torch.rand(2, 4, 6, 6)

    def check(factor):
        assert torch.equal(block(y), y + block.step_size(block.rate(y) * factor))

    check(0.5)
    block.p = 0.25
    check(0.25)
    block._hidden = 2.0
    check(0.5)
    block.entries["k"] = 2.0
    check(1.0)
    block.config.c = 2.0
    check(2.0)
    type(block).factor = 2.0
    check(4.0)
    del type(block).factor
    block.drop.train()
    torch.manual_seed(0)
    dropped = block(y)
    torch.manual_seed(0)
    assert torch.equal(dropped, y + block.step_size(block.drop(block.rate(y)) * 2.0))
    block.norm = nn.Identity()
    block.drop.eval()
    check(2.0)


def grads(model, x):
    model.zero_grad()
    torch.manual_seed(0)
    result = model(x)
    result.square().sum().backward()
    return result, {name: p.grad for name, p in model.named_parameters() if "step_size" not in name}


class NoGradIsland(Block):
    def forward(self, x):
        with torch.no_grad():
            rate = self.conv(x)
        return x + self.norm(rate)


class AutocastIsland(Block):
    def forward(self, x):
        with torch.autocast("cpu", enabled=False):
            rate = self.rate(x.float())
        return x + rate


class Checkpointed(Block):
    def forward(self, x):
        def inner(x):
            Checkpointed.runs += 1
            return x + self.rate(x)

        if self.training:
            return checkpoint(inner, x, use_reentrant=False)
        return inner(x)


class Stochastic(Block):
    def forward(self, x):
        if self.training and torch.rand(1) < 0.5:
            return x
        return x + self.rate(x)


class Auxiliary(Block):
    def __init__(self):
        super().__init__()
        self.losses = []

    def forward(self, x):
        rate = self.rate(x)
        if self.training:
            self.losses.append(rate.square().mean())
        return x + rate


def same_with_and_without(kind, training=True):
    """A network and a copy with modules that start as the identity: results and gradients."""
    torch.manual_seed(0)
    plain, x = Chain(kind).train(training), torch.rand(4, 3, 6, 6)
    model = attach(copy.deepcopy(plain), "se", start="identity", example=x)
    (one, before), (other, after) = grads(plain, x), grads(model, x)
    assert scaled(other, one) <= RTOL["identity"]
    for name, gradient in before.items():
        assert (gradient is None) == (after[name] is None), name
        if gradient is not None:
            assert scaled(after[name], gradient) <= RTOL["batch32"], name
    return plain, model, before


def test_an_island_without_gradients_stays_one():
    _, _, before = same_with_and_without(NoGradIsland)
    assert before["blocks.2.conv.weight"] is None


def test_an_island_without_autocast_stays_one():
    model, x = Chain(AutocastIsland).eval(), torch.rand(2, 3, 6, 6)
    attach(model, "se", start="identity", example=x)
    seen = []
    model.blocks[0].conv.register_forward_hook(lambda m, a, y: seen.append(y.dtype))
    with torch.autocast("cpu", torch.bfloat16):
        model(x)
    assert seen == [torch.float32]


def test_checkpointing_inside_a_block_stays():
    Checkpointed.runs = 0
    same_with_and_without(Checkpointed)
    counted = Checkpointed.runs
    model, x = Chain(Checkpointed), torch.rand(4, 3, 6, 6)
    attach(model, "se", example=x)
    Checkpointed.runs = 0
    model(x).sum().backward()
    assert Checkpointed.runs == 6  # three blocks, forwards and again backwards
    assert counted >= 12
    gates = [p for a in attached(model) for p in model.get_submodule(a.name).parameters()]
    assert all(parameter.grad is not None for parameter in gates)


def test_stochastic_depth_in_python_stays():
    same_with_and_without(Stochastic)
    model, x = Chain(Stochastic), torch.rand(4, 3, 6, 6)
    attach(model, "se", example=x)
    skipped = 0
    for _ in range(20):
        y = torch.rand(2, 4, 6, 6)
        skipped += int(model.blocks[0](y) is y)
    assert 0 < skipped < 20


def test_losses_that_a_block_keeps_are_kept():
    plain, model, _ = same_with_and_without(Auxiliary)
    for one, other in zip(plain.blocks, model.blocks, strict=True):
        assert len(one.losses) == len(other.losses) == 1
        assert other.losses[0].requires_grad


class Arms(Block):
    def forward(self, x):
        if self.training:
            return x + F.dropout(self.rate(x))
        return x + self.rate(x)


class ArmsInOne(Block):
    def forward(self, x):
        rate = self.rate(x)
        return x + rate if not self.training else x - rate


class ArmsOfIf(Block):
    def forward(self, x, n=1):
        rate = self.rate(x)
        if not self.training:
            x = x + rate
        else:
            n = n + 1
            x += rate * n
        return x


@pytest.mark.parametrize("kind", [Arms, ArmsInOne, ArmsOfIf])
def test_a_way_that_passes_the_module_over_is_refused_when_it_is_taken(kind):
    model, x = Chain(kind).eval(), torch.rand(2, 3, 6, 6)
    attach(model, "se", example=x)
    assert model(x).isfinite().all()
    with pytest.raises(StepError, match=rf"{kind.__name__} with .* takes another way in this call"):
        model.train()(x)
    detach(model)
    model(x)


class Hesitant(Block):
    def forward(self, x):
        rate = self.rate(x)
        return x + rate if rate.sum() < 1e9 else x - rate


class Caching(Block):
    def forward(self, x):
        self.last = self.rate(x)
        return x + self.last


class Counting(Block):
    def __init__(self):
        super().__init__()
        self.register_buffer("count", torch.zeros((), dtype=torch.long))

    def forward(self, x):
        if self.training:
            self.count += 1
        return x + self.rate(x)


@pytest.mark.parametrize("kind", [Hesitant, Caching, Counting])
def test_code_that_looks_at_values_or_keeps_them_is_left_as_it_is(kind):
    model, x = Chain(kind), torch.rand(2, 3, 6, 6)
    attach(model, "se", example=x)
    y, block = torch.rand(2, 4, 6, 6), model.blocks[0]
    result = copy.deepcopy(block)(y)
    assert torch.equal(result, y + block.step_size(block.rate(y)))
    if kind is Counting:
        assert int(block.count) == 0
        block(y)
        assert int(block.count) == 1


class Flat(nn.Module):
    """Several layers in one loop, of which training leaves some out."""

    def __init__(self, skip=False):
        super().__init__()
        self.layers = nn.ModuleList(nn.Conv2d(3, 3, 3, padding=1) for _ in range(4))
        self.skip, self.left_out = skip, ()

    def forward(self, x):
        for i, layer in enumerate(self.layers):
            if i in self.left_out:
                continue
            x = x + layer(x).relu()
        return x


def test_every_turn_of_a_loop_has_a_module_of_its_own():
    model, x = Flat().eval(), torch.rand(2, 3, 8, 8)
    attach(model, "se", example=x)
    attach(model, "stepnet", where="#2", example=x)
    assert [(a.name, a.at) for a in attached(model)] == [
        ("step_size", ""), ("step_size1", "#1"), ("step_size2", "#2"), ("step_size3", "#3"),
        ("step_size2_2", "#2"),
    ]  # fmt: skip
    for left_out in ((), (1,), (0, 2)):
        model.left_out, y = left_out, torch.rand(2, 3, 9, 8)
        expected = y
        for i, layer in enumerate(model.layers):
            if i not in left_out:
                rate = getattr(model, f"step_size{i or ''}")(layer(expected).relu())
                rate = model.step_size2_2(rate, expected) if i == 2 else rate
                expected = expected + rate
        assert torch.equal(model(y), expected)
        assert torch.equal(copy.deepcopy(model)(y), expected)
    detach(model)
    assert type(model) is Flat


class Later(Flat):
    """A loop that may begin at a later layer, or come to some of them again."""

    def forward(self, x):
        for layer in [*self.layers[self.first :], *self.layers[: self.again]]:
            x = x + layer(x).relu()
        return x

    first, again = 0, 0


def test_a_loop_that_begins_at_a_later_layer_has_the_modules_of_its_layers():
    model, x = Later().eval(), torch.rand(2, 3, 8, 8)
    attach(model, "se", example=x)
    model.first, expected = 2, x
    for i in (2, 3):
        rate = getattr(model, f"step_size{i}")(model.layers[i](expected).relu())
        expected = expected + rate
    assert torch.equal(model(x), expected)
    assert torch.equal(pickle.loads(pickle.dumps(model))(x), expected)


class ByNumber(Flat):
    """A loop that only counts, and may count on."""

    def forward(self, x):
        for i in range(self.count):
            x = x + self.layers[i % 4](x).relu()
        return x

    count = 4


def test_a_turn_that_no_module_was_attached_for_is_refused():
    x = torch.rand(2, 3, 8, 8)
    model = attach(Later().eval(), "se", example=x)
    model.again = 1
    with pytest.raises(StepError, match=r"Later takes a turn.*'layers.0, call 2'.*\(4 turns\)"):
        model(x)
    model = attach(ByNumber().eval(), "se", where=["", "#1"], example=x)
    assert model(x).shape == x.shape  # turns that were left out are known
    model.count = 5
    with pytest.raises(StepError, match=r"ByNumber takes a turn.*number 5.*Detach, and attach"):
        model(x)


def helper(x, f):
    return x + f(x)


class Helped(Block):
    def forward(self, x):
        return helper(x, self.rate)


def test_an_addition_in_a_function_outside_is_refused_with_its_place():
    model, x = Chain(Helped).eval(), torch.rand(2, 3, 6, 6)
    before = anatomy(model)
    message = (
        r"3 of 3 steps.*Helped: it adds in a function outside of its own code \(helper, .*line"
    )
    with pytest.raises(StepError, match=message):
        attach(model, "se", example=x)
    assert anatomy(model) == before


def _counting():
    def down(number):
        return down(number - 1) if number else 0

    return down


class Recursive(Helped):
    down = _counting()


def test_functions_that_call_themselves_beside_a_forward_are_passed_over():
    with pytest.raises(StepError, match="Recursive: it adds in a function outside of its own code"):
        attach(Chain(Recursive).eval(), "se", example=torch.rand(2, 3, 6, 6))


class ByName(Base):
    def forward(self, x):
        return Base.forward(self, x)


def test_a_base_that_is_called_by_name_is_refused():
    model, x = Chain(ByName).eval(), torch.rand(2, 3, 6, 6)
    with pytest.raises(StepError, match=r"ByName: .*no subclass can change, such as `Base.forward"):
        attach(model, "se", example=x)


class Aliased(Block):
    def forward(self, x):
        out = self.rate(x)
        same = out.view_as(out)
        out += x
        return same


def test_a_rate_that_has_another_name_is_refused():
    model, x = Chain(Aliased).eval(), torch.rand(2, 3, 6, 6)
    before = anatomy(model)
    with pytest.raises(StepError, match=r"3 of 3 steps: 'blocks.0'.*Aliased: .*by another name"):
        attach(model, "se", example=x)
    assert anatomy(model) == before


def test_what_can_be_changed_may_be_chosen_beside_what_cannot():
    model, x = Chain(Block).eval(), torch.rand(2, 3, 6, 6)
    model.blocks = nn.ModuleList([Augmented(), Helped()]).eval()
    with pytest.raises(StepError, match=r"1 of 2 steps: 'blocks.1' \(Helped: .*`where=`"):
        attach(model, "se", example=x)
    attach(model, "se", example=x, where="blocks.0")
    assert [a.at for a in attached(model)] == ["blocks.0"]


@pytest.mark.filterwarnings("ignore:.*torch.jit:FutureWarning")
def test_scripted_blocks_are_refused():
    model, x = Chain(Block).eval(), torch.rand(2, 3, 6, 6)
    blocks = [torch.jit.trace(Augmented().eval(), torch.rand(2, 4, 6, 6)) for _ in range(2)]
    model.blocks = nn.ModuleList(blocks)
    with pytest.raises(StepError, match=r"TorchScript, whose code cannot be changed"):
        attach(model, "se", example=x)


def test_a_block_that_runs_twice_has_one_gate_for_both_runs():
    model, x = Chain(Augmented, lambda block, x: block(block(x))).eval(), torch.rand(2, 3, 6, 6)
    expected = model(x)
    attach(model, "se", start="identity", example=x)
    assert [a.at for a in attached(model)] == ["blocks.0", "blocks.1", "blocks.2"]
    assert scaled(model(x), expected) <= RTOL["identity"]
    detach(model)
    with pytest.raises(StepError, match=r"runs several times, so that 'blocks.0', 'blocks.0#1'"):
        attach(model, "se", where="blocks.0", example=x)


def test_a_block_with_something_of_that_name_is_refused():
    class Taken(Augmented):
        step_size = 1.0

    model, x = Chain(Taken).eval(), torch.rand(2, 3, 6, 6)
    with pytest.raises(StepError, match="has something called 'step_size' already"):
        attach(model, "se", example=x)


def test_an_interrupt_in_the_middle_changes_nothing(monkeypatch):
    model, x = Chain(Augmented).eval(), torch.rand(2, 3, 6, 6)
    attach(model, "se", example=x, where="blocks.0")
    before, put = anatomy(model), attach_module.put

    def interrupted(block, plan):
        if block is model.blocks[2]:
            raise KeyboardInterrupt
        put(block, plan)

    monkeypatch.setattr(attach_module, "put", interrupted)
    with pytest.raises(KeyboardInterrupt):
        attach(model, "eca", example=x)
    assert anatomy(model) == before
    model(x)


def test_a_parametrization_on_top_is_to_be_undone_first():
    model, x = Chain(Parameter).eval(), torch.rand(2, 3, 6, 6)
    attach(model, "se", example=x)
    torch.nn.utils.parametrize.register_parametrization(model.blocks[0], "gamma", nn.Identity())
    torch.nn.utils.parametrize.register_parametrization(model.blocks[1].conv, "weight", nn.Tanh())
    expected = model(x)
    with pytest.raises(StepError, match=r"class of a Parameter was changed after.*Undo that"):
        detach(model)
    assert torch.equal(model(x), expected)
    torch.nn.utils.parametrize.remove_parametrizations(model.blocks[0], "gamma")
    detach(model)
    assert attached(model) == []


SOURCE = """
import torch
class Typed(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = torch.nn.Conv2d(3, 3, 3, padding=1)
    def forward(self, x):
        return x + self.conv(x).relu()
"""


def typed(filename, source=SOURCE):
    names = {}
    exec(compile(source, filename, "exec"), names)  # as a notebook runs a cell
    return names["Typed"]().eval()


def test_classes_of_a_notebook_are_changed_and_those_without_source_refused():
    lines = SOURCE.splitlines(keepends=True)
    linecache.cache["<cell 7>"] = (len(SOURCE), None, lines, "<cell 7>")
    model, x = typed("<cell 7>"), torch.rand(2, 3, 6, 6)
    attach(model, "se", example=x)
    assert torch.equal(model(x), x + model.step_size(model.conv(x).relu()))
    with pytest.raises(StepError, match=r"the source of Typed.forward cannot be found"):
        attach(typed("<typed by hand>"), "se", example=x)
    edited = SOURCE.replace("relu", "tanh")
    cell = (len(edited), None, edited.splitlines(keepends=True), "<cell 8>")
    linecache.cache["<cell 8>"] = cell
    with pytest.raises(StepError, match=r"Typed.forward is not what runs .*edited since"):
        attach(typed("<cell 8>"), "se", example=x)


def test_python_without_columns_is_told(tmp_path):
    (tmp_path / "net.py").write_text(SOURCE)
    script = (
        "import torch, net, stiffnet\n"
        "try: stiffnet.attach(net.Typed(), 'se', example=torch.rand(2, 3, 6, 6))\n"
        "except stiffnet.errors.StepError as error: print(error)\n"
    )
    command = [sys.executable, "-X", "no_debug_ranges", "-c", "import stiffnet.errors\n" + script]
    said = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert "run Python without `-X no_debug_ranges`" in said.stdout


def test_a_pickle_of_other_code_is_refused(monkeypatch):
    lines = SOURCE.splitlines(keepends=True)
    linecache.cache["<cell 9>"] = (len(SOURCE), None, lines, "<cell 9>")
    model, x = typed("<cell 9>"), torch.rand(2, 3, 6, 6)
    kind = type(model)
    monkeypatch.setattr(sys.modules[__name__], "Typed", kind, raising=False)
    kind.__module__, kind.__qualname__ = __name__, "Typed"
    attach(model, "se", example=x)
    saved = pickle.dumps(model)
    assert torch.equal(pickle.loads(saved)(x), model(x))

    edited = SOURCE.replace("relu", "tanh")
    cell = (len(edited), None, edited.splitlines(keepends=True), "<cell 10>")
    linecache.cache["<cell 10>"] = cell
    other = type(typed("<cell 10>", edited))
    other.__module__, other.__qualname__ = __name__, "Typed"
    monkeypatch.setattr(sys.modules[__name__], "Typed", other)
    with pytest.raises(StepError, match=r"The code of Typed is not what it was"):
        pickle.loads(saved)


def test_tracebacks_and_debuggers_see_the_code_that_runs():
    model, x = Chain(Augmented).eval(), torch.rand(2, 3, 6, 6)
    attach(model, "se", example=x)
    code = type(model.blocks[0]).forward.__code__
    text = "".join(linecache.getlines(code.co_filename))
    names = [n.func.attr for n in ast.walk(ast.parse(text)) if isinstance(n, ast.Call)]
    assert "step_size" in names
    assert code.co_firstlineno == Augmented.forward.__code__.co_firstlineno
