"""Euclidean norms, one per sample: fast, and as good as float64 to 1e-6."""

import math

import torch
from torch import Tensor
from torch.linalg import vector_norm

from stiffnet.errors import StepError

# A float32 sum of equal squares always rounds the same way, so it drifts: by 4e-6 of the norm over
# 4,096 elements, 3e-5 over 32,768. Over blocks this long it stays below 5e-7, at the same speed.
_BLOCK = 512
# On the CPU `vector_norm(half, dtype=float32)` copies its whole input, and is six times slower than
# converting this many elements at a time, which stay in the cache.
_CHUNK = 1 << 20
_HALVES = (torch.float16, torch.bfloat16)


@torch.no_grad()
def sample_norms(x: Tensor, *, axis: int = 0, entries: int = 1) -> Tensor:
    r"""Euclidean norm of every sample, over everything that belongs to it.

    $$\lVert x_n \rVert_2 = \sqrt{\textstyle\sum_i x_{n,i}^2}$$

    Half-precision input is summed in float32 and sums of blocks in float64, so the result is as
    good as a float64 norm to 1e-6. The tensor is read once, in the order it has in memory, and
    never copied whole (channels-last, sequence-first and sliced tensors included). No gradient
    is kept. On the CPU, samples whose squares leave float32's range (1e30, 1e-30) are done again,
    scaled by their largest entry; on an accelerator, where looking would stall the device, norms
    above 1.8e19 come out infinite and those below 1e-12 lose digits.

    Args:
        x: Values of a batch, of any floating dtype.
        axis: The axis along which samples lie.
        entries: How many neighbouring rows of ``axis`` make up one sample (windows, say).

    Returns:
        One float64 norm per sample, on ``x``'s device if that has float64, else on the CPU.

    Raises:
        StepError: If ``x`` has no such axis, is not floating, or does not divide by ``entries``.

    Example:
        >>> sample_norms(torch.tensor([[3.0, 4.0], [5.0, 12.0]]))
        tensor([ 5., 13.], dtype=torch.float64)
        >>> sample_norms(torch.tensor([[3.0, 5.0], [4.0, 12.0]]), axis=1)
        tensor([ 5., 13.], dtype=torch.float64)
        >>> sample_norms(torch.tensor([[3.0], [4.0], [5.0], [12.0]]), entries=2)
        tensor([ 5., 13.], dtype=torch.float64)
    """
    rows = _samples_first(x.detach(), axis, entries)
    if rows.numel() == 0:
        return as_double(rows.new_zeros(rows.shape[0]))
    if rows.device.type != "cpu":
        return _blocked_norms(rows)
    if rows.dtype not in _HALVES:
        return _rescued(rows, _blocked_norms(rows))
    count = max(1, _CHUNK // math.prod(rows.shape[1:]))
    parts = [_blocked_norms(chunk.float()) for chunk in torch.split(rows, count)]
    return _rescued(rows, torch.cat(parts))


def as_double(x: Tensor) -> Tensor:
    """Return ``x`` in float64, on the CPU if its own device has none.

    Example:
        >>> as_double(torch.tensor([1, 2]))
        tensor([1., 2.], dtype=torch.float64)
    """
    return (x.cpu() if x.device.type == "mps" else x).double()


def _samples_first(x: Tensor, axis: int, entries: int) -> Tensor:
    """View ``x`` as (samples, ...), the other axes in memory order and merged where they can be."""
    if not x.is_floating_point():
        raise StepError(
            f"Norms need floating-point values, but these are {x.dtype}; call `.float()` first."
        )
    if not -x.dim() <= axis < x.dim():
        raise StepError(
            f"Samples were said to lie along axis {axis}, but the values have shape "
            f"{tuple(x.shape)}; give `axis` the batch axis."
        )
    if entries < 1 or x.shape[axis] % entries:
        raise StepError(
            f"An axis of length {x.shape[axis]} does not hold samples of {entries} rows each; "
            "give `entries` the number of rows that belong to one sample."
        )
    axis %= x.dim()
    before, after = x.shape[:axis], x.shape[axis + 1 :]
    x = x.view(*before, x.shape[axis] // entries, entries, *after).movedim(axis, 0)
    order = sorted(range(1, x.dim()), key=lambda d: x.stride(d), reverse=True)
    sizes: list[int] = []
    inner = 0  # stride of the last axis in `sizes`
    for d in order:
        if x.shape[d] == 1:
            continue
        if sizes and inner == x.stride(d) * x.shape[d]:
            sizes[-1] *= x.shape[d]
        else:
            sizes.append(x.shape[d])
        inner = x.stride(d)
    return x.permute(0, *order).view(x.shape[0], *(sizes or [1]))


def _blocked_norms(rows: Tensor) -> Tensor:
    """Norm of each row: in float32 (or float64) over short blocks, then in float64 over these."""
    dtype = torch.promote_types(rows.dtype, torch.float32)
    count, length = rows.shape[0], rows.shape[-1]
    if length > _BLOCK:
        whole = length - length % _BLOCK
        blocks = rows[..., :whole].view(*rows.shape[:-1], whole // _BLOCK, _BLOCK)
        parts = vector_norm(blocks, dim=-1, dtype=dtype).reshape(count, -1)
        if whole < length:
            rest = vector_norm(rows[..., whole:], dim=-1, dtype=dtype).reshape(count, -1)
            parts = torch.cat([parts, rest], dim=1)
    else:
        first = rows.dim() - 1
        while first > 1 and math.prod(rows.shape[first - 1 :]) <= _BLOCK:
            first -= 1
        over = tuple(range(first, rows.dim()))
        parts = vector_norm(rows, dim=over, dtype=dtype).reshape(count, -1)
    parts = as_double(parts)
    return parts[:, 0] if parts.shape[1] == 1 else vector_norm(parts, dim=1)


def _rescued(rows: Tensor, norms: Tensor) -> Tensor:
    """Replace norms whose squares may have left the range of the dtype that summed them."""
    limits = torch.finfo(torch.promote_types(rows.dtype, torch.float32))
    # Above this norm, squares lost below `tiny` change at most the last digit of the sum.
    lowest = math.sqrt(limits.tiny) / limits.eps
    suspect = (norms < lowest) | norms.isinf()
    if not bool(suspect.any()):
        return norms
    # All-zero rates are common (a last norm that starts at zero) and end here, without a copy.
    over = tuple(range(1, rows.dim()))
    peaks = torch.maximum(rows.amax(over), -rows.amin(over)).double()
    norms = torch.where(suspect, peaks, norms)
    again = suspect & (peaks > 0) & peaks.isfinite()
    if bool(again.any()):
        peak = peaks[again]
        scaled = rows[again].double() / peak.view(-1, *[1] * (rows.dim() - 1))
        norms[again] = _blocked_norms(scaled) * peak
    return norms
