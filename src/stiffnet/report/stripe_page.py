"""One self-contained HTML page on attention values; nothing that a user wrote is markup in it."""

from typing import Any

from stiffnet.report import stripe_plots as plots
from stiffnet.report.frame import framed, marked_up
from stiffnet.report.stripe_tables import growth_table, modules_table
from stiffnet.report.stripe_view import StripeView
from stiffnet.report.stripe_words import dearest, findings, headline, mean_cost
from stiffnet.report.text import clean, count, number, percent


def stripe_page(view: StripeView, *, heading: str) -> str:
    """Return one HTML page on the attention values of a network."""
    figures: dict[str, Any] = {
        "score": plots.score_figure(view).to_plotly_json(),
        "spread": plots.spread_figure(view).to_plotly_json(),
    }
    modules = [_module(view, i, figures) for i in range(len(view.modules))]
    if view.drift is not None:
        figures["drift"] = plots.drift_figure(view.drift).to_plotly_json()
    if view.growth is not None:
        figures["growth"] = plots.growth_figure(view.growth).to_plotly_json()
    return framed(
        "stripes.html.j2",
        figures,
        scripts=["stripes.js"],
        styles=["stripes.css"],
        heading=heading,
        headline=marked_up(headline(view)),
        findings=[marked_up(sentence) for sentence in findings(view)],
        tiles=_tiles(view),
        modules=modules,
        kept=count(len(view.number)),
        samples=count(view.samples),
        channels=plots.CHANNELS,
        logarithmic=figures["spread"]["layout"]["yaxis"]["type"] == "log",
        drift=view.drift,
        growth=view.growth,
        tables=[
            ("modules", modules_table(view)),
            *([("growth", growth_table(view.growth))] if view.growth is not None else []),
        ],
        facts=[(clean(key, longest=80), clean(value)) for key, value in view.facts.items()],
    )


def _module(view: StripeView, index: int, figures: dict[str, Any]) -> dict[str, Any]:
    """Draw the pictures of one module, and say where they go."""
    module, row = view.modules[index], view.rows.iloc[index]
    pictures = [
        ("inputs", "Its input: the mean rate", plots.inputs_figure(view, module)),
        ("values", "Its values", plots.values_figure(view, module)),
    ]
    if view.drift is not None and module.step in view.drift.differences:
        moved = plots.module_drift_figure(view.drift, module.step)
        pictures.append(("moved", "How far its values moved, epoch by epoch", moved))
    places = []
    for kind, title, figure in pictures:
        place = f"{kind}-{index}"
        figures[place] = figure.to_plotly_json()
        places.append({"place": place, "title": title, "note": ""})
    return {
        "step": clean(module.step, longest=120),
        "score": number(row["score"]),
        "cost": percent(row["cost"]),
        "pictures": places,
    }


def _tiles(view: StripeView) -> list[tuple[str, str, str]]:
    """Return the numbers under the headline: name, value, what it is made of."""
    scores = view.rows["score"].dropna()
    tiles = [
        ("Stripe score", number(scores.median() if len(scores) else None), "median over modules"),
        ("Cost of constant values", percent(mean_cost(view)), "root mean square over modules"),
    ]
    worst = dearest(view)
    if worst is not None:
        step = clean(worst["step"], longest=40)
        tiles.append(("Dearest module", percent(worst["cost"]), f"at {step}"))
    tiles.append(("Images", count(view.samples), f"through {count(len(view.modules))} modules"))
    return tiles
