"""Comparisons: networks whose differences are known, and images that are paired."""

import numpy as np
import pytest
import torch
from torch import nn

import stiffnet
from observe.gated_networks import blocks, images
from stiffnet.errors import DataError
from stiffnet.observe.compare import compare
from stiffnet.stiffness.relate import holm
from tolerances import RTOL

X = images(12)


def report(model, x=X, **options):
    return stiffnet.measure(model, [x], **options)


def scaled(factor, step=1, count=3):
    """The same network, but that the rate of one step is larger by a factor."""
    model = blocks(count)
    with torch.no_grad():
        for parameter in model[step].parameters():
            parameter.mul_(factor)
    return model


def test_a_network_does_not_differ_from_itself():
    found = compare({"a": report(blocks(3)), "b": report(blocks(3))})
    [pair] = found.pairs
    assert not any(each.differs for each in (*pair.steps, *pair.stages, pair.tns))
    assert {each.p for each in pair.steps} == {1.0}


def test_rounding_is_no_difference():
    [pair] = compare({"a": report(blocks(3)), "b": report(scaled(1 + 1e-7))}).pairs
    assert min(each.holm for each in pair.steps) < 1e-6
    assert not any(each.differs for each in pair.steps)


def test_the_step_that_was_changed_differs_by_what_it_was_changed():
    [pair] = compare({"a": report(blocks(3)), "b": report(scaled(2.0, step=2))}).pairs
    assert pair.matched == "name"
    assert [each.differs for each in pair.steps] == [False, False, True]
    assert pair.steps[2].second == pytest.approx(2 * pair.steps[2].first, rel=RTOL["float64"])


def test_numbers_are_those_of_the_reports():
    one, other = report(blocks(3)), report(blocks(3, seed=5))
    found = compare({"a": one, "b": other})
    assert found.pairs[0].tns.difference == pytest.approx(other.tns - one.tns, rel=RTOL["merge"])
    assert [n.tns_se for n in found.networks] == [one.tns_se, other.tns_se]
    np.testing.assert_allclose([sum(n.shares) for n in found.networks], 1, rtol=RTOL["float64"])


def test_p_values_are_corrected_over_all_steps_of_all_pairs():
    reports = {str(seed): report(blocks(3, seed=seed)) for seed in range(3)}
    pairs = compare(reports).pairs
    steps = [each for pair in pairs for each in pair.steps]
    assert [each.holm for each in steps] == holm([each.p for each in steps])
    assert [pair.tns.holm for pair in pairs] == holm([pair.tns.p for pair in pairs])


def test_the_order_of_the_images_does_not_matter():
    order = torch.randperm(12, generator=torch.Generator().manual_seed(0))
    models = blocks(3), blocks(3, seed=1)
    one, other = (compare(dict(zip("ab", (report(m, x) for m in models), strict=True))).pairs[0]
                  for x in (X, X[order]))  # fmt: skip
    for a, b in zip(one.steps, other.steps, strict=True):
        assert a.p == pytest.approx(b.p, rel=RTOL["merge"])


class Renamed(nn.Module):
    def __init__(self, steps):
        super().__init__()
        self.body = steps

    def forward(self, x):
        return self.body(x)


def test_steps_of_other_names_correspond_by_their_position():
    [pair] = compare({"a": report(blocks(3)), "b": report(Renamed(blocks(3)))}).pairs
    assert pair.matched == "position"
    assert (pair.steps[0].name, pair.steps[0].other) == ("0", "body.0")


def test_steps_of_another_number_do_not_correspond():
    [pair] = compare({"a": report(blocks(3)), "b": report(blocks(4))}).pairs
    assert pair.matched == ""
    assert pair.steps == ()
    assert pair.reason == "one has 3 steps in its stages, the other 4"
    assert pair.tns is not None
    assert len(pair.stages) == 1


def classifier(seed):
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return nn.Sequential(*blocks(2, seed=seed), nn.Flatten(), nn.Linear(100, 3).double())


def test_accuracy_and_loss_are_compared_where_there_are_labels():
    labels = torch.arange(12) % 3
    reports = {str(s): stiffnet.measure(classifier(s), [(X, labels)]) for s in range(2)}
    [pair] = compare(reports).pairs
    assert pair.accuracy.difference == reports["1"].accuracy - reports["0"].accuracy
    losses = [reports[key].kept.loss.mean() for key in "01"]
    assert pair.loss.difference == pytest.approx(losses[1] - losses[0], rel=RTOL["float64"])


@pytest.mark.parametrize(
    ("others", "words"),
    [
        ({}, "two networks or more"),
        ({"b": (X[:5], {})}, "measured on 5 images and the first network on 12"),
        ({"b": (X, {"keep": 3})}, "values of 3 of its 12 images.*keep=12"),
    ],
)
def test_what_cannot_be_paired_is_refused(others, words):
    made = {name: report(blocks(3), x, **options) for name, (x, options) in others.items()}
    with pytest.raises(DataError, match=words):
        compare({"a": report(blocks(3)), **made})


def labelled(order, names=(0, 1, 2)):
    """A report on the images in some order, whose three classes are numbered by `names`."""
    labels = torch.tensor(names)[torch.arange(12) % 3]
    return stiffnet.measure(blocks(2), [(X[order], labels[order])])


def test_images_in_another_order_show_in_their_labels():
    """As after measuring twice with a loader that shuffles, which paired each with another."""
    same, shuffled = (
        torch.arange(12),
        torch.randperm(12, generator=torch.Generator().manual_seed(0)),
    )
    for names in ((0, 1, 2), (5, 0, 3), (0, 0, 1)):  # also those of another network's classes
        [pair] = compare({"a": labelled(same), "b": labelled(same, names)}).pairs
        assert {each.p for each in pair.steps} == {1.0}
        with pytest.raises(DataError, match=r"b was measured on other images.*does not shuffle"):
            compare({"a": labelled(same), "b": labelled(shuffled, names)})
