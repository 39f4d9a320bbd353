"""Which file draws which kind of result."""

from collections.abc import Sequence
from types import ModuleType
from typing import Any

from rich.console import RenderableType

from stiffnet.report import (
    comparison,
    demo,
    fold,
    gradcam,
    growth,
    ode,
    spectra,
    stiffness,
    stripes,
    study,
    training,
)
from stiffnet.report.blocks import Part
from stiffnet.report.text import clean
from stiffnet.results.comparison import Comparison
from stiffnet.results.demo import DemoReport
from stiffnet.results.fold import FoldReport
from stiffnet.results.gradcam import GradcamReport
from stiffnet.results.growth import Growth
from stiffnet.results.ode import OdeRecord
from stiffnet.results.spectra import SpectrumReport
from stiffnet.results.spectrum import Spectrum
from stiffnet.results.stiffness import StiffnessReport
from stiffnet.results.stripes import StripeReport
from stiffnet.results.study import StudyReport
from stiffnet.results.training import TrainingLog
from stiffnet.results.view import StiffnessView

KINDS: dict[type, ModuleType] = {
    StiffnessReport: stiffness,
    StiffnessView: stiffness,
    StripeReport: stripes,
    SpectrumReport: spectra,
    Spectrum: spectra,
    FoldReport: fold,
    OdeRecord: ode,
    Comparison: comparison,
    Growth: growth,
    GradcamReport: gradcam,
    StudyReport: study,
    TrainingLog: training,
    DemoReport: demo,
}
"""Each of these files says what a terminal shows of a result (`terminal`) and what a page does: of
each by itself (`part`), or of all together (`parts`)."""


def parts_of(results: Sequence[Any], titles: Sequence[str]) -> list[Part]:
    """Return what results put on a page; all of one kind where the first of them stands."""
    groups: dict[ModuleType, list[tuple[Any, str]]] = {}
    for result, title in zip(results, titles, strict=True):
        groups.setdefault(_drawer(result), []).append((result, title))
    return [part for drawer, given in groups.items() for part in _parts(drawer, given)]


def _parts(drawer: ModuleType, given: Sequence[tuple[Any, str]]) -> list[Part]:
    """Draw results of a kind; one by one, their places end in a number where there are several."""
    if hasattr(drawer, "parts"):
        together: list[Part] = drawer.parts(given)
        return together
    ends = [f"-{i}" for i in range(len(given))] if len(given) > 1 else [""]
    return [
        drawer.part(result, clean(title or result.title, longest=200), end)
        for (result, title), end in zip(given, ends, strict=True)
    ]


def shown(result: Any) -> RenderableType:
    """Return what a terminal shows of a result."""
    drawn: RenderableType = _drawer(result).terminal(result)
    return drawn


def _drawer(result: Any) -> ModuleType:
    for kind, drawer in KINDS.items():
        if isinstance(result, kind):
            return drawer
    raise TypeError(f"{type(result).__name__} is not a result that can be drawn.")
