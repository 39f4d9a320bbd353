"""Small residual networks in float64 whose values are known."""

import torch
from torch import nn

import stiffnet
from stiffnet.attention import Attention


class Block(nn.Module):
    """x + f(x), with f a convolution and what follows it."""

    def __init__(self, channels, *, kernel=3, then=None):
        super().__init__()
        self.conv = nn.Conv2d(channels, channels, kernel, padding=kernel // 2)
        self.then = then or nn.Identity()

    def forward(self, x):
        return x + self.then(self.conv(x))


def blocks(count=2, channels=4, *, seed=0, **options):
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        made = nn.Sequential(*(Block(channels, **options) for _ in range(count)))
    return made.double()


def images(count=12, channels=4, size=5, *, seed=1):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(count, channels, size, size, generator=generator, dtype=torch.float64)


class Fixed(Attention):
    """The same step sizes for every image, though nobody knows."""

    def __init__(self, channels, *, sizes=(0.5, 2.0, 0.25, 1.0), channel_axis=1):
        super().__init__(channels, channel_axis=channel_axis)
        self.register_buffer("sizes", torch.tensor(sizes))

    def describe(self, rate, state=None):
        return rate.mean(self.positions(rate))

    def excite(self, descriptor):
        return self.sizes.expand(descriptor.shape)


class Copy(Attention):
    """The step size is the mean rate itself."""

    def describe(self, rate, state=None):
        return rate.mean(self.positions(rate))

    def excite(self, descriptor):
        return descriptor


def gated(module, *, model=None, **options):
    model = blocks() if model is None else model
    with torch.random.fork_rng():
        torch.manual_seed(5)
        return stiffnet.attach(model, module, example=images(2), **options).eval()


def seen(model, x):
    """Return what went into and came out of every attached module, as arrays."""
    found = {}
    handles = []
    for sits in stiffnet.attached(model):

        def take(module, inputs, output, at=sits.at):
            found[at] = inputs[0].detach().numpy().copy(), output.detach().numpy().copy()

        handles.append(model.get_submodule(sits.name).register_forward_hook(take))
    with torch.no_grad():
        model(x)
    for handle in handles:
        handle.remove()
    return found
