"""Gates on the tokens of a text: they read no padding, and in decoders nothing that comes later."""

import copy
import math
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn

from stiffnet.attention import Attention
from stiffnet.attention.constant import ConstantGate
from stiffnet.attention.tokens import RunningCalls, TokenMeans
from stiffnet.errors import StepError
from stiffnet.network.causality import ROUNDINGS, causal_steps
from stiffnet.network.gate_places import Socket
from stiffnet.network.running_calls import running_calls
from stiffnet.sequences import parameters_of, takes_tokens
from stiffnet.trajectory.batch import Example
from stiffnet.trajectory.tokens import SAMPLES, reads_tokens, sequences_of_call

Axes = tuple[int, ...]


def is_given_tokens(model: nn.Module, call: Example) -> bool:
    """Whether a call gives a network sequences of tokens, which may be padded."""
    return reads_tokens(model) and bool(sequences_of_call(model, call))


def read_tokens(
    model: nn.Module, sockets: Sequence[Socket], gates: Sequence[nn.Module], call: Example
) -> RunningCalls | None:
    """Make new gates on tokens read no padding, and where a step is causal no later tokens.

    Networks that are given no sequence are left as they are, and so are gates that read no rate. A
    gate that cannot do that is refused by a StepError; but where the sequences are no words, and
    the step is not causal, it reads all positions, and padding is refused when it is met. Returns
    what the gates are to be told of calls; see `follow_calls`.
    """
    found = sequences_of_call(model, call)
    if not found:
        return None
    masked, words = reads_tokens(model), found[0].words
    by_name = any(takes_tokens(module) for module in model.modules())
    steps = [socket.step for socket in sockets if socket.step is not None]
    causal = causal_steps(model, steps, call)
    calls = running_calls(model) or RunningCalls()
    several = len(parameters_of(model)) > 1 or any(isinstance(v, Mapping) for v in call.args)
    calls.told_more = several and not masked
    for socket, gate in zip(sockets, gates, strict=True):
        sees = socket.name in causal
        axes = None if socket.step is None else socket.step.increment_at.tokens
        if isinstance(gate, ConstantGate) or not (masked or sees):
            continue
        beside = axes == () and not sees  # an image, or what else there is beside the tokens
        if beside and (by_name or not isinstance(gate, Attention) or not gate.pools_tokens):
            continue
        strict = not beside and (sees or (words and masked))
        if isinstance(gate, Attention) and gate.pools_tokens:
            read = tuple(gate.positions(torch.empty(socket.shape, device="meta")))
            if strict or (read == axes if axes else len(read) == 1):
                # What an attention layer is told is about the positions; a mask that a network
                # takes by name may be about any axis of its length.
                told = read if len(read) == 1 and not by_name else None
                _refuse_padding(socket, gate, read, axes or told)
                if sees:
                    _refuse_causal(socket, gate, read, [sequence.length for sequence in found])
                gate.tokens = TokenMeans(calls, sees)
                calls.causal &= sees
            elif not beside:
                calls.unread += (socket.name,)
        elif not _mixes_positions(socket, gate):
            continue
        elif not strict:
            calls.unread += (socket.name,)
        else:
            raise StepError(
                f"{type(gate).__name__} reads the positions of step {socket.name!r} together, "
                "padding and later tokens among them. Choose a module that reads means and leaves "
                "those out ('se', 'eca', 'ie', 'sem', 'dia', 'stepnet'), or a constant ('asr:se')."
            )
    return calls


def _refuse_padding(socket: Socket, gate: Attention, read: Axes, tokens: Axes | None) -> None:
    """Refuse a gate that reads padding: the axes that it reads are not proved to be the tokens'."""
    name = type(gate).__name__
    if tokens is None:
        raise StepError(
            f"{name} would read padding at {socket.name!r}, as it is not proved which axis counts "
            "the tokens: the network runs on no other length. Give another `example`."
        )
    if read != tokens:
        raise StepError(
            f"{name} would read padding at step {socket.name!r}, whose rate of shape "
            f"{socket.shape} has its tokens along axes {tokens} and other positions beside them. "
            "Choose other steps with `where=`, or a constant module ('asr:se')."
        )


def _refuse_causal(socket: Socket, gate: Attention, read: Axes, lengths: Sequence[int]) -> None:
    """Refuse a gate that on a causal step would read later tokens.

    They are mixed by a batch norm, or are among several positions for each token.
    """
    name = type(gate).__name__
    if any(isinstance(module, nn.modules.batchnorm._BatchNorm) for module in gate.modules()):
        raise StepError(
            f"{name} has a batch norm, which in training would mix later tokens into step "
            f"{socket.name!r}, and the network is causal. Choose a module without one, such as "
            "'se' or 'ie', or `adaptor='narrow'` for StepNet."
        )
    positions = math.prod(socket.shape[axis] for axis in read)
    if positions not in lengths and not all(positions % length for length in lengths):
        raise StepError(
            f"{name} would read later tokens at step {socket.name!r}, which is causal and has "
            f"{positions} positions for the sequence of the example, several for each token. "
            "Choose other steps with `where=`, or a constant module ('asr:se')."
        )


def _mixes_positions(socket: Socket, gate: nn.Module) -> bool:
    """Whether what a gate makes of a position depends on another, whatever its weights are."""
    probe = copy.deepcopy(gate).eval()
    generator = torch.Generator().manual_seed(0)

    def noise(like: Tensor) -> Tensor:
        return torch.randn(like.shape, generator=generator).to(like)

    with torch.no_grad():
        for parameter in probe.parameters():
            parameter.add_(noise(parameter))
        like = next((p for p in probe.parameters() if p.is_floating_point()), torch.empty(0))
        shape = (SAMPLES, *socket.shape[1:])
        rate, state = (noise(torch.empty(shape, dtype=like.dtype)).to(like) for _ in range(2))
        axis = socket.axis % len(shape)
        position = next((i for i in range(1, len(shape)) if i != axis), None)
        if position is None or shape[position] < 2:
            return True
        half = shape[position] // 2
        others = [value.clone() for value in (rate, state)]
        for value in others:
            value.narrow(position, half, shape[position] - half).neg_()
        with_state = bool(getattr(gate, "needs_state", False))
        one, two = (
            probe(*given[: 1 + with_state]).narrow(position, 0, half)
            for given in ((rate, state), others)
        )
    rounding = ROUNDINGS * torch.finfo(one.dtype).eps * float(one.abs().max())
    return not float((one - two).abs().max()) <= rounding
