"""What a network keeps between its passes: none of it is fold's."""

import functools
from typing import ClassVar

import pytest
import torch
from torch import nn

from stiffnet.fold.caches import own_caches
from stiffnet.fold.fold import fold

from .test_fold import images, trained

SHARED = {}
LAST = None


class Keeps(nn.Module):
    """A convolution and a norm, and a number that is computed once."""

    in_class: ClassVar = {}
    of_class = None

    def __init__(self, way):
        super().__init__()
        self.conv, self.norm, self.way = nn.Conv2d(3, 3, 1), nn.BatchNorm2d(3), way
        self.kept, self.own = None, {}
        self.function = functools.lru_cache(lambda size: [])

    def forward(self, x):
        return self.norm(self.conv(x)) * getattr(self, self.way)(torch.ones_like(x[:1, :1]))

    def attribute(self, one):
        if self.kept is None or self.kept.shape != one.shape:
            self.kept = one
        return self.kept

    def dictionary(self, one):
        return self.own.setdefault(one.shape, one)

    def dictionary_of_class(self, one):
        return self.in_class.setdefault(one.shape, one)

    def attribute_of_class(self, one):
        if Keeps.of_class is None or Keeps.of_class.shape != one.shape:
            Keeps.of_class = one
        return Keeps.of_class

    def variable(self, one):
        global LAST
        if LAST is None or LAST.shape != one.shape:
            LAST = one
        return LAST

    def dictionary_of_file(self, one):
        return SHARED.setdefault(one.shape, one)

    def function_cache(self, one):
        kept = self.function(one.shape)  # a copy of the network shares it
        kept[:] = kept or [one]
        return kept[0]


WAYS = [
    "attribute", "dictionary", "dictionary_of_class", "attribute_of_class", "variable",
    "dictionary_of_file", "function_cache",
]  # fmt: skip


@pytest.mark.parametrize("way", WAYS)
def test_the_folded_and_the_given_network_return_what_they_returned(way):
    model = trained(Keeps(way))
    made = fold(model, images(4), fuse=True, passes=1).model
    with torch.no_grad():
        for network in (made, model):
            for size in (4, 5):
                assert network(images(size)).dtype == torch.float32
    assert made.kept is None or made.kept.dtype == torch.float32


def test_what_is_not_made_of_tensors_is_left():
    model = Keeps("attribute")
    with own_caches(model):
        SHARED["counted"] = 1
        Keeps.in_class["kept"] = torch.ones(1)
    assert SHARED.pop("counted") == 1
    assert "kept" not in Keeps.in_class
