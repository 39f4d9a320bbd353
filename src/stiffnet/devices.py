"""Where to compute: settled once, by one function, before a network or images are loaded."""

import os
import warnings

import torch
from lightning_fabric import Fabric
from lightning_fabric.strategies import ModelParallelStrategy
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import fully_shard

from stiffnet.errors import RecipeError
from stiffnet.words import first_line


def make_fabric(
    *,
    device: str = "auto",
    devices: int = 1,
    nodes: int = 1,
    strategy: str = "auto",
    precision: str = "32-true",
) -> Fabric:
    """Return a launched Fabric: one process, or one of those that torchrun or SLURM started.

    Each of `nodes` machines has as many `devices`; torchrun knows both better. With the strategy
    ``ddp`` every rank has the whole network, with ``fsdp`` a share of it; ``auto`` is the former.
    `precision` is in Fabric's words. Raises a RecipeError if this machine has no such thing.
    """
    present = {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
    if not present.get(device, True):
        raise RecipeError(
            f"This machine has no {device} device that torch can use. Leave out `--device`, or "
            "give `--device cpu`."
        )
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
        reason = first_line(error)
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
