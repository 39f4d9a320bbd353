"""What every step-size module shares: describe the rate, gate it, start where nothing changes.

A module sits on the branch of a residual step, just before the addition, and multiplies the rate
by a step size that it reads off the rate. It knows tensors only: a rate of shape (N, C, H, W), or
(N, ..., C) with ``channel_axis=-1``, and for some modules the state, of the same shape.

A pass can be traced (`torch.fx`), scripted, exported and compiled, for any batch and image size.
So the code of a pass goes by no number that `torch.fx` cannot know, and is limited to what
TorchScript reads; functions that must look at a size are leaves of a trace (`fx.wrap`).
"""

import inspect
from abc import ABC, abstractmethod
from collections.abc import Mapping
from numbers import Integral
from typing import Any, ClassVar, Self, final

import torch
from torch import Tensor, fx, nn

from stiffnet.attention.norm_affine import norms_to_affine
from stiffnet.errors import StepError, UnknownNameError
from stiffnet.registry import unknown

ACTIVATIONS = ("sigmoid", "tanh")
"""What a module may end in; see `Attention.squash`."""


def position_axes(dimensions: int, channel_axis: int) -> list[int]:
    """Name the axes that are neither batch nor channel: a leaf of a trace.

    >>> position_axes(4, 1), position_axes(4, -1)
    ([2, 3], [1, 2])
    """
    first = 2 if channel_axis == 1 else 1
    return list(range(first, first + dimensions - 2))


fx.wrap("position_axes")


def tracer_of(value: object) -> object:
    """The `torch.fx` trace that a value belongs to; None for a tensor."""
    return value.tracer if isinstance(value, fx.Proxy) else None


class Attention(nn.Module, ABC):
    """Chooses the step size of one residual step.

    Abstract like this class, or final. A module writes `describe` (squeeze) and `excite`; `settle`
    too if it is to start as the identity. Its class says what a user of it must know.

    Args:
        channels: Width of the rate.
        channel_axis: 1 for images, -1 for tokens and channels-last maps.

    Raises:
        UnknownNameError: If an option does not exist.
        StepError: If the module cannot take this width or layout.
    """

    summary: ClassVar[str] = ""  # what it is, in a few words
    reference: ClassVar[str] = ""  # paper and year
    formula: ClassVar[str] = ""  # parameters that it adds to a step of C channels, as text
    spatial: ClassVar[bool] = False  # its step size differs between positions: it cannot be folded
    needs_map: ClassVar[bool] = False  # it reads (N, C, H, W) or (N, H, W, C), never tokens
    needs_state: ClassVar[bool] = False  # it must be called with the state too
    shares_cell: ClassVar[bool] = False  # the steps of a stage share one cell; see `for_stage`
    pools_tokens: ClassVar[bool] = False  # it reads means alone, by `pooled`: no padding of a text
    replaces_norm: ClassVar[bool] = False  # it takes the place of a batch norm
    squashes: ClassVar[bool] = False  # it ends in `squash`: another activation can be chosen

    __jit_ignored_attributes__: ClassVar[list[str]] = ["descriptor_shape"]  # neither read ...
    __jit_unused_properties__: ClassVar[list[str]] = ["descriptor_shape"]  # ... nor compiled

    activation: str = "sigmoid"  # what it ends in, if it squashes
    channels: int
    channel_axis: int
    unit: Tensor  # times the gate: 1, or from `start_at_identity` on the inverse of its first value

    def __new__(cls, *_args: Any, **options: Any) -> Self:
        """Refuse options that the class does not have, before anything is made."""
        offered = cls.option_names()
        for name in options:
            if offered is not None and name not in (*offered, "channels"):
                raise UnknownNameError(unknown(f"option of {cls.__name__}", name, offered))
        cls.refuse_values(options)
        return super().__new__(cls)

    @classmethod
    def refuse_values(cls, options: Mapping[str, Any]) -> None:
        """Raise a StepError if an option that is a number or a truth value is given another one.

        Python takes any text for true, that of "False" too.
        """
        known = inspect.signature(cls.__init__).parameters
        for name in options.keys() & known.keys():
            kind, value = known[name].annotation, options[name]
            whole = isinstance(value, Integral) and not isinstance(value, bool)
            if kind is bool and not isinstance(value, bool):
                wanted = "true or false"
            elif kind in (int, int | None) and not whole and (kind is int or value is not None):
                wanted = "a whole number"
            else:
                continue
            raise StepError(f"{cls.__name__} was given {name}={value!r}; give {wanted}.")

    @classmethod
    def option_names(cls) -> list[str] | None:
        """Name the options that the class has; None if it takes any."""
        known = inspect.signature(cls.__init__).parameters
        if any(option.kind is option.VAR_KEYWORD for option in known.values()):
            return None
        return [option for option in known if option not in ("self", "channels")]

    def __init__(self, channels: int, *, channel_axis: int = 1, **rest: Any) -> None:
        name = type(self).__name__
        if channels < 1:
            raise StepError(f"{name} was asked for {channels} channels; give it one or more.")
        if channel_axis not in (1, -1):
            raise StepError(
                f"{name} was given channels along axis {channel_axis}; `channel_axis` is "
                "1 for images and -1 for tokens."
            )
        if channel_axis == -1 and (self.spatial or self.replaces_norm):
            raise StepError(
                f"{name} works on images of shape (N, C, H, W), not on tokens; choose a module "
                "with one step size per channel, such as 'se'."
            )
        super().__init__(**rest)
        self.activation = self.activation  # TorchScript sees what is in the module itself
        self.channels = channels
        self.channel_axis = channel_axis
        self.tokens: Any = None  # how `pooled` takes means over tokens; None: over all positions
        self.register_buffer("unit", torch.ones(()))

    @property
    def descriptor_shape(self) -> tuple[int, ...]:
        """Shape of one sample's descriptor: what a constant that is fed to `gate` must have."""
        return (self.channels,)

    @classmethod
    def for_stage(cls, channels: int, steps: int, **options: Any) -> list[Self]:
        """Make the modules of all steps of one stage, in the order in which they run."""
        return [cls(channels, **options) for _ in range(steps)]

    @classmethod
    def parameter_count(cls, channels: int, *_args: Any, **options: Any) -> int:
        """Count the parameters that one module (for a shared cell, one stage) adds to a network."""
        with torch.device("meta"):
            return sum(parameter.numel() for parameter in cls(channels, **options).parameters())

    @abstractmethod
    def describe(self, rate: Tensor, state: Tensor | None = None) -> Tensor:
        """Squeeze a batch of rates into descriptors, of shape (N, *descriptor_shape)."""

    @abstractmethod
    def excite(self, descriptor: Tensor) -> Tensor:
        """Turn descriptors into step sizes, before `unit`: (N, C) unless the module is spatial."""

    @final
    def squash(self, x: Tensor) -> Tensor:
        """Apply the activation that the gate ends in."""
        if self.activation == "sigmoid":
            return torch.sigmoid(x)
        if self.activation == "tanh":
            return torch.tanh(x)
        raise StepError(f"There is no activation {self.activation}; set 'sigmoid' or 'tanh'.")

    def for_constant(self) -> Self:
        """Make this fresh module, in place, one that is fed a constant in every pass.

        A norm over the batch would see a single sample; what remains of it is its weight and its
        shift. A module whose gate differs between positions leaves that part of itself out here,
        or is refused.

        Raises:
            StepError: If no constant can stand for what the module reads.
        """
        self.refuse_positions()
        norms_to_affine(self)
        return self

    @classmethod
    def refuse_positions(cls) -> None:
        """Refuse to feed a constant to a module that `for_constant` cannot rid of positions."""
        if cls.spatial and cls.for_constant is Attention.for_constant:
            raise StepError(
                f"{cls.__name__}'s step size differs between positions, so no constant stands "
                "for what it reads; choose a module with one step size per channel, such as 'se'."
            )

    def settle(self) -> float:
        """Zero what makes the first gate depend on its input, and return that gate's value.

        Only layers whose gradient does not vanish with them are zeroed, so that every parameter
        learns from the second update on at the latest.
        """
        name = type(self).__name__
        raise StepError(
            f"{name} does not say how it starts as the identity; write its `settle`, or use "
            "`start='paper'`."
        )

    @final
    def start_at_identity(self) -> Self:
        """Make this fresh module, in place, leave every rate as it is until it learns.

        The gate is made the same for every input (see `settle`) and divided by its value.
        """
        first = self.settle()
        with torch.no_grad():
            self.unit.fill_(1 / first)
        return self

    @final
    def gate(self, descriptor: Tensor) -> Tensor:
        """Turn descriptors, or a constant of their shape, into step sizes."""
        return self.excite(descriptor) * self.unit

    def step_size(self, rate: Tensor, state: Tensor | None = None) -> Tensor:
        """Choose the step size: the factor itself, in a shape that broadcasts over `rate`."""
        self.check(rate, state)
        gate = self.gate(self.describe(rate, state))
        if self.tokens is None:
            return self.spread(gate, rate)
        else:  # noqa: RET505  # TorchScript reads what follows a branch, whatever the branch is
            return self.tokens.spread(gate, rate, self.channel_axis)  # type: ignore[no-any-return]

    def forward(self, rate: Tensor, state: Tensor | None = None) -> Tensor:
        """Scale the rate by its step size; the dtype stays the rate's, under autocast too."""
        return rate * self.step_size(rate, state)

    def no_weight_decay(self) -> set[str]:
        """Name the parameters that the authors exempt from weight decay (timm's convention)."""
        return set()

    @final
    def check(self, rate: Tensor, state: Tensor | None) -> None:
        """Refuse tensors that this module was not made for; a trace or a script has no check."""
        if not torch.jit.is_scripting():  # type: ignore[attr-defined]
            self._refuse(rate, state)

    def _refuse(self, rate: Tensor, state: Tensor | None) -> None:
        if tracer_of(rate) is not None:
            return
        name, shape = type(self).__name__, tuple(rate.shape)
        if rate.dim() < 3 or (rate.dim() != 4 and (self.needs_map or self.spatial)):
            wanted = "(N, C, H, W)" if self.channel_axis == 1 else "(N, ..., C)"
            if self.needs_map and self.channel_axis == -1:
                wanted = "(N, H, W, C)"
            raise StepError(
                f"{name} reads rates of shape {wanted}, and this one has shape {shape}; choose a "
                "module that pools over any positions, such as 'se', or reshape the rate."
            )
        if shape[self.channel_axis] != self.channels:
            raise StepError(
                f"{name} was made for {self.channels} channels along axis {self.channel_axis}, "
                f"and the rate has shape {shape}; make it for that width, or say where the "
                "channels lie with `channel_axis`."
            )
        if self.needs_state and state is None:
            raise StepError(f"{name} reads the state too; call it with the rate and the state.")
        if self.needs_state and state is not None and state.shape != rate.shape:
            raise StepError(
                f"{name} was given a state of shape {tuple(state.shape)} and a rate of shape "
                f"{shape}; give it the two operands of one addition."
            )

    @final
    def spread(self, gate: Tensor, rate: Tensor) -> Tensor:
        """Bring step sizes of shape (N, C) to the rate's dtype and number of axes."""
        ones = [1] * (rate.dim() - 2)  # lists are added, because a trace cannot unpack them
        if self.channel_axis == 1:
            shape = [-1, self.channels] + ones  # noqa: RUF005
        else:
            shape = [-1] + ones + [self.channels]  # noqa: RUF005
        return gate.reshape(shape).to(rate.dtype)

    @final
    def positions(self, rate: Tensor) -> list[int]:
        """Name the axes that are neither batch nor channel."""
        return position_axes(rate.dim(), self.channel_axis)

    @final
    def pooled(self, x: Tensor) -> Tensor:
        """Mean over positions; over tokens, as `tokens` says."""
        if self.tokens is None:
            return x.mean(self.positions(x))
        else:  # noqa: RET505  # as above
            return self.tokens.mean(x, self.positions(x))  # type: ignore[no-any-return]

    @final
    def as_map(self, rate: Tensor) -> Tensor:
        """View a rate as (N, C, H, W)."""
        return rate if self.channel_axis == 1 else rate.movedim(-1, 1)

    def extra_repr(self) -> str:
        """Show the width, and the layout where it is unusual."""
        return str(self.channels) + (", channel_axis=-1" if self.channel_axis == -1 else "")


class Pooling(Attention):
    """Reads nothing of a rate but its means over positions."""

    pools_tokens = True

    def describe(self, rate: Tensor, state: Tensor | None = None) -> Tensor:
        """Mean over positions."""
        return self.pooled(rate)


def sigmoid(value: float) -> float:
    """Logistic function of a number: what a gate is before it has learnt anything.

    >>> sigmoid(0.0)
    0.5
    """
    return float(torch.sigmoid(torch.tensor(value, dtype=torch.float64)))
