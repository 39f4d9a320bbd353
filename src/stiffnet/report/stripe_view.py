"""What the page and the terminal show of attention values: plain rows and arrays, no model."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pandas as pd

from stiffnet.results.drift import Drift
from stiffnet.results.growth import Growth
from stiffnet.results.stripes import StripeReport

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class ModuleView:
    """The arrays of one module: spreads by channel, and pictures by image and channel."""

    step: str
    value_std: Floats
    input_std: Floats
    values: Floats
    inputs: Floats


@dataclass(frozen=True)
class StripeView:
    """The attention values of one network, ready to be shown.

    Every string in here is a user's: the page and the terminal neutralise all of them. Missing
    numbers are NaN and are shown as a dash.

    Args:
        title: What was looked at.
        facts: Where the numbers come from.
        samples: How many images the statistics are over.
        number: Positions in the data of the images in the pictures.
        rows: One row a module, as `StripeReport.to_frame` gives them.
        modules: Their arrays, in the same order.
        drift: How values moved from epoch to epoch, if that was looked at.
        growth: How a perturbation grew, if that was measured.
    """

    title: str
    facts: dict[str, str]
    samples: int
    number: npt.NDArray[np.int64]
    rows: pd.DataFrame
    modules: tuple[ModuleView, ...]
    drift: Drift | None
    growth: Growth | None


def stripe_view(report: StripeReport) -> StripeView:
    """What the page and the terminal show of a report."""
    return StripeView(
        title=report.title,
        facts=dict(report.facts),
        samples=report.samples,
        number=report.number,
        rows=report.to_frame(),
        modules=tuple(
            ModuleView(m.step, m.value_std, m.input_std, m.values, m.inputs) for m in report.modules
        ),
        drift=report.drift,
        growth=report.growth,
    )
