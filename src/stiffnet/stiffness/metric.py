"""Stiffness statistics over a data set, streamed: memory does not grow with the images."""

import functools
import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor
from torchmetrics import Metric

from stiffnet.errors import StepError
from stiffnet.stiffness.given import Floats, as_array, as_numbers
from stiffnet.stiffness.summary import BINS, StiffnessSummary, binned, moments, quantiles
from stiffnet.stiffness.total import check_indices, stage_columns, stage_tns, tns

_COUNTS = ("layout", "samples", "histogram")  # int64; every other state is float64
_UNCOUNTED = -1
_CANNOT_HOLD = ("meta", "mps")  # devices without numbers or without float64


class StiffnessMetric(Metric):
    """Streams indices into total stiffness, and into the statistics of every step.

    ``compute`` returns the total stiffness, as torchmetrics' collections, trackers and loggers
    expect it; ``summary`` returns everything.

    Every state has a fixed size and is a float64 sum, an int64 count, a minimum or a maximum, so
    batches and ranks merge in any order, a rank without data included. States stay float64 when
    a model that holds the metric changes its dtype, and they stay on the CPU when it moves to a
    device that has no float64 or no memory; a metric takes batches from any device. One state,
    ``layout``, says which steps count and in which stage, so that metrics which count different
    steps are never merged, grouped or loaded into each other. Standard deviations come from plain
    sums of squares: no shift is taken, because ranks would have to agree on one before the first
    batch. That is enough here: a deviation of a thousandth of the mean still has nine digits, and
    over different inputs an index varies by far more. A step that is constant is recognised by
    its minimum and maximum.

    Args:
        stages: The stage of each step.
        counted: Whether each step enters the total stiffness.
        **kwargs: Passed on to ``torchmetrics.Metric``.

    Raises:
        StepError: If there is no step, or not one whole number and one flag for each.

    Example:
        The second and third steps count; their maximum is 6 and their mean 4.

        >>> metric = StiffnessMetric(stages=[0, 0, 0], counted=[False, True, True])
        >>> metric.update(torch.tensor([[9.0, 2.0, 6.0]]))
        >>> metric.compute()
        tensor(3., dtype=torch.float64)
        >>> metric.summary().nsi_mean
        array([9., 2., 6.])
    """

    full_state_update = False
    is_differentiable = False
    higher_is_better = None
    plot_lower_bound = 0.0

    layout: Tensor
    samples: Tensor
    nsi_min: Tensor
    nsi_max: Tensor
    histogram: Tensor
    tns_sum: Tensor

    def __init__(self, stages: Sequence[int], counted: Sequence[bool], **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._device = _home(self.device)
        self._steps = len(stages)
        ids = list(stage_columns(stages, steps=self._steps))
        self._columns = _counted_columns(counted, self._steps)
        self._stages = [int(stages[step]) for step in self._columns]
        self._stage_ids = tuple(stage for stage in ids if stage in self._stages)
        self._layout = [_UNCOUNTED] * self._steps
        for step, stage in zip(self._columns, self._stages, strict=True):
            self._layout[step] = self._stage_ids.index(stage)
        self._add_states()

    def _add_states(self) -> None:
        def add(name: str, *shape: int, reduce: str = "sum", fill: float = 0.0) -> None:
            dtype = torch.int64 if name in _COUNTS else torch.float64
            default = torch.full(shape, fill, dtype=dtype, device=self._device)
            self.add_state(name, default=default, dist_reduce_fx=reduce)

        # The first, so that ranks which disagree on it fail before another state is touched.
        layout = torch.tensor(self._layout, dtype=torch.int64, device=self._device)
        self.add_state("layout", default=layout, dist_reduce_fx=_agreed)
        add("samples")
        add("nsi_min", self._steps, reduce="min", fill=math.inf)
        add("nsi_max", self._steps, reduce="max", fill=-math.inf)
        add("histogram", self._steps, BINS)
        each, stages = (self._steps,), (len(self._stage_ids),)
        shapes = {"nsi": each, "increment": each, "tns": (), "increment_tns": (), "stage": stages}
        for name, shape in shapes.items():
            add(f"{name}_sum", *shape)
            add(f"{name}_squares", *shape)

    def update(self, nsi: Tensor | ArrayLike, increment: Tensor | ArrayLike | None = None) -> None:
        """Add a batch; a bad one is refused before anything has changed.

        Args:
            nsi: (samples, steps) indices of all steps, counted or not; no samples is fine.
            increment: The same for the increment; without a gate the two are equal.

        Raises:
            StepError: If a shape does not fit, or a value is negative or above 1e140.
            NonFiniteError: If a value is NaN or infinite.
        """
        values = self._taken(nsi, "nsi")
        moved = values if increment is None else self._taken(increment, "increment")
        if values.shape != moved.shape:
            raise StepError(
                f"`nsi` has {len(values)} samples but `increment` {len(moved)}; "
                "give both for the same batch."
            )
        if len(values) == 0:
            return
        # New tensors, never in place: others may hold the old ones.
        self.samples = self.samples + len(values)
        self._add("nsi", values)
        self._add("increment", moved)
        self.nsi_min = torch.minimum(self.nsi_min, self._here(values.min(axis=0)))
        self.nsi_max = torch.maximum(self.nsi_max, self._here(values.max(axis=0)))
        self.histogram = self.histogram + self._here(binned(values))
        if self._columns:
            counted = values[:, self._columns]
            self._add("tns", tns(counted, self._stages))
            self._add("increment_tns", tns(moved[:, self._columns], self._stages))
            self._add("stage", stage_tns(counted, self._stages))

    def compute(self) -> Tensor:
        """Return the mean total stiffness of every sample so far, over all ranks.

        Raises:
            StepError: If there was no sample on any rank, or no step is counted.
        """
        count = self._count()
        if not self._columns:
            raise StepError(
                "No step is counted, so there is no total stiffness to compute; "
                "call `summary()` for the indices of the steps."
            )
        return self.tns_sum / count

    def summary(self) -> StiffnessSummary:
        """Return the statistics of every sample so far, over all ranks.

        Like ``compute``, it must be called on every rank. Its arrays are copies.

        Raises:
            StepError: If there was no sample on any rank.
        """
        self.sync(dist_sync_fn=self.dist_sync_fn, should_sync=self._to_sync)
        try:
            return self._summarised()
        finally:
            if self._is_synced:
                self.unsync()

    def plot(self, val: Any = None, ax: Any = None) -> Any:
        """Draw one value of ``compute`` or a list of them with matplotlib, on ``ax`` if given."""
        return self._plot(val, ax)

    @torch.jit.unused
    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Add a batch and return its own total stiffness; an error leaves the metric as it was."""
        before = dict(self.__dict__)
        try:
            return super().forward(*args, **kwargs).clone()
        except BaseException:
            self.__dict__.update(before)
            raise

    def merge_state(self, incoming_state: dict[str, Any] | Metric) -> None:
        """Add what another metric of the same steps has seen.

        Args:
            incoming_state: That metric, or its ``metric_state``.

        Raises:
            StepError: If it counts other steps, or its states have other shapes or dtypes.
        """
        given: Any = incoming_state
        if isinstance(given, StiffnessMetric):
            given = given.metric_state
        super().merge_state(self._fitting(given) if isinstance(given, dict) else given)
        self._computed = None

    def _add(self, name: str, values: Floats) -> None:
        for state, added in ((f"{name}_sum", values), (f"{name}_squares", np.square(values))):
            setattr(self, state, getattr(self, state) + self._here(added.sum(axis=0)))

    def _here(self, values: Any) -> Tensor:
        """Return an array as a tensor beside the states."""
        return torch.as_tensor(values, device=self.samples.device)

    def _count(self) -> int:
        if self.layout.tolist() != self._layout:
            raise StepError(
                "This metric shares its states with one that counts other steps; leave "
                "`compute_groups` of the collection to torchmetrics, or set it to False."
            )
        count = int(self.samples)
        if count == 0:
            raise StepError(
                "Nothing was measured: the metric has seen no sample on any rank; "
                "call `update` with at least one before `compute` or `summary`."
            )
        return count

    def _summarised(self) -> StiffnessSummary:
        count = self._count()
        low, high = (as_array(x).copy() for x in (self.nsi_min, self.nsi_max))
        nsi_mean, nsi_std = self._moments("nsi", count)
        increment_mean, increment_std = self._moments("increment", count)
        stage, stage_std = self._moments("stage", count)
        total, total_se = self._total("tns", count)
        increment_total, increment_total_se = self._total("increment_tns", count)
        in_stage = [self._stages.count(stage) for stage in self._stages]
        return StiffnessSummary(
            samples=count,
            nsi_mean=np.clip(nsi_mean, low, high),  # a mean lies there, whatever rounding does
            nsi_std=None if nsi_std is None else np.where(low == high, 0.0, nsi_std),
            nsi_min=low,
            nsi_max=high,
            increment_mean=increment_mean,
            increment_std=increment_std,
            nsi_quantiles=quantiles(as_array(self.histogram), low, high),
            counted_steps=len(self._columns),
            tns_steps=sum(others > 1 for others in in_stage),
            stages=self._stage_ids,
            tns=total,
            tns_se=total_se,
            increment_tns=increment_total,
            increment_tns_se=increment_total_se,
            stage_tns=stage,
            stage_tns_se=_standard_error(stage_std, count),
        )

    def _moments(self, name: str, count: int) -> tuple[Floats, Floats | None]:
        sums, squares = (as_array(getattr(self, f"{name}_{end}")) for end in ("sum", "squares"))
        return moments(sums, squares, count)

    def _total(self, name: str, count: int) -> tuple[float | None, float | None]:
        if not self._columns:
            return None, None
        mean, spread = self._moments(name, count)
        error = _standard_error(spread, count)
        return float(mean), None if error is None else float(error)

    def _taken(self, given: Tensor | ArrayLike, what: str) -> Floats:
        """Return a batch as float64, or say what is wrong with it."""
        values = as_numbers(given, what=what)
        if values.ndim != 2 or values.shape[1] != self._steps:
            raise StepError(
                f"`{what}` has shape {values.shape}; this metric was made for "
                f"(samples, {self._steps}): give one value per step, counted or not."
            )
        check_indices(values, what=what)
        return values

    def _fitting(self, states: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return another metric's states on this one's device, if they mean the same here."""
        missing = [name for name in self._defaults if name not in states]
        if missing:
            raise StepError(
                f"These states lack {', '.join(missing)}; give all states of a metric, "
                "as `metric_state` has them."
            )
        for name, own in self._defaults.items():
            given = states[name]
            if (given.shape, given.dtype) != (own.shape, own.dtype):
                raise StepError(
                    f"The state `{name}` is {given.dtype} of shape {tuple(given.shape)} where this "
                    f"metric has {own.dtype} of shape {tuple(own.shape)}; give the states of a "
                    "metric of the same steps, in their own dtype."
                )
        if states["layout"].tolist() != self._layout:
            raise StepError(
                "These states are of a metric that counts other steps, or puts them in other "
                "stages; give the states of a metric of the same steps."
            )
        return {name: states[name].clone().to(self.samples.device) for name in self._defaults}

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *rest: Any) -> None:
        """Take states that were persistent, if there are any and they fit."""
        states = {k: state_dict[prefix + k] for k in self._defaults if prefix + k in state_dict}
        if states:
            state_dict.update({prefix + k: v for k, v in self._fitting(states).items()})
            self._computed = None
        super()._load_from_state_dict(state_dict, prefix, *rest)

    def _apply(self, fn: Callable[[Tensor], Tensor], exclude_state: Sequence[str] = "") -> Any:
        """Follow a model to another device that can hold the states, but never to another dtype."""

        def move(x: Tensor) -> Tensor:
            return x.to(_home(fn(torch.zeros((), device=x.device)).device))

        return super()._apply(move, exclude_state)

    def _wrap_compute(self, compute: Callable[..., Any]) -> Callable[..., Any]:
        """Return copies of the cached value, quietly; an error leaves the metric usable."""
        wrapped = super()._wrap_compute(compute)

        @functools.wraps(wrapped)
        def quiet(*args: Any, **kwargs: Any) -> Any:
            try:
                with warnings.catch_warnings():
                    # The other ranks may have data; if none has, `compute` says so itself.
                    warnings.filterwarnings("ignore", message="The ``compute`` method of metric")
                    return wrapped(*args, **kwargs).clone()
            except BaseException:
                if self._is_synced:
                    self.unsync()
                raise

        return quiet


def _counted_columns(counted: Any, steps: int) -> list[int]:
    flags = as_array(counted)
    if steps == 0 or flags.shape != (steps,):
        raise StepError(
            f"There are {steps} stages and {flags.size} counted flags; give one of each for "
            "every step, and at least one step."
        )
    if not np.isin(flags, (0, 1)).all():
        raise StepError(
            f"`counted` is {list(counted)}; give True or False for every step, whether it counts."
        )
    return np.flatnonzero(flags).tolist()


def _agreed(layouts: Tensor) -> Tensor:
    """Merge the layouts of several ranks, which must be the same."""
    if bool((layouts != layouts[0]).any()):
        raise StepError(
            "The ranks' metrics count different steps; make them with the same `stages` and "
            "`counted` on every rank."
        )
    return layouts[0]


def _home(device: torch.device) -> torch.device:
    """Return the device itself, or the CPU if it cannot hold float64 numbers."""
    return torch.device("cpu") if device.type in _CANNOT_HOLD else device


def _standard_error(deviation: Floats | None, count: int) -> Floats | None:
    return None if deviation is None else deviation / math.sqrt(count)
