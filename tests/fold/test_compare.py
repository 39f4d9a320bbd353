"""How far two networks are apart, in closed form; what is not a number is said."""

import math

import pytest
import torch
from torch import nn

from stiffnet.errors import FoldError
from stiffnet.fold.compare import (
    OUTPUT,
    DifferenceError,
    comparable,
    compare,
    ran,
    unchanged,
)
from stiffnet.fold.fold import fold
from stiffnet.fold.proof import before_choice
from stiffnet.network.attach import attach
from stiffnet.results.fold import Folded
from stiffnet.scaled_error import scaled_error
from stiffnet.trajectory.batch import as_arguments
from tolerances import RTOL

from .test_fold import images, trained
from .test_parallel_branches import Deploys

NAN = math.nan


class Gives(nn.Module):
    """Returns what a test says, and has a weight of a dtype."""

    def __init__(self, *values, dtype=torch.float32):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(1, dtype=dtype))
        self.values = [torch.tensor(value, dtype=dtype) for value in values]

    def forward(self, x):
        return self.values


def test_the_scaled_error_is_the_largest_difference_over_the_largest_number():
    cases = [
        ([[1.0, -4.0]], [[1.0, -4.0]], 0.0),
        ([[1.0, -4.0]], [[2.0, -4.0]], 1 / 4),
        ([[1.0, -4.0], [2.0, 0.0]], [[1.0, -4.0], [2.0, 1.0]], 1 / 2),
        ([[0.0, 0.0]], [[0.0, 0.5]], 0.5),
        ([[1.0]], [[1.0, 1.0]], math.inf),
        ([[1.0]], [[1.0], [1.0]], math.inf),
        ([[]], [[]], 0.0),
    ]
    for one, other, expected in cases:
        assert (
            scaled_error(list(map(torch.tensor, one)), list(map(torch.tensor, other))) == expected
        )


def test_a_nan_anywhere_is_a_nan():
    good, bad = torch.tensor([1.0]), torch.tensor([NAN])
    for order in ([good, bad], [bad, good], [good, bad, good]):
        assert math.isnan(scaled_error([good] * len(order), order))


def test_what_is_not_finite_after_folding_is_said_for_outputs_and_blocks():
    x = as_arguments(torch.zeros(1))
    expected = ran(Gives([1.0], [2.0]), x)
    for bad in ([[1.0], [NAN]], [[NAN], [2.0]], [[1.0], [math.inf]]):
        with pytest.raises(FoldError, match="Gives gives NaN or infinity after folding") as raised:
            compare(expected, Gives(*bad), x)
        assert not isinstance(raised.value, DifferenceError)
    outer = nn.Sequential(Gives([1.0]), Gives([3.0]))
    block = ran(outer, x, ["0"])
    with pytest.raises(FoldError, match="'0' of Sequential gives NaN or infinity"):
        compare(block, nn.Sequential(Gives([NAN]), Gives([3.0])), x)
    with pytest.raises(FoldError, match="'0' of N gives numbers on this example that are not"):
        comparable({OUTPUT: [torch.zeros(1)], "0": [torch.tensor([NAN])]}, "N")
    with pytest.raises(FoldError, match="N gives no tensor"):
        comparable({OUTPUT: []}, "N")


def test_another_dtype_is_said():
    x = as_arguments(torch.zeros(1))
    with pytest.raises(FoldError, match="returns float64 where the original returned float32"):
        compare(ran(Gives([1.0]), x), Gives([1.0], dtype=torch.float64), x)


def test_a_difference_is_said_with_where_and_what_to_do():
    x = as_arguments(torch.zeros(1))
    outer = nn.Sequential(Gives([1.0]), Gives([4.0]))
    expected = ran(outer, x, ["0"])
    with pytest.raises(DifferenceError, match=r"by 5.0e-01 .* output in 0, in float32.*; sleep\."):
        compare(expected, nn.Sequential(Gives([1.5]), Gives([4.0])), x, advice="sleep")
    near = nn.Sequential(Gives([1.0]), Gives([4.0 + 2e-5]))
    assert compare(expected, near, x) == pytest.approx(5e-6, rel=0.1)


class Twice(nn.Module):
    """Calls one layer on two inputs."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(2, 2)

    def forward(self, x):
        return self.layer(2 * x) - self.layer(x)


def test_every_call_of_a_block_is_kept():
    model, x = Twice().eval(), torch.randn(3, 2)
    first, second = ran(model, as_arguments(x), ["layer"])["layer"]
    with torch.no_grad():
        assert torch.equal(first, model.layer(2 * x))
        assert torch.equal(second, model.layer(x))


def test_blocks_that_stay_what_they_were():
    made = nn.Sequential(
        nn.Sequential(nn.Linear(1, 1), nn.Identity()), nn.Sequential(nn.Identity())
    )
    assert unchanged([Folded("0.1", "norm", ("0.0",))], made) == ["0"]
    assert unchanged([Folded("1.0", "norm", ("0.0",))], made) == []


class Chooses(nn.Module):
    """A detector in small: scores, the best of them, and what is made of those."""

    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(3, 4, 1), nn.BatchNorm2d(4))
        self.head, self.after = nn.Conv2d(4, 1, 1), nn.Linear(5, 5)

    def forward(self, x):
        scores = self.head(self.body(x)).flatten(1)
        best, place = scores.topk(scores.shape[1] // 3)
        return {"scores": self.after(best[:, :5]), "place": place}


def test_modules_before_a_choice():
    assert before_choice(Chooses().eval(), as_arguments(images(4))) == ["body", "head"]
    assert before_choice(Twice().eval(), as_arguments(torch.randn(3, 2))) == []


def test_outputs_that_rounding_reorders_are_compared_before_they_are_chosen():
    torch.manual_seed(0)
    model = trained(Chooses())
    report = fold(model, images(8), fuse=True, passes=0).report
    assert report.places == ()
    many = images(160, 2)  # of 25,600 scores some lie within a rounding of each other
    result = fold(model, many, fuse=True, passes=0)
    with torch.no_grad():
        assert not torch.equal(result.model(many)["place"], model(many)["place"])
    assert result.report.places == ("body", "head")
    assert result.report.scaled_error <= 1e-5
    assert result.report.exact_error <= 1e-12


def test_equal_scores_may_change_places_where_all_that_was_folded_lies_before():
    torch.manual_seed(0)
    model = trained(Chooses())
    tied = images(8).round()[..., :1].expand(3, 3, 8, 8).double()  # every column is the same
    tied = tied + 1e-16 * images(8, 3)
    result = fold(model.double(), tied, fuse=True, passes=0)
    assert [item.name for item in result.report.folded] == ["body.1"]
    with torch.no_grad():
        one, other = model.head(model.body(tied)), result.model.head(result.model.body(tied))
    assert scaled_error([one], [other]) <= RTOL["float64"]


class Lies(Deploys):
    def switch_to_deploy(self):
        self.other = None


def test_the_advice_is_what_was_not_done():
    """A difference in float64 is no matter of rounding, whatever the network's own dtype is."""
    for dtype in (torch.float32, torch.float64):
        model = nn.Sequential(Lies()).eval().to(dtype)
        with pytest.raises(FoldError, match=r"fold it in Python with `branches=False`, or"):
            fold(model, torch.randn(3, 4, dtype=dtype), passes=0)


class Cancels(nn.Module):
    """A step, then ten is added and taken away again, which rounds what is small."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 3, 1)

    def forward(self, x):
        x = x + self.conv(x)
        return x + 10 - 10


def test_rounding_of_small_outputs_is_called_that_and_every_advice_helps():
    torch.manual_seed(0)
    small = 0.01 * images(64)
    model = attach(Cancels(), "asr:se", example=small).eval()
    with torch.no_grad():
        model.conv.bias.zero_()
    with pytest.raises(FoldError, match=r"in float64 they agree to .*e-1\d, .*`--data` .* Python"):
        fold(model, small)
    fold(model, torch.cat([small, 1e4 * small]))
    fold(model.double(), small.double())
