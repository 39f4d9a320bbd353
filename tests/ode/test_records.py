"""Records come back from their files as they were, or not at all; and know no network."""

import dataclasses
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import stiffnet
from imports import graph, modules, room_of, way_to
from stiffnet.errors import CorruptFileError, StorageError
from stiffnet.ode import adaptive, encounters, euler, solve, theorem2

SRC = Path(stiffnet.__file__).parent
PAGE = Path(__file__).parents[2] / "docs" / "ode.md"


def records():
    return [
        solve.run("eq8"),
        solve.run("vanderpol", "lsoda", rtol=1e-4),
        euler.run(),
        adaptive.run("eq8"),
        adaptive.run("threebody", rtol=1e-4),
        theorem2.run(),
        encounters.run(2, seed=0, duration=1.0),
        encounters.run(encounters.threebody.ring(1, seed=0), duration=1.0),
    ]


@pytest.fixture(scope="module", params=range(8))
def record(request):
    return records()[request.param]


def test_a_record_comes_back_bit_for_bit(record, tmp_path):
    again = type(record).load(record.save(tmp_path / "record.json"))
    for each in dataclasses.fields(record):
        before, after = (getattr(one, each.name) for one in (record, again))
        assert type(before) is type(after)
        pairs = zip(before, after, strict=True) if isinstance(before, tuple) else [(before, after)]
        for one, other in pairs:
            np.testing.assert_array_equal(one, other, strict=True)
    pd.testing.assert_frame_equal(record.to_frame(), again.to_frame(), check_exact=True)


def test_a_damaged_record_is_refused(record, tmp_path):
    text = record.to_json()
    file = tmp_path / "record.json"
    for damaged in (text.replace('"rtol": ', '"rtol": 1').replace('"limit": ', '"limit": 1'),
                    text[: len(text) // 2], "{}", "[1]"):  # fmt: skip
        file.write_text(damaged)
        with pytest.raises(CorruptFileError, match=f"`{type(record).__name__}.save` wrote"):
            type(record).load(file)
    with pytest.raises(StorageError, match="could not be read"):
        type(record).load(tmp_path / "absent")


def test_a_record_of_another_kind_is_refused(tmp_path):
    file = theorem2.run().save(tmp_path / "record.json")
    with pytest.raises(CorruptFileError, match=r"`EulerComparison\.save` wrote"):
        euler.EulerComparison.load(file)


def test_frames_have_a_row_for_each_thing():
    solution, _, comparison, steps, _, theorem, some, one = records()
    assert len(solution.to_frame()) == len(solution.times) - 1
    assert np.isnan(solution.to_frame()["sai"][0])  # from the state zero
    assert list(comparison.to_frame()["step"]) == list(euler.FIGURE_3)
    assert len(steps.to_frame()) == len(steps.steps)
    assert len(theorem.to_frame()) == len(theorem.stiffness_index)
    assert len(some.to_frame()) == len(encounters.THRESHOLDS)
    assert one.to_frame()["time_se"].isna().all()


def test_the_example_of_the_page_runs():
    text = PAGE.read_text().split("## In Python")[1]
    lines = [line.strip() for line in text.splitlines() if line.startswith("    ")]
    imports, *calls = lines
    known: dict[str, object] = {}
    exec(imports, known)  # our own text, from this checkout
    for line in calls:
        call, _, kind = line.replace("run(1000,", "run(3,").partition("  # ")
        record = eval(call.removesuffix(".to_frame()"), known)
        assert type(record).__name__ == kind.split(":")[0]
        assert len(record.to_frame())


def test_the_room_knows_no_network():
    edges = graph(modules(SRC), {"results": "report"}) | {"stiffnet": set()}
    own = [name for name in edges if room_of(name) == "ode"] + ["stiffnet.results.ode"]
    allowed = {"", "ode", "results", "errors", "files", "registry", "sealed"}
    for name in own:
        for room in {room_of(other) for other in edges} - allowed:
            assert not way_to(edges, name, room), name
    code = "import sys; import " + ", ".join(own) + "; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
