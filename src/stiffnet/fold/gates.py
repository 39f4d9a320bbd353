"""Constant gates, multiplied into the layers that feed them and taken out."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from stiffnet.attention.asr import ConstantGate, ConstantIEBN
from stiffnet.errors import FoldError
from stiffnet.fold.algebra import Layer, whole_norm
from stiffnet.fold.commute import ways
from stiffnet.fold.factors import all_factors
from stiffnet.fold.operations import Reading, Refusal, frames_of
from stiffnet.network.attach import Attachment, attached
from stiffnet.network.gated_block import has_hooks, keep_padded, take_out
from stiffnet.network.norm_exchange import put_back
from stiffnet.results.fold import Folded
from stiffnet.words import few


def gates_of(model: nn.Module) -> tuple[list[Attachment], list[Attachment]]:
    """Return the attached modules that are constant, and those that depend on the input."""
    there = attached(model)
    constant = [at for at in there if isinstance(model.get_submodule(at.name), ConstantGate)]
    return constant, [at for at in there if at not in constant]


def fold_gates(model: nn.Module, constant: Sequence[Attachment], reading: Reading) -> list[Folded]:
    """Fold constant gates, of which `reading` is a pass, into the layers that feed them.

    Raises:
        FoldError: If one of them cannot be folded; the network is changed otherwise.
    """
    values = _constants(model, constant, reading)
    found: dict[str, list[tuple[Layer, Tensor]]] = {}
    reasons: dict[str, str] = {}
    for sits in constant:
        gate = model.get_submodule(sits.name)
        try:
            found[sits.name] = _found(gate, values[sits.name], reading)
        except Refusal as reason:
            reasons[sits.name] = str(reason)
    if reasons:
        raise FoldError(_cannot(reasons, len(constant)))
    for parts in found.values():
        for layer, factor in parts:
            for holder in layer.holders:
                holder.scale(factor)
    into = {name: dict.fromkeys(layer.name for layer, _ in parts) for name, parts in found.items()}
    folded = [Folded(sits.name, sits.module, tuple(into[sits.name])) for sits in constant]
    drop_gates(model, [item.name for item in folded])
    return folded


def _constants(
    model: nn.Module, gates: Sequence[Attachment], reading: Reading
) -> dict[str, Tensor]:
    """Value of every gate, asked in the order in which they ran: some hand a memory on."""
    values: dict[str, Tensor] = {}
    names = {model.get_submodule(sits.name): sits.name for sits in gates}
    for frame in reading.frames:
        if frame.module in names and names[frame.module] not in values:
            gate: Any = frame.module
            with torch.no_grad():
                values[names[gate]] = gate.constant().double()
    not_run = [name for name in names.values() if name not in values]
    missing = dict.fromkeys(not_run, "it does not run on the example")
    strange = {
        name: "its step size is not a finite number"
        for name, value in values.items()
        if not bool(value.isfinite().all())
    }
    if missing or strange:
        raise FoldError(_cannot(missing | strange, len(gates)))
    return values


def _found(gate: Any, value: Tensor, reading: Reading) -> list[tuple[Layer, Tensor]]:
    """Find the layers that take the value of a gate in, and what each is scaled by."""
    frames = list(frames_of(reading, gate))
    if isinstance(gate, ConstantIEBN):  # a norm takes its own gate in: in its weight alone
        norm = whole_norm(reading, frames[0].nodes[0], gate)
        return [(replace(norm, holders=norm.holders[:1]), value)]
    if has_hooks(gate):
        raise Refusal("it has forward hooks, which would be lost with it")
    if len(frames) > 1:
        raise Refusal(f"it is called {len(frames)} times in one pass")
    rate = next(node for node in frames[0].nodes if node.op == "argument")
    if rate.outer is None:
        raise Refusal("there is no layer between it and the network's input")
    shape, axis = rate.outer.shape, gate.channel_axis
    parts = all_factors(ways(rate.outer, reading, frames[0]), shape, axis, value)
    return [(part.layer, part.values) for part in parts]


def drop_gates(model: nn.Module, gates: Sequence[str]) -> None:
    """Take gates out of a network; every block that has none left is of its own class again."""
    blocks: dict[str, list[str]] = defaultdict(list)
    for name in gates:
        if not isinstance(model.get_submodule(name), ConstantIEBN):
            block, _, child = name.rpartition(".")
            blocks[block].append(child)
    for path, children in blocks.items():
        take_out(model.get_submodule(path), children)
    keep_padded(model)
    put_back(model, only=ConstantIEBN)


def _cannot(reasons: dict[str, str], of: int) -> str:
    shown = few((f"{name!r} ({reason})" for name, reason in reasons.items()), separator="; ")
    return (
        f"{len(reasons)} of {of} constant gates cannot be folded: {shown}. "
        "Nothing was changed; attach them elsewhere, or leave them in."
    )
