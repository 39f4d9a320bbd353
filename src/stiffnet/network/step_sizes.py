"""The step sizes that attached modules choose: one number for each image and channel.

A run that keeps them has a folder `VALUES` with a file of tensors for each epoch, one a module.
"""

import re
from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save
from torch import Tensor, nn

from stiffnet.attention import Attention
from stiffnet.errors import NonFiniteError, StepError
from stiffnet.files import atomic_write
from stiffnet.nested import mapped
from stiffnet.network.attach import attached, nothing_attached
from stiffnet.network.weights import read_weights
from stiffnet.trajectory.batch import as_arguments
from stiffnet.trajectory.wrappers import plain_run

VALUES = "attention"  # in the folder of a run
FILE = re.compile(r"epoch-(\d{4,})\.safetensors")


def step_sizes(
    model: nn.Module, batches: Iterable[tuple[Any, Any]], *, first: int = 0
) -> dict[str, Tensor]:
    """Run some images and return what each attached module multiplied their rates with.

    A module's value for an image and a channel is the number that, multiplied with the rate, comes
    closest to what the module made of it, in the sense of least squares over the positions: exactly
    its gate where that is one number a channel, a weighted mean where it differs between positions.
    It is NaN where the rate is zero everywhere.

    The network is run in evaluation mode and left as it was; `batches` are images (or a dictionary
    of the network's arguments) and labels. For each step or position there is a float32 tensor of
    shape (images, channels), on the CPU. `first` is the number of the first image, for messages.

    Raises:
        StepError: If nothing is attached that chooses step sizes, or a module runs more than once.
        NonFiniteError: If a rate or what becomes of it is NaN or infinite; it names image and step.
    """
    found: dict[str, list[Tensor]] = {}
    modules = choosers(model)
    if not modules:
        raise nothing_attached(model, " that chooses step sizes")
    with plain_run(model), ExitStack() as hooks:
        for name, module in modules.items():
            keep = partial(_take, found.setdefault(name, []), name, first)
            hooks.enter_context(module.register_forward_hook(keep))
        parameter = next(model.parameters())
        for number, (images, _) in enumerate(batches, 1):
            own = mapped(images, lambda image: image.to(parameter, copy=True))  # it may be changed
            as_arguments(own).on(model)
            if again := [step for step, parts in found.items() if len(parts) > number]:
                raise StepError(
                    f"The module at step {again[0]!r} ran more than once for a batch, so that it "
                    "has several values for an image. Give a network that runs each step once."
                )
    return {name: torch.cat(parts) for name, parts in found.items()}


def choosers(model: nn.Module) -> dict[str, Attention]:
    """Return the attached modules that scale a rate, by their steps.

    Where a step has several, the first goes by the step's name, the others by their own paths.
    """
    found: dict[str, Attention] = {}
    for sits in attached(model):
        module = model.get_submodule(sits.name)
        if isinstance(module, Attention) and not module.replaces_norm:
            found[sits.name if sits.at in found else sits.at] = module
    return found


def write_values(folder: Path, epoch: int, values: Mapping[str, Tensor]) -> Path:
    """Keep the values of an epoch."""
    return atomic_write(folder / f"epoch-{epoch:04d}.safetensors", save(dict(values)))


def read_values(folder: Path) -> dict[int, dict[str, Tensor]]:
    """Return the values of each epoch that a folder has, in the order of the epochs."""
    files = sorted(folder.iterdir()) if folder.is_dir() else []
    found = {epoch: file for file in files if (epoch := epoch_of(file)) is not None}
    return {
        epoch: {k: v for k, v in read_weights(found[epoch]).items() if isinstance(v, Tensor)}
        for epoch in sorted(found)
    }


def epoch_of(file: Path) -> int | None:
    """Return the epoch whose values a file holds, by its name; None if it is another file."""
    found = FILE.fullmatch(file.name)
    return int(found[1]) if found else None


def _take(
    kept: list[Tensor],
    step: str,
    first: int,
    module: Attention,
    inputs: tuple[Tensor, ...],
    output: Tensor,
) -> None:
    rate, scaled = inputs[0].double(), output.double()
    axes = module.positions(inputs[0])
    energy = rate.square().sum(axes)
    values = (scaled * rate).sum(axes) / energy
    wrong = (~energy.isfinite() | ((energy > 0) & ~values.isfinite())).any(dim=1)
    if bool(wrong.any()):
        image = first + sum(map(len, kept)) + int(wrong.nonzero()[0])
        raise NonFiniteError(
            f"The rate or its gate at step {step!r} is NaN or infinite for image {image}. Check "
            "the weights and this input."
        )
    kept.append(values.float().cpu())
