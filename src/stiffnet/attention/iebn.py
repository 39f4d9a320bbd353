"""Instance-enhanced batch normalisation: a batch norm whose weight looks at the input."""

from typing import Any, ClassVar, Self, final

import torch
from timm.layers import BatchNormAct2d
from torch import Tensor, fx, nn
from torch.nn import functional as F

from stiffnet.attention.base import Attention, sigmoid
from stiffnet.attention.ie import InstanceAffine
from stiffnet.batch_norms import PLAIN, REPLACEABLE
from stiffnet.errors import StepError
from stiffnet.words import listed

TENSORS = ("weight", "bias", "running_mean", "running_var", "num_batches_tracked")
Norm = nn.BatchNorm1d | nn.BatchNorm2d | nn.BatchNorm3d


def batch_normed(
    x: Tensor,
    mean: Tensor | None,
    variance: Tensor | None,
    batches: Tensor | None,
    affine: tuple[Tensor, Tensor],
    training: bool,
    momentum: float | None,
    eps: float,
) -> Tensor:
    """Normalise over the batch, and count it, as torch's norm does: a leaf of a trace."""
    share = 0.0 if momentum is None else momentum
    if training and batches is not None:
        batches.add_(1)
        if momentum is None:
            share = 1.0 / float(batches)
    weight, bias = affine
    return F.batch_norm(x, mean, variance, weight, bias, training, share, eps)


fx.wrap("batch_normed")


class GatedNorm(Attention, nn.BatchNorm2d):
    r"""A batch norm whose weight is scaled by a gate a, and whose shift is not.

    $$y = γ a ⊗ \hat{x} + β$$

    It takes the place of a norm (`from_norm`, undone by `to_norm`), all but those of the shortcuts,
    and is one: it has the norm's tensors under the norm's state-dict keys, and what is done to
    batch norms in training is done to it. Whoever folds norms must ask for their exact class:
    nobody can build what would stand in for a norm without its `eps`, so reading that is an error.
    """

    replaces_norm = True
    __constants__ = ["momentum", "epsilon", "affine", "track_running_stats"]  # noqa: RUF012
    __jit_unused_properties__: ClassVar[list[str]] = [*Attention.__jit_unused_properties__, "eps"]
    __jit_ignored_attributes__: ClassVar[list[str]] = ["eps"]
    epsilon: float

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        cls.eps = GatedNorm.eps  # type: ignore[method-assign]  # torch.jit looks in the class alone

    def __init__(
        self,
        channels: int,
        *,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        channel_axis: int = 1,
    ) -> None:
        norm: dict[str, Any] = {"num_features": channels, "eps": eps, "momentum": momentum}
        super().__init__(channels, channel_axis=channel_axis, **norm)
        self.drop: nn.Module = nn.Identity()
        self.act: nn.Module = nn.Identity()
        self._replaced: tuple[Norm, ...] = ()  # in a tuple: not a submodule

    @classmethod
    def from_norm(cls, norm: nn.Module, **options: Any) -> Self:
        """Make one out of a batch norm, sharing its tensors; an activation in it stays behind it.

        Raises:
            StepError: If `norm` is another kind of norm, or lacks a weight, a shift or statistics.
        """
        norm = whole_norm(norm)
        made = cls(norm.num_features, eps=norm.eps, momentum=norm.momentum, **options)
        made.to(norm.weight)
        made.track_running_stats = norm.track_running_stats
        _share(norm, made)
        if isinstance(norm, BatchNormAct2d):
            made.drop, made.act = norm.drop, norm.act
        made._replaced = (norm,)
        return made.train(norm.training)

    def to_norm(self) -> Norm:
        """Give back the norm that this one replaced, with the tensors as they are now."""
        norm = self._replaced[0] if self._replaced else nn.BatchNorm2d(self.channels)
        norm.momentum, norm.eps = self.momentum, self.epsilon
        norm.track_running_stats = self.track_running_stats
        _share(self, norm)
        return norm.train(self.training)

    def forward(self, rate: Tensor, state: Tensor | None = None) -> Tensor:
        """Normalise with the weight that the gate has scaled: β + a (norm(x) - β)."""
        gate = self.step_size(rate)
        normed = self._normed(rate)
        shift = self.spread(self.bias, rate)
        return self.act(self.drop(torch.lerp(shift, normed, gate)))  # type: ignore[no-any-return]

    def _normed(self, rate: Tensor) -> Tensor:
        """Normalise as the norm itself does, over any number of positions."""
        mean, variance, batches = self.running_mean, self.running_var, self.num_batches_tracked
        if self.training and not self.track_running_stats:
            mean, variance, batches = None, None, None
        affine = (self.weight, self.bias)
        return batch_normed(
            rate, mean, variance, batches, affine, self.training, self.momentum, self.epsilon
        )

    @property
    def eps(self) -> float:
        """Refuse to be read: by who converts norms (synchronised, frozen) or fuses them."""
        raise StepError(
            f"A norm or layer in the place of {type(self).__name__} would lose its gate. Use "
            "`stiffnet.train.synced_norms.synchronise(model)` to synchronise norms, `stiffnet.fold`"
            " to merge branches, and `eval()` with `requires_grad_(False)` to freeze this norm."
        )

    @eps.setter
    def eps(self, value: float) -> None:
        self.epsilon = value

    def extra_repr(self) -> str:
        """Show the norm's own settings."""
        return (
            f"{self.channels}, eps={self.epsilon}, momentum={self.momentum}, "
            f"affine={self.affine}, track_running_stats={self.track_running_stats}"
        )


@final
class IEBN(GatedNorm):
    r"""A batch norm whose weight γ is scaled by the mean of its own input; its shift is not.

    $$y = γ a ⊗ \hat{x} + β, \qquad a = \sigma(w ⊗ \mathrm{mean}(x) + b)$$

    From w = 0 and b = -1. No constant scale and shift replaces it.
    """

    summary = "a batch norm whose weight is gated by the pooled input"
    reference = "Liang et al., 2020"
    formula = "2C more than the norm it replaces"
    squashes = True

    def __init__(
        self,
        channels: int,
        *,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        channel_axis: int = 1,
    ) -> None:
        super().__init__(channels, eps=eps, momentum=momentum, channel_axis=channel_axis)
        self.ie = InstanceAffine(channels)

    @staticmethod
    def parameter_count(channels: int) -> int:
        """2C: the norm's own 2C were there before."""
        return 2 * channels

    def describe(self, rate: Tensor, state: Tensor | None = None) -> Tensor:
        """Mean over positions of what comes into the norm."""
        return rate.mean(self.positions(rate))

    def excite(self, descriptor: Tensor) -> Tensor:
        """Scale, shift, squash."""
        return self.squash(self.ie(descriptor))

    def settle(self) -> float:
        """The published start does not look at the input."""
        return sigmoid(self.ie.settle())


def whole_norm(norm: nn.Module) -> Norm:
    """Return a norm that has weight, shift and running statistics; raise a StepError on others."""
    if type(norm) not in REPLACEABLE:
        raise StepError(
            f"IEBN takes the place of a BatchNorm, and this is a {type(norm).__name__}; leave "
            "it out, or use 'ie' on the steps instead."
        )
    assert isinstance(norm, PLAIN)
    if not norm.affine or norm.running_mean is None:
        raise StepError(
            "IEBN takes the place of a BatchNorm with weight, shift and running statistics, "
            "and this one lacks some; leave it out, or use 'ie' on the steps instead."
        )
    strange = sorted({*norm._parameters, *norm._buffers}.difference(TENSORS))
    if strange:
        raise StepError(
            f"IEBN has no place for {listed(strange)} of this {type(norm).__name__} (pruned or "
            "parametrised); undo that first, leave it out, or use 'ie' on the steps instead."
        )
    return norm


def _share(giver: Norm, taker: Norm) -> None:
    for name in TENSORS:
        setattr(taker, name, getattr(giver, name))
