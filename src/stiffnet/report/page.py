"""One self-contained HTML page from views, in which nothing that a user wrote is markup."""

import base64
import hashlib
import json
from collections.abc import Iterable, Sequence
from functools import cache
from importlib import resources
from typing import Any

import numpy as np
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup
from plotly.offline import get_plotlyjs

from stiffnet.report import plots, surfaces, tables
from stiffnet.report.findings import (
    Sentence,
    Strong,
    all_counted,
    comparison,
    findings,
    headline,
    images,
    stiffest_steps,
)
from stiffnet.report.text import clean, count, finite, number, percent, with_error
from stiffnet.report.theme import TO_DARK
from stiffnet.report.view import StiffnessView

_DIGITS = 5  # significant digits of a number in a figure: more than a screen can show
_FILTER_FROM = 30  # rows from which a table gets a filter


def stiffness_page(views: Sequence[StiffnessView], *, heading: str) -> str:
    """Return one HTML page on one or several measured networks.

    The page carries its own scripts, styles and data and asks nothing of any server; its
    content-security policy lets no script run but the two that it names by their hash.

    Args:
        views: The networks, for example one before and after training; with the same steps they
            are overlaid in the chart of NSI.
        heading: What the page is about.
    """
    assert views, "a page shows at least one network"
    figures, sections = _figures(views)
    scripts = [get_plotlyjs(), _asset("page.js")]
    return (
        _environment()
        .get_template("page.html.j2")
        .render(
            heading=clean(heading, longest=300),
            policy=content_policy(scripts),
            style=Markup(_asset("page.css")),  # noqa: S704 - our own file
            scripts=[Markup(script) for script in scripts],  # noqa: S704 - our own file and plotly's
            data=json_block({"figures": figures, "dark": TO_DARK}),
            several=len(views) > 1,
            uncounted=not all_counted(views),
            comparison=[_markup(sentence) for sentence in comparison(views)],
            networks=[_network(view) for view in views],
            sections=sections,
            filter_from=_FILTER_FROM,
        )
    )


def content_policy(scripts: Iterable[str]) -> str:
    """Return the policy under which only the given inline scripts run and nothing is loaded."""
    hashes = " ".join(f"'sha256-{_digest(script)}'" for script in scripts)
    return (
        f"default-src 'none'; script-src {hashes}; style-src 'unsafe-inline'; img-src data: blob:; "
        "base-uri 'none'; form-action 'none'"
    )


def json_block(value: Any) -> Markup:
    r"""Return strict JSON (no NaN, no infinity) that is safe inside a ``<script>`` element.

    >>> str(json_block({"a": [float("nan"), "</script>"]}))
    '{"a":[null,"\\u003c/script\\u003e"]}'
    """
    text = json.dumps(_plain(value), allow_nan=False, ensure_ascii=True, separators=(",", ":"))
    for character in "<>&":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return Markup(text)  # noqa: S704 - no character that HTML reads is left


def _plain(value: Any) -> Any:
    """Return `value` as plain JSON types, with rounded numbers and None where none is finite."""
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple, np.ndarray)):
        return [_plain(item) for item in value]
    if value is None or isinstance(value, (str, bool, np.bool_)):
        return bool(value) if isinstance(value, np.bool_) else value
    if isinstance(value, (int, np.integer)):
        return int(value)
    known = finite(value)
    return None if known is None else float(f"{known:.{_DIGITS}g}")


def _digest(script: str) -> str:
    return base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()


def _asset(name: str) -> str:
    return resources.files(__package__).joinpath("templates", name).read_text(encoding="utf-8")


@cache
def _environment() -> Environment:
    return Environment(
        autoescape=True,
        loader=PackageLoader("stiffnet.report"),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def _markup(sentence: Sentence) -> Markup:
    """Return a sentence as HTML; every piece is escaped on its way in."""
    strong = Markup("<strong>{}</strong>")
    pieces = (strong.format(p.text) if isinstance(p, Strong) else p for p in sentence)
    return Markup("").join(pieces)


def _network(view: StiffnessView) -> dict[str, Any]:
    """Return everything that the page says about one network in words and tables."""
    return {
        "title": clean(view.title, longest=200),
        "headline": _markup(headline(view)),
        "tiles": _tiles(view),
        "findings": [_markup(sentence) for sentence in findings(view)],
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


def _tiles(view: StiffnessView) -> list[tuple[str, str, str]]:
    """Return the numbers under the headline: name, value, what it is made of."""
    counted = int(view.steps["counted"].sum())
    stages = len(view.stages)
    tiles = [
        (
            "Total neural stiffness",
            with_error(view.tns, view.tns_se) if counted else number(None),
            f"mean over {images(view.samples)}" if counted else "no step is counted",
        ),
        (
            "Residual steps",
            count(len(view.steps)),
            f"{counted} counted, in {stages} stage{'' if stages == 1 else 's'}",
        ),
    ]
    for row in stiffest_steps(view, most=1):
        step = clean(row["step"], longest=40)
        tiles.append(("Stiffest step", f"NSI {number(row['nsi_mean'])}", f"at {step}"))
    if finite(view.accuracy) is not None:
        tiles.append(("Accuracy", percent(view.accuracy), "on the same images"))
    return tiles


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
