"""``stiffnet study``, ``stiffnet report`` and ``stiffnet list studies`` on the terminal."""

import pytest

from report import study_cases
from stiffnet.cli.main import main
from stiffnet.jobs.study import Studied
from stiffnet.studies.registry import STUDIES


@pytest.fixture
def answered(monkeypatch, tmp_path):
    """Let the job return made-up studies, and keep what it was asked."""
    asked = {}

    def put(*reports):
        def job(name, **options):
            asked.update(options, name=name)
            return Studied(reports, (tmp_path / "report.html",))

        monkeypatch.setattr("stiffnet.jobs.study.study", job)
        return asked

    return put


def test_a_study_says_its_verdict_and_where_the_page_is(answered, capsys):
    made = study_cases.study()
    asked = answered(made)
    arguments = "study stepnet-table1 --scale small --seeds 4 --data cifar10:DIR --processes 2"
    assert main(arguments.split()) == 0
    said = capsys.readouterr().out
    assert f"stepnet-table1: {made.verdict}. {made.why}" in said
    assert "report.html" in said
    assert (asked["scale"], asked["seeds"], asked["data"]) == ("small", 4, ["cifar10:DIR"])
    assert asked["launcher"] == "local"


def test_a_row_that_failed_ends_the_command_with_one_and_is_named(answered, capsys):
    answered(study_cases.study(failed=True))
    assert main(["study", "all"]) == 1
    said = capsys.readouterr().err
    assert "1 row failed; the same command tries again:" in said
    assert "stepnet-table1, se, seed 0: `train_loss` is nan after epoch 2." in said


def test_what_slurm_is_asked_for_is_pairs(answered, capsys):
    asked = answered(study_cases.study())
    assert main(["study", "all", "--launcher", "slurm", "--slurm", "partition=gpu"]) == 0
    assert asked["slurm"] == {"partition": "gpu"}
    for wrong in ("gpu", "partition=", "=gpu"):
        assert main(["study", "all", "--slurm", wrong]) == 2
        assert f"`--slurm {wrong}` has no value. Write `--slurm KEY=VALUE`." in (
            capsys.readouterr().err
        )
    assert main(["study", "all", "--slurm", "qos=a", "--slurm", "qos=b"]) == 2
    assert "`qos` is given twice. Keep one of the two." in capsys.readouterr().err


def test_a_misspelt_study_is_answered_with_the_nearest(tmp_path, capsys):
    assert main(["study", "asr-tabel1", "--out", str(tmp_path)]) == 2
    assert "Did you mean 'asr-table1'" in capsys.readouterr().err


def test_studies_are_listed_with_their_claims_and_costs(capsys):
    assert main(["list", "studies"]) == 0
    said = capsys.readouterr().out
    for entry in STUDIES:
        assert entry.name in said
        assert entry.value.claim in said
    assert "core minutes" in said
    assert main(["list", "studies", "asr-*"]) == 0
    assert "stepnet-table1" not in capsys.readouterr().out


def test_a_report_says_what_it_was_made_from(tmp_path, capsys):
    study_cases.study().save(tmp_path / "a.json")
    study_cases.log().save(tmp_path / "b.json")
    page = tmp_path / "page.html"
    assert main(["report", str(tmp_path), "--out", str(page), "--heading", "Mine"]) == 0
    assert "Mine</h1>" in page.read_text()


def test_a_report_of_nothing_is_a_sentence(tmp_path, capsys):
    assert main(["report", str(tmp_path), "--out", str(tmp_path / "page.html")]) == 3
    assert "There is nothing to show" in capsys.readouterr().err
    assert main(["report", str(tmp_path / "missing")]) == 6
