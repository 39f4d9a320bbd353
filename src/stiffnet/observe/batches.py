"""Reading a loader: the inputs of each batch, as many as are wanted, where the model is."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from torch import Tensor, nn

from stiffnet.errors import DataError
from stiffnet.trajectory.batch import resized, samples_in


def limited(loader: Iterable[Any], limit: int | None) -> Iterator[Any]:
    """Inputs until `limit` images have come, the last batch cut to fit."""
    left = limit
    for batch in loader:
        inputs = _inputs(batch)
        size = samples_in(inputs)
        if not size:
            continue
        if left is not None:
            inputs = resized(inputs, left) if size > left else inputs
            left -= min(size, left)
        yield inputs
        if left == 0:
            return


def _inputs(batch: Any) -> Any:
    if isinstance(batch, Mapping):
        return {key: value for key, value in batch.items() if key != "labels"}
    if isinstance(batch, Tensor):
        return batch
    if isinstance(batch, list | tuple) and len(batch) in (1, 2) and isinstance(batch[0], Tensor):
        return batch[0]
    raise DataError(
        f"A batch is a {type(batch).__name__}, and its images cannot be told. Give images, a pair "
        "(images, labels), or a dictionary of the model's arguments."
    )


def on_device(inputs: Any, model: nn.Module) -> Any:
    """Move the tensors of a batch to where a model is."""
    parameter = next(model.parameters(), None)
    if isinstance(inputs, Mapping):
        return {key: on_device(value, model) for key, value in inputs.items()}
    if parameter is None or not isinstance(inputs, Tensor):
        return inputs
    return inputs.to(parameter.device)
