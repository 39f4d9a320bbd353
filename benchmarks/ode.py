"""Every number of docs/ode.md: solvers, Euler, Theorem 2, adaptive steps and three bodies.

    python benchmarks/ode.py --out ode-records

Prints Markdown tables. With --out it keeps the records for benchmarks/ode_pictures.py.
The runs of three bodies take most of the time: two minutes on one slow core.
"""

import argparse
import time
from pathlib import Path

import numpy as np
import pandas as pd

from stiffnet.ode import adaptive, encounters, euler, fehlberg, solve, theorem2
from stiffnet.ode.problems import PROBLEMS
from stiffnet.ode.vanderpol import vanderpol
from stiffnet.results.ode import (
    PAPER_RUNS,
    PAPER_TIME,
    AdaptiveSteps,
    Encounters,
    OdeRecord,
    reached,
    share_at,
)

DURATIONS = (10.0, 15.0, 20.0, 30.0, 40.0)
RUNS = 1000


def solvers() -> None:
    """Solve every problem by two stiff solvers, and put SI and SAI side by side."""
    print("\n## Solvers, SI and SAI\n")
    print("| problem | solver | steps | end error | SI | SAI | Spearman of SI and SAI |")
    print("|---|---|---|---|---|---|---|")
    for entry in PROBLEMS:
        for solver in ("radau", "lsoda"):
            found = solve.run(entry.value, solver, rtol=1e-6)
            frame = found.to_frame()
            changes = frame["si"].max() > frame["si"].min() * (1 + 1e-9)
            rank = frame["si"].corr(frame["sai"], method="spearman") if changes else np.nan
            print(
                f"| {entry.name} | {solver} | {len(frame)} | {found.end_error:.1e} "
                f"| {span(frame['si'])} | {span(frame['sai'])} "
                f"| {'SI is constant' if np.isnan(rank) else f'{rank:.2f}'} |"
            )


def span(values: pd.Series) -> str:
    """Smallest and largest of a column."""
    return f"{values.min():.3g} to {values.max():.3g}"


def forward_euler() -> dict[str, OdeRecord]:
    """Compare step sizes around the limit of Equation 8."""
    found = euler.run()
    print("\n## Forward Euler on Equation 8\n")
    print(f"largest stable step: {found.limit:.6g}")
    paper = list(found.steps).index(0.0015)
    first, error = found.states[paper][1, 0], found.errors[paper][1]
    print(f"first step of 0.0015: {first:.3g}, where the solution is {first - error:.3g}\n")
    print("| step | growth of a mode, abs(1 + h λ) | largest error | error at the end |")
    print("|---|---|---|---|")
    for row in found.to_frame().itertuples():
        print(
            f"| {row.step:g} | {row.amplification:.2g} | {row.largest_error:.2g} "
            f"| {row.end_error:.1e} |"
        )
    return {"euler": found}


def second_theorem() -> dict[str, OdeRecord]:
    """Follow SAI / SI while the fastest eigenvalue grows."""
    found = theorem2.run()
    print(f"\n## Theorem 2: √c = {found.limit:g}\n")
    print(
        f"| SI | as in the proof | observed every {found.interval:g} | at t = {found.later:g} |\n"
        "|---|---|---|---|"
    )
    for row in found.to_frame().iloc[::4].itertuples():
        print(
            f"| {row.stiffness_index:.0e} | {row.instant:.4f} | {row.observed:.2g} "
            f"| {row.settled:.1e} |"
        )
    return {"theorem2": found}


def adaptive_steps() -> dict[str, OdeRecord]:
    """Let RKF45 choose its steps on three problems."""
    found: dict[str, AdaptiveSteps] = {
        "vanderpol": adaptive.run(vanderpol(1e-3)),
        "robertson": adaptive.run("robertson", until=10.0),
        "threebody": adaptive.run("threebody"),
    }
    print("\n## RKF45's steps\n")
    print(f"stability limit h·SI: {fehlberg.stability_limit():.4g}\n")
    print(
        "| problem | steps | rejected | Spearman of step and SI | h·SI, quartiles "
        "| shortest, median step after the start |\n|---|---|---|---|---|---|"
    )
    for name, record in found.items():
        low, middle, high = record.to_frame()["step_times_si"].quantile([0.25, 0.5, 0.75])
        begun = record.steps[record.times >= record.times[-1] / 100]
        print(
            f"| {name} | {len(record.steps)} | {record.rejected} | {record.correlation:.2f} "
            f"| {low:.3g}, {middle:.3g}, {high:.3g} "
            f"| {begun.min():.2g}, {np.median(begun):.2g} |"
        )
    return {f"adaptive-{name}": record for name, record in found.items()}


def three_bodies() -> dict[str, OdeRecord]:
    """Count the encounters of many triples for several durations."""
    print(f"\n## Three bodies, {RUNS} runs\n")
    runs, share = PAPER_RUNS, PAPER_TIME
    print(f"intervals that a run needs at least, {runs} / {share} = {runs / share:.1f}\n")
    print(
        "| duration | threshold for 91.4 % of runs | time inside | intervals of 0.1 "
        "| threshold for 4.2 % of time | runs | worst energy error | seconds |\n"
        "|---|---|---|---|---|---|---|---|"
    )
    found = {}
    for duration in DURATIONS:
        start = time.perf_counter()
        record = encounters.run(RUNS, duration=duration)
        seconds = time.perf_counter() - start
        found[f"encounters-{duration:g}"] = record
        by_runs, by_time = where(record, "runs", runs), where(record, "time", share)
        print(
            f"| {duration:g} | {by_runs:.3f} | {percent(record, 'time', by_runs)} "
            f"| {percent(record, 'intervals', by_runs)} | {by_time:.3f} "
            f"| {percent(record, 'runs', by_time)} | {record.energy_error.max():.0e} "
            f"| {seconds:.0f} |"
        )
    for interval in (0.05, 0.025):
        record = encounters.run(RUNS, duration=20.0, interval=interval)
        share_then = percent(record, "intervals", where(record, "runs", runs))
        print(f"\nDuration 20, 91.4 % of runs, intervals of {interval:g}: {share_then}")
    print("\nDuration 20:\n\n| threshold | runs | time | intervals of 0.1 |\n|---|---|---|---|")
    middle = found["encounters-20"]
    for threshold in (0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.7, 1.0):
        shares = (share_at(middle, c, threshold) for c in SHARES)
        print(f"| {threshold:g} | " + " | ".join(f"{100 * x:.3g} %" for x in shares) + " |")
    return dict(found)


SHARES = ("runs", "time", "intervals")


def where(record: Encounters, column: str, share: float) -> float:
    """Return the threshold at which a share is reached."""
    found = reached(record, column, share)
    assert found is not None, f"no threshold gives {share:.1%} of {column}"
    return found


def percent(record: Encounters, column: str, threshold: float) -> str:
    """Return a share at a threshold, with its standard error."""
    value, error = (100 * share_at(record, name, threshold) for name in (column, f"{column}_se"))
    return f"{value:.1f} ± {error:.1f} %"


def main() -> None:
    """Print everything, and keep the records where asked."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, help="folder for the records")
    args = parser.parse_args()
    solvers()
    parts = (forward_euler, second_theorem, adaptive_steps, three_bodies)
    records = {name: record for part in parts for name, record in part().items()}
    if args.out:
        for name, record in records.items():
            record.save(args.out / f"{name}.json")


if __name__ == "__main__":
    main()
