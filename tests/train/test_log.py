"""A damaged log costs nothing: the run says which line it was, and restores it."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from stiffnet.cli.main import main
from stiffnet.errors import CorruptFileError
from stiffnet.train.log import read_log
from stiffnet.train.recipe import Recipe
from stiffnet.train.run import run
from train.faults import Stopper

TINY = Recipe(
    model="resnet20_cifar", data="generated:20", image_size=8, batch_size=10, epochs=3, padding=1
)


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """A finished run, and one that was stopped in its last epoch."""
    top = tmp_path_factory.mktemp("runs")
    run(TINY, top / "finished")
    with pytest.raises(Exception, match="which is kept in"):
        run(TINY, top / "stopped", audience=Stopper(5))
    return top


DAMAGES = {
    "a cut line": (lambda text: text[:-30], "line {last} was cut off"),
    "a cut in the middle": (lambda text: text[: len(text) // 2 + 20], "line 2 was cut off"),
    "garbage": (lambda text: b"\xff\x00\x9c" * 20 + b"\n", "line 1 is not JSON"),
    "garbage in a line": (
        lambda text: text.replace(b'"epoch": 2', b"\xff" * 10),
        "line 2 is not JSON",
    ),
    "a list": (lambda text: text.replace(b"{", b"[", 1).replace(b"}", b"]", 1), "line 1 is not"),
    "words": (lambda text: text.replace(b'"epoch": 1', b'"epoch": "1"'), "line 1 is not an epoch"),
    "a number": (lambda text: b"3\n" + text, "line 1 is not an epoch of a run"),
    "null": (lambda text: b"null\n", "line 1 is not an epoch of a run"),
    "not a number": (lambda text: text.replace(b'"step": 2,', b'"step": NaN,'), "line 1 is not"),
    "a missing key": (lambda text: text.replace(b'"epoch": 2, ', b""), "line 2 is not an epoch"),
    "an empty line": (lambda text: text.replace(b"\n", b"\n\n", 1), "line 2 is not JSON"),
    "a row twice": (lambda text: text.split(b"\n")[0] + b"\n" + text, "line 2 is epoch 1"),
    "rows in disorder": (lambda text: b"\n".join(text.split(b"\n")[1::-1]) + b"\n", "line 1 is ep"),
    "another number": (
        lambda text: text.replace(b'"train_loss": ', b'"train_loss": 1'),
        "line 1, ",
    ),
    "deep": (lambda text: b"[" * 100_000 + b"\n", "line 1 is nested too deeply"),
}


@pytest.mark.parametrize("kind", ["finished", "stopped"])
@pytest.mark.parametrize(("damage", "words"), DAMAGES.values(), ids=DAMAGES)
def test_a_damaged_log_is_told_by_its_line_set_aside_and_restored(
    runs, tmp_path, capsys, kind, damage, words
):
    out = Path(shutil.copytree(runs / kind, tmp_path / "run"))
    whole = (out / "log.jsonl").read_bytes()
    damaged = damage(whole)
    assert damaged != whole
    (out / "log.jsonl").write_bytes(damaged)
    assert main(["train", "--resume", "--out", str(out)]) == 0
    said = capsys.readouterr().err
    assert "Traceback" not in said
    assert words.format(last=len(whole.splitlines())) in said
    assert "was restored" in said
    assert (out / "log.damaged.jsonl").read_bytes() == damaged
    rows = [json.loads(line) for line in (out / "log.jsonl").read_text().splitlines()]
    assert [row["epoch"] for row in rows] == [1, 2, 3]
    assert (out / "log.jsonl").read_bytes().startswith(whole)


@pytest.mark.parametrize("kind", ["finished", "stopped"])
@pytest.mark.parametrize("state", ["missing", "empty", "a row less"])
def test_what_a_log_lacks_is_written(runs, tmp_path, capsys, kind, state):
    out = Path(shutil.copytree(runs / kind, tmp_path / "run"))
    whole = (out / "log.jsonl").read_bytes()
    (out / "log.jsonl").unlink()
    if state != "missing":
        short = whole.splitlines(keepends=True)[0] if state == "a row less" else b""
        (out / "log.jsonl").write_bytes(short)
    assert main(["train", "--resume", "--out", str(out)]) == 0
    assert "Traceback" not in capsys.readouterr().err
    assert (out / "log.jsonl").read_bytes().startswith(whole)
    assert not (out / "log.damaged.jsonl").exists(), "nothing was damaged"


def test_rows_that_are_run_again_are_no_damage(runs, tmp_path, capsys):
    out = Path(shutil.copytree(runs / "stopped", tmp_path / "run"))
    whole = (runs / "finished/log.jsonl").read_text().splitlines(keepends=True)
    own = (out / "log.jsonl").read_text()
    (out / "log.jsonl").write_text(own + whole[2])
    assert main(["train", "--resume", "--out", str(out)]) == 0
    assert "restored" not in capsys.readouterr().err
    assert len((out / "log.jsonl").read_text().splitlines()) == 3


def test_a_log_is_set_aside_beside_an_earlier_one(runs, tmp_path):
    out = Path(shutil.copytree(runs / "finished", tmp_path / "run"))
    for name in ("log.damaged.jsonl", "log.damaged-2.jsonl"):
        (out / "log.jsonl").write_text(name)
        run(TINY, out, resume=True)
    assert (out / "log.damaged.jsonl").read_text() == "log.damaged.jsonl"
    assert (out / "log.damaged-2.jsonl").read_text() == "log.damaged-2.jsonl"


def test_a_folder_in_the_place_of_the_log_is_a_sentence(runs, tmp_path, capsys):
    for kind in ("finished", "stopped"):
        out = Path(shutil.copytree(runs / kind, tmp_path / kind))
        (out / "log.jsonl").unlink()
        (out / "log.jsonl").mkdir()
        (out / "log.jsonl/mine").write_text("mine")
        assert main(["train", "--resume", "--out", str(out)]) == 6
        said = capsys.readouterr().err
        assert "log.jsonl could not be read: Is a directory. Move it away" in said
        assert "Traceback" not in said
        assert (out / "log.jsonl/mine").read_text() == "mine"


def test_a_damaged_copy_of_the_log_is_found_out(runs, tmp_path):
    out = Path(shutil.copytree(runs / "finished", tmp_path / "run"))
    (out / "final/log.jsonl").write_text("{}\n")
    with pytest.raises(CorruptFileError, match=r"final/log\.jsonl has 3 bytes where"):
        run(TINY, out, resume=True)


def test_a_log_without_a_copy_is_told_by_its_line(tmp_path):
    """As older versions left it."""
    (tmp_path / "log.jsonl").write_text('{"epoch": 1, "step": 2, "test_top1": 0.5}\n{"epo')
    with pytest.raises(CorruptFileError, match=r"is damaged: line 2 was cut off\. Restore"):
        read_log(tmp_path / "log.jsonl")
    (tmp_path / "log.jsonl").write_text("")
    with pytest.raises(CorruptFileError, match="is damaged: line 1 is empty"):
        read_log(tmp_path / "log.jsonl")


def test_a_run_with_more_epochs_is_another_run(runs, tmp_path):
    out = Path(shutil.copytree(runs / "finished", tmp_path / "run"))
    with pytest.raises(Exception, match=r"has another recipe: epochs \(3 there, 4 now\)"):
        run(replace(TINY, epochs=4), out, resume=True)
