"""The page of a result: the only place here that knows how pages are drawn."""

from collections.abc import Sequence

from stiffnet.report.findings import plain
from stiffnet.report.folded import FoldView, saving
from stiffnet.results.stiffness import StiffnessReport, page as stiffness_page
from stiffnet.results.stripes import StripeReport, page as stripes_page


def page_of(
    *results: StiffnessReport | StripeReport | FoldView,
    titles: Sequence[str] = (),
    heading: str = "",
) -> str:
    """Return one self-contained HTML page that shows the results side by side."""
    stripes = [result for result in results if isinstance(result, StripeReport)]
    if stripes:
        [report] = stripes
        return stripes_page(report, heading=heading)
    reports = [result for result in results if isinstance(result, StiffnessReport)]
    folds = [result for result in results if isinstance(result, FoldView)]
    return stiffness_page(reports, titles=titles, heading=heading, fold=folds[0] if folds else None)


def saving_of(forms: FoldView) -> str:
    """Say in a sentence what folding saves."""
    return plain(saving(forms))
