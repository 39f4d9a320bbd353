"""Rows on spectra: closed forms of linear networks, relations by hand, the paper's counts."""

import math

import numpy as np
import pandas as pd
import pytest
import torch
from scipy import stats
from torch import nn

from jobs.test_study import TINY
from stiffnet.jobs import rows_spectra
from stiffnet.jobs.row_run import Work
from stiffnet.jobs.rows_spectra import between_labels, counts, frame_of, tabled
from stiffnet.jobs.rows_train import train
from stiffnet.jobs.study_rows import settled
from stiffnet.results.study import StudyRow
from stiffnet.studies.published import published

SIDE = 3
LIMITS = {"images": 4, "few": 2, "large": 10**6}


class Scaled(nn.Module):
    """A step x + d x, with a number d for each channel."""

    def __init__(self, numbers):
        super().__init__()
        self.branch = nn.Conv2d(len(numbers), len(numbers), 1, bias=False)
        self.branch.weight.data = torch.diag(torch.tensor(numbers))[:, :, None, None]

    def forward(self, x):
        return x + self.branch(x)


class Linear(nn.Module):
    """Steps of that kind, and a row of logits."""

    def __init__(self, *blocks):
        super().__init__()
        self.blocks = nn.Sequential(*map(Scaled, blocks))

    def forward(self, x):
        return self.blocks(x).mean((2, 3))


def images(many, channels):
    torch.manual_seed(0)
    return [(i, torch.randn(1, channels, SIDE, SIDE), torch.tensor([i % 2])) for i in range(many)]


def test_a_linear_network_has_the_figures_of_its_numbers():
    """Of the branch: d itself. Of the slices: 1 + d, for rows and columns that are the same."""
    blocks = [(0.5, -0.25, 2.0, -1.5), (-1.2, 0.3, 0.1, -3.0)]
    model = Linear(*blocks)
    branch = tabled(frame_of(model, images(2, 4), "branch", LIMITS))
    slices = tabled(frame_of(model, images(2, 4), "slices", LIMITS))
    for i, numbers in enumerate(np.array(blocks), start=1):
        found = branch[f"block {i}"]
        assert found["S"] == pytest.approx(numbers.max() / numbers.min())
        assert found["abs"] == pytest.approx(abs(numbers.max() / numbers.min()))
        assert found["P"] == pytest.approx(100 * (numbers < 0).mean())
        moved, found = 1 + numbers, slices[f"block {i}"]
        total = (4 * SIDE * SIDE) * (4 * SIDE)
        assert found["S"] == pytest.approx(moved.max() / moved.min())
        assert found["P"] == pytest.approx(100 * (moved < 0).sum() * SIDE / total)
    both = [branch[f"block {i}"]["P"] for i in (1, 2)]
    assert branch["all blocks"]["P"] == pytest.approx(np.mean(both))
    assert sorted(set(branch["block 2"]["real"])) == [-3.0, -1.2, 0.1, 0.3]


def test_large_blocks_take_few_images_and_the_last_can_be_taken_alone():
    model = Linear((0.5, -0.25), (0.5, -0.5))
    many = frame_of(model, images(4, 2), "branch", {**LIMITS, "large": 2 * SIDE**2 - 1})
    assert many.groupby("block")["image"].nunique().tolist() == [2, 2]
    alone = frame_of(model, images(4, 2), "branch", {**LIMITS, "last": True})
    assert alone["block"].unique().tolist() == [2]
    assert alone["image"].nunique() == 4


def made(many=60, blocks=4, seed=0):
    """Figures that are drawn; blocks 1 and 2 saw only 5 of the images."""
    random = np.random.default_rng(seed)
    loss, right = random.exponential(size=many), random.random(many) < 0.7
    rows = []
    for block in range(1, blocks + 1):
        for i in range(5 if block < 3 else many):
            size = block * random.exponential() + loss[i]
            rows.append({"block": block, "image": i, "label": i % 3, "loss": loss[i],
                         "correct": bool(right[i]), "S": -size, "abs": size,
                         "P": 10 * block + random.normal(),
                         "eigenvalues": np.zeros(3, complex)})  # fmt: skip
    return pd.DataFrame(rows)


def test_relations_are_pearsons_over_the_images_of_a_block():
    frame = made()
    found = tabled(frame)
    own = frame[frame["block"] == 3]
    for figure in ("S", "abs", "P"):
        for target, column in (("loss", own["loss"]), ("accuracy", own["correct"].astype(float))):
            r, p = stats.pearsonr(own[figure], column)
            assert found["block 3"][f"{figure}_{target}"] == pytest.approx(r, rel=1e-9)
            assert found["block 3"][f"{figure}_{target}_p"] == pytest.approx(p, rel=1e-9)
    assert found["block 3"]["S_loss"] == pytest.approx(-found["block 3"]["abs_loss"])
    pooled = frame[frame["block"] > 2]
    assert found["all blocks"]["S_loss"] == pytest.approx(
        stats.pearsonr(pooled["S"], pooled["loss"])[0]
    )
    assert "S_loss" not in found["block 1"]  # of five images


def test_images_without_an_index_are_left_out_of_its_relation_alone():
    frame = made()
    frame.loc[(frame["block"] == 3) & (frame["image"] < 10), ["S", "abs"]] = math.nan
    found, own = tabled(frame)["block 3"], frame[(frame["block"] == 3) & (frame["image"] >= 10)]
    assert found["S_loss"] == pytest.approx(stats.pearsonr(own["S"], own["loss"])[0])
    assert found["P_loss"] == tabled(made())["block 3"]["P_loss"]
    frame.loc[frame["block"] == 3, ["S", "abs"]] = math.nan
    assert tabled(frame)["block 3"]["S"] is None
    assert "S_loss" not in tabled(frame)["block 3"]


def test_last_blocks_are_compared_with_all():
    frame = made()
    means = frame.groupby("block")["P"].mean()
    found = tabled(frame, late=2)["last blocks"]
    assert found["P"] == pytest.approx(means[[3, 4]].mean())
    assert found["P_times"] == pytest.approx(means[[3, 4]].mean() / means.mean())


def test_labels_are_averaged_over_blocks_that_saw_every_image():
    frame = made()
    found, own = tabled(frame), frame[frame["block"] > 2]
    assert found["label 1"]["P"] == pytest.approx(own[own["label"] == 1]["P"].mean())
    assert found["label 1"]["images"] == 20


def test_labels_explain_all_nothing_or_what_there_is():
    labels = pd.Series(np.repeat(range(4), 10))
    told = between_labels(labels.astype(float), labels)
    assert told == pytest.approx(100 * (40 - 1 - 4 + 1) / (40 - 4))  # H is n - 1 here
    random = np.random.default_rng(0)
    drawn = [between_labels(pd.Series(random.random(40)), labels) for _ in range(400)]
    assert abs(np.mean(drawn)) < 3 * np.std(drawn) / math.sqrt(400)
    assert between_labels(pd.Series(np.ones(40)), labels) is None
    assert between_labels(labels[:10].astype(float), labels[:10]) is None


@pytest.mark.parametrize(("model", "table"), [
    ("resnet18_small", "blockstiff_table10"),
    pytest.param("resnet34_small", "blockstiff_table11", marks=pytest.mark.slow),
])  # fmt: skip
def test_counts_are_those_of_the_paper_and_a_jacobian_has_fewer(model, table, tmp_path):
    found = counts(Work({"model": model, "image_size": 32, "seed": 0}, (), tmp_path, (), "", ""))
    frame = published(table)
    assert len(found) == len(frame)
    for row in frame.itertuples():
        own = found["total" if row.block == "total" else f"block {row.block}"]
        assert own["elements"] == row.jacobian_elements
        assert own["slices"] == row.jacobian_eigenvalues
        if row.block != "total":
            root = math.isqrt(row.jacobian_elements)
            assert own.get("eigenvalues") == (root if root**2 == row.jacobian_elements else None)


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("run")
    settings = settled("train", {**TINY, "model": "resnet18_small_025", "epochs": 1})
    values = train(Work(settings, (), folder, (), TINY["data"], ""))
    return folder, StudyRow("train-0", "train", settings, values=values)


def test_a_row_of_a_trained_network_goes_on_where_it_was(trained, tmp_path, monkeypatch):
    run, row = trained
    given = {"images": 3, "few": 1, "large": 512, "last": True, "seed": 0}
    work = Work(given, (row,), tmp_path, (run,), TINY["data"], "")
    computed = []
    real = rows_spectra.look

    def some(model, seen, steps, **options):
        if computed:
            raise KeyboardInterrupt
        computed.append(options["method"])
        return real(model, seen, steps, **options)

    monkeypatch.setattr(rows_spectra, "look", some)
    with pytest.raises(KeyboardInterrupt):
        rows_spectra.spectra(work)
    kept = {path: path.stat().st_mtime_ns for path in tmp_path.glob("slices/*.json")}
    assert len(kept) == 3
    monkeypatch.setattr(rows_spectra, "look", real)
    found = rows_spectra.spectra(work)
    assert {path: path.stat().st_mtime_ns for path in kept} == kept
    fresh = rows_spectra.spectra(Work(given, (row,), tmp_path / "x", (run,), TINY["data"], ""))
    assert found == fresh
    assert found["block 8"]["slices_images"] == found["block 8"]["branch_images"] == 3
