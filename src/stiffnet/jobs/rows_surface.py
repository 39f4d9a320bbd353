"""Rows of studies that keep the surface δ(M₁, M₂) of a trained network."""

import numpy as np

from stiffnet.jobs.row_run import Work
from stiffnet.jobs.rows_looks import looked, percent_right, trained
from stiffnet.results.study import Values

DIGITS = 4  # of a share of at most 10,000 images


def surface(work: Work) -> Values:
    """Count δ of the trained network on a grid of thresholds that all rows of a study share.

    Settings: ``m1`` and ``m2``, where the thresholds end, and ``points`` along each of them.
    """
    loaded, _, test = trained(work)
    report = looked(loaded.model, loaded, test, work)
    m1, m2 = (np.linspace(0, work.settings[end], work.settings["points"]) for end in ("m1", "m2"))
    delta = report.delta(m1, m2).value
    return {
        "tns": report.tns,
        "tns_se": report.tns_se,
        "accuracy": percent_right(report),
        "twice_the_mean": 100 * float(report.delta([1.0], [0.0]).value[0, 0]),
        "m1": m1.tolist(),
        "m2": m2.tolist(),
        "delta": delta.round(DIGITS).tolist(),
    }
