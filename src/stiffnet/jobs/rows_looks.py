"""Rows of studies that look at a trained network."""

from collections.abc import Iterable

import numpy as np
from torch import Tensor, nn

from stiffnet.data import open_splits
from stiffnet.data.augment import Augmentation
from stiffnet.data.boxes import BoxedImages
from stiffnet.data.folder import ImageFolder
from stiffnet.data.images import Batches, ImageSet, Preparation
from stiffnet.data.order import epoch_batches
from stiffnet.errors import DataError, StepError
from stiffnet.jobs.row_run import Work
from stiffnet.network.attention_text import NONE
from stiffnet.network.loaded import LoadedModel
from stiffnet.network.open import open_model
from stiffnet.network.step_sizes import step_sizes
from stiffnet.observe.gradcam import gradcam as explain
from stiffnet.observe.growth import growth as follow
from stiffnet.observe.measure import measure as look
from stiffnet.observe.stripes import stripes as look_at_attention
from stiffnet.report.text import finite
from stiffnet.results.stiffness import StiffnessReport
from stiffnet.results.study import Values
from stiffnet.stiffness.given import Floats
from stiffnet.train.freeze import freeze_attention
from stiffnet.train.run_folder import RunFolder
from stiffnet.trajectory.wrappers import plain_run

FEW = 0.10  # share of steps that the StepNet paper calls few
DIGITS = 4  # of a share of at most 10,000 images


def measure(work: Work) -> Values:
    """Measure how stiff the trained network is on test images."""
    loaded, _, test = trained(work)
    report = looked(loaded, test, work)
    report.save(work.folder / "report.json")
    frame, view = report.to_frame(), report.view()
    seen = view.proportion[view.proportion > 0]
    stages = np.array([report.steps[i].stage for i in report.counted])
    indices = report.nsi[:, report.counted]
    peaks = [indices[:, stages == s].max(1) / indices[:, stages == s].mean(1) for s in set(stages)]
    return {
        "tns": report.tns,
        "tns_se": report.tns_se,
        "increment_total": report.increment_total,
        "accuracy": percent_right(report),
        "peak": float(np.max(peaks, axis=0).mean()),
        "few": 100 * float((seen <= FEW).mean()),
        "nsi": frame["nsi_mean"].tolist(),
        "steps": frame["step"].tolist(),
        "counted": frame["counted"].tolist(),
    }


def surface(work: Work) -> Values:
    """Count δ of the trained network on a grid of thresholds that all rows of a study share.

    Settings: ``m1`` and ``m2``, where the thresholds end, and ``points`` along each of them.
    """
    loaded, _, test = trained(work)
    report = looked(loaded, test, work)
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


def freeze(work: Work) -> Values:
    """Replace the attention of the trained network by its means over the training images.

    These are drawn as in the training, frames and mirrors included: batch norms that see others
    come to other statistics, with which the network itself is less accurate. The accuracy is on all
    test images, as that of the training.
    """
    loaded, training, test = trained(work)
    made = freeze_attention(
        loaded.model,
        _as_in_training(work, training, loaded.preparation),
        recalibrate=bool(work.settings.get("recalibrate")),
        epochs=int(work.settings.get("epochs", 0)),
    )
    accuracy = accuracy_of(made, test.batches(loaded.preparation, batch_size=256))
    return {"accuracy": accuracy, "before": work.needs[0].values["accuracy"]}


def _as_in_training(
    work: Work, training: ImageSet | ImageFolder, preparation: Preparation
) -> Batches[tuple[Tensor, Tensor]]:
    """The batches of the epoch that would have followed the last one."""
    recipe = work.needs[0].settings
    augmentation = Augmentation(
        recipe["crop"], recipe["padding"], recipe["flip"], tuple(recipe["crop_scale"])
    )
    drawn = {"seed": recipe["seed"], "epoch": recipe["epochs"]}
    indices = epoch_batches(len(training), recipe["batch_size"], **drawn)
    return Batches(
        indices, lambda some: training.training_batches(preparation, augmentation, some, **drawn)
    )


def stripes(work: Work) -> Values:
    """Look at how constant the attention of the trained network is over test images."""
    loaded, _, test = trained(work)
    batches = test.batches(loaded.preparation, batch_size=64, limit=work.settings["limit"])
    report = look_at_attention(loaded.model, batches, facts={"model": loaded.name})
    report.save(work.folder / "stripes.json")
    frame = report.to_frame()
    return {
        "score": 100 * float(frame["score"].mean()),
        "lowest_score": 100 * float(frame["score"].min()),
        "cost": 100 * float(frame["cost"].mean()),
        "steps": frame["step"].tolist(),
        "scores": (100 * frame["score"]).tolist(),
    }


def growth(work: Work) -> Values:
    """Follow noise through the steps of the trained network."""
    loaded, _, test = trained(work)
    few = work.settings["limit"]
    [(images, _)] = test.batches(loaded.preparation, batch_size=few, limit=few)
    found = follow(loaded.model, images, seed=work.settings["seed"])
    return {
        "growth": float(np.exp(found.log_growth[-1])),
        "log_growth": float(found.log_growth[-1]),
        "log_bound": float(found.log_bound[-1]),
        "share_of_bound": 100 * float(found.nearest.max()),
        "steps": list(found.steps),
        "growths": np.exp(found.log_growth).tolist(),
    }


def gradcam(work: Work) -> Values:
    """Average the Grad-CAM of the trained network over test images, for the predicted classes."""
    loaded, _, test = trained(work)
    batches = test.batches(loaded.preparation, batch_size=32, limit=work.settings["limit"])
    facts = {"model": loaded.name, "data": test.name, "command": work.command}
    report = explain(
        loaded.model, batches, seed=work.settings["seed"], classes=test.classes, facts=facts
    )
    report.save(work.folder / "gradcam.json")
    shares = {
        "centre": report.images.mass("centre"),
        "noise_centre": report.noise.mass("centre"),
        "above_noise": report.above_noise,
        "followed": report.followed,
    }
    return {
        **{name: finite(100 * share.value) for name, share in shares.items()},
        "x": finite(report.images.mass("x").value),
        "y": finite(report.images.mass("y").value),
        "map": [[finite(value) for value in line] for line in report.images.mean.tolist()],
        "zero_maps": report.images.zero,
        "images": report.samples,
    }


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


def trained(work: Work) -> tuple[LoadedModel, ImageSet | ImageFolder, ImageSet | ImageFolder]:
    """Open the network that was trained for the row, and its training and test images."""
    training, test = open_splits(work.data)
    if isinstance(training, BoxedImages) or isinstance(test, BoxedImages):
        raise DataError(f"{work.data} has boxes, and images with labels are needed. Give others.")
    return open_model(RunFolder(work.need_folders[0]).final), training, test


def percent_right(report: StiffnessReport) -> float:
    """Accuracy that was measured beside the stiffness, in percent."""
    if report.accuracy is None:
        raise DataError("The labels are not the network's classes, so there is no accuracy.")
    return 100 * report.accuracy


def accuracy_of(model: nn.Module, batches: Iterable[tuple[Tensor, Tensor]]) -> float:
    """Accuracy of a network on labelled images, in percent."""
    right, seen = 0, 0
    with plain_run(model):
        for images, labels in batches:
            right += int((model(images).argmax(1) == labels).sum())
            seen += len(labels)
    return 100 * (right / seen)


def looked(loaded: LoadedModel, test: ImageSet | ImageFolder, work: Work) -> StiffnessReport:
    """Measure a network on the test images of its row."""
    batches = test.batches(loaded.preparation, batch_size=120, limit=work.settings.get("limit"))
    attention, seed = work.needs[0].values["attention"], work.settings["seed"]
    named = loaded.name if attention == NONE else f"{loaded.name} with {attention}"
    facts = {"model": f"{named}, seed {seed}", "data": test.name, "command": work.command}
    return look(loaded.model, batches, classes=test.classes, facts=facts)


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
