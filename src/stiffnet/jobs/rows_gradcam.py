"""Rows of studies on average Grad-CAM: where on the image a trained network finds its evidence."""

import math

from stiffnet.jobs.row_run import Work
from stiffnet.jobs.rows_looks import trained
from stiffnet.observe.gradcam import gradcam as look
from stiffnet.results.gradcam import Estimate
from stiffnet.results.study import Values


def gradcam(work: Work) -> Values:
    """Average the Grad-CAM of the trained network over test images, for the predicted classes."""
    loaded, _, test = trained(work)
    batches = test.batches(loaded.preparation, batch_size=32, limit=work.settings["limit"])
    facts = {"model": loaded.name, "data": test.name, "command": work.command}
    report = look(
        loaded.model, batches, seed=work.settings["seed"], classes=test.classes, facts=facts
    )
    report.save(work.folder / "gradcam.json")
    return {
        "centre": _percent(report.images.mass("centre")),
        "noise_centre": _percent(report.noise.mass("centre")),
        "above_noise": _percent(report.above_noise),
        "followed": _percent(report.followed),
        "x": _known(report.images.mass("x").value),
        "y": _known(report.images.mass("y").value),
        "map": [[_known(value) for value in line] for line in report.images.mean.tolist()],
        "zero_maps": report.images.zero,
        "images": report.samples,
    }


def _percent(found: Estimate) -> float | None:
    return _known(100 * found.value)


def _known(value: float) -> float | None:
    return value if math.isfinite(value) else None
