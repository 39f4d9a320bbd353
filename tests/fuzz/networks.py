"""Whole networks, as source: a stem, a few blocks, a head."""

from dataclasses import dataclass
from random import Random

from fuzz.blocks import block, downsampling
from fuzz.source import LAYOUTS, PLAIN, REFERENCE, Code, Layout, rendered

HEAD = '''"""A random network."""

import functools
import operator
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint


def _joined(a, b):
    return a + b


def _louder(module, args, output):
    return output * 1.25


def _passing(method):
    @functools.wraps(method)
    def passed(self, *args, **kwargs):
        return method(self, *args, **kwargs)

    return passed


'''
LIKELY = (*("map",) * 7, "tokens", "tokens", "last", "line", "volume", "sequence")


@dataclass(frozen=True)
class Written:
    """A network's source, twice, and what it may be run on."""

    seed: int
    plain: str
    reference: str
    layout: Layout
    shape: tuple[int, ...]
    """Of one sample of the example."""
    others: tuple[tuple[int, ...], ...]
    """Of samples of other batches."""
    live: tuple[tuple[str, str], ...]
    """Settings of the network's blocks, and other values for them."""
    traits: frozenset[str]
    has_source: bool
    """Whether the classes are in a file that Python can read again."""


def written(seed: int, attempt: int = 0) -> Written:
    """Write the network of a seed; another one at each attempt."""
    rng = Random(f"{seed}/{attempt}")
    layout = LAYOUTS[rng.choice(LIKELY)]
    width = rng.choice((4, 4, 6, 8))
    size = width if rng.random() < 0.4 else rng.choice((4, 5, 6))
    size = 4 if layout.dims == 3 else size
    net = Code("Net", rng, layout, width)
    blocks = _blocks(rng, net)
    sizes = (size,) * layout.dims
    others = tuple(
        tuple(size + rng.choice((1, 2, 3)) for _ in range(layout.dims)) for _ in range(2)
    )
    lines = [line for code in blocks for line in code.lines()] + net.lines()

    def sample(spatial: tuple[int, ...]) -> tuple[int, ...]:
        return (3, *spatial) if layout.channels_first else (*spatial, 3)

    return Written(
        seed,
        HEAD + "\n".join(rendered(lines, PLAIN)) + "\n",
        HEAD + "\n".join(rendered(lines, REFERENCE)) + "\n",
        layout,
        sample(sizes),
        tuple(map(sample, others)),
        tuple(net.live),
        frozenset(net.traits | {f"layout: {layout.name}"}),
        rng.random() >= 0.1,
    )


def _blocks(rng: Random, net: Code) -> list[Code]:
    """Write the blocks, and the network around them."""
    layout, dims, width = net.layout, net.layout.dims, net.width
    first = net.layer(
        f"nn.Conv{dims}d(3, {width}, 3, padding=1)"
        if layout.channels_first
        else f"nn.Linear(3, {width})"
    )
    net.body = ["x = x.transpose(0, 1)"] if layout.sequence_first else []
    net.body += [f"x = {first}(x)", *([] if rng.random() < 0.3 else ["x = F.relu(x)"])]
    if rng.random() < 0.06:
        net.body += _positions(net)
    net.body.append("extra = []")
    codes = []
    for number in range(rng.choice((1, 1, 1, 2))):
        down = layout.channels_first and net.width == width and rng.random() < 0.15
        wide = net.width + 2 if down else net.width
        name = f"Block{number}"
        if down:
            code = downsampling(rng, name, layout, net.width, wide)
        else:
            code = block(rng, name, layout, net.width)
        net.width = wide
        codes.append(code)
        net.body += _use(net, code, down=down)
    net.body += _head(net)
    return codes


def _use(net: Code, code: Code, *, down: bool) -> list[str]:
    """Call a block, once or twice."""
    rng = net.rng
    child = net.layer(f"{code.name}()")
    net.live += [(f"{child[5:]}.{target}", value) for target, value in code.live]
    net.traits |= code.traits
    call = f"{child}(x=x)" if rng.random() < 0.1 else f"{child}(x)"
    lines = {
        "tensor": [f"x = {call}"],
        "tuple": [f"x, beside = {call}", "extra.append(beside)"],
        "dict": [f"out = {call}", "x = out['state']", "extra.append(out['extra'])"],
    }[code.result]
    if not down and rng.random() < 0.1:
        net.traits.add("block called twice")
        return [*lines, *lines]
    return lines


def _positions(net: Code) -> list[str]:
    """Something added that reads nothing but the shape of the state: not a step."""
    layout, c = net.layout, net.width
    net.traits.add("positions")
    child = Code("Positions", net.rng, layout, c)
    if layout.channels_first:
        made = f"nn.Conv{layout.dims}d({c}, {c}, 1)"
    else:
        made = f"nn.Linear({c}, {c})"
    source = net.rng.choice(
        ("torch.ones_like(x)", "torch.zeros(x.shape).to(x)", "x.new_ones(x.shape)")
    )
    child.body = [f"return torch.tanh({child.layer(made)}({source}))"]
    return [f"x = x + {net.adopt(child)}(x)"]


def _head(net: Code) -> list[str]:
    layout = net.layout
    kind = net.rng.choice(("logits", "logits", "state", "pair"))
    pooled = f"{net.layer(f'nn.Linear({net.width}, 3)')}(x.mean({layout.positions}))"
    if kind == "logits":
        return [f"return {pooled}"]
    back = "x.transpose(0, 1)" if layout.sequence_first else "x"
    return [f"return {pooled}, extra"] if kind == "pair" else [f"return {back}"]
