"""The tables of the page on attention values."""

from stiffnet.report.findings import rows
from stiffnet.report.stripe_view import StripeView
from stiffnet.report.stripe_words import dearest
from stiffnet.report.tables import Cell, Column, Row, Table
from stiffnet.report.text import clean, count, finite, fixed, number, percent
from stiffnet.results.growth import Growth


def modules_table(view: StripeView) -> Table:
    """One row a module, with everything that is known of it."""
    worst = dearest(view)
    lines = []
    for row in rows(view.rows):
        score, cost = finite(row["score"]), finite(row["cost"])
        cells = (
            Cell(clean(row["step"], longest=120)),
            Cell(fixed(score, 4), score, None if score is None else round(score, 3)),
            Cell(percent(cost), cost),
            *(
                _number(row[key])
                for key in ("value_mean", "value_std_mean", "value_std_max", "input_std_mean")
            ),
            Cell(count(row["channels"]), float(row["channels"])),
            Cell(count(row["silent"]), float(row["silent"])),
            Cell(clean(row["module"], longest=60)),
        )
        lines.append(Row(cells, marked=worst is not None and row["step"] == worst["step"]))
    columns = (
        Column("Step", numeric=False),
        Column("Score", hint="share of the values' variance that lies between channels"),
        Column("Cost", hint="change of what the module lets through if its values were constant"),
        Column("Value", hint="mean over images and channels"),
        Column("sd", hint="of a channel's values over images, mean over channels"),
        Column("Largest sd", hint="of any channel"),
        Column("Input sd", hint="of a channel's mean rate over images, mean over channels"),
        Column("Channels"),
        Column("Silent", hint="pairs of image and channel whose rate is zero"),
        Column("Module", numeric=False),
    )
    return Table("Modules", columns, tuple(lines))


def growth_table(growth: Growth) -> Table:
    """One row a step: what a perturbation did, and what it was bound to."""
    keys = (
        "growth", "growth_max", "local_bound", "bound", "factor", "gate_max", "shortcut_norm",
        "rate_norm",
    )  # fmt: skip
    lines = [
        Row((Cell(clean(row["step"], longest=120)), *(_number(row[key]) for key in keys)))
        for row in rows(growth.to_frame())
    ]
    columns = (
        Column("Step", numeric=False),
        Column("Growth", hint="after this step, mean over images and directions"),
        Column("Largest", hint="of any image and direction"),
        Column("Local bound", hint="product of the norms of the steps' Jacobians"),
        Column("Bound", hint="of Theorem 6.1"),
        Column("Factor", hint="of this step in the bound"),
        Column("α", hint="largest gate"),
        Column("Shortcut", hint="norm of the shortcut's Jacobian, 1 for an identity"),
        Column("Rate", hint="norm of the rate's Jacobian, the reading of ‖W‖"),
    )
    return Table("Growth", columns, tuple(lines))


def _number(value: object) -> Cell:
    return Cell(number(value), finite(value))
