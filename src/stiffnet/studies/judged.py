"""The comparisons of a study, judged from its rows."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace

import numpy as np

from stiffnet.results.study import Comparison, Line, Printed, Shown
from stiffnet.studies.study import Judge, Side, Study
from stiffnet.studies.verdict import (
    Finding,
    Verdict,
    as_printed,
    correlated,
    overall,
    positive,
    within,
)
from stiffnet.words import listed

METRICS = {
    "accuracy": "accuracy",
    "tns": "TNS",
    "share_of_bound": "growth in percent of its bound",
    "growth": "growth of a perturbation",
    "log_growth": "logarithm of the growth",
    "score": "share of variance between channels",
    "slower": "loss of speed",
    "speed": "images/s in percent of the plain network's",
    "parameters": "parameters",
    "correlation": "correlation of attention values with NSI over images",
    "step_correlation": "correlation of attention values with NSI over steps",
    "centre": "share in the central quarter, %",
    "above_noise": "share in the central quarter above that for noise, %",
    "followed": "how far the mean map follows shifted images, %",
    "log_loss": "logarithm of the loss",
}
"""What metrics are called in sentences."""


def comparisons(
    study: Study, lines: Sequence[Line], printed: Printed, columns: Sequence[Shown] = ()
) -> tuple[Comparison, ...]:
    """Judge every comparison of a study in each of its groups."""
    known = {study.metric: printed, **{each.metric: each.published for each in columns}}
    return tuple(
        _judged(judge, study, [line for line in lines if line.group == group], known)
        for group in dict.fromkeys(line.group for line in lines)
        for judge in study.judges
        if set(judge.rows) <= {line.row for line in lines if line.group == group}
    )


def verdict_of(made: Sequence[Comparison], left_out: Sequence[str] = ()) -> Finding:
    """Judge a study by its comparisons; say what refutes it, and which rows were not run."""
    found = overall(
        [Finding(Verdict(c.verdict), c.why, c.seeds, c.estimate, c.low, c.high, c.p) for c in made]
    )
    if found.verdict is Verdict.REFUTED and len(made) > 1:
        refuted = [c for c in made if c.verdict == Verdict.REFUTED]
        surest = min(refuted, key=lambda c: 0.0 if c.p is None else c.p)
        where = f" ({surest.group})" if len({c.group for c in made}) > 1 else ""
        why = f"{found.why} Refuted is “{surest.sentence}”{where}: {surest.why}"
        found = replace(found, why=why)
    if left_out:
        rows = listed([f"“{row}”" for row in left_out])
        found = found.remarked(f"Not run at this scale, and so not judged: {rows}.")
    return found


def _judged(
    judge: Judge, study: Study, lines: Sequence[Line], known: Mapping[str, Printed]
) -> Comparison:
    metric, group = judge.metric or study.metric, lines[0].group
    printed = {row: value for title, row, value in known.get(metric, ()) if title == group}
    if judge.how == "printed":
        counted = {line.row: line.values.get(metric) for line in lines if line.values}
        found = as_printed(counted, printed)
    else:
        compared = [line for line in lines if not judge.rows or line.row in judge.rows]
        found = _failed(compared) or _tested(judge, metric, compared)
        if judge.premise is not None:
            found = _under(found, judge.premise, compared)
    return Comparison(
        group,
        sentence(judge, metric),
        "" if judge.how == "ranks" else metric,
        **asdict(found) | {"verdict": found.verdict.value},
        published=_published(judge, printed) if judge.rows else None,
    )


def sentence(judge: Judge, metric: str) -> str:
    """Say what is claimed of a comparison."""
    if judge.said:
        return judge.said
    left, right = (f"{side:g}" if isinstance(side, float) else side for side in judge.sides)
    if judge.how == "ranks":
        x, y = (METRICS.get(each, each) for each in (left, right))
        return f"{y} {'rises' if judge.margin > 0 else 'falls'} with {x}"
    word = METRICS.get(metric, metric)
    if judge.how == "printed":
        return f"{word}: in every row as printed"
    if judge.how == "higher" and isinstance(judge.sides[0], float):
        return f"{word}: {right} below {left}"
    if judge.how == "within":
        return f"{word}: {left} and {right} differ by less than {judge.margin:g}"
    return f"{word}: {left} above {right}"


def _by_seed(side: Side, metric: str, lines: Sequence[Line]) -> dict[int, float]:
    if isinstance(side, str):
        return {
            line.seed: line.values[metric]
            for line in lines
            if line.row == side and line.values.get(metric) is not None
        }
    return dict.fromkeys({line.seed for line in lines}, side)


def _failed(lines: Sequence[Line]) -> Finding | None:
    """Decide nothing where a row has failed: what is left may be what went well."""
    lost = [line for line in lines if line.error]
    if not lost:
        return None
    more = f", and {len(lost) - 1} more" if len(lost) > 1 else ""
    why = f"{lost[0].row} failed for seed {lost[0].seed}{more}; a comparison needs every seed."
    return Finding(Verdict.UNDECIDED, why, len({line.seed for line in lines}))


def _tested(judge: Judge, metric: str, lines: Sequence[Line]) -> Finding:
    if judge.how == "ranks":
        return _ranks(judge, lines)
    sides = [_by_seed(side, metric, lines) for side in judge.sides]
    shared = sorted(sides[0].keys() & sides[1].keys())
    differences = [sides[0][seed] - sides[1][seed] for seed in shared]
    found = positive(differences) if judge.how == "higher" else within(differences, judge.margin)
    left_out = sorted({str(line.seed) for line in lines if line.seed not in shared})
    return _without(found, [f"seed {seed}" for seed in left_out])


def _under(found: Finding, premise: Judge, lines: Sequence[Line]) -> Finding:
    """Decide nothing where that did not hold without which nothing is claimed."""
    first = _failed(lines) or _tested(premise, premise.metric, lines)
    if first.verdict is Verdict.HELD:
        return found
    said = sentence(premise, premise.metric)
    told = f"This is claimed where “{said}” holds, and that is {first.verdict.value}."
    return replace(found, verdict=Verdict.UNDECIDED).remarked(told)


def _without(found: Finding, names: Sequence[str]) -> Finding:
    """Say what had no value and so was left out."""
    return found.remarked(f"There is no value for {listed(names)}.") if names else found


def _ranks(judge: Judge, lines: Sequence[Line]) -> Finding:
    """Rank the rows by both metrics, as far as they have both of them for every seed."""
    seeds = sorted({line.seed for line in lines})
    rows = list(dict.fromkeys(line.row for line in lines))
    tables = []
    for metric in judge.sides:
        found = {row: _by_seed(row, str(metric), lines) for row in rows}
        tables.append({row: each for row, each in found.items() if set(each) == set(seeds)})
    common = [row for row in tables[0] if row in tables[1]]
    x, y = (
        np.array([[table[row][seed] for seed in seeds] for row in common]).reshape(-1, len(seeds))
        for table in tables
    )
    return _without(correlated(x, y, int(judge.margin)), [row for row in rows if row not in common])


def _published(judge: Judge, printed: Mapping[str, float]) -> float | None:
    left, right = (printed.get(s) if isinstance(s, str) else s for s in judge.sides)
    return None if left is None or right is None else left - right
