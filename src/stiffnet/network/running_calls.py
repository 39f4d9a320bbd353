"""Hooks that tell attached modules of the call that runs: its tokens, and which are padding.

They are on the modules that are given tokens and masks, and on the attention layers of torch.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from stiffnet.attention import Attention
from stiffnet.attention.constant import ConstantGate
from stiffnet.attention.tokens import RunningCalls
from stiffnet.attention_layers import Heard, holds_layers, told
from stiffnet.errors import StepError
from stiffnet.network.gated_block import gates_of
from stiffnet.sequences import (
    TOKENS,
    given_to,
    hides_padding,
    keeps_apart,
    named,
    pads_by_itself,
    parameters_of,
    refuse_unread_padding,
    takes_tokens,
)


@dataclass(eq=False)
class _Hook:
    """An object and no function, so that a copy of the network has its own."""

    calls: RunningCalls


@dataclass(eq=False)
class _Enter(_Hook):
    """Opens a call."""

    names: tuple[str, ...]

    def __call__(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        opened = self.calls.opened
        call, compiling = named(self.names, args, kwargs), torch.compiler.is_compiling()
        given, around = given_to(self.names, call), opened[-1] if opened else None
        if given is None and opened and pads_by_itself(call, opened):
            raise StepError(
                f"The network lengthens its sequences before {type(module).__name__}, and an "
                "attached module would read this padding. Pad to that length yourself, with 0 in "
                "the `attention_mask`."
            )
        again = bool(opened) or self.calls.padded  # a part of a call whose mask is known
        if given is None and not again and not compiling and (name := hides_padding(call)):
            raise StepError(
                f"The `{name}` has padding and does not say which tokens it is, so that an "
                "attached module would read it. Give a mask of two axes, one number a token."
            )
        outermost = not opened and any(name.endswith(TOKENS) for name in self.names)
        apart = outermost and not compiling and keeps_apart(call, causal=self.calls.causal)
        if apart:
            raise StepError(
                f"The `{apart}` hides tokens of a sequence from each other, as in packed "
                "sequences, and an attached module would read their mean. Give each sequence as a "
                "sample of its own, and a mask of two axes, one number a token."
            )
        if given is not None:
            around = (given if compiling else given.without_full_masks()).within(around)
            self.calls.padded |= around.masked and module.training
        opened.append(around)


@dataclass(eq=False)
class _Look:
    """Refuses padding of which only the network itself can know."""

    names: tuple[str, ...]

    def __call__(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        refuse_unread_padding(named(self.names, args, kwargs))


@dataclass(eq=False)
class _Close(_Hook):
    """Closes a call again."""

    stack: str

    def __call__(self, module: nn.Module, args: tuple[Any, ...], output: Any) -> None:
        running = getattr(self.calls, self.stack)
        if running:
            running.pop()


class _Listen(_Hook):
    """Opens a call of a part with attention layers of torch in it."""

    def __call__(self, module: nn.Module, args: tuple[Any, ...]) -> None:
        self.calls.heard.append(Heard(id(module)))


class _Hear(_Hook):
    """Notes what such a layer is told."""

    def __call__(
        self, module: nn.MultiheadAttention, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> None:
        call = told(module, args, kwargs)
        if call is not None:
            self.calls.hear(call, training=module.training)


def follow_calls(model: nn.Module, calls: RunningCalls | None) -> None:
    """Tell the gates on tokens of a network what each call is given; again for new gates."""
    blocks = _blocks(model)
    if calls is not None and calls.told_more and blocks and not _has(model, _Look):
        model.register_forward_pre_hook(_Look(parameters_of(model)), with_kwargs=True)
    means = any(isinstance(m, Attention) and m.tokens is not None for m in model.modules())
    if calls is None or not (calls.unread or means):
        return
    scopes: set[str] = set()
    for path, module in model.named_modules():
        around = path == "" or any(f"{block}.".startswith(f"{path}.") for block in blocks)
        if around and takes_tokens(module) and not _has(module, _Enter):
            module.register_forward_pre_hook(_Enter(calls, parameters_of(module)), with_kwargs=True)
            module.register_forward_hook(_Close(calls, "opened"), always_call=True)
    for block in blocks:  # whose layers tell it, or else those of the part around it
        parts = block.split(".")
        above = (".".join(parts[:end]) for end in range(len(parts), 0, -1))
        scopes |= {next((p for p in above if holds_layers(model.get_submodule(p))), "")}
    for path in scopes:
        scope = model.get_submodule(path)
        if holds_layers(scope) and not _has(scope, _Listen):
            scope.register_forward_pre_hook(_Listen(calls))
            scope.register_forward_hook(_Close(calls, "heard"), always_call=True)
        for layer in scope.modules():
            if isinstance(layer, nn.MultiheadAttention) and not _has(layer, _Hear):
                layer.register_forward_pre_hook(_Hear(calls), with_kwargs=True)


def _blocks(model: nn.Module) -> list[str]:
    """Paths of the blocks with gates that read their rate."""
    return [
        path
        for path, module in model.named_modules()
        for gate in gates_of(module)
        if not isinstance(getattr(module, gate.child), ConstantGate)
    ]


def _has(module: nn.Module, kind: type) -> bool:
    return any(isinstance(hook, kind) for hook in module._forward_pre_hooks.values())


def forget_calls(model: nn.Module) -> None:
    """Take those hooks out of a network on whose tokens no gate is left."""
    if _blocks(model):
        return
    for module in model.modules():
        for hooks, flags in (
            (module._forward_pre_hooks, module._forward_pre_hooks_with_kwargs),
            (module._forward_hooks, module._forward_hooks_always_called),
        ):
            for key in [key for key, hook in hooks.items() if isinstance(hook, _Hook | _Look)]:
                del hooks[key]
                flags.pop(key, None)


def running_calls(model: nn.Module) -> RunningCalls | None:
    """Return what the hooks of a network tell of its calls, if it has any."""
    hooks = (hook for module in model.modules() for hook in module._forward_pre_hooks.values())
    return next((hook.calls for hook in hooks if isinstance(hook, _Enter | _Hear)), None)
