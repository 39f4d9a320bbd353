"""Reading a batch: inputs and labels, the arguments of a call, its samples, and its device."""

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from stiffnet.errors import DataError
from stiffnet.nested import mapped, tensors_in


@dataclass(frozen=True)
class OtherLabels:
    """Labels that are not one class a sample: masks, tokens, boxes, numbers with fractions."""

    what: str
    """As far as it can be said in a few words."""


Labels = Tensor | OtherLabels | None


def limited(
    loader: Iterable[Any], limit: int | None, *, labelled: bool = True
) -> Iterator[tuple[Any, Labels]]:
    """Inputs and labels of every batch until `limit` samples have come, the last one cut to fit.

    Inputs are copies, as networks may write into what they are given. Unless `labelled`, there are
    no labels, whatever the batches say. Raises as `split` does.
    """
    left = math.inf if limit is None else limit
    for batch in loader:
        inputs, labels = split(batch, labelled=labelled)
        size = samples_in(inputs)
        if not size:
            continue
        if size > left:
            size = int(left)
            inputs = resized(inputs, size)
            labels = labels[:size] if isinstance(labels, Tensor) else labels
        yield mapped(inputs, lambda it: it.clone() if isinstance(it, Tensor) else it), labels
        left -= size
        if not left:
            return


def split(batch: Any, *, labelled: bool = True) -> tuple[Any, Labels]:
    """Read one batch of a loader as inputs and labels, if any; a DataError if it is none."""
    if isinstance(batch, Mapping):
        inputs: Any = {key: value for key, value in batch.items() if key != "labels"}
        labels = batch.get("labels")
    elif _are_images(batch):
        raise DataError(
            f"A batch is a list of {len(batch)} tensors of {batch[0].ndim} axes, as detectors take "
            "their images. Give such a list by the name that the model has for it, as in "
            "`{'images': [...]}`."
        )
    elif isinstance(batch, list | tuple) and len(batch) in (1, 2):
        inputs, labels = batch[0], batch[1] if len(batch) == 2 else None
    else:
        inputs, labels = batch, None
    if isinstance(inputs, list | tuple) or not any(t.ndim for t in tensors_in(inputs)):
        parts = f" of {len(batch)} parts" if isinstance(batch, list | tuple) else ""
        raise DataError(
            f"A batch is a {type(batch).__name__}{parts}, without samples that can be told apart. "
            "Give images, a pair (images, labels), or a dictionary of the model's arguments."
        )
    return inputs, _as_labels(labels, samples_in(inputs)) if labelled else None


def _are_images(batch: Any) -> bool:
    """Whether a batch is a list of single images, and not a pair of images and labels."""
    return (
        isinstance(batch, list)
        and len(batch) > 1
        and all(
            isinstance(part, Tensor) and part.is_floating_point() and part.ndim == 3
            for part in batch
        )
    )


def _as_labels(labels: Any, samples: int) -> Labels:
    """Labels as one class number a sample, from a tensor, an array or a list, if they are that."""
    if labels is None:
        return None
    try:
        given = torch.as_tensor(labels).detach().cpu()
    except (TypeError, ValueError, RuntimeError):
        return OtherLabels(f"a {type(labels).__name__}")
    what = f"{given.dtype} of shape {tuple(given.shape)}"
    if given.shape == (samples, 1):
        given = given[:, 0]
    if given.is_floating_point() or given.is_complex() or given.ndim != 1:
        return OtherLabels(what)
    if len(given) != samples:
        raise DataError(
            f"The labels of {samples} samples are {what}. Give one whole class number for each "
            "sample, or no labels."
        )
    return given.long()


class Example(NamedTuple):
    """What a network is called with."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]

    def on(self, model: nn.Module) -> Any:
        """Call a network with it."""
        return model(*self.args, **self.kwargs)

    def resized(self, size: int) -> "Example":
        """The same with `size` samples; see `resized`."""
        return Example(resized(self.args, size), resized(self.kwargs, size))


def as_arguments(example: Any) -> Example:
    """Read an example as the arguments of a call: positional ones, those by name, or a single one.

    A list is one argument: the images of a detector, which may differ in size.
    """
    if isinstance(example, Mapping):
        return Example((), dict(example))
    return Example(example if isinstance(example, tuple) else (example,), {})


def samples_in(value: Any) -> int:
    """Number of samples in a batch: the length of its first tensor, or of a list of them."""
    if isinstance(value, Tensor):
        return len(value) if value.ndim else 0
    if isinstance(value, list) and value and all(isinstance(item, Tensor) for item in value):
        return len(value)
    parts = value.values() if isinstance(value, Mapping) else value
    if isinstance(parts, str) or not isinstance(parts, Iterable):
        return 0
    return next((n for part in parts if (n := samples_in(part))), 0)


def resized(batch: Any, size: int) -> Any:
    """A batch of the first `size` samples, from the beginning again where there are fewer.

    Tensors and lists of another length than the batch (a mask, say) are left alone.
    """
    count = samples_in(batch)
    return picked(batch, torch.arange(size) % count) if count else batch


def picked(batch: Any, samples: Tensor) -> Any:
    """A batch of the samples of these numbers; what `resized` leaves alone is left alone here too.

    >>> picked({"x": torch.tensor([5, 6, 7])}, torch.tensor([2, 0]))
    {'x': tensor([7, 5])}
    """
    count = samples_in(batch)

    def change(value: Any) -> Any:
        if isinstance(value, Tensor) and value.ndim and len(value) == count:
            return value[samples.to(value.device)]
        return [value[int(i)] for i in samples] if isinstance(value, list) else value

    def whole(value: Any) -> bool:
        return isinstance(value, list) and len(value) == count

    return mapped(batch, change, whole)


def on_device(inputs: Any, model: nn.Module) -> Any:
    """Move inputs from the CPU to where the model is; a DataError if they lie elsewhere."""
    parameter = next(model.parameters(), None)

    def move(value: Any) -> Any:
        if parameter is None or not isinstance(value, Tensor) or value.device == parameter.device:
            return value
        if value.device.type != "cpu":
            raise DataError(
                f"A batch lies on {value.device} and the model on {parameter.device}. Move one to "
                "the other, or leave the batches on the CPU."
            )
        return value.to(parameter.device)

    return mapped(inputs, move)
