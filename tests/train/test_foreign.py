"""Only what a run wrote itself is ever removed or replaced; what is not its own stays."""

import json
import os
import shutil
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from stiffnet.cli.main import main
from stiffnet.errors import CheckpointError, RecipeError, StorageError
from stiffnet.network.model_folder import MANIFEST
from stiffnet.train.recipe import Recipe
from stiffnet.train.run import Machinery, run
from stiffnet.train.run_folder import RunFolder
from train.faults import Stopper, kept

TINY = Recipe(
    model="resnet20_cifar", data="generated:20", image_size=8, batch_size=10, epochs=1, padding=1
)


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """A finished run, and one that was stopped after its second of three epochs began."""
    top = tmp_path_factory.mktemp("runs")
    run(TINY, top / "finished")
    with pytest.raises(Exception, match="which is kept in"):
        run(replace(TINY, epochs=3), top / "stopped", audience=Stopper(3))
    return top


@pytest.fixture
def finished(runs, tmp_path):
    return Path(shutil.copytree(runs / "finished", tmp_path / "run"))


@pytest.fixture
def finished_elsewhere(runs, tmp_path):
    return Path(shutil.copytree(runs / "finished", tmp_path / "elsewhere"))


@pytest.fixture
def halted(runs, tmp_path):
    return Path(shutil.copytree(runs / "stopped", tmp_path / "run"))


def put(folder, files):
    """Write somebody's files, each with its own name in it."""
    for name in files:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(name)


def stays(folder, files):
    return all((folder / name).read_text() == name for name in files)


def everything(folder):
    return {
        str(path.relative_to(folder)): path.read_bytes() if path.is_file() else None
        for path in folder.rglob("*")
    }


HARMLESS = [
    "thesis.tex",
    ".draft.tmp",
    "docs/.x.tmp",
    "docs/deep/.y.tmp",
    "docs/.stiffnet.log.jsonl.a1b2c3d4.tmp",
    ".log.jsonl.a1b2c3d4.tmp",
    ".stiffnet.thesis.tex.a1b2c3d4.tmp",
]


def test_a_run_among_files_of_somebody_else_touches_none(tmp_path):
    out = tmp_path / "run"
    put(out, HARMLESS)
    run(TINY, out)
    assert stays(out, HARMLESS)
    run(TINY, out, again=True)
    assert stays(out, HARMLESS)
    run(TINY, out, resume=True)
    assert stays(out, HARMLESS)


IN_THE_WAY = [
    "log.jsonl",
    "recipe.toml",
    "run.json",
    "final/weights.safetensors",
    "final/MANIFEST.json",
    "best/notes.txt",
    "folded/weights.safetensors",
    "attention/epoch-0001.safetensors",
    "checkpoints/epoch-3-step-1200/weights.pt",
    "checkpoints/epoch-0003-step-000001200/weights.safetensors",
]


@pytest.mark.parametrize("name", IN_THE_WAY)
@pytest.mark.parametrize("again", [False, True], ids=["fresh", "again"])
def test_a_folder_in_which_something_would_be_replaced_is_refused(tmp_path, name, again):
    out = tmp_path / "run"
    put(out, [name])
    before = everything(out)
    with pytest.raises(RecipeError, match="Move that away, or choose another folder") as refused:
        run(TINY, out, again=again)
    assert name.split("/")[0] in str(refused.value)
    assert everything(out) == before, "not even a lock is left"


def test_a_lock_of_another_kind_stays(tmp_path):
    out = tmp_path / "run"
    put(out, ["run.lock"])
    with pytest.raises(StorageError, match=r"run\.lock was not written by a run"):
        run(TINY, out)
    assert everything(out) == {"run.lock": b"run.lock"}
    (tmp_path / "precious").write_text("precious")
    (out / "run.lock").unlink()
    (out / "run.lock").symlink_to(tmp_path / "precious")
    with pytest.raises(StorageError, match=r"run\.lock was not written by a run"):
        run(TINY, out)
    assert (tmp_path / "precious").read_text() == "precious"


INSIDE = [
    "checkpoints/notes.txt",
    "checkpoints/epoch-3-step-1200/weights.pt",
    "checkpoints/epoch-0009-step-000000099/weights.safetensors",
    "final/notes.txt",
    "best/report/page.html",
    "attention/mine.txt",
    "folded/thesis.tex",
]


@pytest.mark.parametrize("name", INSIDE)
def test_a_run_is_not_taken_away_where_something_else_lies_in_it(finished, name):
    put(finished, [name])
    before = everything(finished)
    with pytest.raises(RecipeError, match="among the files of its run, which the run did not"):
        run(replace(TINY, seed=1), finished, again=True)
    assert everything(finished) == before


def test_a_run_is_gone_on_with_where_something_else_lies_in_it(halted):
    own = kept(halted)[-1]
    files = [
        "checkpoints/notes.txt",
        "checkpoints/epoch-3-step-1200/weights.pt",
        "checkpoints/epoch-0009-step-000000099/weights.safetensors",
        f"checkpoints/{own}/notes.txt",
        f"checkpoints/{own}/.x.tmp",
        "docs/.x.tmp",
    ]
    put(halted, files)
    run(replace(TINY, epochs=3), halted, resume=True)
    assert stays(halted, files)
    left = {name for name, content in everything(halted / "checkpoints").items() if content}
    assert left == {name.removeprefix("checkpoints/") for name in files if "docs" not in name}


def test_a_checkpoint_of_another_run_is_neither_used_nor_removed(halted, tmp_path):
    with pytest.raises(Exception, match="which is kept in"):
        run(replace(TINY, epochs=9, seed=5), tmp_path / "other", audience=Stopper(8))
    guest = halted / "checkpoints" / kept(tmp_path / "other")[-1]
    shutil.copytree(tmp_path / "other/checkpoints" / guest.name, guest)
    before = everything(guest)
    run(replace(TINY, epochs=3), halted, resume=True)
    assert everything(guest) == before
    assert (halted / "final" / MANIFEST).exists()


def test_a_network_of_somebody_else_in_the_place_of_the_last_one_stays(runs, halted):
    whole = replace(TINY, epochs=3)
    shutil.copytree(runs / "finished" / "final", halted / "final")
    before = everything(halted / "final")
    with pytest.raises(
        StorageError, match="final was not written by this run, so it was left alone"
    ):
        run(whole, halted, resume=True)
    assert everything(halted / "final") == before
    shutil.rmtree(halted / "final")
    run(whole, halted, resume=True)
    assert len((halted / "log.jsonl").read_text().splitlines()) == 3


@pytest.mark.parametrize("name", ["checkpoints", "final", "best", "attention", "folded"])
def test_a_link_in_the_place_of_a_folder_is_not_followed(tmp_path, name):
    out, precious = tmp_path / "run", tmp_path / "precious"
    put(precious, ["epoch-0001-step-000000002/weights.safetensors", "weights.safetensors"])
    before = everything(precious)
    out.mkdir()
    (out / name).symlink_to(precious)
    with pytest.raises(RecipeError, match=f"holds {name}, which was not written by a run"):
        run(TINY, out)
    with pytest.raises(RecipeError, match=f"holds {name}, which was not written by a run"):
        run(TINY, out, again=True)
    assert everything(precious) == before


def test_a_link_that_took_a_folders_place_later_is_not_followed_either(halted, tmp_path):
    moved = (halted / "checkpoints").rename(tmp_path / "elsewhere")
    (halted / "checkpoints").symlink_to(moved)
    before = everything(moved)
    for options in ({"resume": True}, {"again": True}):
        with pytest.raises(RecipeError, match="checkpoints is a link, and what it leads to may"):
            run(replace(TINY, epochs=3), halted, **options)
    assert everything(moved) == before


def test_the_folder_of_a_run_may_itself_be_a_link(tmp_path):
    (tmp_path / "disk").mkdir()
    (tmp_path / "run").symlink_to(tmp_path / "disk")
    with pytest.raises(Exception, match="which is kept in"):
        run(TINY, tmp_path / "run", audience=Stopper(1))
    run(TINY, tmp_path / "run", resume=True)
    run(TINY, tmp_path / "run", again=True)
    assert (tmp_path / "disk/final" / MANIFEST).exists()
    assert (tmp_path / "run").is_symlink()


def test_resume_and_again_together_are_refused(finished, capsys):
    before = everything(finished)
    with pytest.raises(RecipeError, match="`--resume` continues a run, and `--again` deletes it"):
        run(TINY, finished, resume=True, again=True)
    assert main(["train", "--resume", "--again", "--out", str(finished)]) == 2
    assert "Give one of the two." in capsys.readouterr().err
    assert everything(finished) == before


def test_again_removes_the_run_whole(halted):
    (halted / "checkpoints" / kept(halted)[0]).rename(
        halted / "checkpoints" / f"damaged-{kept(halted)[0]}"
    )
    recipe = replace(TINY, attention="eca")
    run(recipe, halted, again=True, machinery=Machinery(attention_values=2))
    assert sorted(path.name for path in halted.iterdir()) == [
        "attention", "best", "final", "log.jsonl", "recipe.toml", "run.json", "run.lock",
    ]  # fmt: skip
    run(TINY, halted, again=True)
    assert not (halted / "attention").exists()


def test_a_run_whose_recipe_is_gone_is_not_begun_anew_by_accident(halted, finished_elsewhere):
    for out in (halted, finished_elsewhere):
        (out / "recipe.toml").unlink()
        before = everything(out)
        with pytest.raises(RecipeError, match=r"its recipe\.toml is gone\. Restore that"):
            run(TINY, out)
        assert everything(out) == before
        run(TINY, out, again=True)


def test_checkpoints_under_the_name_of_another_run_are_not_passed_over(halted, runs):
    shutil.copy(runs / "finished" / "run.json", halted / "run.json")
    before = everything(halted / "checkpoints")
    with pytest.raises(CheckpointError, match=r"is of another run than .*run\.json names"):
        run(replace(TINY, epochs=3), halted, resume=True)
    assert everything(halted / "checkpoints") == before


def test_what_a_kill_left_half_written_is_not_somebody_elses(halted):
    own = halted / "checkpoints" / kept(halted)[-1]
    for folder in (own, halted / "checkpoints/epoch-0007-step-000000070", halted / "best", halted):
        folder.mkdir(exist_ok=True)
        (folder / ".stiffnet.run.json.a1b2c3d4.tmp").write_text("half")
    (halted / "final").mkdir()
    (own / MANIFEST).unlink()
    run(TINY, halted, again=True)
    assert not list(halted.rglob("*.tmp"))
    assert not (halted / "checkpoints").exists()


@pytest.mark.parametrize("removed", range(1, 12))
def test_a_run_that_was_half_taken_away_gives_way_to_the_next(finished, monkeypatch, removed):
    """Ended at any moment of `--again`, the folder is neither a run nor in the way of one."""
    real, count = os.unlink, 0

    def unlink(*args, **kwargs):
        nonlocal count
        count += 1
        if count == removed:
            raise KeyboardInterrupt
        return real(*args, **kwargs)

    monkeypatch.setattr("os.unlink", unlink)
    with suppress(KeyboardInterrupt):
        RunFolder(finished).clear(RunFolder(finished).owner)
    monkeypatch.undo()
    if not (finished / "recipe.toml").exists():
        with pytest.raises(CheckpointError, match="holds no run to resume"):
            run(TINY, finished, resume=True)
    result = run(replace(TINY, seed=3), finished, again=True)
    assert len(result.history) == 1
    assert "seed = 3" in (finished / "recipe.toml").read_text()
    [row] = (finished / "log.jsonl").read_text().splitlines()
    assert json.loads(row) == result.history[0]
