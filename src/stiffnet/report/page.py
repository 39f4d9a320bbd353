"""One self-contained HTML page from views, in which nothing that a user wrote is markup."""

from collections.abc import Sequence
from typing import Any

from stiffnet.report import plots, surfaces, tables
from stiffnet.report.findings import (
    all_counted,
    basis,
    comparison,
    findings,
    headline,
    images,
    stiffest_steps,
)
from stiffnet.report.folded import forms_table, saving
from stiffnet.report.frame import framed, marked_up
from stiffnet.report.stripe_page import stripe_page
from stiffnet.report.stripe_view import stripe_view
from stiffnet.report.text import clean, count, finite, number, percent, with_error
from stiffnet.results.fold import Forms
from stiffnet.results.stiffness import StiffnessReport
from stiffnet.results.stripes import StripeReport
from stiffnet.results.view import StiffnessView


def page(results: Sequence[Any], *, titles: Sequence[str] = (), heading: str = "") -> str:
    """Return one self-contained HTML page that shows one result, or several."""
    names = list(titles) or [""] * len(results)
    given = list(zip(results, names, strict=True))
    if isinstance(results[0], StripeReport):
        return stripe_page(stripe_view(results[0]), heading=heading or results[0].title)
    views = [each.view(name) for each, name in given if isinstance(each, StiffnessReport)]
    forms = next((each for each in results if isinstance(each, Forms)), None)
    heading = heading or " and ".join(dict.fromkeys(view.title for view in views))
    return stiffness_page(views, heading=heading, fold=forms)


def stiffness_page(
    views: Sequence[StiffnessView], *, heading: str, fold: Forms | None = None
) -> str:
    """Return one HTML page on one or several measured networks.

    Args:
        views: The networks, for example one before and after training; with the same steps they
            are overlaid in the chart of NSI.
        heading: What the page is about.
        fold: What one of them became when it was folded, if it was.
    """
    assert views, "a page shows at least one network"
    figures, sections = _figures(views)
    return framed(
        "page.html.j2",
        figures,
        heading=heading,
        several=len(views) > 1,
        uncounted=not all_counted(views),
        comparison=[marked_up(sentence) for sentence in comparison(views)],
        networks=[_network(view) for view in views],
        sections=sections,
        fold=None if fold is None else _folded(fold),
    )


def _network(view: StiffnessView) -> dict[str, Any]:
    """Return everything that the page says about one network in words and tables."""
    return {
        "title": clean(view.title, longest=200),
        "headline": marked_up(headline(view)),
        "tiles": _tiles(view),
        "notes": [clean(text, longest=2000) for text in view.notes],
        "findings": [marked_up(sentence) for sentence in findings(view)],
        "tables": [
            ("steps", tables.steps_table(view), True),
            ("stages", tables.stages_table(view), True),
            *([("labels", tables.labels_table(view), False)] if view.labels is not None else []),
            *(
                [("relations", tables.relations_table(view), False)]
                if view.relations is not None
                else []
            ),
        ],
        "facts": [(clean(key, longest=80), clean(value)) for key, value in view.facts.items()],
    }


def _folded(view: Forms) -> dict[str, Any]:
    """Return what the page says about the forms of a folded network."""
    return {
        "saving": marked_up(saving(view)),
        "table": forms_table(view),
        "tested": images(view.tested),
        "batch": images(view.batch),
        "passes": count(view.passes),
    }


def _tiles(view: StiffnessView) -> list[tuple[str, str, str]]:
    """Return the numbers under the headline: name, value, what it is made of."""
    counted = int(view.steps["counted"].sum())
    stages = len(view.stages)
    tiles = [
        (
            "Total neural stiffness",
            with_error(view.tns, view.tns_se),
            f"mean over {images(view.samples)}, from {basis(view)}"
            if view.tns_steps
            else "no stage has two counted steps",
        ),
        *_increment_tile(view),
        (
            "Residual steps",
            count(len(view.steps)),
            f"{counted} counted, in {stages} stage{'' if stages == 1 else 's'}",
        ),
    ]
    for row in stiffest_steps(view, most=1):
        step = clean(row["step"], longest=40)
        name = "Stiffest counted step" if counted else "Stiffest step"
        tiles.append((name, f"NSI {number(row['nsi_mean'])}", f"at {step}"))
    if finite(view.accuracy) is not None:
        tiles.append(("Accuracy", percent(view.accuracy), "on the same images"))
    return tiles


def _increment_tile(view: StiffnessView) -> list[tuple[str, str, str]]:
    if not view.steps["gated"].any() or finite(view.increment_total) is None:
        return []
    total = with_error(view.increment_total, view.increment_total_se)
    return [("Total of increments", total, "TNS with the gates in; folding keeps it")]


def _figures(views: Sequence[StiffnessView]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the figures by their place in the page, and what the page writes around them."""
    groups = [list(views)] if plots.share_steps(views) else [[view] for view in views]
    extent, top = surfaces.surface_extent(views), surfaces.proportion_top(views)
    drawn: dict[str, Any] = {}
    sections: dict[str, Any] = {"nsi": [], "delta": [], "proportion": [], "extremes": []}

    def add(section: str, figure: Any, of: Sequence[StiffnessView], note: str = "") -> None:
        place = f"{section}-{len(sections[section])}"
        drawn[place] = figure.to_plotly_json()
        title = " and ".join(clean(view.title, longest=80) for view in of)
        logarithmic = figure.layout.yaxis.type == "log"
        sections[section].append(
            {"place": place, "title": title, "note": note, "logarithmic": logarithmic}
        )

    for group in groups:
        add("nsi", plots.nsi_figure(group), group)
    for view in views:
        note = surfaces.caption_samples(view)
        if view.steps["counted"].any():
            add("delta", plots.delta_figure(view, extent=extent), [view], note)
            add("proportion", plots.proportion_figure(view, extent=extent, top=top), [view], note)
        if view.stiffest or view.calmest:
            add("extremes", plots.extremes_figure(view), [view], note)
    return drawn, sections
