"""Blocks for the tests of `attach`: the tests write what their `forward` does."""

import torch
from torch import nn
from torch.nn import functional as F


class Block(nn.Module):
    """A block whose `forward` the tests write."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(4, 4, 3, padding=1)
        self.norm = nn.BatchNorm2d(4)
        self.p = 0.5

    def rate(self, x):
        return self.norm(F.relu(self.conv(x)))

    def gate(self, rate, state):
        return self.step_size(rate, state) if self.step_size.needs_state else self.step_size(rate)


class Chain(nn.Module):
    """Three blocks of one kind behind a stem, called as the tests say."""

    def __init__(self, kind, call=lambda block, x: block(x), blocks=3):
        super().__init__()
        self.stem = nn.Conv2d(3, 4, 1)
        self.blocks = nn.ModuleList(kind() for _ in range(blocks))
        self.call = call

    def forward(self, x):
        x = self.stem(x)
        for block in self.blocks:
            x = self.call(block, x)
        return x


class Augmented(Block):
    def forward(self, x):
        out = self.rate(x)
        out += x
        return out

    def by_hand(self, x):
        return self.gate(self.rate(x), x) + x


class Named(Block):
    def forward(self, x, *, scale=None, keep=True):
        rate = self.rate(x)
        if scale is not None:
            rate = rate * scale
        return torch.add(input=x, other=rate) if keep else rate

    def by_hand(self, x):
        return x + self.gate(self.rate(x), x)


class Parameter(Block):
    def __init__(self):
        super().__init__()
        self.gamma = nn.Parameter(torch.rand(4, 1, 1))
        self.register_buffer("shift", torch.rand(4, 1, 1))

    def forward(self, x):
        return x + (self.rate(x) + self.shift) * self.gamma

    def by_hand(self, x):
        return x + self.gate((self.rate(x) + self.shift) * self.gamma, x)


class Base(Block):
    def forward(self, x, slope=0.0):
        return F.leaky_relu(x + self.rate(x), slope)
