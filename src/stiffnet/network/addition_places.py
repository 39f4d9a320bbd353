"""Where in the text of its block the addition of a step stands."""

import torch
from torch import nn

from stiffnet.network.gated_block import original_class
from stiffnet.network.method_source import Method, Unreadable, method_of
from stiffnet.network.source_edits import Spot, loops_around
from stiffnet.trajectory.places import Line, Met
from stiffnet.trajectory.steps import Step


def spot_of(block: nn.Module, step: Step, met: Met | None) -> tuple[Spot, int]:
    """Find the expression in which a step adds, and how many loops around it count their turns.

    The step's addition was `met` in the code of `block`.

    Raises:
        Unreadable: If a gate cannot be called there; the message ends a sentence that says why.
    """
    if isinstance(block, torch.jit.ScriptModule) or step.increment_at.kind != "add":
        raise Unreadable("it is TorchScript, whose code cannot be changed")
    if met is None:
        raise Unreadable("it does not add in the same way in every pass")
    method, line = _method(block, met)
    if line.start is None or line.end is None:
        raise Unreadable(
            "Python keeps no columns of its code, which tell where it adds; run Python without "
            "`-X no_debug_ranges`"
        )
    number = method.addition_at(line.start, line.end)
    spot = Spot(
        depth=_depth(block, method),
        method=method.name,
        kind="addition",
        number=number,
        operand=step.increment_at.operand,
    )
    return spot, len(loops_around(method, method.additions[number]))


def _method(block: nn.Module, met: Met) -> tuple[Method, Line]:
    """The innermost method of the block on the way to an addition, and where it went on there."""
    innermost, *outer = met.lines
    method = method_of(type(block), innermost.code)
    if method is not None:
        return method, innermost
    for line in outer:
        method = method_of(type(block), line.code) if line.own else None
        if method is not None:
            if line.start is not None and line.end is not None:
                try:
                    method.addition_at(line.start, line.end)
                except Unreadable:
                    break
            return method, line
    raise Unreadable(f"it adds in a function outside of its own code ({innermost})")


def _depth(block: nn.Module, method: Method) -> int:
    """Where the class of a method stands among the block's own; changed methods know that."""
    depth = method.owner.__dict__.get("patched_depth")
    return original_class(block).__mro__.index(method.owner) if depth is None else int(depth)
