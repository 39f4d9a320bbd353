"""A step's branch as a function x ↦ f(x), with everything else of the pass held.

A pass is watched once, to see at which value the step begins: the state, or what a projected
shortcut and the rate were both made of. To evaluate the function, the smallest module around that
value is run again, on the arguments that it had in the pass; where the value comes up, x takes its
place, and the run ends at the addition. So what is evaluated is the network's own code.
"""

import math
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Literal, get_args

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from stiffnet.errors import StepError
from stiffnet.scaled_error import agree
from stiffnet.trajectory.batch import as_arguments, on_device
from stiffnet.trajectory.functions import ADDITIONS
from stiffnet.trajectory.graph import Node
from stiffnet.trajectory.recorder import Place
from stiffnet.trajectory.replay import Addresses, Memory, Plan, Replay, copied, nothing_else_reads
from stiffnet.trajectory.rule import verdicts
from stiffnet.trajectory.stages import handed_on, rearranged, sources, way_between
from stiffnet.trajectory.steps import Step, run_on
from stiffnet.trajectory.ways import gates
from stiffnet.trajectory.wrappers import borrowed, plain_run, unwrap

ROUNDINGS = 1e3  # by which two runs of the same code may differ

Of = Literal["rate", "increment", "sum", "block"]


@dataclass(frozen=True, eq=False)
class Branch:
    """One step of a network as a function of its input; see `branch`."""

    step: Step
    of: Of
    input: Tensor
    """What the step began at in the pass: its state, unless the shortcut is a projection."""
    output: Tensor
    """What the function gives there."""
    _run: Callable[[Tensor], Tensor]

    def __call__(self, x: Tensor) -> Tensor:
        """Evaluate the function at another input, of the shape and dtype of `input`."""
        if x.shape != self.input.shape or x.dtype != self.input.dtype:
            raise StepError(
                f"The input of step {self.step.name!r} is {self.input.dtype} of shape "
                f"{tuple(self.input.shape)}, and this is {x.dtype} of shape {tuple(x.shape)}. "
                "Give one like `input`."
            )
        return self._run(x)


def branch(model: nn.Module, step: Step, example: Any, *, of: Of = "rate") -> Branch:
    """Return one step of a network as a function of its input, everything else of the pass held.

    The function can be differentiated, by `torch.func` (`jvp`, `vjp`, `jacrev`, `vmap`) too, which
    takes what the network's code detaches for a constant. It runs that code in evaluation mode, and
    leaves the network as it was. Its input and what it gives are laid out alike: as the operands of
    the step's addition are, or for a block as what it returns. Where the shortcut is a projection,
    the input is what shortcut and rate were both made of. Where code adds several rates of one
    value to it, x + a(x) + b(x), that value is the input of each, and the second sum has the first
    rate in it.

    Args:
        model: The network; compiled, data-parallel and Fabric wrappers are looked through.
        step: One of its `steps`.
        example: One batch, as for `steps`; what else the step reads is what it was on this one.
        of: The ``rate`` f(x), before any gate; the ``increment`` Δt ⊗ f(x), which is added; the
            ``sum`` x + Δt ⊗ f(x); or what the ``block`` returns whose code adds, with whatever
            follows the sum. What is subtracted counts with its sign.

    Raises:
        StepError: If the step's code cannot be followed, or it has no one input that can be varied
            with everything else held.

    Example:
        >>> import timm, stiffnet
        >>> model = timm.create_model("resnet18")
        >>> images = torch.rand(1, 3, 32, 32)
        >>> step = stiffnet.steps(model, images)[1]
        >>> f = branch(model, step, images)
        >>> value, back = torch.func.vjp(f, f.input)
        >>> torch.equal(value, f.output), back(value)[0].shape
        (True, torch.Size([1, 64, 8, 8]))
    """
    if of not in get_args(Of):
        raise StepError(f"`of` is {of!r}. Give one of {', '.join(map(repr, get_args(Of)))}.")
    network = unwrap(model)
    if step.state_at.kind == "block":
        raise StepError(
            f"Step {step.name!r} is inside a block whose code cannot be followed, so its branch is "
            "not known as a function. Choose a network whose blocks add in plain code."
        )
    call = as_arguments(on_device(example, network))
    with plain_run(network), _mathematical():
        own = copied(call)  # which code may write into
        with Addresses(network, own) as seen:
            run_on(network, own)
        plan, order = _planned(seen, step, of)
        recorded = Replay(network, plan, Memory("", call), keep=True)
        output = recorded.run()
    value = recorded.input
    memory = _smallest(recorded, output, step)
    module = network.get_submodule(memory.path)

    def run(x: Tensor) -> Tensor:
        if order is not None:  # which entry of the input, as the network has it, each of x is
            x = x.reshape(-1)[order.reshape(-1).argsort()].reshape(value.shape)
        with borrowed(module), _mathematical():
            _lend_buffers(module)
            return Replay(network, plan, memory).run(x)

    return Branch(step, of, value if order is None else value.reshape(-1)[order], output, run)


def _lend_buffers(model: nn.Module) -> None:
    """Let code write into copies of its buffers, which `borrowed` takes out again.

    `torch.func` refuses what is written into a tensor that it did not make: a counter of calls.
    """
    copies: dict[int, Tensor] = {}
    for module in model.modules():
        for name, buffer in module._buffers.items():
            if buffer is not None and not isinstance(module, torch.jit.ScriptModule):
                module._buffers[name] = copies.setdefault(id(buffer), buffer.clone())


def _smallest(recorded: Replay, output: Tensor, step: Step) -> Memory:
    """Return the innermost call that does the same when it is run again by itself.

    That of the step's block, unless it goes by what other blocks left somewhere, as DIA does.
    """
    failed: Exception | None = None
    for call in recorded.plan.around:
        memory = recorded.kept[call]
        replay = Replay(recorded.model, recorded.plan, memory)
        try:
            with plain_run(replay.root), _mathematical(), nothing_else_reads(replay, recorded):
                again = replay.run(recorded.input)
        except Exception as error:  # foreign code, in a part that may not run by itself
            failed = error
            continue
        if agree([output], [again], ROUNDINGS * torch.finfo(output.dtype).eps):
            return memory
    if isinstance(failed, StepError):
        raise failed
    raise StepError(
        f"Step {step.name!r} does not give the same values when it is run again, so that it is no "
        "function of its input. Take out what draws random numbers or counts its calls."
    ) from failed


def _mathematical() -> AbstractContextManager[None]:
    """Compute attention by plain products, which have derivatives of every order and mode."""
    return sdpa_kernel(SDPBackend.MATH)


def _planned(seen: Addresses, step: Step, of: Of) -> tuple[Plan, Tensor | None]:
    """Where the step begins, and how the state is laid out there, if it is laid out otherwise."""
    site = step.state_at
    frames = [frame for frame in seen.frames if frame.path == site.module]
    added = (found for frame in frames for found in verdicts(frame))
    found = next((each for each in added if each[0].number == site.number), None)
    if found is None:
        raise StepError(
            f"Step {step.name!r} did not run as it did when it was found. Find the steps again "
            "with `stiffnet.steps` on such a batch."
        )
    total, verdict = found
    state, rate = (total.operands[i] for i in (verdict.state_operand, 1 - verdict.state_operand))
    address = None if verdict.input is None else seen.found.get(verdict.input)
    if verdict.input is None or address is None or state is None or rate is None:
        raise StepError(
            f"Step {step.name!r} has no one input that can be varied: it begins at several values, "
            "or at one that is made in code which cannot be followed. Choose another step."
        )
    plan = Plan(
        of=of,
        address=address,
        addition=Place(site.module, site.kind, site.number),
        rate_operand=1 - verdict.state_operand,
        gates={
            Place(product.frame.path, "mul", product.number): operand
            for product, operand in gates(rate)
        },
        around=seen.around(verdict.input),
    )
    if not verdict.identity:
        return plan, None
    ends = next(iter(total.frame.returned), None) if of == "block" else None
    return plan, _order(verdict.input, state, total, ends, step)


def _order(begins: Node, state: Node, total: Node, ends: Node | None, step: Step) -> Tensor | None:
    """Which entry of the input each entry of what is given is; None where they lie alike.

    What is given is the sum, laid out like the state, or what the block makes of it in the end.
    """
    way = way_between(begins, state, _handed_through)
    places = None if way is None else rearranged(begins, way)
    if places is not None and ends is not None and math.prod(ends.shape) == places.numel():
        way = way_between(total, ends, sources)
        after = None if way is None else rearranged(total, way)
        places = None if after is None else places.reshape(-1)[after]
        state = ends
    if places is None:
        raise StepError(
            f"What step {step.name!r} gives is laid out otherwise than what it was made of, and "
            "nobody can say how. Choose another step, or `of='branch'`."
        )
    in_order = torch.arange(places.numel()).reshape(places.shape)
    return None if begins.shape == state.shape and torch.equal(places, in_order) else places


def _handed_through(node: Node) -> list[Node]:
    """Values that a value is, but for rearrangements and earlier additions."""
    added = node.operands if node.op in ADDITIONS else ()
    return handed_on(node) or [n for n in added if n and n.shape == node.shape]
