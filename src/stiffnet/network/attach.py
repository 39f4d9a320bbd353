"""Plugging a step-size module into a network, and taking it out again."""

import inspect
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import nn

from stiffnet.attention import ATTENTION, Attention
from stiffnet.attention.asr import PREFIX, Asr, ConstantGate, asr
from stiffnet.errors import NoStepsError, StepError, UnknownNameError
from stiffnet.network.attach_proof import prove
from stiffnet.network.causality import causal_steps
from stiffnet.network.example import example_for
from stiffnet.network.gate_memory import Memory, next_call, remember, spelled
from stiffnet.network.gate_places import Socket, position_sockets, refusal, step_sockets
from stiffnet.network.gated_block import (
    Gated,
    gates_of,
    keep_in_python,
    keep_padded,
    put,
    take_out,
)
from stiffnet.network.method_source import Unreadable
from stiffnet.network.norm_exchange import put_back, replace_norms, replaced_norms
from stiffnet.network.positions import positions
from stiffnet.network.running_calls import follow_calls, forget_calls
from stiffnet.network.source_edits import Gate
from stiffnet.network.token_gates import is_given_tokens, read_tokens
from stiffnet.network.where import Where
from stiffnet.registry import check_known
from stiffnet.trajectory.batch import Example, as_arguments
from stiffnet.trajectory.steps import Step, steps_of_call
from stiffnet.trajectory.wrappers import is_compiled, unwrap

STARTS = ("paper", "identity")
SAMPLES = 2  # of the example: enough for a batch norm in training

Maker = Callable[..., nn.Module]


@dataclass(frozen=True)
class Attachment:
    """One module that sits in a network."""

    name: str
    """Its path."""
    module: str
    """The name under which it is registered, ``asr:`` before it, or else that of its class."""
    at: str
    """The step or position that it is on; for IEBN, the norm that it replaced."""
    parameters: int
    """How many it has; what several share (DIA's cell) counts for the first of them."""


def attach(
    model: nn.Module,
    module: str | Maker,
    *,
    where: Where = "all",
    start: str = "paper",
    example: Any = None,
    **options: Any,
) -> nn.Module:
    """Put a step-size module on the residual steps of a network, just before their additions.

    The network is changed, all of it or (when an error is raised) nothing. Blocks that get a
    module stay the objects that they are, of a class of their own class whose code also calls the
    module, and every parameter keeps its name: old weights load, and only the new modules' are
    missing. `detach` undoes it. Attach before compiling, wrapping and making an optimizer.

    Where a loop takes several steps, each has a module of its own, known by the layer that the loop
    goes to (``for layer in self.layers``) or else, as in ``for i in range(n)``, by the number of
    the turn: such a loop must always begin where it began on the example. A turn that was not
    taken then is refused.

    On the tokens of a text, modules that read means ('se', 'eca', 'ie', 'sem', 'dia', 'stepnet')
    leave padding out, by the attention mask that the network is given, and in causal steps read
    the tokens so far; others that read positions together are refused. See ``docs/text.md``.

    Args:
        model: Any network; `copy.deepcopy` it first to keep both. Networks without residual steps
            have named positions instead, see `register_positions`.
        module: A registered name (``"se"``, ``"stepnet"``), one that is fed a learnt constant
            (``asr("se")``, or as text ``"asr:se"``), or a class or function that makes the module:
            ``module(channels, **options)``, with ``channel_axis=-1`` where channels come last.
        where: ``"all"``, names of steps or patterns as in a shell, a predicate on `Step`, or
            ``top_k(report, k)``. IEBN replaces norms: every batch norm but those of shortcuts, or
            those whose names match, or those in the branches of the steps that are chosen.
        start: ``"paper"``: as the module's authors initialise it; ``"identity"``: so that the
            network computes at first what it computed before.
        example: One batch, as for `stiffnet.steps`. Made up where it is not given.
        **options: For the module.

    Returns:
        The model itself.

    Raises:
        UnknownNameError: If there is no such module, option or start.
        StepError: If `where` chooses nothing, or a chosen step cannot take the module.

    Example:
        >>> import timm
        >>> model = attach(timm.create_model("resnet18"), "eca", where="layer4.*")
        >>> [(found.name, found.module, found.parameters) for found in attached(model)]
        [('layer4.0.step_size', 'eca', 5), ('layer4.1.step_size', 'eca', 5)]
    """
    _refuse_wrapped(model, "attach to")
    check_known("start", start, STARTS)
    name, given = spelled(module, options)
    told = partial(Memory, next_call(model), name, given, start)
    maker, options = _maker(module, options)
    call = as_arguments(example_for(model) if example is None else example).resized(SAMPLES)
    named = positions(model)
    if getattr(maker, "replaces_norm", False):
        if not isinstance(maker, Asr) and is_given_tokens(model, call):
            raise StepError(
                f"{_name(maker)} reads all positions, and would read the padding of a text. Choose "
                "a module that leaves it out, such as 'ie', or a constant one, 'asr:iebn'."
            )
        steps = [] if named else _steps(model, call, needed=callable(where))
        if not isinstance(maker, Asr) and causal_steps(model, steps, call):
            raise StepError(
                f"{_name(maker)} reads all positions, and {type(model).__name__} is causal: later "
                "ones would change those before them. Choose 'ie', or a constant one, 'asr:iebn'."
            )
        make = _norm_maker(maker, start, options)
        before = set(replaced_norms(model))
        replace_norms(model, steps, make, call, where)
        for path in set(replaced_norms(model)) - before:
            remember(model.get_submodule(path), told((path,), path))
        return model
    if named:
        sockets = position_sockets(model, named, call, where)
    else:
        sockets = step_sockets(model, _steps(model, call), call, where)
    gates = _gates(model, sockets, maker, start, options)
    for socket, gate in zip(sockets, gates, strict=True):
        remember(gate, told(socket.steps or (socket.name,), socket.block))
    calls = read_tokens(model, sockets, gates, call)
    sockets = [socket.calling(gate) for socket, gate in zip(sockets, gates, strict=True)]
    plans = _proved(model, sockets, call)
    classes = {path: type(model.get_submodule(path)) for path in plans}
    try:
        for socket, gate in zip(sockets, gates, strict=True):
            block = model.get_submodule(socket.block)
            block.add_module(socket.gate.child, keep_in_python(gate, block))
        for path, plan in plans.items():
            put(model.get_submodule(path), plan)
        keep_padded(model)
        follow_calls(model, calls)
    except BaseException:  # an interrupt too: all or nothing
        for path, own in classes.items():
            model.get_submodule(path).__class__ = own
        for socket in sockets:
            model.get_submodule(socket.block)._modules.pop(socket.gate.child, None)
        forget_calls(model)
        keep_padded(model)
        raise
    return model


def detach(model: nn.Module) -> nn.Module:
    """Take out everything that was attached: the network is what it was, with today's weights.

    Returns:
        The model itself.

    Raises:
        StepError: If nothing is attached.
    """
    _refuse_wrapped(model, "detach from")
    if not attached(model):
        raise nothing_attached(model)
    put_back(model)
    for module in list(model.modules()):
        if isinstance(module, Gated):
            take_out(module)
    forget_calls(model)
    keep_padded(model)
    return model


def nothing_attached(model: nn.Module, more: str = "") -> StepError:
    """Return the error on a network without modules, or without any that the words ask for."""
    return StepError(
        f"Nothing is attached to {type(model).__name__}{more}. Attach a module first, with "
        "`stiffnet.attach`."
    )


def attached(model: nn.Module) -> list[Attachment]:
    """List what sits where in a network, in the order of its modules."""
    counted: set[nn.Parameter] = set()
    found = []
    for path, module, at in _attached(unwrap(model)):
        new = {parameter for _, parameter in _new_parameters(module)} - counted
        counted |= new
        count = sum(parameter.numel() for parameter in new)
        found.append(Attachment(path, _registered_name(module), at, count))
    return found


def new_parameters(model: nn.Module) -> dict[str, nn.Parameter]:
    """Parameters of all that is attached, by name, without those of the norms it replaced."""
    return {
        f"{path}.{name}": parameter
        for path, module, _ in _attached(model)
        for name, parameter in _new_parameters(module)
    }


def _new_parameters(module: nn.Module) -> Iterator[tuple[str, nn.Parameter]]:
    had = ("weight", "bias") if getattr(module, "replaces_norm", False) else ()
    return ((name, new) for name, new in module.named_parameters() if name not in had)


def _attached(model: nn.Module) -> Iterator[tuple[str, nn.Module, str]]:
    """Path, module, and the place that it is on."""
    norms = set(replaced_norms(model))
    for path, module in model.named_modules():
        if path in norms:
            yield path, module, path
        for gate in gates_of(module):
            name = f"{path}.{gate.child}" if path else gate.child
            yield name, getattr(module, gate.child), f"{path}#{gate.nth}" if gate.nth else path


def _registered_name(module: nn.Module) -> str:
    name = module.label if isinstance(module, ConstantGate) else spelled(type(module), {})[0]
    return name or type(module).__name__


def _refuse_wrapped(model: nn.Module, verb: str) -> None:
    if unwrap(model) is not model:
        raise StepError(
            f"This is a {type(model).__name__} around a network, which would not notice the "
            f"change; {verb} the network itself, then wrap it."
        )
    if is_compiled(model):
        raise StepError(
            f"Parts of {type(model).__name__} are compiled already; {verb} the network first, then "
            "compile it."
        )


def _maker(module: str | Maker, options: dict[str, Any]) -> tuple[Maker, dict[str, Any]]:
    """Find what makes the gates, and the options that it is still to be given."""
    if isinstance(module, str):
        prefix, _, name = module.partition(":")
        if prefix == PREFIX:
            return asr(name, **options), {}
        module = ATTENTION[module].value
    if isinstance(module, type) and issubclass(module, Attention):
        module.refuse_values(options)  # of no step, so that no other step would do
    if isinstance(module, Asr) and options:
        raise StepError(
            f"{', '.join(sorted(options))} cannot be given to {_name(module)}; give such options "
            "to `asr` itself."
        )
    if isinstance(module, nn.Module):
        raise StepError(
            f"This {type(module).__name__} would be shared by all steps, whatever their widths. "
            f"Give the class, and its options to `attach`."
        )
    if not callable(module):
        raise StepError(
            f"{module!r} makes no modules. Give a registered name such as 'se', a class, or a "
            "function of the number of channels."
        )
    return module, options


def _name(maker: Maker) -> str:
    return getattr(maker, "__name__", type(maker).__name__)


def _steps(model: nn.Module, call: Example, *, needed: bool = True) -> list[Step]:
    try:
        return steps_of_call(model, call)
    except NoStepsError as error:
        if not needed:
            return []
        raise NoStepsError(
            f"{type(model).__name__} has no residual steps to attach to, and no named positions. "
            "Say where modules go in it with `register_positions`."
        ) from error


def _gates(
    model: nn.Module,
    sockets: Sequence[Socket],
    maker: Maker,
    start: str,
    options: Mapping[str, Any],
) -> list[nn.Module]:
    """Make a gate for each socket, or refuse all of them."""
    groups: dict[Any, list[Socket]] = defaultdict(list)
    for socket in sockets:
        alone = not getattr(maker, "shares_cell", False)
        key = socket.name if alone else (socket.group, socket.channels, socket.axis)
        groups[key].append(socket)
    gates: dict[str, nn.Module] = {}
    refused: dict[str, str] = {}
    for group in groups.values():
        try:
            for socket, gate in zip(group, _made(group, maker, options), strict=True):
                _check(gate, socket)
                _like(gate, model.get_submodule(socket.block), model, socket.dtype)
                if start == "identity":
                    _start_at_identity(gate, maker)
                gates[socket.name] = gate
        except StepError as error:
            refused |= dict.fromkeys((socket.name for socket in group), str(error))
    if refused:
        kind = "step" if sockets[0].step else "position"
        raise StepError(refusal(_name(maker), kind, refused, len(sockets)))
    return [gates[socket.name] for socket in sockets]


def _made(group: Sequence[Socket], maker: Maker, options: Mapping[str, Any]) -> list[nn.Module]:
    channels, axis = group[0].channels, group[0].axis
    layout: dict[str, int] = {}
    if axis != 1:
        if "channel_axis" not in inspect.signature(maker).parameters:
            raise StepError(
                f"{_name(maker)} takes no `channel_axis`, and the channels come last here; choose "
                "a module that does, such as 'se'."
            )
        layout = {"channel_axis": axis}
    try:
        if hasattr(maker, "for_stage"):
            return list(maker.for_stage(channels, len(group), **layout, **options))
        return [maker(channels, **layout, **options) for _ in group]
    except TypeError as error:
        raise StepError(f"{_name(maker)} cannot be made with these options: {error}") from error


def _start_at_identity(gate: nn.Module, maker: Maker) -> None:
    if not isinstance(gate, Attention):
        raise StepError(
            f"{_name(maker)} does not say how it starts as the identity; derive it from "
            "`Attention`, or use `start='paper'`."
        )
    gate.start_at_identity()


def _check(gate: nn.Module, socket: Socket) -> None:
    """Ask the gate whether it takes what the socket gives."""
    if not isinstance(gate, nn.Module):
        raise StepError(f"A {type(gate).__name__} was made, which is not a module; make a module.")
    if getattr(gate, "needs_state", False) and socket.step is None:
        raise StepError(
            f"{type(gate).__name__} reads the state too, and a position that is not a step has "
            "none; choose another module"
        )
    if isinstance(gate, Attention):
        rate = torch.empty(socket.shape, device="meta")
        gate.check(rate, rate)


def _proved(
    model: nn.Module, sockets: Sequence[Socket], call: Example
) -> dict[str, tuple[Gate, ...]]:
    """Return the gates of every block; raise a StepError if some are not called as wanted."""
    try:
        return prove(model, sockets, call)
    except Unreadable as first:
        refused = {}
        for socket in sockets:
            try:
                prove(model, [socket], call)
            except Unreadable as reason:
                kind = type(model.get_submodule(socket.block)).__name__
                refused[socket.name] = f"{kind}: {reason}"
        if not refused:
            raise StepError(
                f"{type(model).__name__} cannot take all these modules: {first}."
            ) from first
        kind = "step" if sockets[0].step else "position"
        raise StepError(refusal("A module", kind, refused, len(sockets))) from first


def _like(gate: nn.Module, block: nn.Module, model: nn.Module, dtype: torch.dtype | None) -> None:
    """Bring a gate to the device and mode of its block, and to the precision of its rate."""
    tensors = [*block.parameters(), *model.parameters()]
    like = next((p for p in tensors if p.is_floating_point()), None)
    if like is not None:
        gate.to(like.device, dtype or like.dtype)
    gate.train(block.training)


def _norm_maker(
    maker: Any, start: str, options: Mapping[str, Any]
) -> Callable[[nn.Module], nn.Module]:
    """Give what makes a module out of a norm."""
    if options:
        raise UnknownNameError(
            f"{_name(maker)} takes its settings from the norms that it replaces, and was given "
            f"{', '.join(sorted(options))}. Leave that out."
        )

    def make(norm: nn.Module) -> nn.Module:
        made: Attention = maker.from_norm(norm)
        return made.start_at_identity() if start == "identity" else made

    return make
