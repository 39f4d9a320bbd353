"""Studies and training logs with made-up numbers."""

from dataclasses import replace

import numpy as np

from stiffnet.results.study import Comparison, Line, Shown, StudyReport
from stiffnet.results.training import TrainingLog
from stiffnet.studies.judged import comparisons, verdict_of
from stiffnet.studies.study import Group, Job, Picture, Scale, Study, higher, rank_correlation

ROWS = ("none", "se", "eca", "srm", "fca", "stepnet")
STEPS = [f"layer{i}.{j}" for i in (1, 2, 3) for j in range(3)]


def study(name="stepnet-table1", *, seeds=4, groups=("ResNet-20 on digits",), rows=ROWS,
          picture=None, failed=False, better=1.0, seed=0):  # fmt: skip
    random = np.random.default_rng(seed)
    judges = tuple(higher(row, rows[0]) for row in rows[1:])
    if picture == "points":
        judges = (rank_correlation("tns", "accuracy"),)
    declared = Study(
        name=name,
        locator="Table 1",
        claim="Attention makes a residual network more accurate, and StepNet the most.",
        rows={row: Job("train") for row in rows},
        metric="accuracy",
        unit="accuracy, %",
        judges=judges,
        scales={"demo": Scale(tuple(Group(group) for group in groups), {})},
    )
    lines = []
    for group in groups:
        for i, row in enumerate(rows):
            for number in range(seeds):
                values = {
                    "accuracy": 92 + better * i / 2 + random.normal(0, 0.3),
                    "tns": 0.3 + 0.1 * i + random.normal(0, 0.02),
                    "nsi": (0.2 + 0.1 * i + 0.3 * random.random(len(STEPS))).tolist(),
                    "steps": STEPS,
                    **surface(0.5 + 0.2 * i, 1.0 + random.random()),
                }
                lost = failed and i == 1 and number == 0
                reason = "`train_loss` is nan after epoch 2. Lower `learning_rate`." if lost else ""
                address = f"train-{i}{number}"
                lines.append(Line(group, row, number, address, {} if lost else values, reason))
    printed = [(group, row, 93.0 + i / 4) for group in groups for i, row in enumerate(rows)]
    made = comparisons(declared, lines, printed)
    found = verdict_of(made)
    pictures = {
        "curves": Picture("curves", "steps", "nsi", "NSI along the network", "step", "NSI"),
        "surfaces": Picture("surfaces", "m1", "delta", "Stiff steps", "M₁", "M₂"),
        "points": Picture("points", "tns", "accuracy", "Accuracy by TNS", "TNS", "accuracy, %"),
    }
    return StudyReport(
        name=name,
        paper="Understanding Self-attention Mechanism via Dynamical System Perspective",
        locator="Table 1",
        claim=declared.claim,
        scale="demo",
        metric="accuracy",
        unit="accuracy, %",
        lines=tuple(lines),
        published=tuple(printed),
        comparisons=made,
        verdict=found.verdict.value,
        why=found.why,
        picture=vars(pictures[picture]) if picture else None,
        notes=("The paper gives no settings for STL-10; those of the ASR paper are used.",),
        facts={"study": name, "command": f"stiffnet study {name}", "versions": "stiffnet 0.1.0"},
    )


def columns_study(name="blocks-table2", *, picture="profile", seeds=3, exact=False, seed=0):
    """Return a study whose tables have several columns: blocks, of which one has no index."""
    random = np.random.default_rng(seed)
    ways, figures = ("slices", "branch"), ("S", "P")
    lines = []
    for i in range(8):
        for number in range(1 if exact else seeds):
            values = {"slices_images": 40}
            for way in ways:
                for figure in figures:
                    drawn = int(random.integers(10**6, 10**8)) if exact else random.normal(3)
                    values |= {f"{way}_{figure}": drawn, f"{way}_{figure}_p": random.random() / 5}
                values |= {f"{way}_real": random.normal(size=40).tolist(),
                           f"{way}_imaginary": random.normal(size=40).tolist()}  # fmt: skip
            if i == 2:
                values |= {"branch_S": None, "branch_S_p": None}
            lines.append(
                Line("ResNet-18 on digits", f"block {i + 1}", number, f"s-{number}", values)
            )
    printed = tuple(("ResNet-18 on digits", f"block {i + 1}", 4.0 if exact else 2.25 + i)
                    for i in range(8))  # fmt: skip
    columns = [
        Shown(f"{way}_{figure}", figure, way, "", "" if exact else f"{way}_{figure}_p", printed)
        for figure in figures
        for way in ways
    ]
    held = Comparison(
        "ResNet-18 on digits", "P of the last blocks above the mean of all (slices)", "slices_P",
        "held", "All of it lies above zero.", seeds, 1.0, 0.5, 1.5, 0.01,
    )  # fmt: skip
    x, y = ("block ", "") if picture == "profile" else ("real", "imaginary")
    return StudyReport(
        name=name,
        paper="Block-level stiffness analysis of residual networks",
        locator="Table 2",
        claim="The last three blocks of ResNet-18 are stiffer than the others.",
        scale="demo",
        metric="",
        unit="times the mean of all blocks",
        lines=tuple(lines),
        published=(),
        columns=(*columns, Shown("slices_images", "images")),
        exact=exact,
        comparisons=(held,),
        verdict="held",
        why="All of it lies above zero.",
        picture=vars(Picture(picture, x, y, "Along the network", "block", "")),
        facts={"study": name},
    )


def surface(width, height):
    """Shares that fall from one to zero along both thresholds."""
    m1, m2 = np.linspace(0, 4, 9), np.linspace(0, 2.5, 6)
    shares = np.clip(1 - m1 / width, 0, 1)[:, None] * np.clip(1 - m2 / height, 0, 1)
    return {"m1": m1.tolist(), "m2": m2.tolist(), "delta": shares.tolist()}


def several():
    return [
        study(),
        study("stepnet-figure7", picture="points", seed=1),
        study("stepnet-figure3", picture="curves", rows=("none", "se"), better=0, seed=2),
        study("stepnet-figure2", picture="surfaces", better=-1.0, seed=5),
        study("asr-table3", groups=("ResNet-164 on CIFAR10", "VGG-19 on CIFAR10"), seed=3),
        study("asr-table8", failed=True, better=-2.0, seed=4),
    ]


def poisoned_columns(text):
    """Return such a study whose every string is the given one."""
    made = columns_study()
    return replace(
        made,
        columns=tuple(replace(c, figure=text, how=text, sheet=text, published=())
                      for c in made.columns),
        lines=tuple(replace(each, group=text, row=f"block {text} {each.row}")
                    for each in made.lines),
        picture=made.picture | {"y": text, "heading": text},
    )  # fmt: skip


def log(model="resnet20_cifar", *, epochs=10, seed=0, tns=True, **facts):
    random = np.random.default_rng(seed)
    rows = []
    for epoch in range(1, epochs + 1):
        loss = 2.3 / epoch + 0.05 * random.random()
        row = {"epoch": epoch, "step": 40 * epoch, "learning_rate": 0.1, "train_loss": loss,
               "train_top1": 1 - loss / 3, "test_loss": 1.1 * loss, "test_top1": 1 - loss / 2.6,
               "images_per_second": 900.0}  # fmt: skip
        rows.append(row | ({"tns": 0.2 + 0.05 * random.random()} if tns else {}))
    told = {"model": model, "attention": "none", "data": "cifar10:DIR", "seed": str(seed), **facts}
    return TrainingLog(tuple(rows), True, told)


def poisoned(text):
    """Return a study whose every string is the given one; rows are told apart by a number."""
    rows = tuple(f"{i} {text}" for i in range(5))
    made = study(rows=rows, groups=(text, f"2 {text}"), picture="curves", failed=True)
    lines = [replace(each, values=each.values and each.values | {"steps": [text] * len(STEPS)})
             for each in made.lines]  # fmt: skip
    words = dict.fromkeys(("name", "paper", "locator", "claim", "scale", "unit", "why"), text)
    return replace(
        made,
        **words,
        lines=tuple(replace(each, error=each.error and text) for each in lines),
        comparisons=tuple(replace(c, sentence=text, why=text) for c in made.comparisons),
        notes=(text,),
        facts={text: text},
        columns=(Shown("tns", text, how=text, sheet=text), Shown(text, text)),
        picture=made.picture | {"heading": text, "x_title": text, "y_title": text},
    )


def poisoned_log(text):
    made = log(seed=1)
    return replace(
        made, facts={"model": text, "attention": text, "data": text, "seed": text, text: text}
    )
