"""Views of made-up networks: seeded NSI values, and everything else computed from them."""

from dataclasses import replace
from functools import cache

import numpy as np
import pandas as pd

from stiffnet.results.view import Curve, StiffnessView

RESNET = ((18, (16, 32, 32)), (18, (32, 16, 16)), (18, (64, 8, 8)))
VIT = ((24, (197, 384)),)


@cache
def view(
    layout=RESNET,
    *,
    title="resnet110_cifar after training",
    samples=1000,
    kept=None,
    seed=0,
    attention=False,
    labels=10,
    relations=True,
    first_counted=False,
    scale=1.0,
    peak=1.6,
):
    """Return a view of a network with the given (steps, shape) stages."""
    rng = np.random.default_rng(seed)
    names, stages, shapes, counted = [], [], [], []
    for stage, (steps, shape) in enumerate(layout):
        names += [f"layer{stage + 1}.{i}" for i in range(steps)]
        stages += [stage] * steps
        shapes += [shape] * steps
        counted += [first_counted or i > 0 for i in range(steps)]
    stages, counted = np.array(stages), np.array(counted)
    kept = samples if kept is None else kept
    depth = np.concatenate([np.arange(steps) for steps, _ in layout])
    profile = scale * (0.06 + 0.5 * np.exp(-depth / 3.0) + 0.02 * rng.random(len(depth)))
    profile[::11] *= peak
    spread = np.exp(0.22 * rng.standard_normal((samples, 1)))
    nsi = profile * spread * np.exp(0.25 * rng.standard_normal((samples, len(depth))))
    tns = total(nsi, stages, counted)
    gates = rng.uniform(0.3, 0.9, len(names)) if attention else np.ones(len(names))
    m1, m2 = np.linspace(0, 4, 21), np.linspace(0, 1.5 * nsi.max(), 24)
    delta, proportion = surfaces(nsi[:kept], stages, counted, m1, m2)
    order = np.argsort(tns[:kept])
    quantile = dict(zip(("05", "25", "75", "95"), (0.05, 0.25, 0.75, 0.95), strict=True))
    frame = pd.DataFrame(
        {
            "step": names,
            "stage": stages,
            "counted": counted,
            "identity": counted,
            "gated": attention,
            "shape": shapes,
            "nsi_mean": nsi.mean(0),
            "nsi_std": nsi.std(0),
            "nsi_median": np.median(nsi, 0),
            **{f"nsi_q{name}": np.quantile(nsi, q, axis=0) for name, q in quantile.items()},
            "increment_mean": nsi.mean(0) * gates,
        }
    )
    increments = total(nsi * gates, stages, counted)
    per_stage = [counted[stages == stage].sum() for stage in np.unique(stages)]
    return StiffnessView(
        title=title,
        facts={
            "model": "resnet110_cifar",
            "data": "cifar10:test",
            "weights": "runs/a/final/weights.safetensors",
            "samples": f"{samples:,}",
            "device": "cpu",
            "versions": "stiffnet 0.1.0, torch 2.13.0, Python 3.11",
            "command": "stiffnet measure resnet110_cifar --data cifar10:data --weights runs/a",
            "when": "2026-01-01T12:00:00+00:00",
        },
        tns=float(tns.mean()) if counted.any() else None,
        tns_se=_error(tns) if counted.any() else None,
        tns_steps=int(sum(many for many in per_stage if many > 1)),
        increment_total=float(increments.mean()) if counted.any() else None,
        increment_total_se=_error(increments) if counted.any() else None,
        notes=(),
        samples=samples,
        kept=kept,
        accuracy=0.912,
        steps=frame,
        stages=_stages(frame, nsi, stages, counted),
        m1=m1,
        m2=m2,
        delta=delta,
        proportion=proportion,
        stiffest=tuple(_curve(i, tns, nsi) for i in order[::-1][:5]),
        calmest=tuple(_curve(i, tns, nsi) for i in order[:5]),
        labels=_labels(labels, tns, rng) if labels else None,
        relations=_relations(names, rng, samples) if relations else None,
    )


def _error(values):
    return float(values.std(ddof=1) / np.sqrt(len(values))) if len(values) > 1 else None


def poisoned(payload, base=None):
    """Return a view with `payload` in every string that a user can write."""
    base = base or view(((3, (16, 8, 8)), (2, (32, 4, 4))), samples=12, labels=3, seed=1)
    return replace(
        base,
        title=payload,
        facts={payload: payload, "command": payload},
        notes=(payload,),
        steps=base.steps.assign(step=payload, shape=payload),
        stages=base.stages.assign(shape=payload),
        stiffest=tuple(replace(curve, label=payload) for curve in base.stiffest),
        calmest=tuple(replace(curve, label=payload) for curve in base.calmest),
        labels=base.labels.assign(label=payload),
        relations=base.relations.assign(step=payload, target=payload, note=payload),
    )


def thin(shown):
    """Return a view with as little in every figure as its meaning allows, to be fast."""
    return replace(
        shown,
        m1=shown.m1[::10],
        m2=shown.m2[::10],
        delta=shown.delta[::10, ::10],
        proportion=shown.proportion[::10, ::10],
        stiffest=shown.stiffest[:1],
        calmest=shown.calmest[:1],
    )


def total(nsi, stages, counted):
    """Return each sample's TNS: the area that the stages' rectangles cover together."""
    areas = np.zeros(len(nsi))
    for n, sample in enumerate(nsi):
        boxes = []
        for stage in np.unique(stages):
            own = sample[(stages == stage) & counted]
            if own.size:
                boxes.append((own.max() / own.mean() - 1, own.max()))
        height = 0.0
        for width, top in sorted(boxes, reverse=True):
            areas[n] += width * max(top - height, 0.0)
            height = max(height, top)
    return areas


def surfaces(nsi, stages, counted, m1, m2):
    """Return δ and the proportion on the grid, as counts."""
    relative = np.full_like(nsi, -1.0)
    for stage in np.unique(stages):
        own = (stages == stage) & counted
        if own.any():
            relative[:, own] = nsi[:, own] / nsi[:, own].mean(1, keepdims=True) - 1
    hits = [[((relative >= a - 1e-12) & (nsi >= b) & counted) for b in m2] for a in m1]
    delta = np.array([[hit.any(1).mean() for hit in line] for line in hits])
    proportion = np.array(
        [[hit.sum() / max(hit.shape[0] * counted.sum(), 1) for hit in line] for line in hits]
    )
    return delta, proportion


def _curve(i, tns, nsi):
    return Curve(label=f"test/{i:05d}.png", tns=float(tns[i]), nsi=nsi[i])


def _stages(frame, nsi, stages, counted):
    rows = []
    for stage in np.unique(stages):
        own = stages == stage
        alone = total(nsi, stages, counted & own)
        rows.append(
            {
                "stage": int(stage),
                "shape": frame["shape"][np.flatnonzero(own)[0]],
                "steps": int(own.sum()),
                "counted": int((own & counted).sum()),
                "nsi_mean": float(nsi[:, own].mean()),
                "tns": float(alone.mean()),
                "tns_se": float(alone.std() / np.sqrt(len(nsi))),
            }
        )
    return pd.DataFrame(rows)


def _labels(many, tns, rng):
    words = (
        "airplane",
        "automobile",
        "bird",
        "cat",
        "deer",
        "dog",
        "frog",
        "horse",
        "ship",
        "truck",
    )
    return pd.DataFrame(
        {
            "label": [words[i % 10] + (f" {i // 10}" if i >= 10 else "") for i in range(many)],
            "samples": rng.integers(5, 200, many),
            "tns": tns.mean() * rng.uniform(0.6, 1.5, many),
            "tns_se": rng.uniform(0.005, 0.03, many),
            "accuracy": rng.uniform(0.7, 1.0, many),
        }
    )


def _relations(names, rng, samples):
    rows = [
        {
            "step": name,
            "target": target,
            "pearson": rng.uniform(-0.4, 0.4),
            "pearson_p": 10 ** -rng.uniform(0, 8),
            "pearson_holm": 10 ** -rng.uniform(0, 6),
            "spearman": rng.uniform(-0.4, 0.4),
            "spearman_p": 10 ** -rng.uniform(0, 8),
            "spearman_holm": 10 ** -rng.uniform(0, 6),
            "kendall": rng.uniform(-0.3, 0.3),
            "kendall_p": 10 ** -rng.uniform(0, 8),
            "kendall_holm": 10 ** -rng.uniform(0, 6),
            "samples": samples,
            "note": "",
        }
        for name in ["all (TNS)", *names]
        for target in ("loss", "correct")
    ]
    rows[-1] |= {"pearson": np.nan, "pearson_p": np.nan, "note": "NSI is constant"}
    return pd.DataFrame(rows)
