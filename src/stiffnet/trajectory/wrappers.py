"""Looking through the wrappers that people put around a network, and borrowing it politely."""

import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import torch
from torch import nn
from torch.nn.parameter import is_lazy


def unwrap(model: nn.Module) -> nn.Module:
    """Return the network inside `torch.compile`, data-parallel and Fabric wrappers."""
    from lightning_fabric.wrappers import _FabricModule
    from torch._dynamo import OptimizedModule

    parallel = (nn.DataParallel, nn.parallel.DistributedDataParallel, _FabricModule)
    while True:
        if isinstance(model, OptimizedModule):
            model = model._orig_mod
        elif isinstance(model, parallel):
            model = model.module
        else:
            return model


def unready(model: nn.Module) -> str | None:
    """Say what to do before a network can be deployed, or None if it is ready."""
    from torch._dynamo import OptimizedModule

    if unwrap(model) is not model or any(
        isinstance(m, OptimizedModule) or m._compiled_call_impl for m in model.modules()
    ):
        return "it is wrapped or compiled. Give the network inside."
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
    from torch._dynamo import OptimizedModule

    if not any(isinstance(m, OptimizedModule) or m._compiled_call_impl for m in model.modules()):
        yield
        return
    with torch.compiler.set_stance("force_eager"), warnings.catch_warnings():
        # torch warns that process-wide hooks see the wrapper too; ours look for known modules only
        warnings.filterwarnings("ignore", message="Using `torch.compile")
        yield


@contextmanager
def _own_buffers(model: nn.Module) -> Iterator[None]:
    """Give buffers that a forward pass changes, also in evaluation, their values back."""
    kept = [(b, b.detach().clone()) for b in model.buffers() if not (b.is_meta or is_lazy(b))]
    try:
        yield
    finally:
        with torch.no_grad():
            for buffer, before in kept:
                if not torch.equal(buffer, before):
                    buffer.copy_(before)


@contextmanager
def plain_run(model: nn.Module) -> Iterator[None]:
    """Evaluate without gradients, compilation or a trace in the random number generators."""
    devices = {p.device for p in model.parameters() if p.device.type == "cuda"}
    with ExitStack() as borrowed:
        borrowed.enter_context(torch.random.fork_rng(devices=list(devices)))
        borrowed.enter_context(evaluating(model))
        borrowed.enter_context(eagerly(model))
        borrowed.enter_context(_own_buffers(model))
        borrowed.enter_context(torch.no_grad())
        yield
