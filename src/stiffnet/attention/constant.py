"""Gates that are fed a constant: a factor per channel, the same for every image and position."""

from collections.abc import Sequence
from typing import Any, final

import torch
from torch import Tensor, fx, nn

from stiffnet.attention.base import Attention, Pooling
from stiffnet.attention.iebn import GatedNorm
from stiffnet.errors import StepError

VECTOR = "vector"
"""How `Vector` is called where a module's name is asked for."""


def as_batch(psi: Tensor, rate: Tensor) -> Tensor:
    """Make a batch of one out of ψ, for whatever rate: a leaf of a trace.

    Otherwise a trace would see no input, and keep the value that a fixed ψ had at that time.
    """
    return psi.unsqueeze(0)


fx.wrap("as_batch")


class ConstantGate(Attention):
    r"""Attention modules that read a learnt constant ψ in the place of the rate.

    $$s = \prod_{i=1}^{δ} T_i(ψ_i)$$

    What multiplies the rate is `constant`, whatever the rate is, so that it can be folded into the
    layer before it. The inner modules T are made for a constant; see `Attention.for_constant`.
    Further arguments are for the class that this one is mixed with.
    """

    summary = "a module that is fed a learnt constant"
    reference = "Zhong et al., 2024"

    label: str  # how the gate is spelled, such as "asr:se"
    psi: Tensor  # (δ, *descriptor_shape); a parameter, or a buffer where it is not learnt
    first: Tensor  # what the product is divided by: 1, or its first value, to begin at exactly 1

    def __init__(
        self,
        channels: int,
        *,
        label: str,
        inner: Sequence[Attention],
        psi: Tensor,
        learnable: bool = True,
        channel_axis: int = 1,
        **rest: Any,
    ) -> None:
        super().__init__(channels, channel_axis=channel_axis, **rest)
        self.label = label
        self.inner = nn.ModuleList(inner)
        if learnable:
            self.psi = nn.Parameter(psi)
        else:
            self.register_buffer("psi", psi)
        self.register_buffer("first", torch.ones(channels))

    @property
    def descriptor_shape(self) -> tuple[int, ...]:
        """The inputs of all inner modules."""
        return tuple(self.psi.shape)

    def describe(self, rate: Tensor, state: Tensor | None = None) -> Tensor:
        """ψ, as a batch of one, whatever the rate is."""
        return as_batch(self.psi, rate)

    def excite(self, descriptor: Tensor) -> Tensor:
        """Multiply what the inner modules make of their parts."""
        gates = []
        for number, module in enumerate(self.inner):
            gates.append(module.gate(descriptor[:, number]))  # type: ignore[operator]
        return torch.stack(gates).prod(0) / self.first

    @final
    def constant(self) -> Tensor:
        """Give the factor of every channel, (C,), as a function of the parameters of now.

        Those of a stage that shares a cell (DIA) must be asked in the order in which they run.
        """
        return self.gate(self.psi.unsqueeze(0)).squeeze(0)

    def settle(self) -> float:
        """The gate looks at no input: it is divided by its value, and everything else stays."""
        with torch.no_grad():
            self.first.fill_(1)
            first = self.excite(self.psi.unsqueeze(0)).squeeze(0)
        smallest = torch.finfo(first.dtype).smallest_normal
        if not (first.isfinite() & (first.abs() >= smallest)).all():
            raise StepError(
                f"{self.label} starts with step sizes of 0, which no factor makes 1; give it "
                "another `init` or `weights`, or use `start='paper'`."
            )
        self.first.copy_(first)
        return 1.0

    def no_weight_decay(self) -> set[str]:
        """What the inner modules exempt; ψ decays."""
        module: Any
        exempt: set[str] = set()
        for number, module in enumerate(self.inner):
            exempt |= {f"inner.{number}.{name}" for name in module.no_weight_decay()}
        return exempt

    def extra_repr(self) -> str:
        """Show how it is spelled, and whether its inputs are learnt."""
        fixed = "" if isinstance(self.psi, nn.Parameter) else ", fixed"
        return f"{super().extra_repr()}, {self.label}, depth={len(self.inner)}{fixed}"


@final
class ConstantAttention(ConstantGate):
    """A constant factor on the rate of a step."""


@final
class ConstantIEBN(ConstantGate, GatedNorm):
    """A batch norm whose weight is scaled by a constant, and whose shift is not."""


@final
class Vector(Pooling):
    """No module at all: the constant is the step size."""

    summary = "no module: the constant itself"

    def __init__(self, channels: int) -> None:
        super().__init__(channels)

    def excite(self, descriptor: Tensor) -> Tensor:
        """Nothing is done."""
        return descriptor
