"""A small network with everything that draws or changes something, and data for it."""

import torch
from torch import nn
from torch.utils.data import Dataset

STEPS = ("0", "1", "2")


class Block(nn.Module):
    """A step with batch norm and dropout: state in buffers, random numbers in training."""

    def __init__(self, channels):
        super().__init__()
        self.branch = nn.Sequential(
            nn.Conv2d(channels, channels, 3, padding=1),
            nn.BatchNorm2d(channels),
            nn.ReLU(),
            nn.Dropout(0.2),
        )

    def forward(self, x):
        return x + self.branch(x)


def network(seed=0):
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        blocks = (Block(3) for _ in STEPS)
        return nn.Sequential(*blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(3, 4))


class Varied(Dataset):
    """Images that are varied at random, as an augmentation would, with their labels."""

    def __init__(self, count=24):
        generator = torch.Generator().manual_seed(1)
        self.images = torch.rand(count, 3, 6, 6, generator=generator)

    def __len__(self):
        return len(self.images)

    def __getitem__(self, index):
        return self.images[index] + 0.1 * torch.rand(3, 6, 6), index % 4


def same(one, other):
    """Whether two networks have the same bits."""
    states = one.state_dict(), other.state_dict()
    return states[0].keys() == states[1].keys() and all(
        torch.equal(value, states[1][key]) for key, value in states[0].items()
    )
