"""The tables of the papers, as the package carries them."""

import zipfile
from importlib import resources

import pytest

from stiffnet.errors import UnknownNameError
from stiffnet.studies.published import printed, published

TABLES = {"stepnet": 7, "blockstiff": 11, "asr": 14}


def names():
    folder = resources.files("stiffnet.studies").joinpath("tables")
    return sorted(file.name for file in folder.iterdir())


def test_every_table_is_there_and_is_numbers():
    expected = [
        f"{paper}_table{n}.csv" for paper, many in TABLES.items() for n in range(1, many + 1)
    ]
    assert names() == sorted(["README.md", *expected])
    for name in expected:
        frame = published(name.removesuffix(".csv"))
        assert len(frame) > 0
        assert "note" in frame


def test_a_table_that_was_changed_is_read_anew():
    frame = published("asr_table1")
    frame.loc[0, "fps"] = -1
    assert published("asr_table1").loc[0, "fps"] == 1944


def test_none_is_a_network_without_a_module_and_not_a_missing_cell():
    assert set(published("stepnet_table1")["attention"]) >= {"none", "SE", "StepNet"}


def test_gains_are_differences():
    """Independent of the transcription: 143 of the papers' own sums."""
    frame = published("stepnet_table1")
    plain = frame[frame["attention"] == "none"].set_index("dataset")["top1"]
    rest = frame[frame["attention"] != "none"]
    assert (rest["top1"] - rest["dataset"].map(plain) - rest["gain"]).abs().max() < 0.011


@pytest.mark.parametrize(
    ("column", "keys"),
    [("fps", {"attention": "SE"}), ("fps", {"attention": "XX"}), ("fps_drop_pct", {
        "attention": "none", "dataset": "STL10"})],
)  # fmt: skip
def test_keys_select_one_number_or_are_refused(column, keys):
    with pytest.raises(ValueError, match="asr_table1"):
        printed("asr_table1", column, keys)


def test_a_misspelt_table_is_refused_with_the_nearest():
    with pytest.raises(UnknownNameError, match="Did you mean 'asr_table1'"):
        published("asr_tabel1")


@pytest.mark.slow
def test_the_wheel_contains_the_tables(tmp_path, monkeypatch):
    hatch = pytest.importorskip("hatchling.builders.wheel")
    pytest.importorskip("hatch_fancy_pypi_readme")
    root = resources.files("stiffnet").joinpath("..", "..")
    monkeypatch.chdir(str(root))  # where the plugin looks for the README
    builder = hatch.WheelBuilder(str(root))
    [wheel] = builder.build(directory=str(tmp_path), versions=["standard"])
    with zipfile.ZipFile(wheel) as archive:
        inside = {name.rpartition("/")[2] for name in archive.namelist() if "/tables/" in name}
    assert inside == set(names())
