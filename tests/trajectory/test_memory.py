"""Values that lie in the same memory: whoever writes there writes them all."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from stiffnet.trajectory.memory import reached
from stiffnet.trajectory.record import record
from stiffnet.trajectory.steps import steps

X = torch.rand(3, 4, 6, 6, generator=torch.Generator().manual_seed(0))


class Block(nn.Module):
    """A block with two layers in its branch; how it adds is somebody else's affair."""

    def __init__(self, add):
        super().__init__()
        self.add = add
        self.first, self.second = (nn.Conv2d(4, 4, 3, padding=1) for _ in range(2))

    def forward(self, x):
        return self.add(x, self.second(self.first(x).relu()))


def network(add):
    torch.manual_seed(0)
    return nn.Sequential(Block(add), Block(add), Block(lambda x, f: x + f)).eval()


def norms(add, x=X):
    """Norms of states and rates at every step; the axes of the state are the code's own affair."""
    model = network(add)
    with torch.no_grad(), record(model, steps(model, x)) as recording:
        model(x)
    found = recording.trajectory
    return found.state_norms, found.rate_norms


def the_rate_returned_by_another_name(x, f):
    same = f.view_as(f)
    f += x
    return same


def another_name_written(x, f):
    same = f.view_as(f)
    same += x
    return f


def a_view_of_a_view(x, f):
    rows = f.view(len(f), -1)
    same = rows.view(f.shape)
    f += x
    return same


def siblings(x, f):
    one, other = f.view_as(f), f.view(f.shape)
    one += x
    return other


def detached(x, f):
    same = f.detach()
    f += x
    return same


def its_data(x, f):
    same = f.data
    f += x
    return same


def axes_in_another_order(x, f):
    last = f.permute(0, 2, 3, 1)
    f += x
    return last.permute(0, 3, 1, 2)


def axes_in_another_order_written(x, f):
    last = f.permute(0, 2, 3, 1)
    last += x.permute(0, 2, 3, 1)
    return f


def the_sum_put_into_the_rate(x, f):
    same = f.view_as(f)
    torch.add(x, f, out=f)
    return same


def the_sum_copied_into_the_rate(x, f):
    same = f.view_as(f)
    f[:] = x + f
    return same


def a_constant_that_becomes_the_rate(x, f):
    zeros = torch.zeros_like(f)
    same = zeros.view_as(zeros)
    zeros += f
    return x + same


WAYS = [
    the_rate_returned_by_another_name,
    another_name_written,
    a_view_of_a_view,
    siblings,
    detached,
    its_data,
    axes_in_another_order,
    axes_in_another_order_written,
    the_sum_put_into_the_rate,
    the_sum_copied_into_the_rate,
    a_constant_that_becomes_the_rate,
]


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_a_step_by_another_name_is_measured_as_the_plain_one(way):
    for found, expected in zip(norms(way), norms(lambda x, f: x + f), strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-6, atol=0)


def test_a_state_that_was_written_by_another_name_is_no_longer_the_state():
    def lost(x, f):
        state = x * 1
        same = state.view_as(state)
        state.zero_()
        return same + f

    names = [step.name for step in steps(network(lost), X)]
    assert names == ["2"]


def test_an_activation_in_place_reaches_the_other_names():
    def activated(x, f):  # without its activation the rate is one linear map in disguise
        weights = torch.ones(2, 4, 1, 1, 1)
        rate = torch.conv2d(x, weights[0], groups=4) + torch.conv2d(x, weights[1], groups=4)
        same = rate.view_as(rate)
        F.relu(rate, inplace=True)
        return x + same

    assert [step.name for step in steps(network(activated), X)] == ["0", "1", "2"]


def test_what_lies_elsewhere_in_the_memory_is_not_reached():
    memory = torch.zeros(2, 6, 3)
    left, right, most = memory[:, :3], memory[:, 3:], memory[:, 1:]
    found = reached(left, left, [memory, right, most, left[:, 1], torch.zeros(0)])
    expected = [(memory, False), (most, False), (left[:, 1], True)]
    assert [(tuple(t.shape), inside) for t, inside in found] == [
        (tuple(t.shape), inside) for t, inside in expected
    ]
