"""Figures of compared networks: steps side by side, their differences, and shares of stages."""

from collections import Counter
from collections.abc import Sequence

import plotly.graph_objects as go

from stiffnet.report.canvas import canvas
from stiffnet.report.step_axis import marker_size, step_layout, told_line
from stiffnet.report.text import number, percent, plot_text
from stiffnet.report.theme import LIGHT, SERIES
from stiffnet.results.comparison import Network, Pair


def steps_figure(networks: Sequence[Network]) -> go.Figure:
    """Mean NSI by step of networks whose steps correspond; named as in the first."""
    names = networks[0].steps
    figure = go.Figure(layout=step_layout(names, "mean NSI"))
    for order, network in enumerate(networks):
        title = plot_text(network.name, longest=40)
        told = [f"{title}: {number(value)}" for value in network.nsi]
        marker = {"size": marker_size(names)}
        figure.add_trace(told_line(names, list(network.nsi), title, order, told, marker=marker))
    return figure


def difference_figure(pair: Pair) -> go.Figure:
    """Difference of NSI by step with its interval; filled where it is significant."""
    found = pair.steps
    names = [each.name for each in found]
    layout = step_layout(names, "difference of NSI")
    layout["yaxis"] |= {"rangemode": "normal", "zeroline": True, "zerolinecolor": LIGHT["axis"]}
    colour = LIGHT["series0"]
    values = [each.difference for each in found]
    told = [
        f"{number(each.difference)} ({number(each.low)} to {number(each.high)})<br>"
        f"{'differs' if each.differs else 'does not differ'} significantly"
        for each in found
    ]
    marker = {
        "size": marker_size(names, few=8),
        "color": [colour if each.differs else LIGHT["paper"] for each in found],
        "line": {"color": colour, "width": 1.5},
    }
    trace = told_line(names, values, "difference", 0, told, marker=marker, showlegend=False)
    trace.update(
        mode="markers",
        error_y={
            "type": "data",
            "symmetric": False,
            "array": [0 if d.high is None else d.high - d.difference for d in found],
            "arrayminus": [0 if d.low is None else d.difference - d.low for d in found],
            "color": colour,
            "thickness": 1.4,
            "width": 3,
        },
    )
    figure = go.Figure(trace, layout=layout)
    figure.update_layout(margin={"t": 24})
    return figure


def share_figure(networks: Sequence[Network]) -> go.Figure:
    """Bars for the share of each stage, the networks beside one another."""
    layout = canvas(height=400, y="share of the sum of NSI")
    layout["margin"] |= {"t": 48}
    most = max(len(network.shares) for network in networks)
    layout["xaxis"] |= {
        "tickmode": "array", "tickvals": list(range(most)), "showgrid": False,
        "ticktext": [f"stage {stage}" for stage in range(most)],
    }  # fmt: skip
    layout["yaxis"] |= {"tickformat": ".0%", "rangemode": "tozero"}
    layout |= {"barmode": "group", "bargap": 0.3}
    figure = go.Figure(layout=layout)
    for order, network in enumerate(networks):
        counts = list(Counter(network.stages).values())
        told = [
            f"{percent(share)}, in {steps} step{'' if steps == 1 else 's'}"
            for share, steps in zip(network.shares, counts, strict=True)
        ]
        name = plot_text(network.name, longest=40)
        figure.add_bar(
            x=list(range(len(counts))),
            y=list(network.shares),
            name=name,
            marker={"color": LIGHT[f"series{order % SERIES}"]},
            customdata=[[name, text] for text in told],
            hovertemplate="<b>%{customdata[0]}</b><br>%{customdata[1]}<extra></extra>",
        )
    return figure
