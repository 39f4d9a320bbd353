"""Looking through the wrappers that people put around a network, and borrowing it politely."""

import random
import sys
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from enum import Enum
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.modules.lazy import LazyModuleMixin
from torch.nn.parameter import is_lazy
from torch.utils._python_dispatch import _disable_current_modes

from stiffnet.errors import StepError


def unwrap(model: nn.Module) -> nn.Module:
    """Return the network inside `torch.compile`, data-parallel and Fabric wrappers."""
    if not isinstance(model, nn.Module):
        raise StepError(
            f"A network is wanted, and something of type {type(model).__name__} was given. Give a "
            "`torch.nn.Module`."
        )
    compiled = _classes("torch._dynamo", "OptimizedModule")
    packages = ("lightning_fabric.wrappers", "lightning.fabric.wrappers")  # two copies of one class
    fabric = (kind for package in packages for kind in _classes(package, "_FabricModule"))
    parallel = (nn.DataParallel, nn.parallel.DistributedDataParallel, *fabric)
    while True:
        if isinstance(model, compiled):
            model = model._orig_mod
        elif isinstance(model, parallel):
            model = model.module
        else:
            return model


def _classes(module: str, name: str) -> tuple[Any, ...]:
    """A class that takes seconds to import; if nobody has, there is nothing of it."""
    return (getattr(sys.modules[module], name),) if module in sys.modules else ()


def is_compiled(model: nn.Module) -> bool:
    """Whether a network, or a part of it, was given to `torch.compile`."""
    kinds = _classes("torch._dynamo", "OptimizedModule")
    return any(isinstance(m, kinds) or m._compiled_call_impl for m in model.modules())


def is_sharded(model: nn.Module) -> bool:
    """Whether each rank holds only a part of a network's weights, as under FSDP."""
    wrappers = _classes("torch.distributed.fsdp", "FullyShardedDataParallel")
    parts = _classes("torch.distributed.tensor", "DTensor")
    return any(isinstance(module, wrappers) for module in model.modules()) or any(
        isinstance(parameter, parts) or hasattr(parameter, "ds_id")  # the latter: DeepSpeed's
        for parameter in model.parameters()
    )


def unready(model: nn.Module) -> str | None:
    """Say what to do before a network can be deployed, or None if it is ready."""
    if unwrap(model) is not model or is_compiled(model):
        return "it is wrapped or compiled. Give the network inside."
    if isinstance(model, torch.jit.ScriptModule):
        return "it is TorchScript. Give the Python module that it was made from."
    training = next((path for path, module in model.named_modules() if module.training), None)
    if training is None:
        return None
    where = f"its {training!r}" if training else "it"
    return f"{where} is in training mode. Call `model.eval()` first."


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Put `model` in evaluation mode, then give every submodule back the mode it had.

    The graph of `torch.export` has no modes: it is left in the one in which it was exported.
    """
    before = [(module, module.training) for module in model.modules()]
    exported = is_exported(model)
    if not exported:
        model.eval()
    try:
        yield
    finally:
        if any(training for _, training in before) and not exported:
            model.train()  # lets modules that cache for evaluation drop their caches
        for module, training in before:
            module.training = training


def is_exported(model: nn.Module) -> bool:
    """Whether a network is the graph of `torch.export`, which refuses to change its mode."""
    return isinstance(model, torch.fx.GraphModule) and "eval" in vars(model)


@contextmanager
def eagerly(model: nn.Module) -> Iterator[None]:
    """Run compiled modules as the Python that they were compiled from.

    Both settings are the whole process's, so they are touched only if something is compiled.
    """
    if not is_compiled(model):
        yield
        return
    with torch.compiler.set_stance("force_eager"), warnings.catch_warnings():
        # torch warns that process-wide hooks see the wrapper too; ours look for known modules only
        warnings.filterwarnings("ignore", message="Using `torch.compile")
        yield


_MACHINERY = frozenset(vars(nn.Module()))  # hooks and the like: what every module has


@contextmanager
def _own_state(model: nn.Module) -> Iterator[None]:
    """Give back what a forward pass changes, also in evaluation: buffers, counters, caches, lists.

    An attribute gets its value back, and a list, dictionary, set or other object its content, one
    level deep. So do weights, where a change of mode may change them, as LoRA's layers merge theirs
    for evaluation.
    """
    foreign = (torch.jit.ScriptModule, LazyModuleMixin)
    modules = [module for module in model.modules() if not isinstance(module, foreign)]
    switching = {
        part for module in model.modules() if _switches(module) for part in module.modules()
    }
    # By name, since code may put another dictionary in the place of each.
    whole = [(module, "__dict__") for module in modules]
    whole += [(module, "_parameters") for module in modules if module in switching]
    holders = [*whole, *((module, "_buffers") for module in modules)]
    before = [_own(getattr(*holder)) for holder in holders]
    copies = [_copied(own) for own in before]
    try:
        yield
    finally:
        for holder in whole:  # in which nothing new stays
            for name in _own(getattr(*holder)):
                del getattr(*holder)[name]
        for holder, own, copy in zip(holders, before, copies, strict=True):
            getattr(*holder).update(own)
            _refill(own, copy)


def _own(holder: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in holder.items() if name not in _MACHINERY}


def _switches(module: nn.Module) -> bool:
    kind = type(module)
    return (
        kind.train is not nn.Module.train
        or kind.eval is not nn.Module.eval
        or not {"train", "eval"}.isdisjoint(vars(module))
    )


def _copied(values: Mapping[str, Any]) -> dict[str, Any]:
    """Copy what can be changed in place."""
    copies: dict[str, Any] = {}
    for name, value in values.items():
        if isinstance(value, Tensor) and not (value.is_meta or is_lazy(value)):
            with _disable_current_modes():  # whoever traces the run has no part in this
                copies[name] = value.detach().clone()
        elif type(value) in (list, dict, set):
            copies[name] = value.copy()
        elif _keeps_things(value):
            copies[name] = vars(value).copy()
    return copies


def _keeps_things(value: Any) -> bool:
    """Whether a value is a plain object with attributes, such as the memory of DIA's steps."""
    return (
        type(getattr(value, "__dict__", None)) is dict
        and not isinstance(value, type | Enum | Tensor | list | dict | set)
        and not callable(value)
    )


def _refill(values: Mapping[str, Any], before: Mapping[str, Any]) -> None:
    """Put copies back into the objects that they were made of, where those have changed."""
    for name, copy in before.items():
        value = values[name]
        if isinstance(value, Tensor):
            with torch.no_grad(), _disable_current_modes():
                if value.shape != copy.shape:
                    value.data = copy
                elif not torch.equal(value, copy):
                    value.copy_(copy)
        elif isinstance(value, list):
            value[:] = copy
        elif isinstance(value, dict | set):
            value.clear()
            value.update(copy)
        else:
            vars(value).clear()
            vars(value).update(copy)


@contextmanager
def own_chance(model: nn.Module) -> Iterator[None]:
    """Give the random number generators of torch, Python and NumPy back as they were."""
    devices = {p.device for p in model.parameters() if p.device.type == "cuda"}
    python, numpy = random.getstate(), np.random.get_state()  # noqa: NPY002
    try:
        with torch.random.fork_rng(devices=list(devices)):
            yield
    finally:
        random.setstate(python)
        np.random.set_state(numpy)  # noqa: NPY002


@contextmanager
def borrowed(model: nn.Module) -> Iterator[None]:
    """Evaluate without compilation, and leave no trace in the model or in random numbers."""
    with own_chance(model), _own_state(model), evaluating(model), eagerly(model):
        yield


@contextmanager
def plain_run(model: nn.Module) -> Iterator[None]:
    """Evaluate so, and without gradients."""
    with borrowed(model), torch.no_grad():
        yield
