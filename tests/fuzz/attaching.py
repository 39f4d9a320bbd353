"""The law of `attach` and `detach`: the gate is called on the rate, and nothing else changes."""

import copy
import io
import pickle
import warnings
from collections import defaultdict
from collections.abc import Sequence
from random import Random
from typing import Any

import pytest
import torch
from torch import nn

import stiffnet
from fuzz.build import Case, close, distance, run, run_as_it_is, same
from fuzz.measuring import TOLERANCE, found_steps, hold_record, matched
from fuzz.oracle import Noted, noted
from fuzz.verdicts import WrongError
from stiffnet.errors import StiffnetError

MODULES = ("se", "eca", "stepnet")
IDENTITY = 1e-6  # what `start="identity"` promises
Gates = dict[tuple[str, int], list[nn.Module]]


def with_gates(
    case: Case, module: Any, *, where: Any = "all"
) -> tuple[nn.Module, nn.Module] | None:
    """A network with gates of random weights on it, and the reference with the same ones.

    None if the network has no steps, and `attach` says so.
    """
    model, taken = copy.deepcopy(case.plain), case.taken
    twin = case.twin()
    try:
        stiffnet.attach(model, module, example=case.example, where=where)
    except StiffnetError as error:
        _hold_untouched(case, model)
        none = not any(step.addition for step in taken)
        if none and "has no residual steps" in str(error):
            return None
        raise
    with torch.random.fork_rng():
        torch.manual_seed(case.made.seed + 1)
        for place in stiffnet.attached(model):
            for name, parameter in model.get_submodule(place.name).named_parameters():
                spread = 1.5 if name == "psi" else 0.8
                nn.init.normal_(parameter, 0.0, spread)
    known = [taken[i] for i in matched(case.found, taken)]
    case.probe.gates = _gates(case, model, known, everywhere=where == "all")
    return model, twin


def _gates(case: Case, model: nn.Module, taken: Sequence[Noted], *, everywhere: bool) -> Gates:
    """Copies of the gates of a network, by the step of the reference that they are on."""
    side = 0 if case.made.layout.channels_first else -1
    widths = {(step.path, step.turn): step.shape[side] for step in taken}
    turns: dict[str, list[int]] = defaultdict(list)
    for path, turn in sorted(widths):
        turns[path].append(turn)
    gates: Gates = defaultdict(list)
    for place in stiffnet.attached(model):
        path, _, nth = place.at.partition("#")
        if int(nth or 0) >= len(turns[path]):
            raise WrongError(f"a gate at {place.at!r}, which is not a step")
        key = (path, turns[path][int(nth or 0)])
        gate: Any = model.get_submodule(place.name)
        if (gate.channels, gate.channel_axis) != (widths[key], case.made.layout.axis):
            raise WrongError(
                f"a gate of {gate.channels} channels along axis {gate.channel_axis}, and there are "
                f"{widths[key]} along {case.made.layout.axis}"
            )
        gates[key].append(copy.deepcopy(gate))
    if everywhere and set(gates) != set(widths):
        raise WrongError(f"gates on {sorted(gates)}, and there are steps {sorted(widths)}")
    return gates


def hold_attaching(case: Case) -> None:
    """Hold `attach` and `detach` to the reference that calls the same gates."""
    rng = Random(case.made.seed)
    module = rng.choice(MODULES)
    pair = with_gates(case, module, where=_where(case, rng))
    if pair is None:
        return
    model, twin = pair
    if rng.random() < 0.2:
        _hold_identity(case, module)
    _hold_detaching(case, model)
    if rng.random() < 0.5:
        _hold_copies(case, model, pickled=rng.random() < 0.5)
    _hold_pass(case, "in evaluation", model, twin, case.others[1], training=False)
    _hold_record(case, model, twin)
    if "autocast" in case.made.traits:
        _hold_autocast(case, model, twin)
    if case.learns:
        _hold_pass(case, "in training", model, twin, case.others[0], training=True)
        if rng.random() < 0.3:
            _hold_frozen(case, model, twin)
    for target, value in case.made.live:
        for network in (model, twin):
            exec(f"network.{target} = {value}", {"network": network})
    if case.made.live:
        _hold_pass(case, "after new settings", model, twin, case.others[1], training=False)


def _where(case: Case, rng: Random) -> Any:
    """All steps, or now and then some of them."""
    if rng.random() < 0.8:
        return "all"
    try:
        names = [step.name for step in case.found]
    except StiffnetError:
        return "all"
    return rng.sample(names, rng.randint(1, len(names)))


def _hold_pass(
    case: Case, what: str, model: nn.Module, twin: nn.Module, x: torch.Tensor, *, training: bool
) -> None:
    model.train(training)
    twin.train(training)
    _hold_same(case, what, model, twin, x)


def _hold_same(case: Case, what: str, model: nn.Module, twin: nn.Module, x: torch.Tensor) -> None:
    """Both networks do the same, in the modes that they are in, and their gates learn the same."""
    mine = [g for gates in _attached(model, case).values() for g in gates]
    its = [g for gates in case.probe.gates.values() for g in gates]
    for one, other in zip(mine, its, strict=True):
        other.zero_grad()
        for part, counterpart in zip(one.modules(), other.modules(), strict=True):
            counterpart.training = part.training
    try:
        expected = run_as_it_is(twin, x)
    except RuntimeError as error:  # a gate may keep for its gradient what the block overwrites
        if "modified by an inplace operation" not in str(error):
            raise
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            run_as_it_is(model, x)
        return
    got = run_as_it_is(model, x)
    difference = got.differs(expected, TOLERANCE)
    if difference is not None:
        raise WrongError(f"{what}: {difference}")
    for one, other in zip(mine, its, strict=True):
        for (name, parameter), match in zip(
            one.named_parameters(), other.parameters(), strict=True
        ):
            if not same(parameter.grad, match.grad, TOLERANCE):
                raise WrongError(f"{what}: gradient of a gate's {name}")
        for (name, buffer), match in zip(one.named_buffers(), other.buffers(), strict=True):
            if not same(buffer, match, TOLERANCE):
                raise WrongError(f"{what}: a gate's {name}")


def _attached(model: nn.Module, case: Case) -> Gates:
    """The gates of a network in the order of the reference's."""
    gates: Gates = defaultdict(list)
    keys = iter(key for key, found in case.probe.gates.items() for _ in found)
    for place in stiffnet.attached(model):
        gates[next(keys)].append(model.get_submodule(place.name))
    return gates


def _hold_frozen(case: Case, model: nn.Module, twin: nn.Module) -> None:
    """Norms that stay in evaluation while the rest is trained."""
    for network in (model, twin):
        network.train()
        for path, module in network.named_modules():
            if "Norm" in type(module).__name__ and "step_size" not in path:
                module.eval()
    _hold_same(case, "with frozen norms", model, twin, case.others[1])


def _hold_identity(case: Case, module: str) -> None:
    model = copy.deepcopy(case.plain)
    stiffnet.attach(model, module, example=case.example, start="identity")
    got = run(model, case.others[0], training=False)
    for one, other in zip(got.outputs, case.expected.outputs, strict=True):
        if not distance(one, other) <= IDENTITY:
            raise WrongError("not the identity at the start")


def _hold_detaching(case: Case, attached: nn.Module) -> None:
    model = copy.deepcopy(attached)
    stiffnet.detach(model)
    _hold_untouched(case, model)


def _hold_untouched(case: Case, model: nn.Module) -> None:
    """A network is what it was: classes, names of tensors, numbers to the last bit."""
    classes = [type(module) for module in case.plain.modules()]
    if [type(module) for module in model.modules()] != classes:
        raise WrongError("classes are not what they were")
    if list(model.state_dict()) != list(case.plain.state_dict()):
        raise WrongError("keys of the state dict are not what they were")
    kept = [sorted(vars(module)) for module in case.plain.modules()]
    if [sorted(vars(module)) for module in model.modules()] != kept:
        raise WrongError("attributes are not what they were")
    difference = run(model, case.others[0], training=False).differs(case.expected, 0.0)
    if difference is not None:
        raise WrongError(f"afterwards: {difference}")


def _hold_copies(case: Case, model: nn.Module, *, pickled: bool) -> None:
    """A copy, also by way of a file of weights or a pickle, does what its original does."""
    model.eval()
    x = case.others[1]
    copied = copy.deepcopy(model)
    expected = run_as_it_is(copied, x)
    file = io.BytesIO()
    torch.save(model.state_dict(), file)
    file.seek(0)
    for parameter in copied.parameters():
        nn.init.zeros_(parameter)
    copied.load_state_dict(torch.load(file))
    copies = {"a loaded copy": copied}
    if pickled and case.made.has_source and "weight_norm" not in case.made.plain:
        copies["a pickle"] = pickle.loads(pickle.dumps(model))
    for name, copied in copies.items():
        difference = run_as_it_is(copied, x).differs(expected, 0.0)
        if difference is not None:
            raise WrongError(f"{name}: {difference}")


def _hold_record(case: Case, model: nn.Module, twin: nn.Module) -> None:
    """Gates change what is added, not what a step's rate is."""
    x = case.others[0]
    taken = noted(twin, case.probe, x)
    model.eval()
    found = found_steps(case, model, taken)
    hold_record(model, found, x, [taken[i] for i in matched(found, taken)])


def _hold_autocast(case: Case, model: nn.Module, twin: nn.Module) -> None:
    """In float32 under autocast, code that switches it off keeps its precision."""
    gates = case.probe.gates
    single = copy.deepcopy(model).float().eval()
    its = case.twin().float().eval()
    case.probe.gates = {k: [copy.deepcopy(g).float().eval() for g in v] for k, v in gates.items()}
    x = case.others[0].float()
    with torch.autocast("cpu", dtype=torch.bfloat16), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch's own, on mixed types
        try:
            expected = run_as_it_is(its, x)
        except RuntimeError:  # the user's own code does not bear it
            expected = None
        if expected is not None:
            for one, other in zip(run_as_it_is(single, x).outputs, expected.outputs, strict=True):
                if not close(one, other, 1e-6):
                    raise WrongError(f"under autocast: output ({distance(one, other):.1e})")
    case.probe.know(twin)
    case.probe.gates = gates
