"""Norms exchanged for modules that are norms themselves (IEBN): all but those of shortcuts."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from torch import nn

from stiffnet.attention import Attention
from stiffnet.batch_norms import REPLACEABLE
from stiffnet.errors import StepError
from stiffnet.network.gate_places import refusal
from stiffnet.network.positions import Position
from stiffnet.network.where import Where, chosen, matches
from stiffnet.trajectory.batch import Example
from stiffnet.trajectory.functions import ADDITIONS
from stiffnet.trajectory.graph import Frame, Node, Watch
from stiffnet.trajectory.steps import Step
from stiffnet.trajectory.wrappers import plain_run

_HOOKS = [name for name in vars(nn.Module()) if "forward" in name or "backward" in name]


def replace_norms(
    model: nn.Module,
    found: Sequence[Step],
    make: Callable[[nn.Module], nn.Module],
    call: Example,
    where: Where,
) -> None:
    """Exchange the norms that `where` chooses, by their names or by those of their steps."""
    with plain_run(model), Watch(model, call) as watch:
        call.on(model)
    norms = replaceable_norms(model, watch.frames, found)
    network = type(model).__name__
    if not norms and replaced_norms(model):
        raise StepError(f"Every batch norm of {network} is replaced already. Detach first.")
    if not norms:
        raise StepError(f"{network} has no batch norm to replace. Use 'ie' on its steps instead.")
    if callable(where):
        picked = _in_branches(norms, chosen(found, where, kind="step", network=network))
    elif where == "all":
        picked = norms
    else:
        picked = _named(norms, found, where, network)
    made: dict[nn.Module, nn.Module] = {}
    refused: dict[str, str] = {}
    for name in picked:
        old = model.get_submodule(name)
        try:
            made[old] = make(old)
        except StepError as error:
            refused[name] = str(error)
    if refused:
        raise StepError(refusal("A module", "norm", refused, len(picked)))
    for old, new in made.items():
        for hooks in _HOOKS:
            new.__dict__[hooks] = old.__dict__[hooks]
    exchange(model, made)


def _in_branches(norms: Sequence[str], steps: Sequence[Step]) -> list[str]:
    roots = [path for step in steps for path in step.branch]
    return [name for name in norms if any(f"{name}.".startswith(f"{root}.") for root in roots)]


def _named(norms: Sequence[str], found: Sequence[Step], where: Where, network: str) -> list[str]:
    """Norms whose own names match, and those in the branches of steps whose names match."""
    picked: set[str] = set()
    for pattern in [where] if isinstance(where, str) else list(where):  # type: ignore[arg-type]
        steps = [step for step in found if matches(step.name, pattern)]
        inside, own = _in_branches(norms, steps), [Position(name) for name in norms]
        picked.update(inside)
        if not inside:
            picked |= {p.name for p in chosen(own, pattern, kind="norm", network=network)}
    return [name for name in norms if name in picked]


def replaced_norms(model: nn.Module) -> list[str]:
    """Paths of the modules that took the place of a norm."""
    return [path for path, module in model.named_modules() if getattr(module, "_replaced", ())]


def put_back(model: nn.Module, only: type[nn.Module] = nn.Module) -> None:
    """Exchange modules of one class for the norms whose places they took, with today's tensors."""
    there = [model.get_submodule(path) for path in replaced_norms(model)]
    modules: list[Any] = [module for module in there if isinstance(module, only)]
    exchange(model, {module: module.to_norm() for module in modules})


def exchange(model: nn.Module, new: dict[nn.Module, nn.Module]) -> None:
    """Put new modules in the places of others, wherever these are children."""
    for parent in list(model.modules()):
        for name, child in parent._modules.items():
            if child in new:
                parent._modules[name] = new[child]


def replaceable_norms(
    model: nn.Module, frames: Sequence[Frame], steps: Sequence[Step]
) -> list[str]:
    """Paths of the batch norms of maps, without those of shortcuts and of attention modules."""
    left_out = [path for step in steps for path in shortcut_modules(step, frames)]
    left_out += [path for path, module in model.named_modules() if isinstance(module, Attention)]
    ran = {
        frame.path: next((node.shape for node in frame.nodes if node.op == "argument"), ())
        for frame in frames
    }
    return [
        path
        for path, module in model.named_modules()
        if type(module) in REPLACEABLE
        and len(ran.get(path, ())) >= 3
        and not any(f"{path}.".startswith(f"{out}.") for out in left_out)
    ]


def shortcut_modules(step: Step, frames: Sequence[Frame]) -> Iterator[str]:
    """Paths of the modules that compute the state of a step and have no part in its rate."""
    site = step.state_at
    for frame in frames:
        for node in frame.nodes if frame.path == site.module else ():
            if node.op in ADDITIONS and node.number == site.number and len(node.operands) == 2:
                state, rate = node.operands[site.operand], node.operands[1 - site.operand]
                if state is not None and rate is not None:
                    yield from _only(state, [_ungated(rate)])


def _ungated(rate: Node) -> Node:
    """Look behind attached modules, which may have been given the state too."""
    while rate.called is not None and isinstance(rate.called.module, Attention) and rate.inputs:
        rate = rate.inputs[0]
    return rate


def _only(state: Node, rates: list[Node]) -> Iterator[str]:
    shared = 0
    for rate in rates:
        shared |= rate.before
    own = [n for n in state.frame.nodes if state.before & ~shared & (1 << n.index)]
    yield from (node.called.path for node in own if node.called is not None)
    for node in own:  # the state came in as an argument: go on in the code that computed it
        if node.outer is not None:
            beside = [n.outer for n in state.frame.nodes if n.outer and n not in own]
            if others := [n for n in beside if n.frame is node.outer.frame]:
                yield from _only(node.outer, others)
