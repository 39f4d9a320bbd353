"""The two ways in which a network's own structure shrinks when it is deployed.

Branches become one layer, by the method that their module has for it; a norm is merged into the
layer before it. What was done to a network is a list of `Change`s, and doing it again to a fresh
one of the same kind gives the structure into which the deployed weights load.
"""

import inspect
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import torch
from timm.layers import BatchNormAct2d
from torch import nn

from stiffnet.errors import FoldError
from stiffnet.results.changes import Change as Change

METHODS = ("fuse", "reparameterize", "switch_to_deploy")
"""timm's convention, in its order: the first gives a new module, the others change their own."""


def changed(model: nn.Module, changes: Iterable[Change]) -> nn.Module:
    """Do to a network what was done to another; its weights mean nothing afterwards.

    Raises:
        FoldError: If it is not a network of that kind.
    """
    model.eval()
    for change in changes:
        try:
            if change.kind == "branches":
                model = join_parallel_branches(model, change.path)
            else:
                bias_of(model.get_submodule(change.into))
                remove_norm(model, change.path)
        except (AttributeError, KeyError) as error:
            raise FoldError(
                f"{type(model).__name__} has no {change.path!r} that could be changed as in the "
                "network that the weights belong to. Use the version of timm that wrote them."
            ) from error
    return model


def with_parallel_branches(model: nn.Module) -> list[str]:
    """Paths of all modules that know how to become one layer, those around others first."""
    return [path for path, module in model.named_modules() if joining_method(module)]


def joining_method(module: nn.Module) -> str | None:
    """Name the method by which a module joins its branches; None if it has none."""
    for name in METHODS:
        method = getattr(module, name, None)
        if inspect.ismethod(method):
            with suppress(TypeError):  # it needs arguments
                inspect.signature(method).bind()
                return name
    return None


def join_parallel_branches(model: nn.Module, path: str) -> nn.Module:
    """Make one layer of a module's branches, and return the network.

    Parameters that were learnt are learnt afterwards too, and a module that is at several places
    gives way at all of them.
    """
    module = model.get_submodule(path)
    name = joining_method(module)
    assert name is not None
    learnt = {key: parameter.requires_grad for key, parameter in module.named_parameters()}
    with _dtype_of(module):  # their methods make layers of torch's default dtype
        result: Any = getattr(module, name)()
    made = result if name == "fuse" and isinstance(result, nn.Module) else module
    for key, parameter in made.named_parameters():
        parameter.requires_grad_(learnt.get(key, any(learnt.values())))
    made.train(module.training)
    if made is module:
        return model
    if not path:
        return made
    everywhere = [at for at, m in model.named_modules(remove_duplicate=False) if m is module]
    for at in everywhere:
        model.set_submodule(at, made)
    return model


@contextmanager
def _dtype_of(module: nn.Module) -> Iterator[None]:
    before = torch.get_default_dtype()
    dtypes = (p.dtype for p in module.parameters() if p.dtype.is_floating_point)
    torch.set_default_dtype(next(dtypes, before))
    try:
        yield
    finally:
        torch.set_default_dtype(before)


def remove_norm(model: nn.Module, path: str) -> None:
    """Take a norm out; an activation that it applied stays in its place."""
    norm = model.get_submodule(path)
    rest: nn.Module = nn.Identity()
    if isinstance(norm, BatchNormAct2d):
        parts = [part for part in (norm.drop, norm.act) if not isinstance(part, nn.Identity)]
        rest = parts[0] if len(parts) == 1 else nn.Sequential(*parts)
    model.set_submodule(path, rest.train(norm.training))


def bias_of(layer: nn.Module) -> nn.Parameter:
    """Return the bias of a convolution or linear layer, which gets one of zeros if it has none."""
    found: Any = layer.bias
    if found is None:
        weight: Any = layer.weight
        transposed = getattr(layer, "transposed", False)
        width = weight.shape[1] * layer.groups if transposed else weight.shape[0]
        zeros = torch.zeros(width, dtype=weight.dtype, device=weight.device)
        found = nn.Parameter(zeros, requires_grad=weight.requires_grad)
        layer.bias = found
    assert isinstance(found, nn.Parameter)
    return found
