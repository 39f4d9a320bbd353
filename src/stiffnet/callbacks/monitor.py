"""Stiffness by epoch, for any training loop: one object that is called after each epoch."""

import time
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pandas as pd
import torch.distributed as dist
from torch import Tensor, nn

from stiffnet.callbacks.sample import take
from stiffnet.errors import DataError, NonFiniteError, StepError, StiffnetError
from stiffnet.nested import mapped
from stiffnet.observe.measure import measure
from stiffnet.results.stiffness import StiffnessReport
from stiffnet.trajectory.wrappers import is_sharded, unwrap

SAMPLES = 128
PREFIX = "stiffness/"
_UNKNOWN = float("nan")


class StiffnessMonitor:
    """Measures a network on a fixed sample whenever it is called, and hands the numbers on.

    The sample is taken at the first call and kept in memory, so that every epoch sees the same
    images, with the same augmentation. The network, its gradients and the random number generators
    are given back as they were: training goes on bit by bit as it would without. What a data set
    keeps for itself, such as a generator of its own, cannot be given back; give the monitor a data
    set of its own then.

    In a distributed run every rank must call it; each measures its part, and all get the same
    numbers. A network or data that cannot be measured are an error in the first call. What goes
    wrong later is a warning, and the row has NaN, so that no training is lost.

    Args:
        data: What to take the sample from: images, a data set, a data loader, or batches. Labels
            are left out. See `stiffnet.callbacks.sample.take` for what is chosen.
        samples: Size of the sample.
        seed: Choose the sample at random with this seed; None chooses at even distances.
        every: Measure after every so many epochs.
        log: Called with each row, by name, and its epoch: your logger. On rank zero alone.
        stop_on_nan: Raise `NonFiniteError` where a state is NaN or infinite; otherwise warn.
        prefix: What the names of the numbers begin with; another one for a second network.

    Raises:
        DataError: If a number makes no sense.

    Example:
        >>> import timm, torch
        >>> model = timm.create_model("resnet18", num_classes=10)
        >>> monitor = StiffnessMonitor(torch.rand(4, 3, 32, 32))
        >>> row = monitor(model, epoch=1)
        >>> [key for key in row if "layer2" in key]
        ['stiffness/nsi/layer2.0', 'stiffness/nsi/layer2.1']
    """

    def __init__(
        self,
        data: Any,
        *,
        samples: int = SAMPLES,
        seed: int | None = None,
        every: int = 1,
        log: Callable[[dict[str, float], Any], object] | None = None,
        stop_on_nan: bool = False,
        prefix: str = PREFIX,
    ) -> None:
        for name, value in (("samples", samples), ("every", every)):
            if value < 1:
                raise DataError(f"`{name}` is {value}. Give 1 or more.")
        self.data = data
        self.samples = samples
        self.seed = seed
        self.every = every
        self.log = log
        self.stop_on_nan = stop_on_nan
        self.prefix = prefix
        self.report: StiffnessReport | None = None
        """The newest report: `report.html("stiffness.html")` draws it."""
        self.history: list[dict[str, float]] = []
        """One row a measurement: `epoch`, and what the logger got."""
        self._sample: list[Any] | None = None
        self._works = False

    def __call__(self, model: nn.Module, epoch: float) -> dict[str, float]:
        """Measure the network, if it is this epoch's turn.

        Args:
            model: The network; wrappers and `torch.compile` are looked through.
            epoch: Epochs done so far; 0 before the first, and 1.5 in the middle of the second. It
                is measured if `every` divides the whole ones.

        Returns:
            ``stiffness/tns``, its standard error ``stiffness/tns_se``, the mean NSI of every step
            as ``stiffness/nsi/STEP`` (with ``-`` for ``#``, which some loggers refuse), and what
            the measurement took in ``stiffness/seconds``. It is empty if it is not its turn.

        Raises:
            StiffnetError: In the first call, if the network or the data cannot be measured.
            NonFiniteError: If a state is NaN or infinite, and `stop_on_nan` is set.
        """
        if int(epoch) % self.every:
            return {}
        begun = time.perf_counter()
        try:
            self.report = self._measured(model)
            row = _row(self.report, self.prefix)
        except StiffnetError as error:
            not_finite = isinstance(error, NonFiniteError)
            if self.stop_on_nan if not_finite else not self._works:
                raise
            row = self._unknown(epoch, error)
        row[f"{self.prefix}seconds"] = time.perf_counter() - begun
        self.history.append({"epoch": epoch, **row})
        if self.log is not None and _rank() == 0:
            self.log(row, epoch)
        return row

    def to_frame(self) -> pd.DataFrame:
        """One row a measurement, as the logger got them."""
        return pd.DataFrame(self.history)

    def _measured(self, model: nn.Module) -> StiffnessReport:
        network = unwrap(model)
        if is_sharded(network):
            raise StepError(
                "Each rank holds only a shard of the network, and steps are measured on whole "
                "networks. Measure its checkpoints instead, or train with DDP."
            )
        report = measure(network, self._batches(network), keep=0)
        self._works = True
        return report

    def _batches(self, network: nn.Module) -> Iterator[Any]:
        """Yield a copy of the sample, with fractions in the precision of the weights.

        A copy, because a network may write into its input. The sample is taken while `measure`
        guards the random numbers, and tells other ranks of errors.
        """
        if self._sample is None:
            share = {"rank": _rank(), "ranks": _ranks()}
            self._sample = take(self.data, self.samples, seed=self.seed, **share)
        kinds = (p.dtype for p in network.parameters() if p.is_floating_point())
        kind = next(kinds, None)

        def cast(value: Any) -> Any:
            if not isinstance(value, Tensor):
                return value
            fraction = value.is_floating_point() and kind is not None
            return value.to(kind, copy=True) if fraction else value.clone()

        for batch in self._sample:
            yield mapped(batch, cast)

    def _unknown(self, epoch: float, error: StiffnetError) -> dict[str, float]:
        """Say what went wrong, and return a row of the known columns without numbers."""
        if _rank() == 0:
            warnings.warn(f"Stiffness after epoch {epoch} is not known: {error}", stacklevel=3)
        known = {f"{self.prefix}{name}": _UNKNOWN for name in _TOTALS}
        for row in self.history:
            known |= {key: _UNKNOWN for key in row if key.startswith(self.prefix)}
        return known


_TOTALS = ("tns", "tns_se")


def _row(report: StiffnessReport, prefix: str) -> dict[str, float]:
    totals = (_UNKNOWN if value is None else value for value in (report.tns, report.tns_se))
    means = zip(report.steps, report.summary.nsi_mean.tolist(), strict=True)
    row = dict(zip(_TOTALS, totals, strict=True))
    row |= {f"nsi/{step.name.replace('#', '-')}": mean for step, mean in means}
    return {f"{prefix}{name}": value for name, value in row.items()}


def _ranks() -> int:
    return dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1


def _rank() -> int:
    return dist.get_rank() if _ranks() > 1 else 0
