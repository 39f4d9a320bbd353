"""The rate of learning, a pure function of the step: a resumed run has nothing to restore."""

import bisect
import math

from stiffnet.train.recipe import Recipe

RISE = 0.25  # of a one-cycle run until its peak
START, END = 1 / 25, 1 / 250_000  # of the peak, where a one-cycle run begins and ends


def learning_rate(recipe: Recipe, step: int, per_epoch: int) -> float:
    """Return the learning rate of optimizer step `step` of a run, counted from 0.

    A milestone m lowers the rate from the epoch with index m on, so 81 leaves 81 epochs before it.
    """
    peak, total = recipe.learning_rate, recipe.epochs * per_epoch
    warmup = recipe.warmup_epochs * per_epoch + int(recipe.warmup_share * total)  # one is 0
    if step < warmup:
        return peak * (step + 1) / warmup
    if recipe.schedule == "multistep":
        return peak * recipe.gamma ** bisect.bisect_right(recipe.milestones, step // per_epoch)
    if recipe.schedule == "cosine":
        return _between(peak, 0.0, (step - warmup) / (total - warmup))
    if recipe.schedule == "onecycle":
        top = RISE * total - 1
        if top > 0 and step <= top:
            return _between(START * peak, peak, step / top)
        return _between(peak, END * peak, (step - top) / (total - 1 - top))
    return peak


def _between(first: float, last: float, done: float) -> float:
    """Go from `first` to `last` along half a cosine."""
    return last + (first - last) * (1 + math.cos(math.pi * done)) / 2
