"""The block-level stiffness paper's tables, from spectra of trained networks.

    stiffnet train resnet18_small_025 --recipe quick --seed 0 --data cifar10:DIR --out runs/r18-0
    stiffnet spectrum runs/r18-0 --data cifar10:DIR --images 200 --of block --method reduced \
        --step layer4.1 --out spectra/resnet18_small_025-0-reduced-block-late
    python benchmarks/blocks.py spectra --out results

Every folder below SPECTRA is called NETWORK-SEED-METHOD-OF-PART; docs/blocks.md lists those that
were made. Writes one row a block, a label and a relation to ``blocks_*.csv``, and prints tables.
"""

import argparse
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd
from scipy import stats

import stiffnet
from stiffnet.results.spectra import SpectrumReport
from stiffnet.studies.published import published

RUN = ["network", "seed", "computed"]
COMPUTED = {  # in the order of the tables' columns
    ("planes", "block"): "slices of the block",
    ("reduced", "block"): "block",
    ("reduced", "branch"): "branch",
}
FIGURES = {"stiffness_index": "S", "absolute_index": "|S|", "negative_share": "P"}
PUBLISHED = {  # the paper's tables of S and P by block
    "resnet18_small_025": "blockstiff_table2",
    "resnet34_small_025": "blockstiff_table5",
    "resnet50_small_025": "blockstiff_table8",
}
BLOCKS = {"resnet18": (2, 2, 2, 2), "resnet34": (3, 4, 6, 3), "resnet50": (3, 4, 6, 3)}
SMALL = 0.05  # corrected p-value
SEEDS = 3  # fewer decide nothing


def spectra(folder: Path) -> Iterator[pd.DataFrame]:
    """Read every report: one row a step and image."""
    for file in sorted(folder.glob("*/spectrum.json")):
        network, seed, method, of, _ = file.parent.name.rsplit("-", 4)
        frame = SpectrumReport.load(file).to_frame()
        frame = frame[frame["count"] > 0]  # a step that changes the shape has none
        yield frame.assign(network=network, seed=int(seed), computed=COMPUTED[method, of])


def by_block(frame: pd.DataFrame) -> pd.DataFrame:
    """Average over images, block by block."""
    groups = frame.groupby([*RUN, "step"], sort=False)
    table = pd.DataFrame({"images": groups["image"].nunique()})
    table["S_defined"] = groups["stiffness_index"].count()
    for name in ("stiffness_index", "absolute_index", "negative_share", "real_extent", "radius"):
        table[f"{name}_mean"], table[f"{name}_std"] = groups[name].mean(), groups[name].std()
    table["outside_share_mean"] = groups["outside_share"].mean()
    return table.reset_index()


def by_label(frame: pd.DataFrame) -> pd.DataFrame:
    """Average over images and blocks, label by label, for the blocks that saw the most images."""
    most = frame.groupby(RUN)["images"].transform("max")
    groups = frame[frame["images"] == most].groupby([*RUN, "label"])
    table = pd.DataFrame({"images": groups["image"].nunique()})
    for name in FIGURES:
        table[f"{name}_mean"] = groups[name].mean()
    return table.reset_index()


def label_shares(frame: pd.DataFrame) -> pd.DataFrame:
    """Share of the variance over images that labels explain, and Kruskal's p-value, by block."""
    rows = []
    for key, group in frame.groupby([*RUN, "step"], sort=False):
        if group["image"].nunique() < 100:
            continue
        for name in ("stiffness_index", "negative_share"):
            known = group.dropna(subset=name)
            if len(known) < 100 or known[name].nunique() < 2:
                continue
            parts = [part.to_numpy() for _, part in known.groupby("label")[name]]
            explained = known.groupby("label")[name].transform("mean").var(ddof=0)
            share = explained / known[name].var(ddof=0)
            p = stats.kruskal(*parts).pvalue
            row = dict(zip([*RUN, "step"], key, strict=True))
            rows.append(row | {"figure": name, "label_share": share, "kruskal_p": p})
    return pd.DataFrame(rows)


def relations(frame: pd.DataFrame) -> pd.DataFrame:
    """Correlate with loss and correctness over images, blocks of one set of images together."""
    tables = []
    key: tuple[str, ...]
    for key, group in frame.groupby([*RUN, "images"], sort=False):  # type: ignore[assignment]
        one = group.drop_duplicates("image").sort_values("image")
        targets = {"accuracy": one["correct"].to_numpy(float), "loss": one["loss"].to_numpy()}
        for figure in FIGURES:
            wide = group.pivot_table(index="image", columns="step", values=figure, sort=False)
            wide = wide.reindex(one["image"]).dropna(axis=1)
            if wide.empty or len(wide) < 20:
                continue
            found = stiffnet.relate({str(s): wide[s].to_numpy() for s in wide}, targets)
            same = pd.DataFrame([[*key[:-1], figure]] * len(found), columns=[*RUN, "figure"])
            tables.append(same.join(found))
    joined = pd.concat(tables, ignore_index=True)
    return joined[joined["step"] != "all"].drop(columns="note")


def names(network: str) -> list[str]:
    """Return the blocks in their order."""
    sizes = BLOCKS[network.split("_")[0]]
    return [f"layer{i}.{j}" for i, size in enumerate(sizes, start=1) for j in range(size)]


def over_seeds(values: pd.Series, *, scale: float = 1.0, form: str = ".2f") -> str:
    """Write a mean over seeds, with the standard deviation over them."""
    known = (values * scale).dropna()
    if known.empty:
        return "–"
    spread = f" ± {known.std():{form}}" if len(known) > 1 else ""
    return f"{known.mean():{form}}{spread}".replace("-", "−")


def block_table(blocks: pd.DataFrame, network: str) -> str:
    """Write S and P of every block: published, and as computed here."""
    heads = [f"{figure}, {what}" for what in ("published", *COMPUTED.values()) for figure in "SP"]
    lines = [f"| block | {' | '.join(heads)} |", "|---|" + "--:|" * len(heads)]
    own = blocks[blocks["network"] == network]
    printed = published(PUBLISHED[network]).astype({"block": str}).set_index("block")
    for i, step in enumerate(names(network), start=1):
        cells = ["–", "–"]
        if str(i) in printed.index:
            row = printed.loc[str(i)]
            cells = [
                f"{row['stiffness_index']:.2f}".replace("-", "−"),
                f"{row['pct_neg_eigenvalues']:.1f} %",
            ]
        for what in COMPUTED.values():
            rows = own[(own["step"] == step) & (own["computed"] == what)]
            share = over_seeds(rows["negative_share_mean"], scale=100, form=".1f")
            cells += [over_seeds(rows["stiffness_index_mean"]), share + " %" * (share != "–")]
        lines.append(f"| {step} | {' | '.join(cells)} |")
    return "\n".join(lines)


def relation_table(found: pd.DataFrame, network: str) -> str:
    """Write the correlations of S and P with accuracy and loss, as a mean over seeds."""
    pairs = [("accuracy", "stiffness_index"), ("accuracy", "negative_share"),
             ("loss", "stiffness_index"), ("loss", "negative_share")]  # fmt: skip
    heads = [f"{target}, {FIGURES[figure]}" for target, figure in pairs]
    lines = [f"| block | computed | images | {' | '.join(heads)} |", "|---|---|--:|" + "--:|" * 4]
    own = found[found["network"] == network]
    for step in names(network):
        for what in COMPUTED.values():
            rows = own[(own["step"] == step) & (own["computed"] == what)]
            if rows.empty:
                continue
            cells = []
            for target, figure in pairs:
                some = rows[(rows["target"] == target) & (rows["figure"] == figure)]
                some = some.dropna(subset="pearson")
                clear = int((some["pearson_holm"].astype(float) <= SMALL).sum())
                mean = over_seeds(some["pearson"].astype(float))
                cells.append(f"{mean} ({clear}/{len(some)})" if len(some) else "–")
            images = int(rows["samples"].max())
            lines.append(f"| {step} | {what} | {images} | {' | '.join(cells)} |")
    return "\n".join(lines)


def label_table(labels: pd.DataFrame, network: str) -> str:
    """Write S and P by label, as a mean over seeds."""
    heads = [f"{figure}, {what}" for what in COMPUTED.values() for figure in "SP"]
    lines = [f"| label | {' | '.join(heads)} |", "|---|" + "--:|" * len(heads)]
    own = labels[labels["network"] == network]
    for label in sorted(own["label"].unique()):
        cells = []
        for what in COMPUTED.values():
            rows = own[(own["label"] == label) & (own["computed"] == what)]
            cells.append(over_seeds(rows["stiffness_index_mean"]))
            cells.append(over_seeds(rows["negative_share_mean"], scale=100, form=".1f") + " %")
        lines.append(f"| {label} | {' | '.join(cells)} |")
    return "\n".join(lines)


def thirds(rows: pd.DataFrame, figure: str) -> float | None:
    """Return the mean of the last third of the blocks over that of the first."""
    order = rows.dropna(subset=f"{figure}_mean").sort_values("step")
    if len(order) < 3:
        return None
    values, third = order[f"{figure}_mean"].to_numpy(), max(1, len(order) // 3)
    first = values[:third].mean()
    return float(values[-third:].mean() / first) if first else None


def verdict(signs: list[int]) -> str:
    """Say what seeds decide: all of at least three, or nothing.

    >>> verdict([1, 1, 1]), verdict([-1, -1, -1]), verdict([1, 0, 1]), verdict([1])
    ('held', 'refuted', 'undecided', 'undecided')
    """
    if len(signs) < SEEDS or len(set(signs)) > 1:
        return "undecided"
    return {1: "held", -1: "refuted", 0: "undecided"}[signs[0]]


def claim_table(blocks: pd.DataFrame, found: pd.DataFrame) -> str:
    """Judge the paper's claims, for each network and computation, seed by seed."""
    lines = ["| claim | network | computed | by seed | verdict |", "|---|---|---|---|---|"]
    for (network, what), rows in blocks.groupby(["network", "computed"], sort=False):
        seeds = [group for _, group in rows.groupby("seed")]
        for text, figure, least in (
            ("late blocks have a larger \\|S\\|", "absolute_index", 1.0),
            ("late blocks have a larger P", "negative_share", 1.0),
            ("P at least doubles", "negative_share", 2.0),
        ):
            ratios = [ratio for group in seeds if (ratio := thirds(group, figure)) is not None]
            told = ", ".join(f"× {ratio:.2f}" for ratio in ratios)
            if not ratios:
                continue
            judged = verdict([1 if ratio > least else -1 for ratio in ratios])
            lines.append(f"| {text} | {network} | {what} | {told} | {judged} |")
        last = found[
            (found["network"] == network) & (found["computed"] == what)
            & (found["step"] == names(str(network))[-1])
        ].dropna(subset="pearson")  # fmt: skip
        for figure, symbol in FIGURES.items():
            for target, kind in (("accuracy", "falls"), ("loss", "rises")):
                rows = last[(last["figure"] == figure) & (last["target"] == target)]
                values = rows["pearson"].to_numpy(float)
                clear = rows["pearson_holm"].to_numpy(float) <= SMALL
                stars = np.where(clear, "*", "")
                told = ", ".join(f"{v:+.2f}{c}" for v, c in zip(values, stars, strict=True))
                text = f"{target} {kind} with {symbol} of the last block".replace("|", "\\|")
                if not told:
                    continue
                claimed = 1 if target == "loss" else -1
                judged = verdict([int(v) for v in clear * np.sign(values) * claimed])
                told = told.replace("-", "−")
                lines.append(f"| {text} | {network} | {what} | {told} | {judged} |")
    return "\n".join(lines)


def main() -> None:
    """Read, write, print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("spectra", type=Path)
    parser.add_argument("--out", type=Path, default=Path("results"))
    given = parser.parse_args()
    frame = pd.concat(spectra(given.spectra), ignore_index=True)
    frame["images"] = frame.groupby([*RUN, "step"])["image"].transform("nunique")
    blocks, labels, found = by_block(frame), by_label(frame), relations(frame)
    shares = label_shares(frame)
    for name, table in (
        ("blocks", blocks), ("labels", labels), ("relations", found), ("label_shares", shares),
    ):  # fmt: skip
        table.to_csv(given.out / f"blocks_{name}.csv", index=False, float_format="%.6g")
    for network in PUBLISHED:
        if network in set(blocks["network"]):
            print(f"## {network}\n\n{block_table(blocks, network)}\n")
            print(f"{relation_table(found, network)}\n\n{label_table(labels, network)}\n")
    print(claim_table(blocks, found))


if __name__ == "__main__":
    main()
