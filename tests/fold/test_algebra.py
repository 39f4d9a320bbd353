"""Layers that hold factors, ways to them and what the factors are: in closed form."""

import itertools

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from stiffnet.fold.algebra import LAYERS, Holder
from stiffnet.fold.commute import ways
from stiffnet.fold.factors import all_factors, factors, is_rearrangement
from stiffnet.fold.operations import Refusal, read
from stiffnet.nested import mapped
from stiffnet.trajectory.batch import as_arguments

DOUBLE = torch.float64


class Code(nn.Module):
    """Some lines of a test's, around some layers."""

    def __init__(self, code, **parts):
        super().__init__()
        for name, part in parts.items():
            setattr(self, name, part)
        self.code, self.end = code, nn.Identity()

    def forward(self, x):
        return self.code(self, x)


def value_of(code, x, **parts):
    """The pass of a network, and the last value of its own code."""
    torch.manual_seed(0)
    model = Code(code, **parts).double().eval()
    reading = read(model, as_arguments(x))
    frame = next(frame for frame in reading.frames if frame.path == "")
    return reading, frame.nodes[-1], frame


def found(code, x, **parts):
    reading, value, frame = value_of(code, x, **parts)
    return ways(value, reading, frame), value


X = torch.randn(2, 4, 5, 5, dtype=DOUBLE, generator=torch.Generator().manual_seed(0))
TOKENS = torch.randn(2, 5, 4, dtype=DOUBLE, generator=torch.Generator().manual_seed(1))
LAYERS_HERE = {
    "conv2d": (nn.Conv2d(4, 6, 3, groups=2), X, 1),
    "conv_transpose2d": (nn.ConvTranspose2d(4, 6, 2, groups=2), X, 1),
    "conv1d": (nn.Conv1d(5, 6, 2), TOKENS, 1),
    "linear": (nn.Linear(4, 6), TOKENS, -1),
    "batch_norm": (nn.BatchNorm2d(4), X, 1),
    "instance_norm": (nn.InstanceNorm2d(4, affine=True), X, 1),
    "group_norm": (nn.GroupNorm(2, 4), X, 1),
    "layer_norm": (nn.LayerNorm(4), TOKENS, -1),
    "rms_norm": (nn.RMSNorm(4), TOKENS, -1),
}


def test_scaling_a_layer_scales_its_output_channel_by_channel():
    for name, (layer, x, axis) in LAYERS_HERE.items():
        reading, value, frame = value_of(lambda m, x: m.layer(x), x, layer=layer)
        for parameter in layer.parameters():
            nn.init.normal_(parameter)
        [way] = ways(value, reading, frame)
        assert way.layer.node.op == name
        with torch.no_grad():
            before = layer(x)
            wanted = torch.randn(before.shape[axis], dtype=DOUBLE)
            for holder in way.layer.holders:
                holder.scale(wanted)
            shape = [1] * before.ndim
            shape[axis] = -1
            expected = before * wanted.reshape(shape)
        torch.testing.assert_close(layer(x), expected, rtol=1e-12, atol=1e-12)
    assert LAYERS.keys() >= LAYERS_HERE.keys()


def test_a_holder_multiplies_in_float64_and_stays_the_tensor_that_it_is():
    weight = torch.full((4, 2), 3.0, dtype=torch.float32)
    at = weight.data_ptr()
    Holder(weight, "w", (2, 2, 2), (2, 1, 2)).scale(torch.tensor([1.0, 2.0, 3.0, 4.0]))
    assert weight.tolist() == [[3, 6], [3, 6], [9, 12], [9, 12]]
    assert weight.data_ptr() == at


CONV = nn.Conv2d(4, 4, 1)
CLOSED = {
    "nothing": (lambda y: y, [3, 2, 7, 5]),
    "reversed": (lambda y: y.flip(1), [5, 7, 2, 3]),
    "shuffled": (lambda y: F.channel_shuffle(y, 2), [3, 7, 2, 5]),
    "pooled": (lambda y: F.avg_pool2d(y, 3, 1, 1), [3, 2, 7, 5]),
    "moved twice": (lambda y: y.movedim(1, -1).flip(-1).movedim(-1, 1), [5, 7, 2, 3]),
}


def test_factors_are_the_gates_where_the_channels_went():
    wanted = torch.tensor([3.0, 2.0, 7.0, 5.0], dtype=DOUBLE)
    for name, (between, expected) in CLOSED.items():
        [way], value = found(lambda m, x, b=between: b(m.conv(x)), X, conv=CONV)
        result = factors(way, value.shape, 1, wanted)
        assert result.values.tolist() == expected, name
        assert bool(result.units.all())
    [way], value = found(lambda m, x: m.conv(x)[:, 1:3], X, conv=CONV)
    result = factors(way, value.shape, 1, wanted[:2])
    assert result.values.tolist() == [1, 3, 2, 1]
    assert result.units.tolist() == [False, True, True, False]


def test_several_layers_share_a_value():
    wanted = torch.tensor([3.0, 2.0, 7.0, 5.0], dtype=DOUBLE)
    parts = {"one": nn.Conv2d(4, 1, 1), "two": nn.Conv2d(4, 3, 1)}
    both, value = found(lambda m, x: torch.cat([m.two(x), m.one(x)], 1), X, **parts)
    by_name = {
        part.layer.name: part.values.tolist() for part in all_factors(both, value.shape, 1, wanted)
    }
    assert by_name == {"two": [3, 2, 7], "one": [5]}


REFUSED = {
    "a sum over channels": (lambda m, x: m.conv(x).sum(1, keepdim=True), "mixed"),
    "one channel for all": (
        lambda m, x: m.conv(x)[:, :1].expand(-1, 4, -1, -1),
        "several channels",
    ),
    "a rotation into channels": (lambda m, x: m.conv(x).transpose(1, 2)[:, :4], "mixed"),
}


def test_what_has_no_factors():
    wanted = torch.tensor([2.0, 3.0, 5.0, 7.0], dtype=DOUBLE)
    for code, reason in REFUSED.values():
        every, value = found(code, X, conv=CONV)
        with pytest.raises(Refusal, match=reason):
            all_factors(every, value.shape, 1, wanted[: value.shape[1]])
    [way], value = found(lambda m, x: F.relu(m.conv(x)), X, conv=CONV)
    with pytest.raises(Refusal, match="negative for 1 of 4 channels, and a `relu`"):
        factors(way, value.shape, 1, -wanted.clamp(max=2) + 2 - torch.eye(4, dtype=DOUBLE)[0])


def test_ways_lead_to_every_layer_once():
    parts = {"a": nn.Conv2d(4, 4, 1), "b": nn.Conv2d(4, 4, 1)}
    both, _ = found(lambda m, x: F.relu(m.a(x)) - 2 * m.b(x).flip(2), X, **parts)
    told = {way.layer.name: ([step.op.name for step in way.path], way.one_sided) for way in both}
    assert told == {"a": (["relu", "sub"], ["relu"]), "b": (["flip", "mul", "sub"], [])}


def test_a_shift_is_kept_by_what_keeps_ones():
    kept = {
        "mean": lambda y: y.mean((2, 3)), "flip": lambda y: y.flip(2),
        "avg": lambda y: F.avg_pool2d(y, 2), "up": lambda y: F.interpolate(y, scale_factor=2),
    }  # fmt: skip
    lost = {
        "sum": lambda y: y.sum(2), "zeros": lambda y: F.pad(y, (0, 0)),
        "half": lambda y: y / 2, "counted": lambda y: F.avg_pool2d(y, 3, 1, 1),
    }  # fmt: skip
    for between, expected in itertools.chain(
        ((code, True) for code in kept.values()), ((code, False) for code in lost.values())
    ):
        [way], _ = found(lambda m, x, b=between: b(m.conv(x)), X, conv=CONV)
        assert is_rearrangement(way) == expected


def test_leaves_are_changed_and_containers_stay_what_they_are():
    values = torch.max(torch.tensor([[1.0, 2.0]]), 1)
    shapes = {"a": torch.Size((3, 4))}
    given = [1, (2, None)], shapes, slice(1, None, 2), range(3), values, torch.float32
    same = mapped(given, lambda leaf: leaf)
    assert same[:4] == given[:4]
    assert [type(item) for item in same[:4]] == [list, dict, slice, range]
    assert type(same[1]["a"]) is torch.Size
    assert type(same[4]) is type(values)
    assert mapped(torch.Size((3, 4)), lambda n: None) == (None, None)
    assert mapped(slice(1, 5), lambda n: n and n + 1) == slice(2, 6)
