"""Batch norms in training: statistics over all ranks, on any device and in any subclass.

torch's own SyncBatchNorm refuses the CPU, and its conversion makes a new, plain module: timm's
norms with an activation lose it. Here every norm stays the same object with the same tensors and
state-dict keys. Only its class changes, to one that runs the old ``forward`` and answers the one
call to torch's ``batch_norm`` inside it.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional as F
from torch.nn.modules._functions import SyncBatchNorm as _TorchKernels
from torch.nn.modules.batchnorm import _BatchNorm
from torch.overrides import TorchFunctionMode

from stiffnet.batch_norms import PLAIN
from stiffnet.errors import RecipeError

Model = TypeVar("Model", bound=nn.Module)


def synchronise(model: Model) -> Model:
    """Let every batch norm of `model`, in place, take its training statistics over all ranks.

    Mean, variance and running statistics are those of the whole batch, whatever each rank's share
    of it is, and the gradient that reaches a norm's input is the whole batch's too. The gradients
    of its weight and bias are the rank's own part, which data-parallel training adds up. With one
    rank, or none, and in evaluation nothing differs from the ordinary norm.
    """
    for module in model.modules():
        if isinstance(module, PLAIN):
            alter(module, Synchronised)
    return model


def plain(model: Model) -> Model:
    """Give every altered batch norm of `model` its ordinary class back, in place."""
    for module in model.modules():
        if isinstance(module, Altered):
            module.forget()
            module.__class__ = _ordinary(type(module))
    return model


def alter(norm: _BatchNorm, mixin: "type[Altered]") -> None:
    """Put `mixin` before the class of `norm`; a second time does nothing."""
    *before, ordinary = type(norm).__bases__ if isinstance(norm, Altered) else (type(norm),)
    norm.__class__ = _altered(ordinary, frozenset((*before, mixin)))


@dataclass(frozen=True, eq=False)
class Call:
    """One call of ``torch.nn.functional.batch_norm``, as an ordinary norm makes it."""

    x: Tensor
    running_mean: Tensor | None
    running_var: Tensor | None
    weight: Tensor | None = None
    bias: Tensor | None = None
    training: bool = False
    momentum: float = 0.1
    eps: float = 1e-5


class Altered(_BatchNorm):
    """Abstract part of a norm that trains differently: it answers the call to ``batch_norm``.

    A mixin overrides `differs` and `answer`, and passes on to the next one through ``super()``.
    """

    def differs(self) -> bool:
        """Whether a pass in training mode now differs from the ordinary norm's."""
        return False

    def answer(self, call: Call) -> Tensor:
        """Return what the ordinary class gets for its call."""
        return F.batch_norm(*vars(call).values())

    def forget(self) -> None:
        """Drop what the mixin keeps on the norm."""

    def forward(self, input: Tensor) -> Tensor:
        """Run the ordinary class, activation and all, and answer its call."""
        if not self.training or not self.differs():
            return super().forward(input)
        with _Answering(self.answer) as answering:
            output = super().forward(input)
        if not answering.called:
            kind = _ordinary(type(self)).__name__
            raise RecipeError(
                f"A norm of class {kind} never called torch's `batch_norm`, so its training cannot "
                "be altered; train this network on one rank and without noise."
            )
        return output


class Synchronised(Altered):
    """Training statistics over all ranks."""

    def differs(self) -> bool:
        """Whether there are several ranks."""
        return _ranks() > 1 or super().differs()

    def answer(self, call: Call) -> Tensor:
        """Normalise by the statistics of the whole batch."""
        if not call.training or _ranks() < 2:
            return super().answer(call)
        x, weight, bias, eps, momentum = call.x, call.weight, call.bias, call.eps, call.momentum
        running = (call.running_mean, call.running_var)
        if x.device.type == "cuda":
            world = (dist.group.WORLD, _ranks())
            return _TorchKernels.apply(x, weight, bias, *running, eps, momentum, *world)  # type: ignore[no-any-return]
        count, mean, variance = _statistics(x)
        for kept, value in zip(running, (mean, variance * (count / (count - 1))), strict=True):
            if kept is not None:
                kept.copy_(kept.double().lerp_(value, momentum))
        return _Normalise.apply(x, weight, bias, mean, variance, count, eps)  # type: ignore[no-any-return]


class _Answering(TorchFunctionMode):
    """While open, `answer` is called in place of ``torch.nn.functional.batch_norm``."""

    def __init__(self, answer: Callable[[Call], Tensor]) -> None:
        super().__init__()
        self.answer = answer
        self.called = False

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        if func is not F.batch_norm:
            return func(*args, **(kwargs or {}))
        self.called = True
        # A norm inside a norm is answered once, by the inner one.
        with torch._C.DisableTorchFunction():
            return self.answer(Call(*args, **(kwargs or {})))


class _Normalise(torch.autograd.Function):
    r"""$y = w\,\hat x + b$ with $\hat x = (x - \mu)/\sqrt{v + \epsilon}$, all ranks one batch.

    Its gradient is that of batch norm, with means $\langle\cdot\rangle$ over the whole batch:
    $$\partial x = \frac{w}{\sqrt{v + \epsilon}}
      \bigl(\partial y - \langle\partial y\rangle - \hat x\,\langle\partial y\,\hat x\rangle\bigr)$$
    """

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        weight: Tensor | None,
        bias: Tensor | None,
        mean: Tensor,
        variance: Tensor,
        count: float,
        eps: float,
    ) -> Tensor:
        ctx.save_for_backward(x, weight, mean, variance)
        ctx.bias_dtype = None if bias is None else bias.dtype
        ctx.count, ctx.eps = count, eps
        return _affine(_wide(x), mean, variance, eps, weight, bias).to(x.dtype)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        x, weight, mean, variance = ctx.saved_tensors
        wide, slope = _wide(x), _wide(gradient)
        product = _affine(wide, mean, variance, ctx.eps).mul_(slope)
        sums = torch.stack([_channel_sums(slope), _channel_sums(product)])
        to_bias, to_weight = sums.clone()
        to_input = None
        if ctx.needs_input_grad[0]:
            dist.all_reduce(sums)
            scale = (variance + ctx.eps).rsqrt()
            if weight is not None:
                scale = scale * weight
            constant, linear = -scale * sums / ctx.count
            to_input = _affine(wide, mean, variance, ctx.eps, linear, constant)
            to_input = to_input.addcmul_(slope, _along_channels(scale, wide)).to(x.dtype)
        return (
            to_input,
            None if weight is None else to_weight.to(weight.dtype),
            None if ctx.bias_dtype is None else to_bias.to(ctx.bias_dtype),
            *[None] * 4,
        )


def _statistics(x: Tensor) -> tuple[float, Tensor, Tensor]:
    """Values per channel, their mean and their (biased) variance over all ranks, in float64.

    Each rank takes two passes over its own values. What is exchanged is gathered rather than
    reduced, so that every rank adds it up in the same order and comes to the same bits.
    """
    x = _wide(x.detach())
    own_count = x.numel() // x.shape[1]
    own_mean = _channel_sums(x) / max(own_count, 1)
    own_squares = _channel_sums((x - _along_channels(own_mean, x)).square_())
    own = torch.cat([own_mean.new_tensor([own_count]), own_mean, own_squares])
    parts = [torch.empty_like(own) for _ in range(_ranks())]
    dist.all_gather(parts, own)
    counts, means, squares = torch.stack(parts).split([1, x.shape[1], x.shape[1]], dim=1)
    count = float(counts.sum())
    if count < 2:
        raise RecipeError(
            f"A batch norm was given {count:.0f} value(s) per channel over all ranks, which have "
            "no variance; raise `batch_size` or the size of the images."
        )
    mean = (counts * means).sum(0) / count
    return count, mean, (squares + counts * (means - mean).square()).sum(0) / count


def _affine(
    x: Tensor,
    mean: Tensor,
    variance: Tensor,
    eps: float,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
) -> Tensor:
    """Normalise by given statistics, in one pass, whatever the memory format."""
    weight, bias = (None if term is None else term.to(x.dtype) for term in (weight, bias))
    return F.batch_norm(x, mean.to(x.dtype), variance.to(x.dtype), weight, bias, eps=eps)


def _channel_sums(x: Tensor) -> Tensor:
    return x.sum([axis for axis in range(x.dim()) if axis != 1], dtype=torch.float64)


def _along_channels(values: Tensor, x: Tensor) -> Tensor:
    return values.to(x.dtype).view(-1, *[1] * (x.dim() - 2))


def _wide(x: Tensor) -> Tensor:
    return x.to(torch.promote_types(x.dtype, torch.float32))


def _ranks() -> int:
    return dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1


def _ordinary(kind: type) -> type:
    return kind.__bases__[-1] if issubclass(kind, Altered) else kind


@cache
def _altered(ordinary: type, mixins: frozenset[type]) -> type:
    """The class with `mixins` before `ordinary`; the synchronised part comes last and computes."""
    order = sorted(mixins, key=lambda mixin: (mixin is Synchronised, mixin.__name__))
    name = "".join(kind.__name__ for kind in (*order, ordinary))
    return type(name, (*order, ordinary), {"__doc__": ordinary.__doc__})
