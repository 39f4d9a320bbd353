"""The classical side as a job and as a command: what is written, and what is refused."""

import shutil
import sys

import pytest

from stiffnet.cli.main import main
from stiffnet.errors import OdeError, StorageError, UnknownNameError
from stiffnet.jobs import ode as ode_file
from stiffnet.jobs.ode import ode
from stiffnet.jobs.watching import Watcher
from stiffnet.ode import PROBLEMS
from stiffnet.results.ode import (
    AdaptiveSteps,
    Encounters,
    EulerComparison,
    OdeSolution,
    Theorem2Check,
)

KINDS = {
    "solution": OdeSolution,
    "euler": EulerComparison,
    "steps": AdaptiveSteps,
    "theorem2": Theorem2Check,
    "encounters": Encounters,
}


@pytest.fixture(autouse=True)
def _short_runs(monkeypatch):
    monkeypatch.setattr(ode_file, "DURATIONS", (2.0, 1.0))


class Hearing(Watcher):
    """Writes down what was found."""

    def __init__(self):
        self.results = []

    def found(self, result):
        self.results.append(result)


def content(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_everything_is_of_every_problem_and_of_every_kind(tmp_path):
    solved = ode(runs=2, out="out")
    assert {name.split("-")[0] for name in solved.results} == {entry.name for entry in PROBLEMS}
    assert {type(record) for record in solved.results.values()} == set(KINDS.values())
    for name, record in solved.results.items():
        kind = KINDS[name.split("-")[1]]
        again = kind.load(tmp_path / "out" / f"{name}.json")
        assert again.to_json() == record.to_json()
        if kind in (OdeSolution, EulerComparison, AdaptiveSteps):
            assert record.problem.startswith(name.split("-")[0])
    names = [*(f"{name}.json" for name in solved.results), "ode.html"]
    assert [path.name for path in solved.files] == names
    counted = [r for r in solved.results.values() if isinstance(r, Encounters)]
    assert {record.duration for record in counted} == {1.0, 2.0}
    assert all(len(record.closest) == 2 for record in counted)


@pytest.mark.parametrize("name", ["eq8", "pollu"])
def test_a_problem_has_a_folder_of_its_own_and_the_command_writes_the_same(
    name, tmp_path, monkeypatch, capfd
):
    watcher = Hearing()
    solved = ode(name, command=f"stiffnet ode {name}", watcher=watcher)
    assert capfd.readouterr() == ("", "")
    [heard] = watcher.results
    assert list(heard.records) == list(solved.results.values())
    assert {record.facts["command"] for record in heard.records} == {f"stiffnet ode {name}"}
    ours = content(tmp_path / "ode" / name)
    shutil.rmtree(tmp_path / "ode")
    monkeypatch.setattr(sys, "argv", ["stiffnet", "ode", name])
    assert main(["ode", name]) == 0
    assert content(tmp_path / "ode" / name) == ours
    shown = capfd.readouterr().out
    assert "Solutions" in shown
    assert f"Written: ode/{name}/ode.html, and a JSON file for each result" in shown


def test_runs_and_their_seed_are_the_users(tmp_path):
    one, same, other = (ode("threebody", runs=3, seed=s, out="out").results for s in (5, 5, 6))
    key = "threebody-encounters-2"
    assert one[key].seed == 5
    assert one[key].closest.tolist() == same[key].closest.tolist()
    assert one[key].closest.tolist() != other[key].closest.tolist()


def test_what_cannot_be_is_refused_before_anything_is_written(tmp_path, capsys):
    with pytest.raises(UnknownNameError, match=r"no problem called 'robertsen'.*'robertson'"):
        ode("robertsen")
    with pytest.raises(OdeError, match="nothing to count in 0 runs"):
        ode("eq8", runs=0)
    assert main(["ode", "robertsen"]) == 2
    told = capsys.readouterr().err
    assert "Did you mean 'robertson'?" in told
    assert len(told.strip().splitlines()) == 1
    assert main(["ode", "--runs", "0"]) == 2
    assert "0 is out of range. Give 1 or more." in capsys.readouterr().err
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "eq8-euler.json").write_text("mine")
    with pytest.raises(StorageError, match=r"eq8-euler\.json"):
        ode("eq8", out="out")
    assert content(tmp_path / "out") == {"eq8-euler.json": b"mine"}


def test_results_are_heard_of_before_a_full_disk(tmp_path, monkeypatch):
    def full(*args):
        raise StorageError("The disk is full.")

    monkeypatch.setattr(ode_file, "write", full)
    watcher = Hearing()
    with pytest.raises(StorageError, match="The disk is full"):
        ode("eq8", watcher=watcher)
    assert len(watcher.results) == 1
    assert list(tmp_path.iterdir()) == []


def test_problems_are_listed(capsys):
    assert main(["list", "problems"]) == 0
    shown = capsys.readouterr().out
    assert [line.split()[0] for line in shown.splitlines()] == [entry.name for entry in PROBLEMS]
