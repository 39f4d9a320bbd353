"""What branches are made of: lines that turn ``y`` into a ``y`` of the same shape.

``x`` is the state that the branch began at; pieces may read its shape.
"""

from fuzz.source import Code

ACTIVATIONS = (
    "F.relu(y)", "torch.relu(y)", "y.relu()", "F.gelu(y)", "F.silu(y)", "torch.tanh(y)",
    "F.leaky_relu(y, 0.2)", "F.hardswish(y)", "F.softplus(y)", "y.sigmoid()", "F.elu(y)",
)  # fmt: skip
ACTIVATION_LAYERS = ("nn.ReLU()", "nn.ReLU(inplace=True)", "nn.GELU()", "nn.SiLU()", "nn.PReLU()")


def activation(code: Code) -> list[str]:
    kind = code.rng.random()
    if kind < 0.45:
        return [f"y = {code.rng.choice(ACTIVATIONS)}"]
    if kind < 0.85:
        return [f"y = {code.layer(code.rng.choice(ACTIVATION_LAYERS))}(y)"]
    return [code.rng.choice(("y.relu_()", "torch.relu_(y)", "F.relu(y, inplace=True)"))]


def convolution(code: Code, *, width: int | None = None, stride: int = 1) -> list[str]:
    """A layer of weights; `width` and `stride` are those of a downsampling block."""
    if not code.layout.channels_first:
        return [f"y = {_linear(code)}(y)"]
    rng, dims, c = code.rng, code.layout.dims, code.width
    wide, bias = width or c, rng.random() < 0.5
    kinds = ["3", "1"] * 4 + ["grouped", "dilated", "circular", "normed"]
    if wide == c:
        kinds += ["depthwise", "transposed", "shared", "tied"]
    kind = rng.choice(kinds) if stride == 1 else "3"
    more = f", bias={bias}, stride={stride}"
    plain = f"nn.Conv{dims}d({c}, {wide}, 3, padding=1{more})"
    if kind in ("shared", "tied"):
        code.traits.add(kind)
        first = code.layer(plain)
        second = first if kind == "shared" else code.layer(plain)
        if kind == "tied":
            code.fields.append(f"{second}.weight = {first}.weight")
        return [f"y = {first}(y)", *activation(code), f"y = {second}(y)"]
    made = {
        "3": plain,
        "1": f"nn.Conv{dims}d({c}, {wide}, 1{more})",
        "grouped": f"nn.Conv{dims}d({c}, {wide}, 3, padding=1, groups=2{more})",
        "depthwise": f"nn.Conv{dims}d({c}, {wide}, 3, padding=1, groups={c}{more})",
        "dilated": f"nn.Conv{dims}d({c}, {wide}, 3, padding=2, dilation=2{more})",
        "circular": f"nn.Conv{dims}d({c}, {wide}, 3, padding=1, padding_mode='circular'{more})",
        "normed": f"torch.nn.utils.parametrizations.weight_norm({plain})",
        "transposed": f"nn.ConvTranspose{dims}d({c}, {wide}, 3, padding=1{more})",
    }[kind]
    return [f"y = {code.layer(made)}(y)"]


def _linear(code: Code) -> str:
    c = code.width
    return code.layer(f"nn.Linear({c}, {c}, bias={code.rng.random() < 0.7})")


def hidden(code: Code) -> list[str]:
    """A wider or narrower layer between two."""
    rng, c = code.rng, code.width
    narrow = rng.choice((c // 2, 2 * c))
    if code.layout.channels_first:
        dims = code.layout.dims
        one = code.layer(f"nn.Conv{dims}d({c}, {narrow}, 1)")
        two = code.layer(f"nn.Conv{dims}d({narrow}, {c}, 3, padding=1)")
    else:
        one = code.layer(f"nn.Linear({c}, {narrow})")
        two = code.layer(f"nn.Linear({narrow}, {c})")
    return [f"y = {one}(y)", *activation(code), f"y = {two}(y)"]


def norm(code: Code) -> list[str]:
    rng, c, dims = code.rng, code.width, code.layout.dims
    if not code.layout.channels_first:
        kinds = [f"nn.LayerNorm({c})"] * 3 + [f"nn.RMSNorm({c})"]
        return [f"y = {code.layer(rng.choice(kinds))}(y)"]
    kinds = [f"nn.BatchNorm{dims}d({c})"] * 5 + [f"nn.BatchNorm{dims}d({c}, affine=False)"]
    kinds += [f"nn.GroupNorm(2, {c})", f"nn.InstanceNorm{dims}d({c}, affine=True)"]
    if rng.random() < 0.1:
        made = code.layer(f"nn.LayerNorm({c})")
        return [f"y = {made}(y.movedim(1, -1)).movedim(-1, 1)"]
    return [f"y = {code.layer(rng.choice(kinds))}(y)"]


def pool(code: Code) -> list[str]:
    """Pooling that keeps the shape, or goes down and comes back."""
    dims = code.layout.dims
    if not code.layout.channels_first:
        axis = 0 if code.layout.sequence_first else 1
        return [f"y = 0.5 * (y + torch.roll(y, 1, {axis}))", *activation(code)]
    kinds = [
        f"F.avg_pool{dims}d(y, 3, 1, 1, count_include_pad=False)",
        f"F.avg_pool{dims}d(y, 3, 1, padding=1, ceil_mode=True)",
        f"F.max_pool{dims}d(y, 3, 1, 1)",
        f"F.interpolate(F.avg_pool{dims}d(y, 2, ceil_mode=True), size=x.shape[2:])",
        f"F.interpolate(F.adaptive_avg_pool{dims}d(y, 2), size=x.shape[2:])",
        f"F.interpolate(F.max_pool{dims}d(y, 2), size=tuple(x.shape[2:]), mode='nearest')",
        f"y - F.adaptive_avg_pool{dims}d(y, 1)",
    ]
    if dims > 1:
        kinds.append(f"F.avg_pool{dims}d(y, 3, 1, 1, divisor_override=5)")
    made = f"nn.AvgPool{dims}d(3, 1, 1)"
    if code.rng.random() < 0.2:
        return [f"y = {code.layer(made)}(y)"]
    return [f"y = {code.rng.choice(kinds)}"]


def view(code: Code) -> list[str]:
    """The same numbers, laid out otherwise and back."""
    kinds = [
        ["y = y.reshape(y.shape[0], -1).view(x.shape)"],
        ["y = y.flatten(1).reshape(x.shape)"],
        ["y = y.reshape_as(x)"],
        ["y = y.contiguous().view(*x.shape)"],
        ["y = y.transpose(1, 2).contiguous().transpose(1, 2)"],
        ["y = y.unsqueeze(0).squeeze(0)"],
        ["y = y.clone()"],
    ]
    if code.layout.channels_first:
        kinds.append(
            ["y = y.flatten(2).transpose(1, 2)", "y = y.transpose(1, 2).unflatten(2, x.shape[2:])"]
        )
    return code.rng.choice(kinds)


def channels_last(code: Code) -> list[str]:
    """A stretch of a branch on which the channels are the last axis."""
    if not code.layout.channels_first:
        return hidden(code)
    inside = [*(activation(code) if code.rng.random() < 0.5 else []), f"y = {_linear(code)}(y)"]
    if code.rng.random() < 0.5:
        return ["y = y.movedim(1, -1)", *inside, "y = y.movedim(-1, 1)"]
    last = code.layout.dims + 1
    order, back = (0, *range(2, last + 1), 1), (0, last, *range(1, last))
    return [f"y = y.permute{order}", *inside, f"y = y.permute{back}"]


def join(code: Code) -> list[str]:
    """Parts that are taken apart and put together."""
    rng, c, axis, dims = code.rng, code.width, code.layout.axis, code.layout.dims
    half = c // 2

    def part(into: int, out: int) -> str:
        if code.layout.channels_first:
            return code.layer(f"nn.Conv{dims}d({into}, {out}, 3, padding=1)")
        return code.layer(f"nn.Linear({into}, {out})")

    kind = rng.choice(("cat", "chunk", "glu", "parallel", "three", "constant", "product", "split"))
    if kind == "cat":
        return [f"y = torch.cat([{part(c, half)}(y), {part(c, c - half)}(y)], dim={axis})"]
    if kind == "chunk":
        return [
            f"first, second = y.chunk(2, {axis})",
            f"y = torch.cat((first, {part(half, half)}(second)), {axis})",
        ]
    if kind == "split":
        return [
            f"parts = torch.split(y, {half}, dim={axis})",
            f"y = torch.cat([parts[1], parts[0]], {axis})",
        ]
    if kind == "glu":
        return [f"y = F.glu({part(c, 2 * c)}(y), dim={axis})"]
    if kind == "parallel":  # one linear map in disguise, not a step
        return [f"y = {part(c, c)}(y) + {part(c, c)}(y)"]
    if kind == "three":
        return [f"y = {part(c, c)}(y) + {part(c, c)}(y) + y", *activation(code)]
    if kind == "constant":
        code.fields.append(
            f"self.shift{len(code.fields)} = nn.Parameter(torch.randn{code.layout.factor(c)})"
        )
        return [f"y = y + self.shift{len(code.fields) - 1}", *activation(code)]
    return [f"y = {part(c, c)}(y) * torch.sigmoid({part(c, c)}(y))"]


def write(code: Code) -> list[str]:
    """Writing in place, into values of the branch's own."""
    index = "[:, :2]" if code.layout.channels_first else "[..., :2]"
    kinds = [
        [f"y{index} = 0.5 * y{index}"],
        ["y[:] = torch.tanh(y)"],
        ["y = y.clone()", f"y{index}.mul_(1.5)"],
        ["y.clamp_(min=-1.0)"],
        ["y = y.clone()", "y[:1] = 0.3"],
        ["y += 0.1", "y = torch.cos(y)"],
        ["y.mul_(0.9).add_(0.1)", "y = torch.sin(y)"],
    ]
    code.traits.add("in place")
    return code.rng.choice(kinds)


def island(code: Code) -> list[str]:
    """Code that runs under a setting of torch's."""
    kind = code.rng.choice(("no_grad", "autocast", "enable_grad"))
    code.traits.add(kind)
    inside = convolution(code)
    if kind == "autocast":
        cast = ["y = y.to(next(self.parameters()).dtype)", *inside]
        return ["with torch.autocast('cpu', enabled=False):", *_in(cast)]
    if kind == "no_grad":
        return ["with torch.no_grad():", *_in(inside)]
    return ["with torch.enable_grad():", *_in(inside)]


def _in(lines: list[str]) -> list[str]:
    return ["    " + line for line in lines]


def setting(code: Code) -> list[str]:
    """Something that the code asks of its object when it runs."""
    if code.rng.random() < 0.5:
        return [f"y = torch.tanh(y * {code.setting('1.5', '0.7')})"]
    flag = code.setting("True", "False")
    return [f"if {flag}:", *_in(activation(code))]


def count(code: Code) -> list[str]:
    """A count of calls, in a number or in a buffer."""
    name = code.fresh("count")
    code.traits.add("counts")
    if code.rng.random() < 0.5:
        code.fields.append(f"self.{name} = 0")
        return [f"self.{name} += 1"]
    code.fields.append(f"self.register_buffer('{name}', torch.zeros((), dtype=torch.int64))")
    return [f"self.{name} += 1"]


def drop(code: Code) -> list[str]:
    kind = code.rng.random()
    if kind < 0.5:
        return [f"y = {code.layer('nn.Dropout(0.3)')}(y)"]
    if kind < 0.7 and code.layout.name == "map":
        return ["y = F.dropout2d(y, 0.3, training=self.training)"]
    return ["y = F.dropout(y, 0.3, self.training)"]


def attention(code: Code) -> list[str]:
    if code.layout.name not in ("tokens", "last"):
        return hidden(code)
    q, k, v = (_linear(code) for _ in range(3))
    if code.rng.random() < 0.5:
        return [f"y = F.scaled_dot_product_attention({q}(y), {k}(y), {v}(y))"]
    return [f"y = torch.softmax({q}(y) @ {k}(y).transpose(-1, -2) / 2, -1) @ {v}(y)"]


def hooked(code: Code) -> list[str]:
    """A layer with a hook of the user's."""
    lines = convolution(code)
    layer = lines[0].split("= ")[1].split("(")[0]
    code.traits.add("hook")
    code.fields.append(f"{layer}.register_forward_hook(_louder)")
    return lines
