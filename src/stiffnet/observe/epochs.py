"""Attention values over training: how far they move from epoch to epoch."""

import os
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path

import numpy as np
import numpy.typing as npt

from stiffnet.errors import DataError, NonFiniteError, StorageError
from stiffnet.network.step_sizes import VALUES, read_values
from stiffnet.observe.channel_moments import Floats, Moments
from stiffnet.results.drift import Drift


def stripes_over_epochs(run: str | os.PathLike[str]) -> Drift:
    """Read how far attention values moved from epoch to epoch of a run.

    Args:
        run: The folder of a run of ``stiffnet train --attention-values N``, or the folder
            ``attention`` in it.

    Raises:
        StorageError: If there are no such files, or one cannot be read.
        CorruptFileError: If a file is damaged.
        DataError: If there are fewer than two epochs, or they do not belong together.
    """
    folder = Path(run)
    folder = folder / VALUES if (folder / VALUES).is_dir() else folder
    found = read_values(folder)
    if not found:
        raise StorageError(
            f"{folder} holds no attention values. Name a run that was trained with "
            "`--attention-values`."
        )
    return first_differences(
        {
            epoch: {step: value.double().numpy() for step, value in values.items()}
            for epoch, values in found.items()
        }
    )


def first_differences(values: Mapping[int, Mapping[str, npt.ArrayLike]]) -> Drift:
    """Difference attention values over epochs: |a(e + 1) - a(e)|, averaged over images.

    Args:
        values: For each epoch, for each module, values of shape (images, channels), as
            `step_sizes` and `StripeReport.values` give them, of the same images every time. What
            is NaN in one of two epochs is left out of their difference.

    Raises:
        DataError: If there are fewer than two epochs, or they do not belong together.
        NonFiniteError: If a value is infinite; it names the step.

    Example:
        >>> first_differences({1: {"a": [[0.5]]}, 2: {"a": [[0.75]]}}).differences["a"]
        array([[0.25]])
    """
    epochs = sorted(values)
    if len(epochs) < 2:
        raise DataError(
            f"There are values of {len(epochs)} epoch{'s' if len(epochs) != 1 else ''}, and a "
            "difference needs two. Give those of more epochs."
        )
    before = _arrays(values[epochs[0]])
    rows: dict[str, list[Floats]] = {step: [] for step in before}
    for earlier, later in pairwise(epochs):
        after = _arrays(values[later])
        if {k: v.shape for k, v in after.items()} != {k: v.shape for k, v in before.items()}:
            raise DataError(
                f"The values of epochs {earlier} and {later} are not of the same modules, channels "
                "and images. Give those of one run."
            )
        for step, found in rows.items():
            found.append(_mean_over_images(np.abs(after[step] - before[step])))
        before = after
    return Drift(
        epochs=tuple(pairwise(epochs)),
        images=max(len(found) for found in before.values()),
        differences={step: np.stack(found) for step, found in rows.items()},
    )


def _arrays(values: Mapping[str, npt.ArrayLike]) -> dict[str, Floats]:
    arrays = {step: np.asarray(found, dtype=np.float64) for step, found in values.items()}
    if not arrays or any(found.ndim != 2 or not found.size for found in arrays.values()):
        raise DataError(
            "Attention values of an epoch are a table (images, channels) for each module, and "
            "these are not. Give what `StripeReport.values` or `--attention-values` gives."
        )
    for step, found in arrays.items():
        if bool(np.isinf(found).any()):
            raise NonFiniteError(
                f"A value of the module at step {step!r} is infinite. Look at the run that it is "
                "from: its weights had left the range of numbers."
            )
    return arrays


def _mean_over_images(values: Floats) -> Floats:
    moments = Moments(values.shape[1])
    moments.add(values, (~np.isnan(values)).astype(np.float64))
    return moments.known_mean()
