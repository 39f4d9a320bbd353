"""Stiffness statistics over a data set, streamed: memory does not grow with the images."""

import functools
import math
import warnings
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torchmetrics import Metric

from stiffnet.errors import StepError
from stiffnet.stiffness.total import Floats, check_indices, stage_columns, stage_tns, tns
from stiffnet.trajectory.norms import as_double

QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)

# Bins are equal in the logarithm. The middle of a bin is within 10**(1/512) - 1 = 0.45 % of every
# value in it; indices below 1e-8 or above 1e8 share one bin at either end.
_PER_DECADE = 256
_LOWEST, _HIGHEST = -8, 8  # powers of ten
_BINS = _PER_DECADE * (_HIGHEST - _LOWEST) + 2


class StiffnessSummary(NamedTuple):
    """What a data set's samples did, step by step. Arrays have one entry per step or per stage.

    Attributes:
        samples: Number of samples.
        nsi_mean: Mean index of each step.
        nsi_std: Its standard deviation over samples (divisor N - 1); None for one sample.
        nsi_min: Smallest index of each step.
        nsi_max: Largest index of each step.
        increment_mean: Mean increment of each step.
        increment_std: Its standard deviation over samples; None for one sample.
        nsi_quantiles: (5, steps): the 5, 25, 50, 75 and 95 % order statistics (the smallest value
            with at least that share of samples at or below it), each good to 0.5 %.
        stages: Ids of the stages that have a counted step, ascending.
        tns: Mean total stiffness; None if no step is counted.
        tns_se: Its standard error; None for one sample as well.
        stage_tns: Mean of each such stage's own rectangle.
        stage_tns_se: Its standard error; None for one sample.
    """

    samples: int
    nsi_mean: Floats
    nsi_std: Floats | None
    nsi_min: Floats
    nsi_max: Floats
    increment_mean: Floats
    increment_std: Floats | None
    nsi_quantiles: Floats
    stages: tuple[int, ...]
    tns: float | None
    tns_se: float | None
    stage_tns: Floats
    stage_tns_se: Floats | None


class StiffnessMetric(Metric):
    """Streams indices into means, spreads, quantiles and total stiffness.

    Every state has a fixed size and is a float64 sum, an int64 count, a minimum or a maximum, so
    batches and ranks merge in any order, a rank without data included. States stay float64 when
    a model that holds the metric changes its dtype. Standard deviations come from plain sums of
    squares: no shift is taken, because ranks would have to agree on one before the first batch.
    That is enough here. The relative error is about 1e-16 (mean / deviation)², so a deviation of
    a thousandth of the mean still has nine digits, and over different inputs an index varies
    by far more; a step that is constant is recognised by its minimum and maximum, and a
    difference that rounding made negative is zero. An accelerator without float64 cannot
    hold the states: leave the metric on the CPU, where it takes batches from any device.

    Args:
        stages: The stage of each step.
        counted: Whether each step enters the total stiffness.
        **kwargs: Passed on to ``torchmetrics.Metric``.

    Raises:
        StepError: If there is no step, or not one stage and one flag for each.

    Example:
        The second and third steps count; their maximum is 6 and their mean 4.

        >>> metric = StiffnessMetric(stages=[0, 0, 0], counted=[False, True, True])
        >>> metric.update(torch.tensor([[9.0, 2.0, 6.0]]))
        >>> metric.compute().tns
        3.0
    """

    full_state_update = False
    is_differentiable = False
    higher_is_better = None

    samples: Tensor
    nsi_sum: Tensor
    nsi_squares: Tensor
    increment_sum: Tensor
    increment_squares: Tensor
    nsi_min: Tensor
    nsi_max: Tensor
    histogram: Tensor
    tns_sum: Tensor
    tns_squares: Tensor
    stage_sum: Tensor
    stage_squares: Tensor

    def __init__(self, stages: Sequence[int], counted: Sequence[bool], **kwargs: Any) -> None:
        super().__init__(**kwargs)
        steps = len(stages)
        if steps == 0 or len(counted) != steps:
            raise StepError(
                f"There are {steps} stages and {len(counted)} counted flags; give one of each for "
                "every step, and at least one step."
            )
        self._steps = steps
        self._columns = [step for step, enters in enumerate(counted) if enters]
        self._stages = [int(stages[step]) for step in self._columns]
        self._stage_ids = tuple(stage_columns(self._stages, steps=len(self._stages)))
        self._add_states()

    def _add_states(self) -> None:
        def add(name: str, *shape: int, reduce: str = "sum", fill: float = 0.0) -> None:
            dtype = torch.int64 if name in ("samples", "histogram") else torch.float64
            default = torch.full(shape, fill, dtype=dtype)
            self.add_state(name, default=default, dist_reduce_fx=reduce)

        add("samples")
        for name in ("nsi", "increment"):
            add(f"{name}_sum", self._steps)
            add(f"{name}_squares", self._steps)
        add("nsi_min", self._steps, reduce="min", fill=math.inf)
        add("nsi_max", self._steps, reduce="max", fill=-math.inf)
        add("histogram", self._steps, _BINS)
        add("tns_sum")
        add("tns_squares")
        add("stage_sum", len(self._stage_ids))
        add("stage_squares", len(self._stage_ids))

    def update(self, nsi: Tensor, increment: Tensor | None = None) -> None:
        """Add a batch; a bad one is refused before anything has changed.

        Args:
            nsi: (samples, steps) indices of all steps, counted or not; no samples is fine.
            increment: The same for the increment; without a gate the two are equal.

        Raises:
            StepError: If a shape does not fit, or a value is negative.
            NonFiniteError: If a value is NaN or infinite.
        """
        nsi = self._taken(nsi, "nsi")
        increment = nsi if increment is None else self._taken(increment, "increment")
        if nsi.shape != increment.shape:
            raise StepError(
                f"`nsi` has {nsi.shape[0]} samples but `increment` {increment.shape[0]}; "
                "give both for the same batch."
            )
        if nsi.shape[0] == 0:
            return
        self.samples = self.samples + nsi.shape[0]
        self.nsi_sum = self.nsi_sum + nsi.sum(dim=0)
        self.nsi_squares = self.nsi_squares + nsi.square().sum(dim=0)
        self.increment_sum = self.increment_sum + increment.sum(dim=0)
        self.increment_squares = self.increment_squares + increment.square().sum(dim=0)
        self.nsi_min = torch.minimum(self.nsi_min, nsi.amin(dim=0))
        self.nsi_max = torch.maximum(self.nsi_max, nsi.amax(dim=0))
        self.histogram = self.histogram + _binned(nsi)
        if self._columns:
            counted = nsi[:, self._columns]
            total, per_stage = tns(counted, self._stages), stage_tns(counted, self._stages)
            self.tns_sum = self.tns_sum + total.sum()
            self.tns_squares = self.tns_squares + total.square().sum()
            self.stage_sum = self.stage_sum + per_stage.sum(dim=0)
            self.stage_squares = self.stage_squares + per_stage.square().sum(dim=0)

    def compute(self) -> StiffnessSummary:
        """Return the statistics of every sample so far, over all ranks.

        Raises:
            StepError: If there was no sample on any rank.
        """
        count = int(self.samples)
        if count == 0:
            raise StepError(
                "Nothing was measured: the metric has seen no sample on any rank; "
                "call `update` with at least one before `compute`."
            )
        low, high = self.nsi_min, self.nsi_max
        nsi_mean, nsi_std = _moments(self.nsi_sum, self.nsi_squares, count)
        if nsi_std is not None:
            nsi_std = torch.where(low == high, 0.0, nsi_std)
        # A mean lies between its extremes, whatever rounding does.
        nsi_mean = torch.minimum(torch.maximum(nsi_mean, low), high)
        increment_mean, increment_std = _moments(self.increment_sum, self.increment_squares, count)
        total, total_std = _moments(self.tns_sum, self.tns_squares, count)
        stage, stage_std = _moments(self.stage_sum, self.stage_squares, count)
        root = math.sqrt(count)
        any_counted = bool(self._columns)
        return StiffnessSummary(
            samples=count,
            nsi_mean=_array(nsi_mean),
            nsi_std=_array(nsi_std),
            nsi_min=_array(low),
            nsi_max=_array(high),
            increment_mean=_array(increment_mean),
            increment_std=_array(increment_std),
            nsi_quantiles=_quantiles(_array(self.histogram), _array(low), _array(high), count),
            stages=self._stage_ids,
            tns=float(total) if any_counted else None,
            tns_se=float(total_std) / root if any_counted and total_std is not None else None,
            stage_tns=_array(stage),
            stage_tns_se=None if stage_std is None else _array(stage_std / root),
        )

    def _taken(self, values: Tensor, what: str) -> Tensor:
        if values.dim() != 2 or values.shape[1] != self._steps:
            raise StepError(
                f"`{what}` has shape {tuple(values.shape)}; this metric was made for "
                f"(samples, {self._steps}): give one value per step, counted or not."
            )
        values = as_double(values.detach()).to(self.nsi_sum.device)
        check_indices(values, what=what)
        return values

    def _apply(self, fn: Callable[[Tensor], Tensor], exclude_state: Sequence[str] = "") -> Any:
        """Follow a model to another device, but never to another dtype."""

        def move(x: Tensor) -> Tensor:
            return x.to(fn(torch.zeros((), device=x.device)).device)

        return super()._apply(move, exclude_state)

    def _wrap_compute(self, compute: Callable[..., Any]) -> Callable[..., Any]:
        """Let a rank without data compute quietly, and let an error leave the metric usable."""
        wrapped = super()._wrap_compute(compute)

        @functools.wraps(wrapped)
        def quiet(*args: Any, **kwargs: Any) -> Any:
            try:
                with warnings.catch_warnings():
                    # The other ranks may have data; if none has, `compute` says so itself.
                    warnings.filterwarnings("ignore", message="The ``compute`` method of metric")
                    return wrapped(*args, **kwargs)
            except StepError:
                if self._is_synced:
                    self.unsync()
                raise

        return quiet


def _moments(sums: Tensor, squares: Tensor, count: int) -> tuple[Tensor, Tensor | None]:
    """Mean and sample standard deviation from sums; None for the latter of one sample."""
    mean = sums / count
    if count == 1:
        return mean, None
    return mean, ((squares - sums * mean) / (count - 1)).clamp(min=0.0).sqrt()


def _binned(values: Tensor) -> Tensor:
    """Count (samples, steps) values into (steps, bins)."""
    steps = values.shape[1]
    place = (values.log10() - _LOWEST) * _PER_DECADE
    bins = place.floor().clamp(-1, _BINS - 2).long() + 1  # log10(0) = -inf goes to bin 0
    flat = bins + torch.arange(steps, device=values.device) * _BINS
    return flat.flatten().bincount(minlength=steps * _BINS).view(steps, _BINS)


def _quantiles(histogram: NDArray[Any], low: Floats, high: Floats, count: int) -> Floats:
    """Order statistics from bins: the middle of their bin, or the extreme of an end bin."""
    middles = 10.0 ** (_LOWEST + (np.arange(_BINS) - 0.5) / _PER_DECADE)
    middles[0], middles[-1] = 0.0, np.inf  # so that the extremes take over below
    reached = histogram.cumsum(axis=1)
    ranks = [max(1, math.ceil(round(share * count, 9))) for share in QUANTILES]
    bins = np.stack([(reached < rank).sum(axis=1) for rank in ranks])
    clipped: Floats = np.clip(middles[bins], low, high)
    return clipped


def _array(x: Any) -> Any:
    return None if x is None else x.cpu().numpy().copy()
