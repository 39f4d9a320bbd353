"""Text in, text out: where the call of a gate goes, spelling by spelling."""

import linecache
import textwrap

import pytest
import torch
from torch import nn

from stiffnet.network.method_source import method_of_class
from stiffnet.network.source_edits import Gate, Spot, with_gates


def rewritten(lines, *gates):
    """Put gates into the method that consists of these lines."""
    body = textwrap.indent(textwrap.dedent(lines).strip("\n"), " " * 8)
    source = f"class Made(nn.Module):\n    def forward(self, x, f=None, g=None):\n{body}\n"
    filename = f"<edits {abs(hash(source))}>"
    linecache.cache[filename] = (len(source), None, source.splitlines(keepends=True), filename)
    names = {"nn": nn, "torch": torch}
    exec(compile(source, filename, "exec"), names)
    method = method_of_class(names["Made"], 0, "forward")
    text = with_gates(method, gates).split("def forward", 1)[1].partition("\n")[2]
    return textwrap.dedent(text).strip("\n")


def gate(operand, number=0, child="a", with_state=False, loop=None):
    spot = Spot(0, "forward", "addition", number, operand, loop)
    return Gate(child, 0, spot, with_state)


SPELLINGS = [
    ("return x + f(x)", 1, "return x + self.a(f(x))", "return x + self.a(f(x), x)"),
    ("return f(x) + x", 0, "return self.a(f(x)) + x", "return self.a(f(x), x) + x"),
    ("return x - (f(x))", 1, "return x - self.a((f(x)))", "return x - self.a((f(x)), x)"),
    ("x += f(x)", 1, "x += self.a(f(x))", "x += self.a(f(x), x)"),
    ("f += x", 0, "f = self.a(f); f += x", "f = self.a(f, x); f += x"),
    (
        "f += g(x)",
        0,
        "f = self.a(f); f += g(x)",
        "f = ((_state_0 := g(x)), self.a(f, _state_0))[-1]; f += _state_0",
    ),
    ("y = torch.add(x, f)", 1, "y = torch.add(x, self.a(f))", "y = torch.add(x, self.a(f, x))"),
    (
        "return torch.add(other=f, input=x)",
        1,
        "return torch.add(other=self.a(f), input=x)",
        "return torch.add(other=self.a(f, x), input=x)",
    ),
    ("return x.add(f)", 1, "return x.add(self.a(f))", "return x.add(self.a(f, x))"),
    ("f.add_(x)", 0, "f = self.a(f); f.add_(x)", "f = self.a(f, x); f.add_(x)"),
    (
        "y = g(x) + f(x)",
        1,
        "y = g(x) + self.a(f(x))",
        "_state_0 = g(x); y = _state_0 + self.a(f(x), _state_0)",
    ),
    (
        "y = f(x) + g(x)",
        0,
        "y = self.a(f(x)) + g(x)",
        "_state_0_rate = f(x);  _state_0 = g(x); y = self.a(_state_0_rate, _state_0) + _state_0",
    ),
    (
        "return abs(g(x) + f(x))",
        1,
        "return abs(g(x) + self.a(f(x)))",
        "return abs((_state_0 := g(x)) + self.a(f(x), _state_0))",
    ),
    (
        "return abs(f(x) + g(x))",
        0,
        "return abs(self.a(f(x)) + g(x))",
        "return abs(((_state_0_rate := f(x)),  (_state_0 := g(x)), "
        "self.a(_state_0_rate, _state_0) + _state_0)[-1])",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("before", "operand", "plain", "with_state"), SPELLINGS)
def test_a_gate_goes_around_the_rate(before, operand, plain, with_state):
    assert rewritten(before, gate(operand)) == plain
    assert rewritten(before, gate(operand, with_state=True)) == with_state


def test_later_gates_go_around_earlier_ones():
    gates = gate(1), gate(1, child="b", with_state=True)
    assert rewritten("return x + f(x)", *gates) == "return x + self.b(self.a(f(x)), x)"


def test_sums_inside_of_sums_keep_their_gates():
    inner, outer = gate(1, number=0), gate(1, number=1, child="b")
    assert rewritten("return x + f + g", inner, outer) == "return x + self.a(f) + self.b(g)"
    inner, outer = gate(0, number=0), gate(0, number=1, child="b")
    assert rewritten("return f + g + x", inner, outer) == "return self.b(self.a(f) + g) + x"


def test_comments_and_lines_stay():
    before = """
        y = (x  # a + b, not this one
             + f(x))
        # the end
        return y
    """
    after = """
        y = (x  # a + b, not this one
             + self.a(f(x)))
        # the end
        return y
    """
    assert rewritten(before, gate(1)) == textwrap.dedent(after).strip("\n")


def test_turns_of_loops_are_told_apart():
    before = """
        for i, h in f:
            x = x + sum(g(y) + y for y in h)
        return x
    """
    after = """
        for _turn_0, (i, h) in self.in_turns(f):
            x = x + sum(self.gate_in_loop((0, 'forward', 0, 0), (_turn_0, _turn_1,), g(y)) + y \
for _turn_1, (y) in self.in_turns(h))
        return x
    """
    gates = gate(0, loop=(0, 0)), gate(0, child="b", loop=(0, 1))
    assert rewritten(before, *gates) == textwrap.dedent(after).strip("\n")


def test_other_ways_are_watched():
    before = """
        n = 1 + 2
        if self.training:
            n = n + 1
            return x + f
        elif n:
            return f + g(x)
        x += n
        return g(x) + x
    """
    after = """
        n = 1 + 2
        if self.training:
            n = n + 1
            return x + self.not_elsewhere(f, x)
        elif n:
            return f + self.not_elsewhere(g(x), f)
        x += n
        return self.a(g(x)) + x
    """
    assert rewritten(before, gate(0, number=5)) == textwrap.dedent(after).strip("\n")


def test_results_and_arguments_are_gated():
    spot = Spot(0, "forward", "result")
    assert rewritten("return (f(x))", Gate("a", 0, spot)) == "return self.a((f(x)))"
    spot = Spot(0, "forward", "argument")
    assert rewritten('"""Text."""\nreturn x', Gate("a", 0, spot)) == (
        '"""Text."""\nx = self.a(x)\nreturn x'
    )
