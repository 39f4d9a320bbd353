"""Residual blocks: one or two steps, and everything that blocks of real networks do besides."""

from random import Random

from fuzz import pieces
from fuzz.additions import spelled
from fuzz.branches import branch, branch_module, housed
from fuzz.source import PLAIN, REFERENCE, Code, Layout, both, indented


def block(rng: Random, name: str, layout: Layout, width: int) -> Code:
    """Write one class of blocks that keeps the shape of its state."""
    code = Code(name, rng, layout, width)
    form = rng.choice(
        (*("step",) * 8, "two", "two", "loop", "chain", "inner", "base", "adder", "none")
    )
    code.traits.add(f"form: {form}")
    code.body = FORMS[form](code)
    _besides(code)
    return code


def downsampling(rng: Random, name: str, layout: Layout, width: int, wide: int) -> Code:
    """A block whose shortcut is a projection to another width and size."""
    code = Code(name, rng, layout, width)
    code.traits.add("form: projection")
    dims = layout.dims
    if rng.random() < 0.5:
        made = f"nn.Conv{dims}d({width}, {wide}, 1, stride=2, bias=False)"
    else:
        pool = f"nn.AvgPool{dims}d(2, 2, ceil_mode=True, count_include_pad=False)"
        made = f"{pool}, nn.Conv{dims}d({width}, {wide}, 1)"
    short = code.layer(f"nn.Sequential({made}, nn.BatchNorm{dims}d({wide}))")
    lines = branch(code, width=wide, stride=2)
    state = [f"s = {short}(x)"]
    before = [*lines, *state] if rng.random() < 0.5 else [*state, *lines]
    code.body = [*before, *spelled(code, "s", "y", "x"), "x = F.relu(x)", "return x"]
    _besides(code)
    return code


def _one(code: Code) -> list[str]:
    """One step of ``x``, which goes on as ``x``."""
    lines, rate = housed(code)
    if rate != "y" and code.rng.random() < 0.4:  # all in one expression
        step, code.steps = code.steps, code.steps + 1
        sides = ("x + RATE", "RATE + x", "torch.add(x, RATE)", "x.add(RATE)", "x - RATE")
        text = code.rng.choice(sides)
        call, gated = f"gated{step} = AT(self, x, {rate})", f"gated{step}"
        return [*lines, REFERENCE + call, *both(f"x = {text}", rate, gated)]
    lines = lines if rate == "y" else [*lines, f"y = {rate}"]
    if code.rng.random() < 0.12:
        lines += _watched(code, "y")
    lines += spelled(code, "x", "y", "x")
    return lines


def _watched(code: Code, value: str) -> list[str]:
    """Something that the block notes about a value, in training or always."""
    kind = code.rng.choice(("losses", "seen"))
    code.traits.add(kind)
    if kind == "losses":
        code.fields.append("self.losses = []")
        return ["if self.training:", f"    self.losses.append({value}.pow(2).mean())"]
    code.fields.append("self.seen = None")
    return [f"self.seen = {value}.detach().mean()"]


def _step(code: Code) -> list[str]:
    return [*_one(code), "return x"]


def _two(code: Code) -> list[str]:
    first = _one(code)
    between = code.rng.choice(([], ["x = F.relu(x)"], [_after(code)]))
    return [*first, *between, *_one(code), "return x"]


def _after(code: Code) -> str:
    if code.layout.channels_first:
        return f"x = {code.layer(f'nn.BatchNorm{code.layout.dims}d({code.width})')}(x)"
    return f"x = {code.layer(f'nn.LayerNorm({code.width})')}(x)"


def _loop(code: Code) -> list[str]:
    """One expression that adds several times in a pass."""
    kind = code.rng.choice(("for", "same", "reduce", "walrus", "index", "spelled"))
    code.traits.add(f"loop: {kind}")
    child = branch_module(code)
    code.above += child.lines()
    code.traits |= child.traits
    code.fields.append(f"self.parts = nn.ModuleList([{child.name}() for _ in range(2)])")
    loop = ["for part in self.parts:", "    x = x + part(x)"]
    plain = {
        "for": loop,
        "spelled": loop,
        "same": ["for _ in range(2):", "    x = x + self.parts[0](x)"],
        "reduce": ["x = functools.reduce(lambda h, part: h + part(h), self.parts, x)"],
        "walrus": ["[x := x + part(x) for part in self.parts]"],
        "index": ["for i in range(len(self.parts)):", "    x = self.parts[i](x) + x"],
    }[kind]
    parts = "[self.parts[0]] * 2" if kind == "same" else "self.parts"
    if kind == "spelled":
        inside = ["y = part(x)", *spelled(code, "x", "y", "x")]
        return [f"for part in {parts}:", *indented(inside), "return x"]
    total = "AT(self, x, part(x)) + x" if kind == "index" else "x + AT(self, x, part(x))"
    reference = [f"{REFERENCE}for part in {parts}:", f"{REFERENCE}    x = {total}"]
    return [*(PLAIN + line for line in plain), *reference, "return x"]


def _chain(code: Code) -> list[str]:
    """Two branches of one state, added one after the other."""
    one, first = _called(code)
    two, second = _called(code)
    plain = code.rng.choice((
        f"x = x + {first} + {second}", f"x = (x + {first}) + {second}",
        f"x = torch.add(x, {first}).add({second})", f"x = sum([x, {first}, {second}])",
    ))  # fmt: skip
    before = [f"first, second = {first}, {second}"] if plain.startswith("x = sum") else []
    first, second = ("first", "second") if before else (first, second)
    reference = [
        *before,
        f"total = x + AT(self, x, {first})",
        f"x = total + AT(self, total, {second})",
    ]
    return [*one, *two, PLAIN + plain, *(REFERENCE + line for line in reference), "return x"]


def _called(code: Code) -> tuple[list[str], str]:
    """A branch whose rate is an expression, not ``y``."""
    lines, rate = housed(code, gates=False)
    if rate == "y":
        return [], f"{code.adopt(branch_module(code, gates=False))}(x)"
    return lines, rate


def _inner(code: Code) -> list[str]:
    """Two branches that are added to each other first: one step."""
    one, first = _called(code)
    two, second = _called(code)
    lines = [*one, *two, f"y = {first} + {second}"]
    return [*lines, *spelled(code, "x", "y", "x"), "return x"]


def _base(code: Code) -> list[str]:
    """The addition is in the `forward` of a base class."""
    parent = Code(f"{code.name}Base", code.rng, code.layout, code.width)
    parent.body = [*_one(parent), "return x"]
    code.above += parent.lines()
    code.live += parent.live
    code.traits |= parent.traits
    code.base = parent.name
    code._names = 50  # names of its own
    call = code.rng.choice(("super().forward(x)", f"{parent.name}.forward(self, x)"))
    return [f"x = {call}", _after(code), "return x"]


def _adder(code: Code) -> list[str]:
    """The addition is a module of its own."""
    lines, rate = housed(code, gates=False)
    child = Code(f"{code.name}Adder", code.rng, code.layout, code.width)
    child.signature = "x, y"
    child.body = [*spelled(child, "x", "y", "x"), "return x"]
    return [*lines, f"x = {code.adopt(child)}(x, {rate})", "return x"]


def _none(code: Code) -> list[str]:
    """Additions, but no step: parallel linear branches, a shift, the rate minus the state."""
    dims, c = code.layout.dims, code.width
    if not code.layout.channels_first:
        line = code.layer(f"nn.Linear({c}, {c})")
        code.fields.append(f"self.shift = nn.Parameter(torch.randn({c}))")
        return [f"x = F.gelu({line}(x) + self.shift)", "return x"]
    three, one = (
        code.layer(f"nn.Conv{dims}d({c}, {c}, {k}, padding={k // 2}, bias=False)") for k in (3, 1)
    )
    norms = [code.layer(f"nn.BatchNorm{dims}d({c})") for _ in range(3)]
    third = code.rng.choice((f" + {norms[2]}(x)", ""))
    return [f"x = F.relu({norms[0]}({three}(x)) + {norms[1]}({one}(x)){third})", "return x"]


FORMS = {
    "step": _step, "two": _two, "loop": _loop, "chain": _chain, "inner": _inner, "base": _base,
    "adder": _adder, "none": _none,
}  # fmt: skip


def _besides(code: Code) -> None:
    """Give the block habits: activations behind, early ends, results beside the state."""
    rng = code.rng
    body = code.body[:-1]  # without its return
    if rng.random() < 0.3:
        body.append(rng.choice(("x = F.relu(x)", "x = x.relu()", "x = F.gelu(x)", "x.relu_()")))
    if rng.random() < 0.1:
        body = [*pieces.count(code), *body]
    if rng.random() < 0.06:
        body += _watched(code, "x")
    if rng.random() < 0.12:
        code.result = rng.choice(("tuple", "dict"))
    elif rng.random() < 0.1 and "form: projection" not in code.traits:
        code.traits.add("early end")
        body = ["if self.training and torch.rand(()) < 0.5:", "    return x", *body]
    returned = {
        "tensor": "return x",
        "tuple": "return x, x.mean()",
        "dict": "return {'state': x, 'extra': x.abs().sum()}",
    }
    code.body = [*body, returned[code.result]]
    if rng.random() < 0.15:
        _moved(code)


def _moved(code: Code) -> None:
    """Put the code of `forward` in a method, or let something stand around it."""
    kind = code.rng.choice(("method", "decorated", "checkpointed", "keyword", "alias"))
    if code.base != "nn.Module" and kind != "keyword":
        return
    code.traits.add(f"moved: {kind}")
    if kind == "decorated":
        code.decorator = "@_passing"
        return
    if kind == "keyword":
        code.signature = code.rng.choice(
            ("x, *, scale=None", "x, *args, **kwargs", "x: Any = None")
        )
        return
    code.methods += ["def _run(self, x):", *indented(code.body), ""]
    if kind == "alias":
        code.methods.append("forward = _run")
        code.body = []
    elif kind == "checkpointed":
        code.traits.add("checkpoint")
        code.body = ["return checkpoint(self._run, x, use_reentrant=False)"]
    else:
        code.body = ["return self._run(x)"]
