"""Stiffness straight from its definitions: slow, float64 or rational, and sharing no code."""

import itertools
import math
from fractions import Fraction

import numpy as np


def norms(x):
    """Euclidean norm of each x[n], every square and sum correctly rounded."""
    return np.array([math.sqrt(math.fsum(float(v) ** 2 for v in sample.ravel())) for sample in x])


def stiff(row, stages, m1, m2):
    """Which steps satisfy ζ ≥ max(μ(1 + M₁), M₂), in rational arithmetic."""
    values = [Fraction(float(v)) for v in row]
    answer = []
    for value, stage in zip(values, stages, strict=True):
        members = [v for v, s in zip(values, stages, strict=True) if s == stage]
        mean = sum(members) / len(members)
        answer.append(value >= max(mean * (1 + Fraction(float(m1))), Fraction(float(m2))))
    return answer


def delta_samples(nsi, stages, m1, m2):
    """1 or 0 per sample: is any step stiff?"""
    return np.array([float(any(stiff(row, stages, m1, m2))) for row in nsi])


def proportion_samples(nsi, stages, m1, m2):
    """Share of stiff steps per sample."""
    return np.array([sum(stiff(row, stages, m1, m2)) / len(row) for row in nsi])


def tns(nsi, stages):
    """∬ of the indicator, exactly: it is constant on the cells between all breakpoints."""
    areas = []
    for row in nsi:
        mean = {s: np.mean([v for v, t in zip(row, stages, strict=True) if t == s]) for s in stages}
        excess = [v / mean[s] - 1 if mean[s] else 0.0 for v, s in zip(row, stages, strict=True)]
        xs = np.unique([0.0, *(e for e in excess if e > 0)])
        ys = np.unique([0.0, *row])
        area = 0.0
        for left, right in itertools.pairwise(xs):
            for low, high in itertools.pairwise(ys):
                x, y = (left + right) / 2, (low + high) / 2
                inside = any(
                    v >= max(mean[s] * (1 + x), y) for v, s in zip(row, stages, strict=True)
                )
                area += inside * (right - left) * (high - low)
        areas.append(area)
    return np.array(areas)


def stage_tns(nsi, stages):
    """m (m/μ - 1) of each stage by itself."""
    columns = []
    for stage in sorted(set(stages)):
        part = np.array([[v for v, s in zip(r, stages, strict=True) if s == stage] for r in nsi])
        top, mean = part.max(axis=1), part.mean(axis=1)
        columns.append(np.where(top > 0, top * (top / np.where(mean > 0, mean, 1) - 1), 0.0))
    return np.stack(columns, axis=1)


def standard_error(samples):
    """Sample standard deviation over √N."""
    return np.std(samples, axis=0, ddof=1) / math.sqrt(len(samples))


def pearson(x, y):
    """Covariance over the product of deviations."""
    x, y = np.asarray(x, dtype=float), np.asarray(y, dtype=float)
    dx, dy = x - x.mean(), y - y.mean()
    return (dx * dy).sum() / math.sqrt((dx * dx).sum() * (dy * dy).sum())


def kendall(x, y):
    """Tau-b: concordant minus discordant pairs over the pairs that are tied in neither column."""
    pairs = [(i, j) for i in range(len(x)) for j in range(i)]
    sx = np.array([np.sign(x[i] - x[j]) for i, j in pairs])
    sy = np.array([np.sign(y[i] - y[j]) for i, j in pairs])
    return (sx * sy).sum() / math.sqrt((sx != 0).sum() * (sy != 0).sum())
