"""The law of `steps`, `record` and `measure`: those steps, with those norms."""

import copy
import warnings
from collections.abc import Sequence

import torch
from torch import Tensor, nn

import stiffnet
from fuzz.build import Case, distance
from fuzz.oracle import Noted, noted
from fuzz.verdicts import WrongError
from stiffnet.errors import StepError

TOLERANCE = 1e-10


def matched(
    found: Sequence[stiffnet.Step], taken: Sequence[Noted], notes: Sequence[str] = ()
) -> list[int]:
    """Which of the steps that the reference took were found; all must be, and nothing else.

    Sums that are not written as additions may be passed over, all of them or none.
    """
    paths = [step.module for step in found]
    for which in (range(len(taken)), [i for i, step in enumerate(taken) if step.addition]):
        if paths == [taken[i].path for i in which]:
            return list(which)
    expected = [step.path for step in taken if step.addition]
    missing = [path for path in set(expected) if paths.count(path) < expected.count(path)]
    if missing and notes:  # it said so
        raise StepError(f"noted: {notes[0]}")
    kind = "steps missing" if missing else "steps that are none"
    raise WrongError(f"{kind}: found {paths}, and there are {expected}")


def hold_measuring(case: Case) -> None:
    """Hold `steps`, `record` and `measure` to what the reference notes."""
    model = copy.deepcopy(case.plain)
    taken = case.taken
    before = copy.deepcopy(model.state_dict())
    found = found_steps(case, model, taken)
    if not found:
        return
    which = matched(found, taken)
    if "added: of views" not in case.made.traits:
        for step, at in zip(found, which, strict=True):
            if step.shape != taken[at].shape:
                raise WrongError(f"shape of a state: {step.shape}, and it is {taken[at].shape}")
    twin = case.twin()
    expected = [noted(twin, case.probe, x) for x in case.others]
    report = stiffnet.measure(model, list(case.others))
    nsi = [torch.stack([steps[i].rate / steps[i].state for i in which], 1) for steps in expected]
    _compare("NSI", torch.from_numpy(report.nsi), torch.cat(nsi))
    for name, value in model.state_dict().items():
        if not torch.equal(value, before[name]):
            raise WrongError(f"measuring changed {name}")
    hold_record(model, found, case.others[0], [expected[0][i] for i in which])


def hold_record(
    model: nn.Module, found: Sequence[stiffnet.Step], x: Tensor, taken: Sequence[Noted]
) -> None:
    """Hold `record` to the norms that a reference noted on a batch."""
    with stiffnet.record(model, found) as recording, torch.no_grad():
        torch.manual_seed(1)
        model(x)
    for name in ("state", "rate", "increment"):
        values = torch.stack([getattr(step, name) for step in taken], 1)
        _compare(f"{name} norms", getattr(recording.trajectory, f"{name}_norms"), values)


def found_steps(case: Case, model: nn.Module, taken: Sequence[Noted]) -> list[stiffnet.Step]:
    """The steps of a network; none if there are none and `steps` says so."""
    with warnings.catch_warnings(record=True) as notes:
        warnings.simplefilter("always")
        try:
            found = stiffnet.steps(model, case.example)
        except StepError as error:
            none = not any(step.addition for step in taken)
            if none and "has no residual steps" in str(error):
                return []
            raise
        matched(found, taken, [str(note.message) for note in notes])
    return found


def _compare(what: str, found: Tensor, expected: Tensor) -> None:
    if found.shape != expected.shape or distance(found, expected) > TOLERANCE:
        raise WrongError(f"{what}: {found.tolist()}, and they are {expected.tolist()}")
