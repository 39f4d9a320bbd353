"""The figures of a demo that no other kind of result has: step sizes, and speeds in turns."""

from collections.abc import Sequence

import plotly.graph_objects as go

from stiffnet.report.canvas import canvas
from stiffnet.report.demo_findings import step_sizes
from stiffnet.report.step_axis import marker_size, step_layout, told_line
from stiffnet.report.text import fixed, number, plot_text, tenths
from stiffnet.report.theme import LIGHT
from stiffnet.results.demo import DemoNetwork, TimedForm


def step_sizes_figure(networks: Sequence[DemoNetwork]) -> go.Figure:
    """What every network's gates multiply a branch by, step by step; 1 without attention."""
    steps = [step.name for step in networks[0].after.steps]
    figure = go.Figure(layout=step_layout(steps, "step size"))
    for order, network in enumerate(networks):
        sizes, name = step_sizes(network), plot_text(network.name, longest=40)
        told = [f"{name}: {number(size)}" for size in sizes]
        own = [step.name for step in network.after.steps]
        marker = {"size": marker_size(own)}
        figure.add_trace(told_line(own, sizes, name, order, told, marker=marker))
    return figure


def speeds_figure(forms: Sequence[TimedForm]) -> go.Figure:
    """How fast every form is beside the plain network, with the interval of its median."""
    names = [plot_text(form.name, longest=40) for form in forms]
    layout = canvas(height=110 + 44 * len(forms), x="speed, times the plain network's")
    layout["margin"] |= {"t": 16}
    layout["yaxis"] |= {
        "tickmode": "array", "tickvals": list(range(len(forms))), "ticktext": names,
        "autorange": "reversed", "showgrid": False,
    }  # fmt: skip
    layout["hovermode"] = "closest"
    ratios = [form.ratio for form in forms]
    spans = [form.interval or (form.ratio, form.ratio) for form in forms]
    told = [
        f"{fixed(form.ratio, 2)} times ({fixed(low, 2)} to {fixed(high, 2)})<br>"
        f"{number(form.rate)} images/s, accuracy {tenths(form.accuracy)}"
        for form, (low, high) in zip(forms, spans, strict=True)
    ]
    figure = go.Figure(layout=layout)
    figure.add_vline(x=1, line={"color": LIGHT["axis"], "width": 1, "dash": "dot"})
    figure.add_scatter(
        x=ratios,
        y=list(range(len(forms))),
        mode="markers",
        name="speed",
        showlegend=False,
        marker={"size": 11, "color": LIGHT["series0"]},
        error_x={
            "type": "data", "symmetric": False, "thickness": 1.6, "width": 5,
            "array": [high - ratio for (_, high), ratio in zip(spans, ratios, strict=True)],
            "arrayminus": [ratio - low for (low, _), ratio in zip(spans, ratios, strict=True)],
            "color": LIGHT["series0"],
        },
        customdata=[list(pair) for pair in zip(names, told, strict=True)],
        hovertemplate="<b>%{customdata[0]}</b><br>%{customdata[1]}<extra></extra>",
    )  # fmt: skip
    return figure
