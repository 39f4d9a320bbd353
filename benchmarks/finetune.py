"""Compare fine-tuned runs: rows of each, mean and spread over seeds, differences by seed.

    python benchmarks/finetune.py RUNS --csv results/finetune_cifar10.csv

`RUNS` holds finished runs called ``ATTENTION-SEED``, such as ``none-0`` and ``asr-se-2``. Beside a
run that was folded may lie what `stiffnet measure` wrote about the folded network, in
``ATTENTION-SEED-folded``.
"""

import argparse
import json
import re
from pathlib import Path

import numpy as np
import pandas as pd
from scipy import stats

from stiffnet.network.open import open_model
from stiffnet.results.stiffness import StiffnessReport
from stiffnet.train.recipe_file import build_recipe

PLAIN = "none"
LEVEL = 0.95  # of the intervals


def rows(root: Path) -> pd.DataFrame:
    """Return a row for each finished run."""
    found = []
    for run in sorted(root.glob("*-*")):
        name = re.fullmatch(r"(.+)-(\d+)", run.name)
        if name is None or not (run / "final/MANIFEST.json").exists():
            continue
        recipe = build_recipe(run / "recipe.toml")
        last = json.loads((run / "log.jsonl").read_text().splitlines()[-1])
        row = {
            "start": "random" if not recipe.weights else "ImageNet",
            "attention": recipe.attention,
            "seed": recipe.seed,
            "steps": last["step"],
            "train_images": recipe.train_images,
            "image_size": recipe.image_size,
            "test_top1": last["test_top1"],
            "test_loss": last["test_loss"],
            "parameters": parameters(run / "final"),
        }
        report = root / f"{run.name}-folded/report.json"
        measured = report.exists()
        row["folded_top1"] = StiffnessReport.load(report).accuracy if measured else None
        row["folded_parameters"] = parameters(run / "folded") if measured else None
        found.append(row)
    if not found:
        raise SystemExit(f"{root} holds no finished run called ATTENTION-SEED.")
    return pd.DataFrame(found)


def parameters(folder: Path) -> int:
    """Count the parameters of a network."""
    return sum(parameter.numel() for parameter in open_model(folder).model.parameters())


def table(frame: pd.DataFrame) -> str:
    """Write the comparison as Markdown."""
    tuned = frame[frame.start == "ImageNet"]
    plain = tuned[tuned.attention == PLAIN].set_index("seed").test_top1
    lines = [
        "| attention | seeds | top-1 after the last step | minus plain, by seed (95 % interval) |",
        "|---|--:|--:|--:|",
    ]
    for attention, group in tuned.groupby("attention", sort=False):
        top1 = group.set_index("seed").test_top1
        spread = f" ± {top1.std() * 100:.2f}" if len(top1) > 1 else ""
        both = top1.index.intersection(plain.index)
        told = "" if attention == PLAIN else difference(top1[both] - plain[both])
        lines.append(f"| {attention} | {len(top1)} | {top1.mean():.2%}{spread} | {told} |")
    return "\n".join(lines)


def difference(values: pd.Series) -> str:
    """Write a mean of paired differences in points, with the interval of Student's t."""
    if len(values) < 2:
        return "no interval for one seed"
    mean, error = values.mean(), values.std() / np.sqrt(len(values))
    half = stats.t.ppf((1 + LEVEL) / 2, len(values) - 1) * error
    verdict = "significant" if abs(mean) > half else "not significant"
    low, high = (mean - half) * 100, (mean + half) * 100
    return f"{mean * 100:+.2f} ({low:+.2f} to {high:+.2f}), {verdict}"


def main() -> None:
    """Print the comparison, and write the rows."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("runs", type=Path)
    parser.add_argument("--csv", type=Path)
    given = parser.parse_args()
    frame = rows(given.runs)
    if given.csv:
        frame.to_csv(given.csv, index=False)
    print(table(frame))
    for row in frame[frame.start == "random"].itertuples():
        print(f"From random weights, seed {row.seed}: {row.test_top1:.2%}.")
    for row in frame.dropna().itertuples():
        print(
            f"{row.attention}, seed {row.seed}: {row.test_top1:.2%} with {row.parameters:,} "
            f"parameters, folded {row.folded_top1:.2%} with {row.folded_parameters:,.0f}."
        )


if __name__ == "__main__":
    main()
