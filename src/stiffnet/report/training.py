"""What a page and a terminal show of training runs."""

from collections.abc import Sequence
from typing import Any

import plotly.graph_objects as go
from rich.console import RenderableType

from stiffnet.report import blocks, cells
from stiffnet.report.canvas import canvas
from stiffnet.report.terminal import spoken
from stiffnet.report.text import (
    clean,
    cleaned,
    count,
    finite,
    fixed,
    number,
    plot_text,
    strong,
    told_apart,
)
from stiffnet.report.theme import LIGHT, SERIES
from stiffnet.results.training import TrainingLog

Given = Sequence[tuple[TrainingLog, str]]
_CURVES = {  # what is drawn, if the runs have it: places, heading, axis, factor, columns
    "accuracy": ("Accuracy", "accuracy, %", 100.0, "test_top1", "train_top1"),
    "ap": ("Average precision", "AP, %", 100.0, "test_ap", ""),
    "ap50": ("Average precision at half overlap", "AP50, %", 100.0, "test_ap50", ""),
    "loss": ("Loss", "loss", 1.0, "test_loss", "train_loss"),
    "tns": ("Total stiffness", "TNS", 1.0, "tns", ""),
}
_DRAWN = 24  # runs in one chart; of more, the first ones


def parts(given: Given) -> list[blocks.Part]:
    """Return what runs put on a page: their curves in the same charts."""
    seeds = [f"seed {clean(log.facts.get('seed', '?'), longest=20)}" for log, _ in given]
    titles = told_apart([clean(title or log.title, longest=200) for log, title in given], seeds)
    logs = [log for log, _ in given]
    lead = [] if len(logs) > 1 else [blocks.Words(sentence(logs[0]), "lede")]
    named = list(zip(logs, titles, strict=True))
    return [
        blocks.Part(
            kind="training",
            articles=[(titles[0], lead)] if lead else [],
            sections=[curves(named, "training")],
            tables=[("training", [_table(logs, titles)])],
            facts=[(title, blocks.Facts(cleaned(log.facts))) for log, title in named[:_DRAWN]],
        )
    ]


def curves(runs: Given, place: str) -> blocks.Section:
    """Return the section that shows how runs, each with its title, were trained."""
    text = (
        "Solid lines are test images, dotted ones training images, which are cropped, mirrored or "
        "smoothed while a network learns. The last epoch counts; the best is chosen on the test "
        "images."
    )
    if len(runs) > _DRAWN:
        text += f" Curves are those of the first {_DRAWN} of {count(len(runs))} runs."
    drawn = runs[:_DRAWN]
    plots = [
        blocks.Plot(f"{place}-{name}", _figure(drawn, *about), about[0], title=about[0])
        for name, about in _CURVES.items()
        if any(about[3] in row or about[4] in row for log, _ in drawn for row in log.rows)
    ]
    box = blocks.Box("pair", plots)
    return blocks.Section(place, "How they were trained", "Training", text, [box])


def terminal(log: TrainingLog) -> RenderableType:
    """Return what a terminal shows of a run."""
    return spoken(f"{clean(log.title)}: {sentence(log)}")


def sentence(log: TrainingLog) -> str:
    """Say how far a run came."""
    if not log.rows:
        return "The run has no epoch behind it."
    last = log.rows[-1]
    state = "finished" if log.finished else "not finished"
    accuracy = finite(last.get("test_top1"))
    said = f"{count(last['epoch'])} epochs ({state})"
    if (precision := finite(last.get("test_ap"))) is not None:
        return f"{said}, with an average precision of {strong(f'{fixed(100 * precision, 2)} %')}."
    if accuracy is None:
        return f"{said}."
    return f"{said}, with {strong(f'{fixed(100 * accuracy, 2)} %')} of the test images right."


def _figure(
    runs: Given, heading: str, axis: str, factor: float, test: str, train: str
) -> go.Figure:
    layout = canvas(height=420, x="epoch", y=axis)
    layout["hovermode"] = "x"
    if len(runs) > SERIES:
        layout["showlegend"] = False
    figure = go.Figure(layout=layout)
    for i, (log, title) in enumerate(runs):
        for column, dash, width in ((test, "solid", 2.0), (train, "dot", 1.2)):
            pairs = [
                (row["epoch"], factor * value)
                for row in log.rows
                if column and (value := finite(row.get(column))) is not None
            ]
            if not pairs:
                continue
            figure.add_scatter(
                x=[epoch for epoch, _ in pairs],
                y=[value for _, value in pairs],
                name=plot_text(title, longest=48) + ("" if column == test else ", training"),
                mode="lines" if len(pairs) > 1 else "markers",
                line={"color": LIGHT[f"series{i % SERIES}"], "width": width, "dash": dash},
                showlegend=column == test,
                hovertemplate="%{y:.4~g} %{fullData.name}<extra></extra>",
            )
    return figure


def _table(logs: Sequence[TrainingLog], titles: Sequence[str]) -> blocks.Table:
    records = []
    for log, title in zip(logs, titles, strict=True):
        last: dict[str, Any] = dict(log.rows[-1]) if log.rows else {}
        scores = [_percent(row.get("test_top1", row.get("test_ap"))) for row in log.rows]
        records.append(
            {
                "run": title,
                "epochs": last.get("epoch"),
                "accuracy": _percent(last.get("test_top1")),
                "best": max((score for score in scores if score is not None), default=None),
                "ap": _percent(last.get("test_ap")),
                "ap50": _percent(last.get("test_ap50")),
                "loss": last.get("test_loss"),
                "tns": last.get("tns"),
                "rate": last.get("images_per_second"),
                "finished": "yes" if log.finished else "no",
            }
        )
    detected = [
        cells.numbers("AP, %", "ap", "on the test images, after the last epoch", places=2),
        cells.numbers("AP50, %", "ap50", "where half of a box is enough", places=2),
    ]
    fields = [
        cells.words("Run", "run", longest=120),
        cells.numbers("Epochs", "epochs", write=cells.whole),
        cells.numbers("Accuracy, %", "accuracy", "of the test images, after the last epoch",
                      places=2),
        *(detected if any(record["ap"] is not None for record in records) else []),
        cells.numbers("Best, %", "best", "the best epoch, chosen on the test images", places=2),
        cells.numbers("Loss", "loss", "of the test images", write=number),
        cells.numbers("TNS", "tns"),
        cells.numbers("Images/s", "rate", "while training", write=cells.whole),
        cells.words("Finished", "finished"),
    ]  # fmt: skip
    return cells.table("runs", "Runs", records, fields, opened=True)


def _percent(value: Any) -> float | None:
    known = finite(value)
    return None if known is None else 100 * known
