"""Random chains of layers with constant gates in them, one for every number."""

import random
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from stiffnet.attention.asr import asr
from stiffnet.network.attach import attach
from stiffnet.network.positions import Position, register_positions

DTYPES = (torch.float32, torch.float64, torch.bfloat16)
PADDING = ("zeros", "reflect", "replicate", "circular")
GATED = "gated_"


class Swap(nn.Module):
    """Channels to the other end."""

    def forward(self, x: Tensor) -> Tensor:
        return x.movedim(1, -1)


class SelfAttention(nn.Module):
    """torch's, with one argument."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(width, 2, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        result: Tensor = self.attention(x, x, x, need_weights=False)[0]
        return result


class Scale(nn.Module):
    """A LayerScale."""

    def __init__(self, width: int, axes: int) -> None:
        super().__init__()
        self.gamma = nn.Parameter(torch.rand(width, *[1] * axes) + 0.5)

    def forward(self, x: Tensor) -> Tensor:
        return x * self.gamma


class Chain(nn.Sequential):
    """A generated network; what gets a gate says so in its name."""


def _positions(model: nn.Module) -> list[Position]:
    return [Position(n) for n, _ in model.named_children() if n.startswith(GATED)]


register_positions("Chain", _positions)


@dataclass(frozen=True)
class Generated:
    model: nn.Module
    images: Tensor
    gates: int


def generate(number: int) -> Generated:
    """The chain with this number: attached, in evaluation, with random statistics and gates."""
    chance = random.Random(number)
    torch.manual_seed(number)
    dtype = DTYPES[number % 3]
    axes = chance.choice((1, 2, 2, 2, 3))
    width = chance.choice((4, 6, 8))
    images = torch.randn(2, width, *[chance.choice((5, 6, 7))] * axes)
    chain = Chain()
    tokens = False
    links = chance.randint(2, 5)
    for link in range(links):
        if axes == 1 and not tokens and chance.random() < 0.5:
            chain.add_module(f"swap_{link}", Swap())
            tokens = True
        layer, width = (_of_tokens if tokens else _of_maps)(chance, axes, width)
        between = None if tokens else _between(chance)  # whose channels nothing would tell
        gated = link == links - 1 or chance.random() < 0.4
        one_sided = isinstance(between, nn.ReLU | nn.LeakyReLU)
        chain.add_module(f"{GATED if gated and between is None else ''}layer_{link}", layer)
        if between is not None:
            name = f"{GATED if gated else ''}{'positive_' if one_sided else ''}between_{link}"
            chain.add_module(name, between)
    for module in chain.modules():
        _shake(module)
    attach(chain, asr("vector", depth=chance.choice((1, 1, 2))), example=images)
    gates = 0
    for path, module in chain.named_modules():
        if hasattr(module, "psi"):
            gates += 1
            _set_gate(module.psi, chance, positive="positive_" in path)
    chain.eval().to(dtype)
    images = images.to(dtype)
    if axes == 2 and chance.random() < 0.5:
        chain, images = (t.to(memory_format=torch.channels_last) for t in (chain, images))
    return Generated(chain, images, gates)


def _of_maps(chance: random.Random, axes: int, width: int) -> tuple[nn.Module, int]:
    kind = chance.choice(("conv", "conv", "transposed", "batch", "group", "instance", "scale"))
    wider = chance.choice((4, 6, 8))
    groups = chance.choice([g for g in (1, 2, 4) if width % g == 0 and wider % g == 0])
    bias = chance.random() < 0.5
    if kind == "conv":
        conv = (nn.Conv1d, nn.Conv2d, nn.Conv3d)[axes - 1]
        stride = chance.choice((1, 1, 2))
        padding = chance.choice((1, 2))
        mode = chance.choice(PADDING[:1] if axes == 3 else PADDING)
        return conv(
            width, wider, 3, stride, 1 if mode != "zeros" else padding, groups=groups, bias=bias,
            padding_mode=mode, dilation=1,
        ), wider  # fmt: skip
    if kind == "transposed":
        conv = (nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d)[axes - 1]
        return conv(width, wider, 2, chance.choice((1, 2)), groups=groups, bias=bias), wider
    eps = chance.choice((1e-5, 1e-3, 0.1))
    if kind == "batch":
        norm = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)[axes - 1]
        return norm(width, eps=eps), width
    if kind == "instance":
        norm = (nn.InstanceNorm1d, nn.InstanceNorm2d, nn.InstanceNorm3d)[axes - 1]
        return norm(width, eps=eps, affine=True, track_running_stats=bias), width
    if kind == "group":
        return nn.GroupNorm(2, width, eps=eps), width
    return Scale(width, axes), width


def _of_tokens(chance: random.Random, axes: int, width: int) -> tuple[nn.Module, int]:
    kind = chance.choice(("linear", "linear", "layer", "rms", "attention", "scale"))
    if kind == "linear":
        wider = chance.choice((4, 6, 8))
        return nn.Linear(width, wider, bias=chance.random() < 0.5), wider
    made = {
        "layer": lambda: nn.LayerNorm(width, bias=chance.random() < 0.5),
        "rms": lambda: nn.RMSNorm(width),
        "attention": lambda: SelfAttention(width),
        "scale": lambda: Scale(width, 0),
    }
    return made[kind](), width


def _between(chance: random.Random) -> nn.Module | None:
    drawn = chance.random()
    if drawn < 0.6:
        return None
    return chance.choice((nn.ReLU(), nn.Dropout(0.5), nn.Identity(), nn.LeakyReLU(0.1)))


def _shake(module: nn.Module) -> None:
    """Give norms statistics and weights that an untrained network would not have."""
    for name, buffer in module.named_buffers(recurse=False):
        if name == "running_mean":
            buffer.normal_()
        elif name == "running_var":
            buffer.uniform_(0.5, 2)
    with torch.no_grad():
        for parameter in module.parameters(recurse=False):
            if parameter.ndim == 1:
                parameter.add_(torch.randn_like(parameter) * 0.3)


def _set_gate(psi: Tensor, chance: random.Random, *, positive: bool) -> None:
    """Scales of both signs, some of them zero; only such as commute with a ReLU behind one."""
    with torch.no_grad():
        psi.normal_()
        psi[:, chance.randrange(psi.shape[1])] = 0
        if positive:
            psi.abs_()
