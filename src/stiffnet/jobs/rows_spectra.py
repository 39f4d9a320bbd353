"""Rows on eigenvalues: the spectra of the blocks of a trained network, and how many there are.

The figures of a block are S = max Re λ / min Re λ, its size ``abs``, and P, the percentage of
eigenvalues with a negative real part. Each is found in two ways: of the slices of the block, as the
block-level paper did, and of the branch, which is the right-hand side of the differential equation.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
import torch
from scipy import stats
from torch import Tensor, nn

from stiffnet.jobs.row_run import Work
from stiffnet.jobs.rows_looks import trained
from stiffnet.jobs.spectrum_parts import Parts, weights_digest
from stiffnet.network.create import create_model
from stiffnet.observe.spectrum import Of, Store, function_of, spectra as look
from stiffnet.report.spectra_plots import thinned
from stiffnet.report.text import finite
from stiffnet.results.study import Values
from stiffnet.stiffness.planes import counts as counted
from stiffnet.stiffness.relate import relate
from stiffnet.stiffness.spectrum import Method
from stiffnet.trajectory.steps import steps as find_steps

WAYS: dict[str, tuple[Of, Method]] = {"slices": ("block", "planes"), "branch": ("branch", "auto")}
FIGURES = {"S": "stiffness_index", "abs": "absolute_index", "P": "negative_share"}
FEWEST = 20  # images over which something is related
POINTS = 300  # eigenvalues of the last block that a picture shows
Image = tuple[int, Tensor, Tensor]
Found = dict[str, Any]


def spectra(work: Work) -> Values:
    """Find the spectra of the blocks of the trained network on test images.

    Settings: ``images``, how many, of which blocks with more than ``large`` numbers take only the
    first ``few``; ``late``, how many blocks are the last ones; ``last``, to take only the last.
    """
    loaded, _, test = trained(work)
    given = work.settings
    batches = test.batches(loaded.preparation, batch_size=1, limit=given["images"])
    numbers = [int(few[0]) for few in batches.indices]
    images = [(i, image, label) for i, (image, label) in zip(numbers, batches, strict=True)]
    digest = weights_digest(loaded.model)
    tables: dict[str, Found] = {}
    for way, (of, method) in WAYS.items():
        parts = Parts(work.folder / way, {"weights": digest, "way": f"{of}, {method}"})
        parts.read(on_damage=lambda text: None)  # it is computed again
        frame = frame_of(loaded.model, images, way, given, store=parts)
        for part, values in tabled(frame, given.get("late", 0)).items():
            own = {f"{way}_{name}": value for name, value in values.items()}
            tables.setdefault(part, {}).update(own)
    right = frame.drop_duplicates("image")["correct"]
    return {"accuracy": 100 * float(right.mean()), "images": len(right), **tables}


def counts(work: Work) -> Values:
    """Count entries and eigenvalues of the Jacobian of every block; nothing is trained."""
    size = work.settings["image_size"]
    model = create_model(work.settings["model"], num_classes=10, seed=0).eval()
    image = torch.zeros(1, 3, size, size)
    tables: dict[str, Found] = {}
    for i, step in enumerate(find_steps(model, image), start=1):
        block = function_of(model, step, image, of="block")
        inputs, outputs = tuple(block.input.shape[1:]), tuple(block.output.shape[1:])
        elements, slices = counted(inputs, outputs)
        square = math.prod(inputs) == math.prod(outputs)
        found = {"elements": elements, "slices": slices}
        tables[f"block {i}"] = found | ({"eigenvalues": math.prod(inputs)} if square else {})
    total = {
        name: sum(found.get(name, 0) for found in tables.values())
        for name in ("elements", "slices", "eigenvalues")
    }
    return {**tables, "total": total}


def frame_of(
    model: nn.Module,
    images: Sequence[Image],
    way: str,
    given: Mapping[str, Any],
    *,
    store: Store | None = None,
) -> pd.DataFrame:
    """Find the spectra in one of the ways: one row a block and image, blocks numbered from 1.

    The branch of a block that changes the shape has no eigenvalues, and is left out.
    """
    of, method = WAYS[way]
    steps = find_steps(model, images[0][1])
    chosen = [step for step in steps if way == "slices" or step.identity]
    if given.get("last"):
        chosen = chosen[-1:]
    large = [step for step in chosen if math.prod(step.shape) > given["large"]]
    others = [step for step in chosen if step not in large]
    frames = []
    for some, seen in ((large, images[: given["few"]]), (others, images)):
        if some:
            report = look(model, seen, some, of=of, method=method, store=store)
            values = [found.eigenvalues for every in report.spectra.values() for found in every]
            frames.append(report.to_frame().assign(eigenvalues=pd.Series(values, dtype=object)))
    frame = pd.concat(frames, ignore_index=True)
    places = {step.name: i for i, step in enumerate(steps, start=1)}
    frame = frame.assign(block=frame["step"].map(places), P=100 * frame["negative_share"])
    frame = frame.rename(columns={"stiffness_index": "S", "absolute_index": "abs"})
    return frame.sort_values(["block", "image"], ignore_index=True)


def tabled(frame: pd.DataFrame, late: int = 0) -> dict[str, Found]:
    """Put figures and relations together: by block, over blocks, by label, over labels.

    What is said over blocks by image is said of the blocks that saw every image. With `late`, so
    many last blocks are compared with all.
    """
    blocks = [int(block) for block in frame["block"].unique()]
    parts = {f"block {i}": _described(frame[frame["block"] == i]) for i in blocks}
    shown = thinned(frame[frame["block"] == blocks[-1]]["eigenvalues"].iloc[0], POINTS)
    places = {"real": _rounded(shown.real), "imaginary": _rounded(shown.imag)}
    parts[f"block {blocks[-1]}"] |= places
    means = frame.groupby("block")[list(FIGURES)].mean()
    seen = frame.groupby("block")["image"].transform("nunique")
    full = frame[seen == seen.max()]
    parts["all blocks"] = _described(full) | _means(means)
    if late:
        own = means.loc[means.index > blocks[-1] - late]
        times = own.mean() / means.mean()
        parts["last blocks"] = _means(own) | {f"{f}_times": finite(times[f]) for f in FIGURES}
    wide = full.pivot(index=["image", "label"], columns="block", values=list(FIGURES))
    single = pd.DataFrame({f: wide[f].mean(axis=1, skipna=False) for f in FIGURES}).reset_index()
    for label, own in single.groupby("label"):
        parts[f"label {label}"] = _means(own) | {"images": len(own)}
    between = {f"{f}_between": between_labels(single[f], single["label"]) for f in FIGURES}
    parts["all labels"] = _means(single) | between | {"images": len(single)}
    return parts


def between_labels(values: pd.Series, labels: pd.Series) -> float | None:
    """Return the percentage of the variance of ranks that labels explain, less what chance gives.

    It is (H - k + 1) / (n - k), with H of Kruskal and Wallis for n values of k labels: zero on
    average where labels do not matter, and 100 where they tell everything. None where there are too
    few values, or all are the same.
    """
    known = values.notna()
    groups = [group for _, group in values[known].groupby(labels[known])]
    many, kinds = int(known.sum()), len(groups)
    if many < FEWEST or kinds < 2 or values[known].nunique() < 2 or many <= kinds:
        return None
    return 100 * float((stats.kruskal(*groups).statistic - kinds + 1) / (many - kinds))


def _described(frame: pd.DataFrame) -> Found:
    """Means of the figures, and how they go with accuracy and loss over images."""
    found = _means(frame) | {"images": frame["image"].nunique()}
    targets = {"accuracy": frame["correct"].astype(float), "loss": frame["loss"].astype(float)}
    for figure in FIGURES:
        known = frame[figure].notna()
        if frame["image"][known].nunique() < FEWEST:
            continue
        some = {name: target[known].to_numpy() for name, target in targets.items()}
        for row in relate({figure: frame[figure][known].to_numpy()}, some).to_dict("records"):
            name = f"{figure}_{row['target']}"
            found |= {name: row["pearson"], f"{name}_p": row["pearson_p"]}
    return found


def _means(frame: pd.DataFrame) -> Found:
    """Means of the figures, over what has them."""
    return {figure: finite(frame[figure].mean()) for figure in FIGURES}


def _rounded(values: Any) -> list[float]:
    return [float(f"{value:.4g}") for value in np.asarray(values)]
