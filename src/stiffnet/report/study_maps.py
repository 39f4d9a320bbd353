"""Mean maps of the rows of a study, over their seeds, in one scale of colours."""

from typing import Any

import numpy as np
import plotly.graph_objects as go

from stiffnet.report.gradcam_plots import colour_range, map_figure
from stiffnet.report.text import clean, finite
from stiffnet.results.study import StudyReport
from stiffnet.stiffness.given import Floats


def map_figures(report: StudyReport) -> list[tuple[str, go.Figure]]:
    """Return the mean map of each row by its name; what is no map is left out."""
    about = report.picture
    assert about is not None
    found: dict[tuple[str, str], list[Floats]] = {}
    for line in report.lines:
        read = _read(line.values.get(about["y"]))
        if read is not None:
            found.setdefault((line.group, line.row), []).append(read)
    alike = {key: maps for key, maps in found.items() if len({each.shape for each in maps}) == 1}
    means = {key: np.mean(maps, axis=0) for key, maps in alike.items()}
    ends = colour_range(list(means.values()))
    several = len({group for group, _ in means}) > 1
    nowhere = (np.nan, np.nan)  # the centre of mass is in no column
    return [
        (
            clean(f"{row}, {group}" if several else row, longest=80),
            map_figure(mean, nowhere, ends),
        )
        for (group, row), mean in means.items()
    ]


def _read(value: Any) -> Floats | None:
    """Return rows of numbers as an array; nothing where they are something else."""
    if not isinstance(value, list | tuple) or not all(isinstance(v, list | tuple) for v in value):
        return None
    numbers = [[finite(each) for each in line] for line in value]
    if len({len(line) for line in numbers}) != 1 or any(None in line for line in numbers):
        return None
    found: Floats = np.array(numbers, dtype=np.float64)
    return found if found.size and found.any() else None
