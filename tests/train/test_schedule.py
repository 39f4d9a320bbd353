"""The rates are those of torch's schedulers, though none of them is run."""

import itertools

import pytest
import torch
from torch.optim import lr_scheduler

from naming import case
from stiffnet.train.recipe import Recipe
from stiffnet.train.schedule import learning_rate
from tolerances import RTOL

EPOCHS, PER_EPOCH = 12, 7


def rates(**settings):
    recipe = Recipe(epochs=EPOCHS, learning_rate=0.3, **settings)
    return [learning_rate(recipe, step, PER_EPOCH) for step in range(EPOCHS * PER_EPOCH)]


def torch_rates(make, *, each_epoch=False):
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=0.3)
    schedule = make(optimizer)
    found = []
    for step in range(EPOCHS * PER_EPOCH):
        found.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        if not each_epoch or (step + 1) % PER_EPOCH == 0:
            schedule.step()
    return found


def test_multistep_drops_at_the_same_epochs():
    ours = rates(schedule="multistep", milestones=(3, 8), gamma=0.2)
    theirs = torch_rates(lambda o: lr_scheduler.MultiStepLR(o, [3, 8], gamma=0.2), each_epoch=True)
    assert ours == pytest.approx(theirs, rel=RTOL["float64"])


def test_cosine_is_annealed_at_every_step():
    theirs = torch_rates(lambda o: lr_scheduler.CosineAnnealingLR(o, EPOCHS * PER_EPOCH))
    assert rates(schedule="cosine") == pytest.approx(theirs, rel=RTOL["sum64"])


def test_one_cycle_rises_and_falls():
    theirs = torch_rates(
        lambda o: lr_scheduler.OneCycleLR(
            o, 0.3, total_steps=EPOCHS * PER_EPOCH, pct_start=0.25, cycle_momentum=False
        )
    )
    assert rates(schedule="onecycle") == pytest.approx(theirs, rel=RTOL["sum64"])


def test_a_constant_rate_stays():
    assert set(rates(schedule="constant")) == {0.3}


@pytest.mark.parametrize(
    "settings", [{"schedule": "constant"}, {"schedule": "cosine"}], ids=lambda s: s["schedule"]
)
def test_warm_up_rises_in_equal_parts_to_where_the_schedule_begins(settings):
    found = rates(warmup_epochs=2, **settings)
    steps = 2 * PER_EPOCH
    assert found[:steps] == pytest.approx([0.3 * (k + 1) / steps for k in range(steps)])
    assert found[steps] == pytest.approx(0.3)


def test_a_share_of_the_run_warms_up_as_that_many_epochs_do():
    shared = rates(schedule="cosine", warmup_share=0.25)
    assert shared == rates(schedule="cosine", warmup_epochs=EPOCHS // 4)


@pytest.mark.parametrize("share", [0.01, 0.5, 0.999])
def test_however_short_a_run_is_its_warm_up_ends_before_it(share):
    for steps in (1, 2, 3, 10):
        recipe = Recipe(epochs=1, schedule="cosine", learning_rate=0.5, warmup_share=share)
        found = [learning_rate(recipe, step, steps) for step in range(steps)]
        assert max(found) == 0.5
        assert min(found) > 0


def test_every_rate_is_positive_and_at_most_the_peak():
    schedules = ("constant", "cosine", "onecycle")
    for schedule, per_epoch, epochs in itertools.product(schedules, (1, 2, 9), (1, 2, 3, 50)):
        recipe = Recipe(epochs=epochs, schedule=schedule, learning_rate=0.5)
        for step in range(epochs * per_epoch):
            with case(schedule, per_epoch, epochs, step):
                assert 0 < learning_rate(recipe, step, per_epoch) <= 0.5
