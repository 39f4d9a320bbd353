"""A model and a loader in, a `StiffnessReport` out."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn import functional as F

from stiffnet.errors import DataError, NonFiniteError, StepError, StiffnetError
from stiffnet.provenance import facts_on
from stiffnet.results.stiffness import Samples, StiffnessReport
from stiffnet.scramble import word_at
from stiffnet.stiffness.index import indices_from_norms
from stiffnet.stiffness.metric import StiffnessMetric
from stiffnet.trajectory.batch import (
    Labels,
    OtherLabels,
    as_arguments,
    limited,
    on_device,
    resized,
    samples_in,
)
from stiffnet.trajectory.record import Trajectory, record, refuse_other_blocks
from stiffnet.trajectory.steps import Step, run_on, steps as find_steps
from stiffnet.trajectory.tokens import what_samples_are
from stiffnet.trajectory.wrappers import plain_run, unwrap

KEEP = 10_000
_ROUNDING = 1e-2  # of a sum of probabilities in half precision
FIRST = 5  # outputs among which the right one counts for `top5`


def measure(
    model: nn.Module,
    loader: Iterable[Any],
    *,
    limit: int | None = None,
    keep: int = KEEP,
    judge: bool = True,
    classes: Sequence[str] = (),
    facts: Mapping[str, str] | None = None,
    on_batch: Callable[[int], None] = lambda samples: None,
) -> StiffnessReport:
    """Measure how stiff every residual step of a network is.

    Under `torch.distributed` each rank measures its own loader, and all get the same report, over
    the samples of all of them; an error of one rank is raised on all.

    Args:
        model: Any residual network. It is run in evaluation mode, without gradients, and left as
            it was.
        loader: Batches: images, or (images, labels), or keyword arguments of the model as a
            dictionary (a key ``labels`` is taken out). The first axis counts the samples.
            Batches on the CPU are moved to the model. Padding of a text is left out, by the
            attention mask. Labels that are not one class a sample (masks, tokens, boxes) are left
            out too, and the report says so.
        limit: Stop after this many samples; None takes all.
        keep: For how many samples to keep single values (8 bytes a step each). Of more, a fixed
            pseudo-random choice is kept; the statistics are over all of them in any case.
        judge: The labels are numbers of the network's outputs, so that there are a loss and an
            accuracy; otherwise they only break the result down. That they are is taken on trust:
            nothing but a number beyond the last output would show that they are not.
        classes: Names of the labels, for the report.
        facts: What the report should say about where its numbers come from.
        on_batch: Called after each batch with the number of samples in it.

    Raises:
        StepError: If the network has no residual steps, or there was no sample.
        NonFiniteError: If a state or rate is NaN, infinite, or a state has norm zero; it names
            the sample and the step.
        DataError: If labels do not fit the network's classes, or a batch is on a wrong device.

    Example:
        >>> import timm
        >>> model = timm.create_model("resnet18", num_classes=10)
        >>> report = measure(model, [torch.rand(2, 3, 64, 64)])
        >>> report.samples, len(report.to_frame())
        (2, 8)
    """
    for name, value, least in (("limit", limit, 1), ("keep", keep, 0)):
        if value is not None and value < least:
            raise DataError(f"`{name}` is {value}. Give {least} or more.")
    if isinstance(loader, Tensor) or not hasattr(loader, "__iter__"):
        raise DataError(
            f"The loader is of type {type(loader).__name__}, which is no series of batches. Give a "
            "data loader, or a list such as `[images]`."
        )
    network = unwrap(model)
    several = dist.is_available() and dist.is_initialized()
    ranks, rank = (dist.get_world_size(), dist.get_rank()) if several else (1, 0)
    seen = _Seen(keep, rank)
    run: _Run | None = None
    fault: Exception | None = None
    try:
        with plain_run(network):
            notes = batch_norm_notes(network)
            for inputs, labels in limited(loader, limit):
                inputs = on_device(inputs, network)
                if run is None:
                    run = _Run(network, find_steps(network, inputs))
                    seen.what = what_samples_are(network, inputs)
                    with plain_run(network):  # once more as when the steps were found
                        run.record(resized(inputs, 2))
                nsi, increment, output = run(inputs, seen.counts["samples"])
                seen.add(nsi.cpu(), output, labels, judge=judge)
                run.metric.update(nsi, increment)
                on_batch(len(nsi))
    except Exception as error:
        if ranks == 1:
            raise
        fault = error  # the others wait to hear of it, whatever it is
    if ranks > 1:
        steps, seen = _gathered(run.steps if run else None, seen, fault)
        run = run or (_Run(network, steps) if steps else None)
    if run is None:
        raise StepError("The loader gave no batch, so nothing was measured. Give it some images.")
    return StiffnessReport(
        steps=tuple(run.steps),
        summary=run.metric.summary(),
        kept=seen.kept(),
        accuracy=seen.accuracy,
        top5=seen.top5,
        classes=tuple(classes),
        facts=facts_on(network, seen.what, facts),
        notes=(*notes, *seen.notes[:1]),
    )


_LEFT_OUT = (
    "The labels are {} and not one class a sample, so nothing here is broken down by them, and "
    "there is no loss and no accuracy."
)
_NO_LOGITS = (
    "The network gives no row of logits for each sample, or several that may be it, so there is no "
    "loss and no accuracy; the labels only break the result down."
)
_PROBABILITIES = (
    "The network's outputs are probabilities and not logits, so there is an accuracy and no loss."
)


def logit_width(model: nn.Module, inputs: Any) -> int | None:
    """Run two samples of a batch, and return how many logits a sample has; None if it has none.

    Raises:
        StepError: If the network cannot be run on the batch.
    """
    network = unwrap(model)
    example = as_arguments(resized(on_device(inputs, network), 2))
    with plain_run(network):
        logits = logits_of(run_on(network, example))
    return None if logits is None else logits.shape[1]


def batch_norm_notes(model: nn.Module) -> tuple[str, ...]:
    """Say which norms take their statistics from the batch even in evaluation."""
    found = [
        path
        for path, module in model.named_modules()
        if isinstance(module, nn.modules.batchnorm._BatchNorm)
        and (module.training or module.running_mean is None)
    ]
    if not found:
        return ()
    norms = "batch norm takes its" if len(found) == 1 else "batch norms take their"
    return (
        f"{len(found)} {norms} statistics from the batch and not from training (the first is "
        f"{found[0]!r}), so these numbers depend on which images were measured together.",
    )


class _Run:
    """Runs batches and turns their trajectories into indices."""

    def __init__(self, model: nn.Module, steps: list[Step]) -> None:
        self.model, self.steps = model, steps
        self.metric = StiffnessMetric(
            [step.stage for step in steps], [step.counted for step in steps]
        )
        self._blocks: dict[str, int] = {}

    def record(self, inputs: Any) -> tuple[Trajectory, Any]:
        """Run a batch; a StepError if its blocks do not run as often as for the first one."""
        with record(self.model, self.steps) as recording:
            output = as_arguments(inputs).on(self.model)
        trajectory = recording.trajectory
        self._blocks = self._blocks or recording.blocks
        refuse_other_blocks(self._blocks, recording.blocks)
        return trajectory, output

    def __call__(self, inputs: Any, before: int) -> tuple[Tensor, Tensor, Any]:
        trajectory, output = self.record(inputs)
        if len(trajectory) != samples_in(inputs):
            raise StepError(
                f"A batch of {samples_in(inputs)} samples has states of {len(trajectory)}. Give "
                "batches whose first axis counts the samples, and a network that keeps them apart."
            )
        nsi, increment = indices_from_norms(
            trajectory.state_norms,
            torch.stack([trajectory.rate_norms, trajectory.increment_norms]),
            steps=[step.name for step in self.steps],
            first=before,
        )
        return nsi, increment, output


@dataclass
class _Seen:
    """Single values of up to `keep` samples, and counts over all of them.

    Which samples stay is decided by a hash of their rank and position there, so the choice is the
    same for any batch size and order of arrival, and no rank has more than its share.
    """

    keep: int
    rank: int = 0
    counts: Counter[str] = field(default_factory=Counter)
    """Of samples; of those whose outputs were judged; and what came of these."""
    outputs: int = 0  # of the network, where it is judged
    what: dict[str, str] = field(default_factory=dict)  # the samples are, where they are not images
    remarks: dict[str, None] = field(default_factory=dict)
    _rows: dict[str, np.ndarray] = field(default_factory=dict)

    def add(self, nsi: Tensor, output: Any, labels: Labels, *, judge: bool) -> None:
        """Take in a batch: indices, what the network gave, and what it should have given."""
        columns = {"nsi": nsi}
        if isinstance(labels, OtherLabels):
            self.remarks[_LEFT_OUT.format(labels.what)] = None
        elif labels is not None:
            columns |= {"label": labels} | self._outcome(output, labels, judge=judge)
        before = self.counts["samples"]
        number = np.arange(before, before + len(nsi), dtype=np.int64)
        self.counts["samples"] += len(nsi)
        lot = word_at(number.astype(np.uint64), np.uint64(self.rank))
        self._merge({k: v.numpy() for k, v in columns.items()} | {"number": number, "lot": lot})

    def _outcome(self, output: Any, labels: Tensor, *, judge: bool) -> dict[str, Tensor]:
        """Loss of each sample and whether it is correct, as far as they are known; count them."""
        before = self.counts["samples"]
        why = ". Classes are numbered from 0; leave such samples out."
        refuse_labels(labels, labels < 0, "Sample", before, why)
        if not judge:
            return {}
        logits = logits_of(output)
        if logits is None or len(logits) != len(labels) or logits.shape[1] < 2:
            self.remarks[_NO_LOGITS] = None
            return {}
        logits = logits.detach().double().cpu()
        why = (
            f", and the network knows classes 0 to {logits.shape[1] - 1}. Give a network with as "
            "many classes as the data."
        )
        refuse_labels(labels, labels >= logits.shape[1], "Sample", before, why)
        loss = F.cross_entropy(logits, labels, reduction="none")
        if not bool(torch.isfinite(loss).all()):
            where = before + int((~torch.isfinite(loss)).nonzero()[0])
            raise NonFiniteError(
                f"The network's output for sample {where} is NaN or infinite. Check the weights "
                "and this input."
            )
        of_label = logits.gather(1, labels[:, None])
        earlier = torch.arange(logits.shape[1]) < labels[:, None]
        # How many outputs come before that of the label; of equal ones, the first comes first.
        rank = ((logits > of_label) | ((logits == of_label) & earlier)).sum(dim=1)
        shares = (logits >= 0).all(dim=1) & ((logits.sum(dim=1) - 1).abs() < _ROUNDING)
        self.outputs = logits.shape[1]
        self.counts.update(
            judged=len(labels),
            correct=int((rank == 0).sum()),
            among_first=int((rank < FIRST).sum()),
            shares=int(shares.sum()),
        )
        return {"loss": loss, "correct": rank == 0}

    def _merge(self, batch: dict[str, np.ndarray]) -> None:
        if self._rows and batch.keys() != self._rows.keys():
            raise DataError(
                "Some batches have labels and some have none. Give all of them labels, or none."
            )
        merged = {
            k: np.concatenate([self._rows[k], v]) if self._rows else v for k, v in batch.items()
        }
        if len(merged["number"]) > self.keep:
            chosen = np.sort(np.argsort(merged["lot"], kind="stable")[: self.keep])
            merged = {k: v[chosen] for k, v in merged.items()}
        self._rows = merged

    def join(self, other: "_Seen") -> None:
        """Append what another rank saw, numbered on from here."""
        if other._rows:
            number = other._rows["number"] + self.counts["samples"]
            self._merge({**other._rows, "number": number})
        self.counts += other.counts
        self.outputs = max(self.outputs, other.outputs)
        self.what = self.what or other.what
        self.remarks |= other.remarks

    @property
    def accuracy(self) -> float | None:
        return self._share("correct")

    @property
    def top5(self) -> float | None:
        return self._share("among_first") if self.outputs > FIRST else None

    def _share(self, name: str) -> float | None:
        return self.counts[name] / self.counts["judged"] if self.counts["judged"] else None

    @property
    def probabilities(self) -> bool:
        """Whether the outputs are that for all samples: for a few, logits may look so by chance."""
        return 0 < self.counts["judged"] == self.counts["shares"]

    @property
    def notes(self) -> list[str]:
        return [*self.remarks, *([_PROBABILITIES] if self.probabilities else [])]

    def kept(self) -> Samples:
        left_out = {"lot", "loss"} if self.probabilities else {"lot"}
        return Samples(**{k: v for k, v in self._rows.items() if k not in left_out})


def _gathered(
    steps: list[Step] | None, seen: _Seen, fault: Exception | None
) -> tuple[list[Step] | None, _Seen]:
    """What all ranks saw, one after the other; the steps are those of any rank that had data.

    Raises:
        StiffnetError: The first rank's that had one, on every rank; it tells of other errors.
    """
    told = fault
    if fault is not None and not isinstance(fault, StiffnetError):  # others may not be sent
        told = StepError(
            f"Rank {seen.rank} could not measure its samples: {type(fault).__name__}: {fault}. "
            "Check the network and the data there."
        )
    everyone = [(steps, seen, told)] * dist.get_world_size()
    dist.all_gather_object(everyone, (steps, seen, told))
    if faults := [error for _, _, error in everyone if error is not None]:
        raise faults[0] from (None if told is fault else fault)
    total = _Seen(seen.keep)
    for _, part, _ in everyone:
        total.join(part)
    return next((found for found, _, _ in everyone if found), None), total


def refuse_labels(labels: Tensor, wrong: Tensor, noun: str, first: int, why: str) -> None:
    """Refuse labels of which some are wrong, by a DataError that names the first and says why."""
    if bool(wrong.any()):
        where = int(wrong.nonzero()[0])
        raise DataError(f"{noun} {first + where} has label {int(labels[where])}{why}")


def logits_of(output: Any) -> Tensor | None:
    """Find the row of logits of each sample in what a network returns.

    What is called logits is that, and else the first of several parts. None if there is none, or if
    another part has rows of another length, so that the first may be something else (features).
    """
    if hasattr(output, "logits"):
        return logits_of(output.logits)
    if isinstance(output, Mapping):
        return logits_of(output.get("logits", output.get("out")))
    if isinstance(output, list | tuple) and output:
        widths = {part.shape[1] for part in output if _has_rows(part)}
        return logits_of(output[0]) if len(widths) < 2 else None
    return output if _has_rows(output) else None


def _has_rows(value: Any) -> bool:
    return isinstance(value, Tensor) and value.ndim == 2
