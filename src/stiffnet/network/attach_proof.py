"""Proof that gates are called where they should be: passes with copies in their places.

In the place of every gate stands a child that copies the rate. The pass must add those very copies,
in the additions that were meant, to those very states; and its results must be those of the network
as it was. Since a copy is another tensor, a rate that the code also writes to shows, too. A pass
that nobody watches must call them as often, and a pass in training must not add elsewhere.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from torch import Tensor, nn

from stiffnet.nested import tensors_in
from stiffnet.network.gate_places import Socket
from stiffnet.network.gated_block import gates_of, keep_in_python, put
from stiffnet.network.method_source import Unreadable
from stiffnet.network.source_edits import EVERY, Gate, Spot, Turn
from stiffnet.scaled_error import agree
from stiffnet.trajectory.batch import Example
from stiffnet.trajectory.places import Line, Places
from stiffnet.trajectory.wrappers import own_chance, plain_run
from stiffnet.words import first_line

ROUNDING = 1e-5  # scaled error that a device may make between two passes

Number = tuple[str, int]
"""Path of a block, and number of an addition of its code in a pass."""


def prove(
    model: nn.Module, sockets: Iterable[Socket], call: Example
) -> dict[str, tuple[Gate, ...]]:
    """Run the network as it is, then with copies in the places of gates; return all blocks' gates.

    All passes see the same random numbers. Where a gate is wanted for some turns of a loop only,
    the turns are found here. The network is left as it was. Raises Unreadable if a gate would not
    be called as it should.
    """
    by_block: dict[str, list[Socket]] = defaultdict(list)
    for socket in sockets:
        by_block[socket.block].append(socket)
    with plain_run(model):
        expected = [tensor.clone() for tensor in tensors_in(call.on(model))]
    with plain_run(model), _probed(model, by_block) as probes:
        watch = _Watched(model, list(by_block), probes=probes)
        try:
            with own_chance(model), watch:
                result = call.on(model)
            calls = [len(probe.calls) for probe in probes]
            with own_chance(model):  # as it runs when nobody watches
                again = call.on(model)
            ways = _other_ways_in_training(model, watch, probes, call)
        except Exception as error:
            reason = first_line(error)
            raise Unreadable(f"its code does not run with a module in it ({reason})") from error
    if ways:
        raise Unreadable(f"in training it adds elsewhere, without the module ({ways[0]})")
    if [len(probe.calls) for probe in probes] != [2 * count for count in calls]:
        raise Unreadable("its code goes another way, without the module, when it is not watched")
    for probe, count in zip(probes, calls, strict=True):
        del probe.calls[count:]
        if probe.spot.kind != "addition" and count != watch.counts[probe.block, "call"]:
            raise Unreadable("its code runs its children one by one, and the module with them")
    turns = _turns(probes, watch.added)
    results = (list(tensors_in(result)), list(tensors_in(again)))
    if not all(agree(expected, found, ROUNDING) for found in results):
        raise Unreadable(
            "its code also writes to the rate, or uses it elsewhere by another name, so that a "
            "module would change more than the step"
        )
    return {
        path: (*gates_of(model.get_submodule(path)), *_placed(path, asked, turns, probes))
        for path, asked in by_block.items()
    }


def _other_ways_in_training(
    model: nn.Module, watch: "_Watched", probes: "list[_Probe]", call: Example
) -> list[Line]:
    """Where blocks add in training, in calls in which no gate runs; none where they cannot run.

    A block that is skipped, as stochastic depth does, adds nowhere.
    """
    counts = [len(probe.calls) for probe in probes]
    training = _Watched(model, watch.wanted, probes=probes)
    try:
        with training:
            model.train()
            call.on(model)
    except Exception:  # it wants targets, say: what it does then shows when it is trained
        return []
    finally:
        model.eval()
        for probe, count in zip(probes, counts, strict=True):
            del probe.calls[count:]
    known = {(path, met.lines[0]) for (path, _), met in watch.met.items()}
    gated = {(path, training.met[path, number].call) for path, number in training.added.values()}
    return [
        met.lines[0]
        for (path, _), met in training.met.items()
        if (path, met.lines[0]) not in known
        and (path, met.call) not in gated
        and len(set(met.shapes)) == 1
        and len(met.shapes[0]) > 2
    ]


class _Probe(nn.Module):
    """In the place of a gate, a child as it will be: copies the rate."""

    def __init__(self, block: str, spot: Spot, wanted: set[int]) -> None:
        super().__init__()
        self.block, self.spot, self.wanted = block, spot, wanted
        self.calls: list[tuple[Tensor, Any, Turn]] = []

    def forward(self, rate: Tensor, state: Any = None, turn: Turn = ()) -> Tensor:
        copy = rate.clone()
        self.calls.append((copy, state, turn))
        return copy


@contextmanager
def _probed(model: nn.Module, sockets: Mapping[str, list[Socket]]) -> Iterator[list[_Probe]]:
    """Put probes into blocks: one for each expression, whatever is wanted there."""
    probes: list[_Probe] = []
    classes = {path: type(model.get_submodule(path)) for path in sockets}
    names: list[tuple[str, str]] = []
    try:
        for path, asked in sockets.items():
            block = model.get_submodule(path)
            by_spot: dict[Spot, list[Socket]] = defaultdict(list)
            for socket in asked:
                every = None if socket.gate.spot.loop is None else EVERY
                by_spot[replace(socket.gate.spot, loop=every)].append(socket)
            gates = list(gates_of(block))
            for probed, (spot, group) in enumerate(by_spot.items()):
                name = f"_probe_{probed}"
                numbers = {number for socket in group for number in socket.numbers}
                if len(group) > 1 and spot.loop is None:
                    raise Unreadable(_SEVERAL)
                probes.append(_Probe(path, spot, numbers))
                block._modules[name] = keep_in_python(probes[-1], block)
                names.append((path, name))
                with_state = any(socket.gate.with_state for socket in group)
                gates.append(Gate(name, 0, spot, with_state))
            put(block, tuple(gates))
        yield probes
    finally:
        for path, name in names:
            model.get_submodule(path)._modules.pop(name, None)
        for path, kind in classes.items():
            model.get_submodule(path).__class__ = kind


@dataclass
class _Watched(Places):
    """Sees which addition was given which copy."""

    probes: list[_Probe] = field(default_factory=list)
    added: dict[int, tuple[str, int]] = field(default_factory=dict)

    def look(self, path: str, number: int, operands: tuple[Any, ...]) -> None:
        """Remember which copies are operands here, and what the other operand is."""
        for probe in self.probes:
            if probe.block != path or len(operands) != 2 or not probe.calls:
                continue
            copy, state, _ = probe.calls[-1]
            rate, other = operands[probe.spot.operand], operands[1 - probe.spot.operand]
            if rate is copy and (state is None or state is other):
                self.added[id(copy)] = (path, number)


def _turns(probes: list[_Probe], added: dict[int, Number]) -> dict[Number, Turn]:
    """For every addition that was wanted, in which turn of its loops it happened."""
    turns: dict[Number, Turn] = {}
    for probe in probes:
        if probe.spot.kind != "addition":
            if not probe.calls:
                raise Unreadable("its `forward` is not that of its class")
            continue
        if not probe.calls:
            raise Unreadable(
                "the method in which it adds is called in a way that no subclass can change, such "
                "as `Base.forward(self, x)`"
            )
        seen = {added[id(copy)]: turn for copy, _, turn in probe.calls if id(copy) in added}
        if len(seen) != len(probe.calls):
            raise Unreadable("what it adds is not what the expression in its code says")
        numbers = {number for _, number in seen}
        in_loop = probe.spot.loop is not None
        if not (probe.wanted <= numbers if in_loop else probe.wanted == numbers):
            raise Unreadable("its code adds there in other steps too, or not in all")
        turns |= seen
    return turns


_SEVERAL = (
    "the expression in which it adds serves several of its steps, and is reached in ways that "
    "cannot be told apart"
)


def _placed(
    path: str, asked: list[Socket], turns: dict[Number, Turn], probes: list[_Probe]
) -> Iterator[Gate]:
    taken: set[Spot] = set()
    for socket in asked:
        spot, seen = socket.gate.spot, tuple[Turn, ...]()
        if spot.loop is not None:
            calls = [probe.calls for probe in probes if probe.block == path and probe.spot == spot]
            seen = tuple(dict.fromkeys(turn for each in calls for _, _, turn in each))
            own = {turns[path, number] for number in socket.numbers}
            if len(own) != 1:
                raise Unreadable("its loops do not take the same turns in every call")
            spot = replace(spot, loop=own.pop())
        if spot in taken:
            raise Unreadable(_SEVERAL)
        taken.add(spot)
        yield replace(socket.gate, spot=spot, turns=seen)
