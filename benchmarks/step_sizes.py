"""The step sizes that a trained network's attention chooses, against NSI.

    python benchmarks/step_sizes.py RUN... --data cifar10:DIR --out step_sizes.csv
    python benchmarks/ode_pictures.py ode-records docs/pictures --step-sizes step_sizes.csv

A step size is ‖Δt ⊗ f‖ / ‖f‖ for one step and image. Writes one row a step and image, and prints
rank correlations (Spearman) of step size and NSI: over all, over the means of the steps, and
within each step over the images.
"""

import argparse
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from scipy import stats

import stiffnet
from stiffnet.data import open_data
from stiffnet.jobs.subject import subject_of
from stiffnet.stiffness.relate import holm

SMALL = 0.05


def sizes(run: Path, data: str, images: int) -> pd.DataFrame:
    """Run test images through a network, and keep NSI and step size of every gated step."""
    loaded = subject_of(run).open()
    batches = open_data(data).batches(loaded.preparation, batch_size=50, limit=images)
    rows, model = [], loaded.model.eval()
    with stiffnet.record(model) as recording, torch.no_grad():
        for few, (pixels, _) in zip(batches.indices, batches, strict=True):
            numbers = np.asarray(few)
            model(pixels)
            seen = recording.trajectory
            nsi = seen.rate_norms / seen.state_norms
            rows += [
                {"run": run.name, "image": int(number), "step": step.name,
                 "nsi": float(nsi[i, j]), "step_size": float(seen.step_sizes[i, j])}
                for i, number in enumerate(numbers) for j, step in enumerate(seen.steps)
            ]  # fmt: skip
    return pd.DataFrame(rows)


def main() -> None:
    """Write the rows, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("runs", nargs="+", type=Path)
    parser.add_argument("--data", required=True)
    parser.add_argument("--images", type=int, default=200)
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args()
    frame = pd.concat([sizes(run, given.data, given.images) for run in given.runs])
    frame.to_csv(given.out, index=False, float_format="%.5g")
    print("| run | all | means of the steps | within a step, over images |\n|---|--:|--:|---|")
    for name, rows in frame.groupby("run", sort=False):
        means = rows.groupby("step", sort=False)[["nsi", "step_size"]].mean()
        whole = stats.spearmanr(rows["nsi"], rows["step_size"])
        steps = stats.spearmanr(means["nsi"], means["step_size"])
        inside = [stats.spearmanr(g["nsi"], g["step_size"]) for _, g in rows.groupby("step")]
        p_values = holm([float(found.pvalue) for found in inside])
        clear = [f.statistic for f, p in zip(inside, p_values, strict=True) if p and p <= SMALL]
        falls, rises = sum(r < 0 for r in clear), sum(r > 0 for r in clear)
        print(
            f"| {name} | {whole.statistic:.2f} | {steps.statistic:.2f} (p = {steps.pvalue:.2g}) | "
            f"falls in {falls}, rises in {rises} of {len(inside)} steps |"
        )


if __name__ == "__main__":
    main()
