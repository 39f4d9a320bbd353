"""Where the gates of one block go: its code read, the additions found, the rewriting proved."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, fx, nn

from stiffnet.network.gated import (
    Additions,
    Gate,
    Gated,
    insert,
    operand_nodes,
    original_class,
    source_of,
)
from stiffnet.network.tracing import (
    Addition,
    Call,
    Form,
    Untraceable,
    additions,
    agree,
    borrowed,
    copied,
    form_of,
    plain_copy,
    trace,
)
from stiffnet.trajectory.steps import Step


@dataclass(frozen=True)
class Reading:
    """The code of one block, in evaluation and in training, and the additions in it."""

    form: Form
    sources: tuple[str, str]
    places: tuple[tuple[int, int], ...]
    """For each addition of the code, its places in the graphs of both modes."""
    shapes: tuple[tuple[int, ...], ...]
    """For each addition, the shape of its operands (of the first, where they differ)."""


def read(block: nn.Module, calls: Sequence[Call], wanted: Sequence[Step]) -> Reading:
    """Read the code of a block, and prove on real calls that gates can be put into it.

    Nothing is fixed about the arguments if that works, else all that is no tensor.

    Args:
        block: In evaluation mode; left as it was.
        calls: Every call of it in one pass of the network.
        wanted: The steps in its code that are to get a gate.

    Raises:
        Untraceable: If they cannot; the message ends a sentence that says why.
    """
    if isinstance(block, torch.jit.ScriptModule) or any(
        step.increment_at.kind != "add" for step in wanted
    ):
        raise Untraceable("it is TorchScript, whose code cannot be changed")
    if isinstance(block, Gated) and not isinstance(block.gated_plan, Additions):
        raise Untraceable("it has a module at a named position already")
    forms: list[Form] = [(), form_of(original_class(block).forward, calls[0])]
    failure = Untraceable("its code cannot be traced")
    for form in forms:
        try:
            return _read(block, calls, wanted, form)
        except Untraceable as reason:
            failure = reason
    raise failure


def _read(block: nn.Module, calls: Sequence[Call], wanted: Sequence[Step], form: Form) -> Reading:
    original = original_class(block)
    sources: list[str] = []
    places: list[tuple[int, ...]] = []
    seen: list[Addition] = []
    for training in (False, True):
        plain = plain_copy(block, original, training=training)
        graph = trace(plain, form)
        sources.append(source_of(graph))
        if training and sources[0] == sources[1]:
            places.append(places[0])
            continue
        nodes = list(graph.nodes)
        with borrowed(plain, training=training):
            found = _additions(plain, graph, calls[0])
        if training and len(found) != len(seen):
            raise Untraceable("it adds otherwise in training than in evaluation")
        seen = found
        places.append(tuple(nodes.index(addition.node) for addition in found))
        for step in wanted:
            _check_addition(step, found, len(calls))
        _prove(plain, graph, calls, [(step, places[-1]) for step in wanted], training=training)
    return Reading(
        form,
        (sources[0], sources[1]),
        tuple(zip(*places, strict=True)),
        tuple(addition.shapes[0] if addition.shapes else () for addition in seen),
    )


def _additions(plain: nn.Module, graph: fx.Graph, call: Call) -> list[Addition]:
    try:
        return additions(plain, graph, call)
    except Exception as error:  # the traced path is not the one that this call took
        raise Untraceable("its code goes by what kind of arguments it is given") from error


def _check_addition(step: Step, found: list[Addition], calls: int) -> None:
    site = step.increment_at
    if not found or site.of != len(found) * calls:
        raise Untraceable("its code does not add in the same way in every call")
    addition = found[site.number % len(found)]
    if not addition.plain:
        raise Untraceable("the addition is inside a function that cannot be looked into")
    if not all(isinstance(node, fx.Node) for node in operand_nodes(addition.node)):
        raise Untraceable("its addition has a constant operand")


class _Copy(nn.Module):
    """In the place of a gate: as its result is another tensor, mistakes with aliases show."""

    def forward(self, rate: Tensor, state: Tensor | None = None) -> Tensor:
        return rate.clone()


def _prove(
    plain: nn.Module,
    graph: fx.Graph,
    calls: Sequence[Call],
    wanted: Sequence[tuple[Step, Sequence[int]]],
    *,
    training: bool,
) -> None:
    """Run the rewritten code beside the block's own, with copies where the gates would be."""
    gates = []
    for number, (step, places) in enumerate(wanted):
        site = step.increment_at
        gate = Gate(f"_copy_{number}", number, operand=site.operand, with_state=True)
        gates.append((gate, places[site.number % len(places)]))
        plain._modules[gate.child] = _Copy()
    insert(graph, gates)
    rewritten: Any = type(fx.GraphModule(plain, graph)).forward
    own: Any = type(plain).forward
    for call in calls:
        with borrowed(plain, training=training):
            expected = copied(own(plain, *copied(call.args), **copied(call.kwargs)))
        with borrowed(plain, training=training):
            try:
                result = rewritten(plain, *copied(call.args), **copied(call.kwargs))
            except Exception as error:
                reason = "its code goes by what kind of arguments it is given"
                raise Untraceable(reason) from error
        if not agree(expected, result):
            raise Untraceable("its code does something else when it is traced")


def planned(
    block: nn.Module, reading: Reading, gates: Mapping[str, tuple[Step, int, bool]]
) -> Additions:
    """Plan new gates beside those that the block has.

    Args:
        block: The block.
        reading: Its code.
        gates: For each new child, its step, the step's number in the block, and whether it is
            called with the state.
    """
    old: tuple[Gate, ...] = ()
    if isinstance(block, Gated):
        assert isinstance(block.gated_plan, Additions)
        old = block.gated_plan.gates
    new = []
    for child, (step, nth, with_state) in gates.items():
        site = step.increment_at
        number = site.number % len(reading.places)
        new.append(Gate(child, nth, number, operand=site.operand, with_state=with_state))
    placed = tuple(replace(gate, at=reading.places[gate.number]) for gate in (*old, *new))
    return Additions(placed, reading.form, reading.sources)
