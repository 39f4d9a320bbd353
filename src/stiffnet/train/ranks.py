"""What the processes of one run decide together."""

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TypeVar

import torch
from lightning_fabric import Fabric
from lightning_fabric.strategies import ModelParallelStrategy

from stiffnet.errors import StiffnetError

T = TypeVar("T")
LOST = re.compile(r"gloo|nccl|connection (closed|reset|refused)|broken pipe", re.IGNORECASE)


def is_sharded(fabric: Fabric) -> bool:
    """Whether each rank holds only a share of the network."""
    return isinstance(fabric.strategy, ModelParallelStrategy)


def first_decides(fabric: Fabric, work: Callable[[], T]) -> T:
    """Do `work` on rank 0 alone; every rank gets its result, or raises its error."""
    result: T | None = None
    fault: StiffnetError | None = None
    if fabric.is_global_zero:
        try:
            result = work()
        except StiffnetError as error:
            fault = error
    if fabric.world_size > 1:
        result, fault = fabric.broadcast((result, fault))
    if fault is not None:
        raise fault
    return result  # type: ignore[return-value]  # T may be None itself


@contextmanager
def in_company(fabric: Fabric) -> Iterator[None]:
    """Say in a sentence that another rank was lost; the libraries below say it in many."""
    try:
        yield
    except RuntimeError as error:
        if fabric.world_size == 1 or not LOST.search(str(error)):
            raise
        raise StiffnetError(
            f"Rank {fabric.global_rank} ends because another rank has ended. See what that one "
            "said; then continue with `--resume`."
        ) from error


def leave_together() -> None:
    """End the group of ranks, if there is one, when all of them are done and all is written.

    Left to the end of the process, gloo's threads abort it now and then, and torchrun takes a
    finished run for a failed one.
    """
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        with suppress(RuntimeError):  # a rank that was lost by now has nothing left to do
            torch.distributed.barrier()
        torch.distributed.destroy_process_group()


def in_order(fabric: Fabric, kept: list[T]) -> list[T]:
    """Return what all ranks kept, those of the first before those of the second."""
    if not largest(fabric, int(any(each is not None for each in kept))) or fabric.world_size == 1:
        return kept
    everyone: list[list[T]] = [[]] * fabric.world_size
    torch.distributed.all_gather_object(everyone, kept)
    return [each for part in everyone for each in part]


def largest(fabric: Fabric, number: int) -> int:
    """Return the largest of the ranks' numbers."""
    if fabric.world_size == 1:
        return number
    value = torch.tensor(number, device=fabric.device)
    return int(fabric.all_reduce(value, reduce_op="max"))
