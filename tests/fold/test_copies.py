"""Copies of a network: the same network again, and nothing of it shared."""

import copy

import pytest
import torch
from torch import nn

from stiffnet.fold.copies import copied, in_float64, tensors_of


class Awkward(nn.Module):
    """Tied weights, integers, a frozen parameter, a buffer outside of the state dict, a hook."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(3, 3), nn.Linear(3, 3)
        self.second.weight = self.first.weight
        self.first.bias.requires_grad_(False)
        self.norm = nn.BatchNorm1d(3)
        self.lstm = nn.LSTM(3, 3, batch_first=True)
        self.register_buffer("scale", torch.full((3,), 2.0), persistent=False)
        self.shared = self.also_shared = []
        self.norm.register_forward_hook(lambda module, args, output: 3 * output)

    def forward(self, x):
        x = self.norm(self.second(self.first(x))) * self.scale
        return self.lstm(x[:, None])[0]


@pytest.mark.parametrize(
    ("made", "plain"),
    [(copied, copy.deepcopy), (in_float64, lambda model: copy.deepcopy(model).double())],
    ids=["own dtype", "float64"],
)
def test_a_copy_is_what_torch_would_have_made(made, plain):
    torch.manual_seed(0)
    model = Awkward().eval()
    ours, theirs = made(model), plain(model)
    assert tensors_of(ours).keys() == tensors_of(theirs).keys()
    for name, tensor in tensors_of(theirs).items():
        own = tensors_of(ours)[name]
        assert (type(own), own.requires_grad) == (type(tensor), tensor.requires_grad), name
        torch.testing.assert_close(own, tensor, rtol=0, atol=0)
    batch = torch.rand(2, 3).to(theirs.scale)
    torch.testing.assert_close(ours(batch), theirs(batch), rtol=0, atol=0)


@pytest.mark.parametrize("made", [copied, in_float64])
def test_a_copy_keeps_ties_and_shares_nothing(made):
    model = Awkward().eval()
    ours = made(model)
    assert ours.first.weight is ours.second.weight
    assert ours.shared is ours.also_shared
    ours.shared.append(1)
    with torch.no_grad():
        for tensor in tensors_of(ours).values():
            tensor.fill_(7)
    ours.first.register_forward_hook(lambda *_: None)
    assert model.shared == []
    assert not any(bool((tensor == 7).any()) for tensor in tensors_of(model).values())
    assert not model.first._forward_hooks
