"""Attention held at its mean over data: the simplest constant attention, and what it costs."""

import copy
from collections.abc import Iterable, Iterator
from dataclasses import replace

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.optim.swa_utils import update_bn

from stiffnet.attention.asr import ConstantGate, asr
from stiffnet.errors import DataError, StepError
from stiffnet.network.attach import attached
from stiffnet.network.gate_memory import memory_of, remember, spelled
from stiffnet.network.step_sizes import choosers, step_sizes
from stiffnet.trajectory.batch import on_device


def freeze_attention(
    model: nn.Module,
    loader: Iterable[tuple[Tensor, Tensor]],
    *,
    recalibrate: bool = False,
    epochs: int = 0,
    learning_rate: float = 0.01,
) -> nn.Module:
    """Replace every attached module by the mean of its step sizes over some data.

    A channel whose rate is zero on all of them gets a step size of 1.

    The result can be folded; what it computes is not what the network computed. Feeding the modules
    a learnt constant while training (`stiffnet.asr`) is the better way to constant attention, and
    this is what to compare it with.

    Args:
        model: A network with attached modules; it is not changed.
        loader: Images and labels, as often as it is iterated: once for the means, once more to
            recalibrate, once an epoch to fine-tune. A generator can be read once only, so it will
            do for the means alone.
        recalibrate: Compute the running statistics of batch norms anew afterwards.
        epochs: Fine-tune for this many epochs afterwards: SGD with momentum 0.9 on the
            cross-entropy, the gates held.
        learning_rate: For fine-tuning.

    Returns:
        A copy with constant gates, in evaluation mode.

    Raises:
        StepError: If nothing is attached, or a module's step sizes differ between positions, or it
            runs more than once in a pass.
        NonFiniteError: If a rate or its step size is NaN or infinite; it names the image and step.
        DataError: If there are no images, or none left where they are needed again.
    """
    _refuse(model)
    if (recalibrate or epochs) and isinstance(loader, Iterator):
        raise DataError(
            f"The loader is a {type(loader).__name__}, which can be read once only, and "
            "recalibrating and fine-tuning read the images again. Give a list of batches or a "
            "`DataLoader`."
        )
    means = _means(model, loader)
    made = copy.deepcopy(model).eval()
    maker = asr("vector", init=1.0, learnable=False)
    for step, gate in choosers(made).items():
        constant = maker(gate.channels, channel_axis=gate.channel_axis)
        constant.psi.copy_(means[step][None])
        if memory := memory_of(gate):
            name, options = spelled(maker, {})
            remember(constant, replace(memory, module=name, options=options, start="paper"))
        like = next(made.parameters())
        path = next(path for path, module in made.named_modules() if module is gate)
        block, _, child = path.rpartition(".")
        made.get_submodule(block)._modules[child] = constant.to(like.device, like.dtype).eval()
    if recalibrate:
        update_bn(_read_again(loader), made, device=next(made.parameters()).device)
    if epochs:
        _fine_tune(made, loader, epochs, learning_rate)
    return made.eval()


def _refuse(model: nn.Module) -> None:
    there = [model.get_submodule(sits.name) for sits in attached(model)]
    if not there or all(isinstance(module, ConstantGate) for module in there):
        raise StepError(
            f"{type(model).__name__} has no attention that depends on its input. Attach a module "
            "first, with `stiffnet.attach`."
        )
    for sits, module in zip(attached(model), there, strict=True):
        kind = type(module).__name__
        if getattr(module, "replaces_norm", False):
            raise StepError(f"{sits.name!r} is a norm ({kind}), which has no step size to hold.")
        if getattr(module, "spatial", True):
            raise StepError(
                f"The step size of {sits.name!r} ({kind}) differs between positions, so that no "
                "number a channel stands for it. Use a module such as 'se'."
            )


def _read_again(loader: Iterable[tuple[Tensor, Tensor]]) -> Iterator[tuple[Tensor, Tensor]]:
    """The batches once more; a loader that has none left would undo what was learnt, or nothing."""
    images = 0
    for batch in loader:
        images += len(batch[0])
        yield batch
    if not images:
        raise DataError(
            "The loader gave no images when it was read again, to recalibrate or to fine-tune. "
            "Give one that starts from the beginning every time."
        )


def _means(model: nn.Module, loader: Iterable[tuple[Tensor, Tensor]]) -> dict[str, Tensor]:
    """Mean of every gate over the images on which it has a value."""
    sums: dict[str, Tensor] = {}
    counts: dict[str, Tensor] = {}
    images = 0
    for batch in loader:
        sizes = step_sizes(model, [batch], first=images)
        images += len(batch[0])
        for step, values in sizes.items():
            known = values.isfinite()
            total = torch.where(known, values.double(), 0).sum(0)
            sums[step] = sums[step] + total if step in sums else total
            counts[step] = counts[step] + known.sum(0) if step in counts else known.sum(0)
    if not images:
        raise DataError("The loader gave no images to take the mean over. Give one that does.")
    return {  # 1 for a channel that is zero on all images, whatever its gate was
        step: torch.where(counts[step] > 0, total / counts[step].clamp(min=1), 1.0)
        for step, total in sums.items()
    }


def _fine_tune(
    model: nn.Module, loader: Iterable[tuple[Tensor, Tensor]], epochs: int, learning_rate: float
) -> None:
    model.train()
    optimizer = torch.optim.SGD(model.parameters(), lr=learning_rate, momentum=0.9)
    for _ in range(epochs):
        for batch in _read_again(loader):
            images, labels = on_device(batch, model)
            optimizer.zero_grad()
            F.cross_entropy(model(images), labels).backward()
            optimizer.step()
