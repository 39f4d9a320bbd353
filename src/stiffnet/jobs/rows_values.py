"""Rows of studies that relate attention values, which are step sizes, with NSI."""

import numpy as np

from stiffnet.errors import StepError
from stiffnet.jobs.row_run import Work
from stiffnet.jobs.rows_looks import looked, trained
from stiffnet.network.step_sizes import step_sizes
from stiffnet.results.study import Values
from stiffnet.stiffness.given import Floats


def values(work: Work) -> Values:
    """Correlate the attention value of an image with its NSI, in the first stage of a network.

    An image's attention value at a step is the mean over channels. It is correlated with the NSI
    over images, step by step, and over the steps, image by image.
    """
    loaded, _, test = trained(work)
    report = looked(loaded, test, work)
    batches = test.batches(loaded.preparation, batch_size=120, limit=work.settings["limit"])
    sizes = step_sizes(loaded.model, batches)
    first = next((report.steps[i].stage for i in report.counted), None)
    chosen = [i for i in report.counted if report.steps[i].stage == first]
    chosen = [i for i in chosen if report.steps[i].name in sizes]
    if len(chosen) < 3:
        raise StepError(
            f"{len(chosen)} steps of the first stage count and have attention, and a correlation "
            "over steps needs three. Choose a deeper network."
        )
    names = [report.steps[i].name for i in chosen]
    rows = report.kept.number
    attention = np.stack([np.nanmean(sizes[name].double().numpy(), 1)[rows] for name in names], 1)
    nsi = report.nsi[:, chosen]
    over_images, over_steps = correlations(attention, nsi), correlations(attention.T, nsi.T)
    return {
        "correlation": _mean(over_images),
        "step_correlation": _mean(over_steps),
        "negative_steps": _negative(over_images),
        "negative_images": _negative(over_steps),
        "accuracy": work.needs[0].values["accuracy"],
        "steps": names,
        "correlations": [None if np.isnan(each) else float(each) for each in over_images],
        "attention_means": attention.mean(0).tolist(),
        "nsi_means": nsi.mean(0).tolist(),
    }


def correlations(one: Floats, other: Floats) -> Floats:
    """Pearson's correlation of each column of one with that of the other; NaN of a constant."""
    a, b = (each - each.mean(0) for each in (one, other))
    sizes = np.sqrt((a * a).sum(0) * (b * b).sum(0))
    found = np.full(len(sizes), np.nan)
    np.divide((a * b).sum(0), sizes, out=found, where=sizes > 0)
    return found


def _mean(found: Floats) -> float:
    if np.isnan(found).all():
        raise StepError("The attention values do not vary, so that nothing goes with them.")
    return float(np.nanmean(found))


def _negative(found: Floats) -> float:
    """Percentage of the known correlations that are below zero."""
    return 100 * float((found[~np.isnan(found)] < 0).mean())
