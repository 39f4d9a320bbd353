"""What the processes of one run decide together."""

import os
import re
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

import torch
from lightning_fabric import Fabric
from lightning_fabric.strategies import ModelParallelStrategy
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import fully_shard

from stiffnet.errors import RecipeError, StiffnetError

T = TypeVar("T")
LOST = re.compile(r"gloo|nccl|connection (closed|reset|refused)|broken pipe", re.IGNORECASE)


def make_fabric(
    *,
    device: str = "auto",
    devices: int = 1,
    nodes: int = 1,
    strategy: str = "auto",
    precision: str = "32-true",
) -> Fabric:
    """Return a launched Fabric: one process, or one of those that torchrun or SLURM started.

    Args:
        device: ``auto``, or the name of a kind of device.
        devices: How many of them each machine gives; torchrun knows better.
        nodes: How many machines there are; torchrun knows better.
        strategy: ``ddp`` gives every rank the whole network, ``fsdp`` a share of it; ``auto`` is
            the former.
        precision: In Fabric's words.

    Raises:
        RecipeError: If this machine has no such devices or precision.
    """
    local = os.environ.get("LOCAL_WORLD_SIZE")
    if local is not None:
        devices, nodes = int(local), int(os.environ["WORLD_SIZE"]) // int(local)
    ranks = devices * nodes
    chosen: str | ModelParallelStrategy = "auto" if ranks == 1 else "ddp"
    if strategy == "fsdp":
        chosen = ModelParallelStrategy(_shard, data_parallel_size=ranks, tensor_parallel_size=1)
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("error", message=".*AMP with fp16 is not supported")
            fabric = Fabric(
                accelerator=device,
                devices=devices,
                num_nodes=nodes,
                strategy=chosen,
                precision=precision,
            )
    except (RuntimeError, ValueError, Warning) as error:
        reason = str(error).splitlines()[0].rstrip(".")
        raise RecipeError(
            f"This machine cannot do that: {reason}. Choose another `--device`, `--devices`, "
            "`--strategy` or `precision`."
        ) from error
    fabric.launch()
    return fabric


def _shard(model: nn.Module, mesh: DeviceMesh) -> nn.Module:
    """Give each rank a share of every child of the network, and of what is left beside them."""
    for child in model.children():
        if any(True for _ in child.parameters()) and not isinstance(child, nn.ModuleList):
            fully_shard(child, mesh=mesh["data_parallel"])
    fully_shard(model, mesh=mesh["data_parallel"])
    return model


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
    """Say in a sentence that another rank was lost; the libraries below say it in many.

    Raises:
        StiffnetError: If the connection to another rank broke in the block.
    """
    try:
        yield
    except RuntimeError as error:
        if fabric.world_size == 1 or not LOST.search(str(error)):
            raise
        raise StiffnetError(
            f"Rank {fabric.global_rank} ends because another rank has ended. See what that one "
            "said; then continue with `--resume`."
        ) from error


def largest(fabric: Fabric, number: int) -> int:
    """Return the largest of the ranks' numbers."""
    if fabric.world_size == 1:
        return number
    value = torch.tensor(number, device=fabric.device)
    return int(fabric.all_reduce(value, reduce_op="max"))
