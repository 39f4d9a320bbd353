"""ASR: any channel attention, fed a learnt constant while training, and folded away afterwards."""

import math
import re
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from stiffnet.attention import ATTENTION
from stiffnet.attention.base import ACTIVATIONS, Attention
from stiffnet.attention.constant import (
    VECTOR,
    ConstantAttention as ConstantAttention,
    ConstantGate as ConstantGate,
    ConstantIEBN as ConstantIEBN,
    Vector,
)
from stiffnet.attention.ie import IE
from stiffnet.attention.iebn import IEBN, whole_norm
from stiffnet.errors import StepError, UnknownNameError
from stiffnet.registry import check_known, unknown

PREFIX = "asr"
AUTHORS = "authors"
SETTINGS = ("depth", "init", "learnable", "activation", "weights")
NORMAL = "normal:"


@dataclass(frozen=True)
class Place:
    """How the paper starts ASR in one kind of network."""

    init: float
    activation: str
    weights: float | None


MAPS = Place(init=0.1, activation="sigmoid", weights=None)
TOKENS = Place(init=1e-3, activation="tanh", weights=1e-3)


def asr(
    module: str,
    *,
    depth: int = 1,
    init: float | str | None = None,
    learnable: bool = True,
    activation: str | None = None,
    weights: float | str | None = None,
    **options: Any,
) -> "Asr":
    """Choose an attention module to be fed a learnt constant in the place of the rate.

    Its step sizes are then the same for every image, and `stiffnet.fold` can multiply them into
    the layers before them. Where nothing is said, it starts as in the paper: ψ = 0.1, a sigmoid
    and the module's own initialisation on maps; ψ = 0.001, tanh and weights of 0.001 on tokens,
    whose channels come last.

    As its input is the same in every pass, a hidden unit that its first weights leave below zero
    (SE, CBAM, FCA, SPA, SEM) passes nothing on and learns nothing; in the narrowest of them, with
    a single unit, that is every second gate. `weights` with a number above 0 avoids it.

    Args:
        module: A registered name with one step size per channel (CBAM by its channels' half), or
            ``"vector"``: no module, the constant itself is the step size.
        depth: How many modules, each with a ψ of its own, are multiplied.
        init: First value of ψ, or ``"normal:0.1"`` for normal values of deviation 0.1.
        learnable: Whether ψ is learnt. The module's own weights always are.
        activation: What the module ends in, ``"sigmoid"`` or ``"tanh"``.
        weights: A number for all weights and shifts of the module, or ``"authors"``: as they
            initialise it.
        **options: For the module.

    Returns:
        What `stiffnet.attach` takes.

    Raises:
        UnknownNameError: If there is no such module, option or activation.
        StepError: If a value cannot be, or the module cannot be fed a constant.

    Example:
        >>> gate = asr("ie", init=0.5)(4)
        >>> gate.constant().shape, gate.psi[0, 0].item()
        (torch.Size([4]), 0.5)
    """
    return Asr(
        module, depth, init, learnable, activation, weights, tuple(sorted(options.items()))
    )  # fmt: skip


@dataclass(frozen=True)
class Asr:
    """Makes gates that are fed a constant; see `asr`."""

    module: str
    depth: int = 1
    init: float | str | None = None
    learnable: bool = True
    activation: str | None = None
    weights: float | str | None = None
    options: tuple[tuple[str, Any], ...] = ()

    def __post_init__(self) -> None:
        self._refuse_module()
        self._refuse_options()
        if not isinstance(self.depth, int) or isinstance(self.depth, bool) or self.depth < 1:
            raise StepError(
                f"{self.__name__} was given depth={self.depth!r}; `depth` counts the modules that "
                "are multiplied, so give 1 or more."
            )
        if not isinstance(self.learnable, bool):
            raise StepError(
                f"{self.__name__} was given learnable={self.learnable!r}; give true or false."
            )
        if self.init is not None and not _is_number(self.init):
            self._deviation()
        self._refuse_activation()
        self._refuse_weights()

    @property
    def __name__(self) -> str:
        """How it is spelled on the command line, without its options."""
        return f"{PREFIX}:{self.module}"

    @property
    def kind(self) -> type[Attention]:
        """Class of the module that gets the constant; IEBN's gate is IE's."""
        if self.module == VECTOR:
            return Vector
        kind = ATTENTION[self.module].value
        return IE if kind is IEBN else kind

    @property
    def shares_cell(self) -> bool:
        """Whether the gates of a stage must be made together."""
        return self.kind.shares_cell

    @property
    def replaces_norm(self) -> bool:
        """Whether its gates take the places of norms."""
        return self.module != VECTOR and ATTENTION[self.module].value is IEBN

    def __call__(self, channels: int, *, channel_axis: int = 1) -> ConstantAttention:
        """Make the gate of one step."""
        (gate,) = self.for_stage(channels, 1, channel_axis=channel_axis)
        return gate

    def for_stage(
        self, channels: int, steps: int, *, channel_axis: int = 1
    ) -> list[ConstantAttention]:
        """Make the gates of all steps of one stage, in the order in which they run."""
        return [
            ConstantAttention(channels, channel_axis=channel_axis, **parts)
            for parts in self._parts(channels, steps, TOKENS if channel_axis == -1 else MAPS)
        ]

    def from_norm(self, norm: nn.Module) -> ConstantIEBN:
        """Make a gated norm out of a batch norm."""
        (parts,) = self._parts(whole_norm(norm).num_features, 1, MAPS)
        return ConstantIEBN.from_norm(norm, **parts)

    def _parts(self, channels: int, steps: int, place: Place) -> list[dict[str, Any]]:
        """Make what each gate of a stage consists of."""
        options = dict(self.options)
        levels = [self.kind.for_stage(channels, steps, **options) for _ in range(self.depth)]
        parts = []
        for inner in zip(*levels, strict=True):
            for module in inner:
                self._start(module.for_constant(), place)
            psi = self._psi((self.depth, *inner[0].descriptor_shape), place)
            own = {"inner": inner, "psi": psi, "learnable": self.learnable}
            parts.append({"label": self.__name__, **own})
        return parts

    def _start(self, module: Attention, place: Place) -> None:
        if module.squashes:
            module.activation = self.activation or place.activation
        weights = place.weights if self.weights is None else self.weights
        if isinstance(weights, int | float):
            for parameter in module.parameters():
                nn.init.constant_(parameter, weights)

    def _psi(self, shape: tuple[int, ...], place: Place) -> Tensor:
        if isinstance(self.init, str):
            return torch.randn(shape) * self._deviation()
        first = MAPS.init if self.module == VECTOR else place.init
        return torch.full(shape, float(first if self.init is None else self.init))

    def _deviation(self) -> float:
        number = r"((?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:e-?[0-9]+)?)"
        given = re.fullmatch(NORMAL + number, str(self.init))
        deviation = float(given[1]) if given else math.nan
        if not 0 < deviation < math.inf:
            raise StepError(
                f"{self.__name__} was given init={self.init!r}; give a finite number for all of "
                f"ψ, or '{NORMAL}0.1' for normal values of deviation 0.1."
            )
        return deviation

    def _refuse_module(self) -> None:
        given: object = self.module
        if not isinstance(given, str):
            name = getattr(given, "__name__", repr(given))
            raise StepError(
                f"`asr` takes the name of a module, and was given {name}; register it with "
                "`register_attention`, then give that name."
            )
        if not given:
            raise StepError("ASR feeds a constant to a module; say which, as in 'asr:se'.")
        names = [entry.name for entry in ATTENTION]
        check_known("attention module", self.module, [*names, VECTOR])
        if self.kind.replaces_norm:
            raise StepError(
                f"{self.kind.__name__} takes the place of a norm in a way of its own, and "
                "`asr` knows IEBN's only; choose another module, such as 'iebn' or 'ie'."
            )
        self.kind.refuse_positions()

    def _refuse_options(self) -> None:
        names = self.kind.option_names()
        own = [name for name in names or [] if name != "channel_axis"]
        for name, _ in self.options:
            if name == "channel_axis" or (names is not None and name not in own):
                what = f"option of {self.__name__}"
                raise UnknownNameError(unknown(what, name, [*SETTINGS, *own]))
        self.kind.refuse_values(dict(self.options))

    def _refuse_activation(self) -> None:
        if self.activation is None:
            return
        check_known("activation", self.activation, ACTIVATIONS)
        if not self.kind.squashes:
            raise StepError(
                f"{self.kind.__name__} has no activation that could be exchanged; leave "
                "`activation` out, or end the module's `excite` in `squash` and set `squashes`."
            )

    def _refuse_weights(self) -> None:
        if self.weights is None:
            return
        if self.module == VECTOR:
            raise StepError(f"{self.__name__} has no weights but ψ; leave `weights` out.")
        if self.weights != AUTHORS and not _is_number(self.weights):
            raise StepError(
                f"{self.__name__} was given weights={self.weights!r}; give a finite number for "
                f"all of them, or '{AUTHORS}' to start as the module's authors do."
            )


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
