"""Branches: pieces in a row, the block's own gates behind them, and where this code is kept."""

from fuzz import pieces
from fuzz.source import REFERENCE, Code, indented

MIDDLE = (
    *(pieces.norm, pieces.pool, pieces.join, pieces.write, pieces.island, pieces.setting) * 2,
    pieces.convolution, pieces.hidden, pieces.activation, pieces.view, pieces.channels_last,
    pieces.count, pieces.drop, pieces.attention, pieces.hooked,
)  # fmt: skip
CLOSING = (*(pieces.convolution, pieces.norm) * 3, pieces.hidden, pieces.activation, pieces.pool)
HOUSES = ("inline", "inline", "method", "module", "module", "closure", "checkpoint", "sequential")


def branch(code: Code, *, width: int | None = None, stride: int = 1, gates: bool = True):
    """Lines that make ``y`` of ``x``: with weights, not linear, and no factor but gates at its end.

    The reference says where the block's own gates begin: what they scale is the rate.
    """
    rng = code.rng
    lines = ["y = x"]
    if rng.random() < 0.3:  # before the first weights, as in pre-activation blocks
        lines += rng.choice((pieces.norm, pieces.norm, _activation_of_state))(code)
    lines += pieces.convolution(code, width=width, stride=stride)
    if width is not None:
        code.width = width
        return [*lines, *pieces.norm(code), *pieces.activation(code), *_conv_norm(code)]
    lines += pieces.activation(code)
    for _ in range(rng.choice((0, 1, 1))):
        lines += rng.choice(MIDDLE)(code)
    if rng.random() < 0.5:
        lines += _conv_norm(code)
    else:
        lines += rng.choice(CLOSING)(code)
    if rng.random() < 0.15:
        lines += pieces.view(code)
    if gates and rng.random() < 0.25:
        lines += [f"{REFERENCE}AT.before(y)"]
        for _ in range(rng.choice((1, 1, 2))):
            lines += _gate(code)
    if rng.random() < 0.1:
        lines += pieces.drop(code)
    return lines


def _activation_of_state(code: Code) -> list[str]:
    return [f"y = {code.rng.choice(('F.relu(y)', 'F.silu(y)', 'F.gelu(y)'))}"]


def _conv_norm(code: Code) -> list[str]:
    """The end of most branches: a convolution and a batch norm."""
    return [*pieces.convolution(code), *pieces.norm(code)]


def _gate(code: Code) -> list[str]:
    """A step size of the block's own: a layer scale, a number, squeeze and excitation."""
    rng, c, layout = code.rng, code.width, code.layout
    kinds = ["scale", "scale", "number", "number", "setting", "depth"]
    kind = rng.choice(kinds if layout.sequence_first else [*kinds, "se", "se module"])
    code.traits.add(f"own {kind}")
    if kind == "scale":
        name = code.fresh("gamma")
        code.fields.append(f"self.{name} = nn.Parameter(torch.rand{layout.factor(c)} + 0.2)")
        spelled = (f"y = y * self.{name}", f"y = self.{name} * y", f"y = y.mul(self.{name})")
        return [rng.choice((*spelled, f"y = torch.mul(self.{name}, y)"))]
    if kind == "number":
        return [rng.choice(("y = 0.7 * y", "y = y * 0.3", "y = y / 2", "y = torch.mul(y, 1.5)"))]
    if kind == "setting":
        return [f"y = y * {code.setting('0.5', '0.25')}"]
    if kind == "depth":
        batch = 1 if layout.sequence_first else 0
        shape = [1] * (layout.dims + 2)
        sizes = ", ".join(f"y.shape[{batch}]" if i == batch else "1" for i in range(len(shape)))
        kept = f"(torch.rand({sizes}) < 0.8)"
        return ["if self.training:", f"    y = y * {kept}.to(y.dtype) / 0.8"]
    mean = f"y.mean({layout.positions})"
    if kind == "se":
        fc = code.layer(f"nn.Linear({c}, {c})")
        return [f"g = torch.sigmoid({fc}({mean}))", f"y = y * g{layout.ones}"]
    child = Code(f"Gate{code.name}{code.fresh('')}", rng, layout, c)
    down, up = child.layer(f"nn.Linear({c}, 2)"), child.layer(f"nn.Linear(2, {c})")
    child.body = [
        f"g = torch.sigmoid({up}(F.relu({down}({mean}))))",
        f"return y * g{layout.ones}",
    ]
    child.signature = "y"
    return [f"y = {code.adopt(child)}(y)"]


def housed(code: Code, *, gates: bool = True) -> tuple[list[str], str]:
    """A branch of ``x`` somewhere: lines that go before, and the expression of the rate."""
    house = code.rng.choice(HOUSES)
    if house == "sequential":
        return [], f"{code.layer(_sequential(code))}(x)"
    if house == "module":
        return [], f"{code.adopt(branch_module(code, gates=gates))}(x)"
    lines = branch(code, gates=gates)
    name = code.fresh("branch")
    if house == "inline":
        return lines, "y"
    if house == "closure":
        return [f"def {name}(x):", *indented([*lines, "return y"])], f"{name}(x)"
    code.methods += [f"def {name}(self, x):", *indented([*lines, "return y"]), ""]
    if house == "checkpoint":
        code.traits.add("checkpoint")
        return [], f"checkpoint(self.{name}, x, use_reentrant=False)"
    return [], f"self.{name}(x)"


def branch_module(code: Code, *, gates: bool = True) -> Code:
    """A branch that is a module of a class of its own; now and then one with a step inside."""
    child = Code(f"Branch{code.name}{code.fresh('')}", code.rng, code.layout, code.width)
    child.body = [*branch(child, gates=gates), "return y"]
    if code.rng.random() < 0.08:
        child.traits.add("nested")
        lines = branch(child)
        child.body = [
            *lines, f"{REFERENCE}y = AT(self, x, y)", "x = x + y",
            *branch(child, gates=False), "return y",
        ]  # fmt: skip
    return child


def _sequential(code: Code) -> str:
    c, dims, rng = code.width, code.layout.dims, code.rng
    acts = ("nn.ReLU()", "nn.GELU()", "nn.ReLU(inplace=True)")
    act = rng.choice(acts)
    if not code.layout.channels_first:
        last = rng.choice(("", f", nn.LayerNorm({c})", ", nn.Dropout(0.2)"))
        return f"nn.Sequential(nn.Linear({c}, {2 * c}), {act}, nn.Linear({2 * c}, {c}){last})"
    bias = rng.random() < 0.5
    conv, bn = f"nn.Conv{dims}d({c}, {c}, 3, padding=1, bias={bias})", f"nn.BatchNorm{dims}d({c})"
    last = rng.choice((f", {bn}", f", {bn}", ""))
    return f"nn.Sequential({conv}, {bn}, {act}, {conv}{last})"
