"""The pictures of docs/ode.md, from the records that benchmarks/ode.py kept.

python benchmarks/ode.py --out ode-records
python benchmarks/ode_pictures.py ode-records docs/pictures
"""

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
import numpy.typing as npt
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from stiffnet.ode.problems import problem
from stiffnet.results.ode import (
    PAPER_RUNS,
    PAPER_TIME,
    AdaptiveSteps,
    Encounters,
    EulerComparison,
    Theorem2Check,
)

Floats = npt.NDArray[np.float64]
INK, MUTED, GRID = "#1d2126", "#59616b", "#e6e5df"
SERIES = ("#0072b2", "#c24e00", "#00795a", "#a8497f", "#8a6500", "#4b4fa8")
SHADES = ("#8fc3e8", "#4a9fd4", "#0072b2", "#00507d", "#00293f")  # of five durations
WIDTH, DPI = 6.4, 200  # inches; read at 720 pixels on a desk and at 360 on a phone
STYLE: dict[Any, Any] = {
    "font.size": 12,
    "axes.titlesize": 12.5,
    "axes.titlelocation": "left",
    "axes.titleweight": "bold",
    "axes.labelsize": 12,
    "axes.edgecolor": MUTED,
    "axes.labelcolor": INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": GRID,
    "text.color": INK,
    "xtick.color": MUTED,
    "ytick.color": MUTED,
    "legend.frameon": False,
    "lines.linewidth": 2,
}


def euler_picture(record: EulerComparison) -> Figure:
    """Figure 3 again: the first steps, and then the errors, which grow above 2 / |λ| only."""
    figure, (first, later) = _panels(2, height=7.6)
    exact = problem(record.problem).exact
    assert exact is not None
    fine = np.linspace(0, 0.006, 400)
    first.plot(fine, exact(fine)[:, 0], color=INK, label="exact")
    for i, step in enumerate(record.steps):
        times, states = record.times[i], record.states[i]
        label = f"h = {step:g}"
        if step in (0.0005, 0.0015):
            near = times <= 0.0061
            first.plot(times[near], states[near, 0], "o-", color=SERIES[i], ms=6, label=label)
        later.semilogy(times[1:], record.errors[i][1:], color=SERIES[i])
        factor = f"× {record.amplification[i]:.2g} each step"
        later.plot([], [], color=SERIES[i], label=f"{label}: {factor}")
    first.set(title="First steps: 0.0015 overshoots, and settles", xlabel="t", ylabel="y")
    first.legend(loc="lower right")
    later.set(title="Error: it grows only above h = 0.002", xlabel="t", ylabel="|y − exact|")
    later.set_ylim(1e-7, 1e6)
    later.legend(loc="upper left", fontsize=11)
    return figure


def theorem2_picture(record: Theorem2Check) -> Figure:
    """SAI / SI three ways; only the proof's way tends to √c."""
    figure, (axes,) = _panels(1, height=5.2)
    si = record.stiffness_index
    lines = (
        (record.instant, f"as in the proof: tends to √c = {record.limit:g}"),
        (record.observed, f"observed every {record.interval:g}: tends to 0"),
        (record.settled, f"on the same solution at t = {record.later:g}: tends to 0"),
    )
    axes.axhline(record.limit, color=MUTED, lw=1.2, ls="--")
    for (values, label), colour in zip(lines, SERIES, strict=False):
        axes.loglog(si, values, color=colour, label=label)
    axes.set(title="Does SAI / SI tend to √c?", xlabel="SI = |λ₁|", ylabel="SAI / SI")
    axes.set_ylim(1e-8, 3e3)
    axes.set_yticks([1, 1e-2, 1e-4, 1e-6, 1e-8])
    axes.legend(loc="upper left", fontsize=11)
    return figure


def steps_picture(
    records: Sequence[tuple[str, AdaptiveSteps]],
    network: pd.DataFrame | None = None,
) -> Figure:
    """The steps of RKF45 in time and against SI, and below them those of a network against NSI.

    Args:
        records: What RKF45 did, with a name each; the first one is also shown in time.
        network: One row a run, step and image, with NSI and the step size that attention chose.
    """
    figure, panels = _panels(2 + (network is not None), height=3.9)
    name, shown = records[0]
    bound = shown.stability / shown.stiffness_index
    panels[0].semilogy(shown.times, bound, color=SERIES[1], label="stability: 3.68 / SI")
    panels[0].semilogy(shown.times, shown.steps, color=SERIES[0], label="step h of RKF45")
    panels[0].set(title=f"{name}: the step in time", xlabel="t", ylabel="step h")
    panels[0].set_ylim(1e-5, 1)
    panels[0].legend(loc="upper left", fontsize=11)
    for (label, record), colour in zip(records, (SERIES[0], *SERIES[2:]), strict=False):
        begun = record.times >= record.times[-1] / 1000  # leave out the start, from a tiny step
        _cloud(panels[1], record.stiffness_index[begun], record.steps[begun], colour, label)
    si = np.array([1.0, 6e3])
    panels[1].loglog(si, shown.stability / si, color=SERIES[1], label="stability: h·SI = 3.68")
    panels[1].set(title="The step against stiffness", xlabel="SI", ylabel="step h")
    panels[1].set_ylim(top=30)
    panels[1].legend(loc="upper right", fontsize=11)
    if network is not None:
        for (run, rows), colour in zip(network.groupby("run", sort=False), SERIES, strict=False):
            nsi, sizes = (rows[column].to_numpy(float) for column in ("nsi", "step_size"))
            _cloud(panels[2], nsi, sizes, colour, str(run))
        title = "Networks: the step size that attention chooses"
        panels[2].set(title=title, xlabel="NSI", ylabel="step size")
        panels[2].set_yscale("linear")
        panels[2].set_xticks([0.2, 0.5, 1, 2], ["0.2", "0.5", "1", "2"])
        panels[2].xaxis.set_minor_formatter("")
        panels[2].legend(loc="upper left", fontsize=11)
    return figure


def encounters_picture(records: dict[float, Encounters]) -> Figure:
    """Shares against the threshold, and one against the other for several durations."""
    figure, (shares, both) = _panels(2, height=8.4)
    middle = records[20.0].to_frame()
    paper = (PAPER_RUNS, PAPER_TIME)
    for column, colour, label, share in (
        ("runs", SERIES[0], "runs with an encounter", paper[0]),
        ("intervals", SERIES[2], "intervals of 0.1 with one", None),
        ("time", SERIES[1], "time inside one", paper[1]),
    ):
        shares.semilogx(middle["threshold"], 100 * middle[column], color=colour, label=label)
        if share is not None:
            shares.axhline(100 * share, color=colour, lw=1.2, ls="--")
    for share, place in ((paper[0], "top"), (paper[1], "bottom")):
        lift = -1.5 if place == "top" else 1
        text = f"paper: {100 * share:.1f} %"
        shares.text(0.0105, 100 * share + lift, text, color=MUTED, va=place, fontsize=11)
    shares.set(
        title="Duration 20: shares by definition",
        xlabel="an encounter is a distance below",
        ylabel="share (%)",
    )
    shares.set_xticks([0.01, 0.1, 1], ["0.01", "0.1", "1"])
    shares.set_xlim(0.01, 2)
    shares.legend(loc="upper left", bbox_to_anchor=(0, 0.8), fontsize=11)
    for (duration, record), colour in zip(records.items(), SHADES, strict=True):
        frame = record.to_frame()
        both.plot(100 * frame["time"], 100 * frame["runs"], color=colour, label=f"{duration:g}")
    both.plot(100 * paper[1], 100 * paper[0], "*", color=INK, ms=17, label="paper", ls="none")
    both.set(
        title="Which duration gives both shares?",
        xlabel="time inside an encounter (%)",
        ylabel="runs with one (%)",
        xlim=(0, 15),
        ylim=(0, 103),
    )
    both.legend(loc="lower right", title="duration", ncols=2, fontsize=11)
    return figure


def _panels(count: int, height: float) -> tuple[Figure, Sequence[Axes]]:
    figure, panels = plt.subplots(
        count, 1, figsize=(WIDTH, height * (1 if height > 4 else count)), squeeze=False,
        layout="constrained",
    )  # fmt: skip
    return figure, list(panels[:, 0])


def _cloud(axes: Axes, index: Floats, steps: Floats, colour: str, label: str) -> None:
    axes.loglog(index, steps, ".", color=colour, ms=6, alpha=0.5, mew=0, zorder=3)
    axes.plot([], [], ".", color=colour, ms=12, label=label or None)


def main() -> None:
    """Draw every picture."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("records", type=Path, help="what benchmarks/ode.py kept")
    parser.add_argument("pictures", type=Path, help="folder for the pictures")
    parser.add_argument("--step-sizes", type=Path, help="what benchmarks/step_sizes.py wrote")
    args = parser.parse_args()

    def adaptive(name: str) -> AdaptiveSteps:
        return AdaptiveSteps.load(args.records / f"adaptive-{name}.json")

    durations = (10.0, 15.0, 20.0, 30.0, 40.0)
    draw: dict[str, Callable[[], Figure]] = {
        "euler": lambda: euler_picture(EulerComparison.load(args.records / "euler.json")),
        "theorem2": lambda: theorem2_picture(Theorem2Check.load(args.records / "theorem2.json")),
        "steps": lambda: steps_picture(
            [
                ("Van der Pol, ε = 0.001", adaptive("vanderpol")),
                ("three bodies", adaptive("threebody")),
                ("Robertson, to t = 10", adaptive("robertson")),
            ],
            None if args.step_sizes is None else pd.read_csv(args.step_sizes),
        ),
        "encounters": lambda: encounters_picture(
            {d: Encounters.load(args.records / f"encounters-{d:g}.json") for d in durations}
        ),
    }
    args.pictures.mkdir(parents=True, exist_ok=True)
    with plt.rc_context(STYLE):
        for name, make in draw.items():
            figure = make()
            figure.savefig(args.pictures / f"ode-{name}.png", dpi=DPI)
            plt.close(figure)
            print(args.pictures / f"ode-{name}.png")


if __name__ == "__main__":
    main()
