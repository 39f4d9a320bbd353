"""The kinds of jobs that rows of studies are made of, and how their settings are written out."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from stiffnet.jobs import rows_looks, rows_spectra, rows_speed, rows_train
from stiffnet.jobs.row_run import Task
from stiffnet.jobs.rows_train import ON
from stiffnet.train.recipe_file import build_recipe
from stiffnet.train.run_folder import RunFolder

ALONE = {"speed", "forms"}  # kinds that are computed while nothing else is
LEAVING: dict[str, Callable[[Path], bool]] = {"train": lambda folder: RunFolder(folder).finished}
"""Kinds whose folder is read by rows that are made from them, and whether it is complete."""
BY_RECIPE = {"train", "restyle"}  # kinds whose settings are fields of a recipe
TASKS: dict[str, Task] = {
    "train": rows_train.train,
    "restyle": rows_train.restyle,
    "measure": rows_looks.measure,
    "freeze": rows_looks.freeze,
    "stripes": rows_looks.stripes,
    "growth": rows_looks.growth,
    "gradcam": rows_looks.gradcam,
    "speed": rows_speed.speed,
    "spectra": rows_spectra.spectra,
    "counts": rows_spectra.counts,
    "surface": rows_looks.surface,
    "values": rows_looks.values,
    "forms": rows_speed.forms,
    "form": rows_speed.form,
}


def settled(kind: str, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Write a job's settings out, so that what two of them share is seen, however it was written.

    Fields that recipes got later are left out at their defaults, so that rows keep their addresses.

    Raises:
        StiffnetError: If they cannot be.
    """
    if kind not in BY_RECIPE:
        return dict(settings)
    given = dict(settings)
    on = given.pop(ON, None)
    recipe = build_recipe(given.pop("recipe"), given)
    return recipe.facts | ({} if on is None else {ON: dict(on)})
