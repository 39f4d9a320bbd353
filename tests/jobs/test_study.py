"""Studies through their runner: rows computed once, resumed, shared, and failing by themselves."""

import math
import os
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from jobs import fake_rows
from jobs.fake_rows import TASKS, job, settle, study
from stiffnet.errors import DataError, StorageError
from stiffnet.jobs.launch import LaunchError, LocalProcesses, SlurmJobs
from stiffnet.jobs.row_run import Work, run_row
from stiffnet.jobs.row_store import RowStore
from stiffnet.jobs.rows_train import on_steps, train
from stiffnet.jobs.study import run_studies, study as named
from stiffnet.jobs.study_plan import Plan, check_data, planned
from stiffnet.jobs.study_rows import LEAVING, settled
from stiffnet.provenance import version_of
from stiffnet.results.study import StudyReport, StudyRow
from stiffnet.studies.registry import STUDIES
from stiffnet.studies.study import Job, higher
from stiffnet.train.recipe import Recipe
from stiffnet.train.run import Audience, run

PLAIN = {"low": job(1.0), "high": job(2.0)}


class Here:
    """Computes rows in this process, one after the other, and may be ended at one of them."""

    slots, patience, crowded = 1, 0.0, True

    def __init__(self, last=10**9):
        self.left, self.started = last, []

    def start(self, order):
        if not self.left:
            raise KeyboardInterrupt
        self.left -= 1
        self.started.append(order.row.address)
        run_row(order)
        return self

    def done(self):
        return True

    def reason(self):
        return "it ended."

    def stop(self):
        pass

    join = stop


def ran(studies, root, launcher=None, **options):
    options = {"tasks": TASKS, "settle": settle} | options
    return run_studies(studies, "demo", root, launcher or Here(), **options)


def rows_of(root):
    return {path.name: path.read_bytes() for path in (root / "rows").iterdir()}


def values_of(root):
    loaded = [StudyRow.load(path) for path in (root / "rows").iterdir()]
    return {row.address: (row.values, row.error) for row in loaded}


@pytest.fixture
def root(tmp_path):
    return tmp_path / "out"


def test_a_study_is_computed_judged_and_written(root):
    done = ran([study(PLAIN)], root)
    [report] = done.reports
    assert report.verdict == "held" or "differences are" in report.why
    assert [line.values["accuracy"] for line in report.lines] == [1.0, 1.1, 1.4, 2.0, 2.1, 2.4]
    assert StudyReport.load(root / "asr-fake.demo.json") == report
    assert [path.name for path in done.files] == ["asr-fake.demo.json", "report.html"]
    assert done.failed == {}
    one = StudyRow.load(next((root / "rows").iterdir()))
    assert {"seconds", "versions", "python", "machine"} <= set(one.facts)


def test_a_verdict_needs_three_seeds(root):
    rows = {"low": job(1.0), "high": job(2.0, needs=[job(0.5)])}
    assert ran([study(rows)], root, seeds=2).reports[0].verdict == "undecided"
    assert ran([study(rows)], root, seeds=3).reports[0].verdict == "held"


def test_killed_at_any_row_it_resumes_to_the_same_rows(root, tmp_path):
    rows = {f"row {i}": job(float(i), needs=[job(i / 7)] if i % 2 else []) for i in range(4)}
    ran([study(rows)], tmp_path / "whole")
    for last in (2, 5, 3):
        before = rows_of(root) if root.exists() else {}
        with pytest.raises(KeyboardInterrupt):
            ran([study(rows)], root, Here(last))
        kept = rows_of(root)
        assert len(kept) == len(before) + last
        assert {name: kept[name] for name in before} == before
    ran([study(rows)], root)
    assert values_of(root) == values_of(tmp_path / "whole")
    marks = [path.read_text() for path in root.glob("work/*/computed")]
    assert marks == ["x"] * 18  # every one of them once


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_row_that_is_being_started_when_a_signal_comes_is_stopped_too(root, number):
    """Starting takes seconds, since the first process of all imports torch."""
    ended = []

    class Signalled(Here):
        def start(self, order):
            signal.raise_signal(number)
            ended.append("started")
            return self

        def done(self):
            return False

        def stop(self):
            ended.append("stopped")

        def join(self):
            ended.append("joined")

    def leave(which, frame):
        raise SystemExit(128 + which)

    before = signal.signal(number, leave)
    try:
        with pytest.raises(SystemExit) as left:
            ran([study(PLAIN)], root, Signalled())
    finally:
        signal.signal(number, before)
    assert left.value.code == 128 + number
    assert ended == ["started", "stopped", "joined"]


def test_a_second_run_computes_nothing(root):
    ran([study(PLAIN)], root)
    again = Here()
    ran([study(PLAIN)], root, again)
    assert again.started == []


@pytest.fixture
def leaving(monkeypatch):
    """Rows of the kind "train" leave a mark in their folder, which other rows need."""
    monkeypatch.setitem(LEAVING, "train", lambda folder: (folder / "computed").exists())


@pytest.mark.usefixtures("leaving")
def test_rows_without_their_folders_are_computed_again_only_if_a_folder_is_read(root):
    tasks = TASKS | {"train": fake_rows.number}
    trained = job(1.0, kind="train")
    first = {"low": job(0.0), "high": job(1.0, needs=[trained])}
    ran([study(first)], root, tasks=tasks)
    before = values_of(root)
    shutil.rmtree(root / "work")
    launcher = Here()
    ran([study(first)], root, launcher, tasks=tasks)
    assert launcher.started == []  # nothing is missing
    more = first | {"higher": job(2.0, needs=[trained])}
    ran([study(more)], root, launcher, tasks=tasks)
    kinds = [address.partition("-")[0] for address in launcher.started]
    assert sorted(kinds) == ["number"] * 3 + ["train"] * 3
    assert kinds[0] == "train"
    assert before.items() <= values_of(root).items()


@pytest.mark.usefixtures("leaving")
@pytest.mark.parametrize("drift", [0.0, 0.25])
def test_a_network_that_comes_out_otherwise_when_trained_again_is_said_to(root, drift):
    def drifted(work):
        found = fake_rows.number(work)
        return {"accuracy": found["accuracy"] + drift, "images_per_second": time.perf_counter()}

    trained = job(1.0, kind="train")
    first = {"low": job(0.0), "high": job(1.0, needs=[trained])}
    [before] = ran([study(first)], root, tasks=TASKS | {"train": fake_rows.timed}).reports
    shutil.rmtree(root / "work")
    more = first | {"higher": job(2.0, needs=[trained])}
    for _ in range(2):  # and it is not forgotten
        [report] = ran([study(more)], root, tasks=TASKS | {"train": drifted}).reports
        said = [note for note in report.notes if "came out otherwise" in note]
        assert len(said) == (3 if drift else 0)
        assert all("(accuracy was 1." in note and "of two networks" in note for note in said)
    assert not [note for note in before.notes if "otherwise" in note]


@pytest.mark.usefixtures("leaving")
@pytest.mark.parametrize("end", ["nan", "killed"])
def test_a_finished_row_survives_when_computing_it_again_for_its_folder_fails(root, end):
    trained = job(1.0, kind="train")
    first = {"low": job(0.0), "high": job(1.0, needs=[trained])}
    ran([study(first)], root, tasks=TASKS | {"train": fake_rows.number})
    before = values_of(root)
    shutil.rmtree(root / "work")
    more = first | {"higher": job(2.0, needs=[trained])}
    launcher = LocalProcesses(2)
    done = ran([study(more)], root, launcher, tasks=TASKS | {"train": TASKS[end]})
    assert before.items() <= values_of(root).items()
    lost = [line for line in done.reports[0].lines if line.row == "higher"]
    said = {"nan": "`train_loss` is nan", "killed": "killed by signal 9"}[end]
    assert all("made from another row" in line.error and said in line.error for line in lost)
    (root / "mended").touch()
    assert not ran([study(more)], root, launcher, tasks=TASKS | {"train": TASKS[end]}).failed


@pytest.mark.usefixtures("leaving")
def test_a_folder_that_is_not_complete_is_as_good_as_none(root):
    tasks, trained = TASKS | {"train": fake_rows.number}, job(1.0, kind="train")
    ran([study({"low": job(0.0), "high": trained})], root, tasks=tasks)
    for mark in root.glob("work/train-*/computed"):
        mark.rename(mark.with_name("half"))
    launcher = Here()
    ran([study({"low": job(0.0), "high": job(1.0, needs=[trained])})], root, launcher, tasks=tasks)
    kinds = [address.partition("-")[0] for address in launcher.started]
    assert sorted(kinds) == ["number"] * 3 + ["train"] * 3


def test_a_run_without_its_network_is_not_complete(tmp_path):
    train(Work(settled("train", TINY), (), tmp_path, (), TINY["data"], ""))
    assert LEAVING["train"](tmp_path)
    shutil.rmtree(tmp_path / "final")
    assert not LEAVING["train"](tmp_path)


def test_a_row_that_is_killed_is_not_said_to_have_failed_as_it_did_before(root):
    rows = {**PLAIN, "bad": job(3.0, "nan")}
    assert "nan" in ran([study(rows)], root, seeds=1).reports[0].failed[0].error
    tasks = TASKS | {"nan": TASKS["killed"]}
    [line] = ran([study(rows)], root, LocalProcesses(1), seeds=1, tasks=tasks).reports[0].failed
    assert line.error == "its process was killed by signal 9."


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"accuracy": math.nan}, "`accuracy` is nan"),
        ({"accuracy": 1.0, "nsi": [0.5, -math.inf]}, "`nsi` is -inf"),
        ({"accuracy": 1.0, "block 1": {"S": math.inf}}, "`block 1, S` is inf"),
    ],
)
def test_a_row_with_a_value_that_is_not_finite_fails_and_names_it(root, values, said):
    tasks = TASKS | {"odd": lambda work: values}
    done = ran([study({**PLAIN, "odd": job(0.0, "odd")})], root, tasks=tasks)
    assert {line.row for line in done.reports[0].failed} == {"odd"}
    assert all(said in reason for reason in done.failed.values())


def test_a_comparison_decides_nothing_while_a_seed_of_it_has_failed(root):
    """Seeds 0 to 3 alone would say that the claim held."""
    rows = {"low": job(1.0), "high": job(2.0, "unstable", needs=[job(0.5)])}
    tasks = TASKS | {"unstable": fake_rows.unstable}
    [report] = ran([study(rows)], root, seeds=5, tasks=tasks).reports
    assert report.verdict == "undecided"
    assert report.why == "high failed for seed 4; a comparison needs every seed."
    (root / "mended").touch()
    assert ran([study(rows)], root, seeds=5, tasks=tasks).reports[0].verdict == "held"


def test_a_record_says_what_made_its_rows_and_not_what_judged_them(root):
    ran([study(PLAIN)], root)
    for path in list((root / "rows").iterdir())[:2]:
        row = StudyRow.load(path)
        facts = {"versions": "stiffnet 0.0.1, torch 2.0", "seconds": "600", "machine": "another"}
        replace(row, facts=facts).save(path)
    facts = ran([study(PLAIN)], root).reports[0].facts
    assert "stiffnet 0.0.1, torch 2.0" in facts["versions"].split("; ")
    assert version_of("torch") in facts["versions"]
    assert "another" in facts["machine"].split("; ")
    assert facts["computed in"] == "20.0 minutes of processor time"


def test_a_killed_process_leaves_no_temporary_files_once_its_row_is_there(root):
    ran([study(PLAIN)], root)
    [victim, other, *_] = sorted((root / "rows").iterdir())
    victim.unlink()
    left = root / "rows" / f".stiffnet.{victim.name}.abcdefgh.tmp"
    under_way = root / "rows" / f".stiffnet.{other.name}.abcdefgh.tmp"  # of another run
    for each in (left, under_way):
        each.write_text("{")
    ran([study(PLAIN)], root)
    assert victim.exists()
    assert not left.exists()
    assert under_way.exists()


def test_rows_that_studies_share_are_computed_once(root):
    both = [study(PLAIN, name="asr-one"), study({"low": job(1.0), "x": job(9.0)}, name="asr-two")]
    launcher = Here()
    done = ran(both, root, launcher)
    assert len(launcher.started) == len(set(launcher.started)) == 9
    first, second = ([line.address for line in r.lines if line.row == "low"] for r in done.reports)
    assert first == second


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        ("nan", "`train_loss` is nan after epoch 1. Lower `learning_rate`."),
        ("bug", "ZeroDivisionError: "),
        ("full", "No space left on device. Free some space."),
    ],
)
def test_a_row_that_fails_is_named_and_the_others_finish(root, kind, said):
    rows = {**PLAIN, "bad": job(3.0, kind), "after": job(4.0, needs=[job(3.0, kind)])}
    done = ran([study(rows)], root)
    [report] = done.reports
    assert {line.row for line in report.failed} == {"bad", "after"}
    assert all(said in line.error for line in report.failed)
    assert len(done.failed) == 6
    assert [name for name in done.failed if "seed 1" in name] == [
        "asr-fake, bad, seed 1", "asr-fake, after, seed 1"]  # fmt: skip
    assert report.to_frame()["accuracy"].notna().sum() == 6


def test_what_failed_is_tried_again_by_the_same_command(root):
    rows = {**PLAIN, "bad": job(3.0, "nan")}
    assert ran([study(rows)], root).failed
    (root / "mended").touch()
    launcher = Here()
    assert not ran([study(rows)], root, launcher).failed
    assert len(launcher.started) == 3


def test_a_row_that_cannot_be_written_fails_and_says_so(root, monkeypatch):
    real = RowStore.write

    def write(self, row):
        if row.settings["value"] == 2.0:
            raise StorageError("No space left on device.")
        real(self, row)

    class Exits(Here):
        def start(self, order):
            try:
                return super().start(order)
            except StorageError:
                return self

        def reason(self):
            return "nothing could be written."

    monkeypatch.setattr(RowStore, "write", write)
    done = ran([study(PLAIN)], root, Exits())
    assert {line.row: line.error for line in done.reports[0].failed} == {
        "high": "nothing could be written."
    }


def test_a_damaged_row_is_computed_again(root):
    ran([study(PLAIN)], root)
    damaged = sorted((root / "rows").iterdir())[0]
    whole = damaged.read_bytes()
    damaged.write_bytes(whole[:-40])
    launcher = Here()
    ran([study(PLAIN)], root, launcher)
    assert launcher.started == [damaged.stem]
    renamed = damaged.with_name("number-0000000000000000.json")
    renamed.write_bytes(whole)
    assert RowStore(root).finished(renamed.stem) is None  # one row's file under another's name


def test_processes_compute_rows_and_one_that_is_killed_is_named(root):
    rows = {**PLAIN, "bad": job(3.0, "killed")}
    done = ran([study(rows)], root, LocalProcesses(2), seeds=1)
    [line] = done.reports[0].failed
    assert (line.row, line.error) == ("bad", "its process was killed by signal 9.")
    assert [each.values for each in done.reports[0].lines[:2]] == [
        {"accuracy": 1.0},
        {"accuracy": 2.0},
    ]


def test_a_row_that_another_process_computes_is_waited_for(root):
    """Both ask for the same row at once; it is computed by one of them, and both have it."""
    launcher = LocalProcesses(2)
    plan = Plan({}, settle)
    [wanted] = planned(study({"a": job(1.0, seconds=0.5)}, (higher("a", 0.0),)), "demo", 1, plan)
    from stiffnet.jobs.row_run import Order

    order = Order(str(root), plan.rows[wanted.address], fake_rows.number)
    both = [launcher.start(order) for _ in range(2)]
    for each in both:
        each.join()
    assert (root / "work" / wanted.address / "computed").read_text() == "x"
    assert RowStore(root).finished(wanted.address)


PARENT = """
import sys
from pathlib import Path
from jobs.fake_rows import TASKS, job, settle, study
from stiffnet.jobs.launch import LocalProcesses
from stiffnet.jobs.study import run_studies

if __name__ == "__main__":
    rows = {f"row {i}": job(float(i), seconds=0.4) for i in range(8)}
    root = Path(sys.argv[1])
    run_studies([study(rows)], "demo", root, LocalProcesses(2), tasks=TASKS, settle=settle)
"""


@pytest.mark.slow
def test_a_study_that_is_killed_three_times_ends_with_the_same_rows(root, tmp_path):
    script = tmp_path / "parent.py"
    script.write_text(PARENT)
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}

    def begin(where):
        return subprocess.Popen([sys.executable, str(script), str(where)], env=environment)

    kept = {}
    for number in (signal.SIGKILL, signal.SIGTERM, signal.SIGKILL):
        process = begin(root)
        wanted = len(kept) + 3
        while len(list(root.glob("rows/number-*.json"))) < wanted:
            assert process.poll() is None
            time.sleep(0.05)
        process.send_signal(number)
        process.wait()
        now = rows_of(root)
        assert {name: now[name] for name in kept} == kept
        kept = {name: text for name, text in now.items() if name.endswith(".json")}
    assert begin(root).wait() == 0
    assert begin(tmp_path / "whole").wait() == 0
    assert values_of(root) == values_of(tmp_path / "whole")
    assert (root / "asr-fake.demo.json").exists()


@pytest.mark.slow
def test_submitit_computes_rows_as_it_would_for_slurm(root, monkeypatch):
    pytest.importorskip("submitit")
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[1]))  # where the rows are
    launcher = SlurmJobs(root / "jobs", {"timeout_min": "5"}, cluster="local")
    done = ran([study({**PLAIN, "bad": job(3.0, "killed")})], root, launcher, seeds=1)
    assert [line.values for line in done.reports[0].lines[:2]] == [
        {"accuracy": 1.0},
        {"accuracy": 2.0},
    ]
    [line] = done.reports[0].failed
    assert "ended as" in line.error


def test_rows_that_time_something_run_last_and_alone_on_a_shared_machine(root, monkeypatch):
    monkeypatch.setattr("stiffnet.jobs.study.ALONE", {"alone"})
    tasks = TASKS | {"alone": fake_rows.number}
    rows = {"timed": job(1.0, "alone"), **PLAIN}
    together = []

    class Slow(Here):
        """Says only at the second look that a row is done."""

        def __init__(self, crowded):
            super().__init__()
            self.slots, self.crowded, self.looks = 9, crowded, 0

        def start(self, order):
            super().start(order)
            together.append(self.looks)
            return self

        def done(self):
            self.looks += 1
            return self.looks % 2 == 0

    kinds = {}
    for crowded in (True, False):
        launcher, together = Slow(crowded), []
        ran([study(rows)], root / str(crowded), launcher, tasks=tasks)
        kinds[crowded] = [address.partition("-")[0] for address in launcher.started]
        assert (len(set(together)) == 1) is not crowded
    assert kinds[True] == ["number"] * 6 + ["alone"] * 3
    assert kinds[False] == ["alone"] * 3 + ["number"] * 6


def test_slurm_is_refused_in_a_sentence_where_there_is_none(tmp_path):
    pytest.importorskip("submitit")
    with pytest.raises(LaunchError, match="SLURM cannot be used here"):
        SlurmJobs(tmp_path, {})
    with pytest.raises(LaunchError, match="rows would run here"):
        named("blocks-table10", out=tmp_path / "out", slurm={"partition": "gpu"})
    assert not (tmp_path / "out").exists()


def test_data_that_nobody_said_the_place_of_are_asked_for(tmp_path):
    with pytest.raises(DataError, match=r"needs cifar10\. Say where with `--data cifar10:DIR`"):
        named("stepnet-table1", scale="small", out=tmp_path)
    with pytest.raises(DataError, match="does not say where"):
        named("stepnet-table1", scale="small", out=tmp_path, data=["cifar10"])
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(DataError, match=r"cifar10:a` and `--data cifar10:b` are both of cifar10"):
        named("stepnet-table1", scale="small", out=tmp_path, data=["cifar10:a", "cifar10:b"])
    check_data([entry.value for entry in STUDIES], "demo", {})
    needed = ("cifar10", "coco", "photos", "style", "vgg16")
    check_data([entry.value for entry in STUDIES], "small", dict.fromkeys(needed, "DIR"))


def test_data_that_a_scale_does_not_use_are_told():
    """On CIFAR-10, a reader would think, where the rows are of digits."""
    [one, exact] = (STUDIES[name].value for name in ("asr-table9", "blocks-table10"))
    given = {"cifar10": "cifar10:DIR"}
    [note] = check_data([one], "demo", given)
    said = "`--data cifar10:DIR` is not used by asr-table9 at scale demo, which needs digits."
    assert note == said
    assert check_data([exact], "demo", given)[0].endswith("which needs no data.")
    assert check_data([one], "small", given) == check_data([one], "demo", {}) == []


def test_an_address_depends_on_what_determines_the_row_and_on_nothing_else():
    def address(name="digits", **settings):
        plan = Plan({"digits": name}, settled)
        plan.prints["digits"] = {"pixels": settings.pop("pixels", "a")}
        given = {"recipe": "quick", "data": "digits", "seed": 0, **settings}
        return plan.add(Job("train", given))

    base = address()
    assert address() == base
    assert address(epochs=10) == base  # which is what `quick` has anyway
    assert address(attention="none") == base
    assert address(train_images=0) == base  # a field that recipes got later
    for other in ({"epochs": 11}, {"seed": 1}, {"attention": "se"}, {"pixels": "b"}):
        assert address(**other) != base


TINY = {"recipe": "quick", "model": "resnet20_cifar", "data": "generated:40", "epochs": 3,
        "seed": 3, "batch_size": 20, "image_size": 8}  # fmt: skip


class Ends(Audience):
    """Ends a run after its first epoch, as a kill would."""

    def epoch(self, row):
        raise KeyboardInterrupt


def test_a_training_row_that_was_killed_goes_on_where_it_was(tmp_path):
    settings = settled("train", TINY)

    def work(folder):
        return Work(settings, (), folder, (), TINY["data"], "")

    whole = train(work(tmp_path / "whole"))
    with pytest.raises(KeyboardInterrupt):
        run(Recipe(**settings), tmp_path / "killed", audience=Ends())
    assert len((tmp_path / "killed" / "log.jsonl").read_text().splitlines()) == 1
    resumed = train(work(tmp_path / "killed"))
    timed = {"images_per_second": 0}
    assert {**resumed, **timed} == {**whole, **timed}
    log = (tmp_path / "killed" / "log.jsonl").read_text().splitlines()
    assert len(log) == 3


def test_attention_goes_on_the_stiffest_steps(tmp_path):
    steps = [f"layer{i}" for i in range(6)]
    measured = StudyRow("measure-0", "measure", {}, values={
        "nsi": [0.9, 0.1, 0.5, 0.3, 0.2, 0.4], "counted": [False] + [True] * 5, "steps": steps,
    })  # fmt: skip

    def chosen(which, seed=0):
        work = Work({"seed": seed}, (measured,), tmp_path, (tmp_path,), "", "")
        return on_steps("se", {"which": which, "share": 0.4}, work)

    assert chosen("stiffest") == "se,where=layer2+se,where=layer5"
    drawn = {chosen("random", seed) for seed in range(20)}
    assert len(drawn) > 3
    assert chosen("random", 1) == chosen("random", 1)
    assert not any("layer0" in text for text in drawn)
    assert Path(tmp_path).exists()


def test_addresses_stay_when_recipes_get_more_fields():
    """The row was written by an earlier version; results/ and users keep such rows."""
    plan = Plan({}, settled)
    plan.prints["digits"] = {"pixels": "a"}
    row = plan.add(Job("train", {"recipe": "quick", "data": "digits", "seed": 0}))
    assert row == "train-45b25ac681cc9033"
