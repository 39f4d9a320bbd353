"""One page from files and folders of any kind: what is ours is shown, the rest is passed over."""

import shutil

import pytest

from observe import spectrum_cases, stripe_cases
from report import study_cases
from report.parsed import Parsed
from results.test_fold import REPORT
from stiffnet.errors import DataError, StorageError
from stiffnet.jobs.report import report
from stiffnet.jobs.watching import Watcher
from stiffnet.train.recipe import Recipe
from stiffnet.train.run import run


@pytest.fixture(autouse=True)
def _short(monkeypatch):
    monkeypatch.setattr("stiffnet.report.page.get_plotlyjs", lambda: "window.Plotly = {};")


class Listening(Watcher):
    def __init__(self):
        self.notes = []

    def note(self, text):
        self.notes.append(text)


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    recipe = Recipe(data="generated:40", epochs=2, batch_size=20, image_size=8)
    return run(recipe, tmp_path_factory.mktemp("runs") / "run").folder.path


def test_a_document_is_written_again_and_no_one_elses(tmp_path):
    path = study_cases.study().save(tmp_path / "a.demo.json")
    for heading in ("First", "Second"):
        made = report([path], out=tmp_path / "results.md", heading=heading)
        assert f"\n# {heading}\n" in made.file.read_text()
    (tmp_path / "mine.md").write_text("# Mine\n")
    with pytest.raises(StorageError, match=r"mine\.md"):
        report([path], out=tmp_path / "mine.md")
    assert (tmp_path / "mine.md").read_text() == "# Mine\n"


def test_every_kind_stands_on_one_page_studies_first(tmp_path, trained):
    given = {"fold": REPORT, "stripes": stripe_cases.report(),
             "spectra": spectrum_cases.report(), "a.demo": study_cases.study()}  # fmt: skip
    paths = [each.save(tmp_path / f"{name}.json") for name, each in given.items()]
    made = report([*paths, trained], out=tmp_path / "page.html")
    kinds = [each.KIND for each in made.results]
    assert kinds[:2] == ["study", "training log"]
    assert sorted(kinds) == sorted([*(each.KIND for each in given.values()), "training log"])
    page = Parsed(made.file.read_text())
    assert "training-accuracy" in page.data["figures"]
    assert made.shown.startswith("1 study, 1 training log")


def test_a_folder_is_looked_through_and_foreign_files_are_passed_over(tmp_path, trained):
    REPORT.save(tmp_path / "in" / "deep" / "fold.json")
    (tmp_path / "in" / "notes.json").write_text("{}")
    (tmp_path / "in" / "broken.json").write_text('{"format": "stiffnet fold report, version 1", ')
    (tmp_path / "in" / "picture.png").write_bytes(b"x")
    (tmp_path / "in" / "loop").symlink_to(tmp_path / "in")
    watcher = Listening()
    made = report([tmp_path / "in"], out=tmp_path / "page.html", watcher=watcher)
    assert [each.KIND for each in made.results] == ["fold report"]
    damaged, foreign = watcher.notes
    assert "broken.json is left out:" in damaged
    assert "notes.json of" in foreign
    assert "not results of ours" in foreign


def test_a_folder_of_studies_shows_its_studies_and_not_their_rows(tmp_path):
    study_cases.study().save(tmp_path / "in" / "stepnet-table1.demo.json")
    REPORT.save(tmp_path / "in" / "work" / "fold-1" / "fold.json")
    made = report([tmp_path / "in"], out=tmp_path / "page.html")
    assert [each.KIND for each in made.results] == ["study"]


def test_a_result_beside_a_study_is_shown_too(tmp_path):
    study_cases.study().save(tmp_path / "in" / "stepnet-table1.demo.json")
    REPORT.save(tmp_path / "in" / "fold.json")
    made = report([tmp_path / "in"], out=tmp_path / "page.html")
    assert sorted(each.KIND for each in made.results) == ["fold report", "study"]


def test_a_run_is_its_log_alone(tmp_path, trained):
    made = report([trained.parent], out=tmp_path / "page.html")
    assert [each.KIND for each in made.results] == ["training log"]
    [log] = made.results
    assert len(log.rows) == 2
    assert log.finished
    assert log.facts["model"] == "resnet20_cifar"


def test_nothing_to_show_is_a_sentence_and_writes_nothing(tmp_path):
    (tmp_path / "empty").mkdir()
    (tmp_path / "text.json").write_text("hello")
    for path in ("empty", "text.json"):
        with pytest.raises(DataError, match=r"There is nothing to show in .*Give runs, or files"):
            report([tmp_path / path], out=tmp_path / "page.html")
    with pytest.raises(DataError, match=r"ends in \.html"):
        report([tmp_path], out=tmp_path / "page.pdf")
    with pytest.raises(FileNotFoundError):
        report([tmp_path / "missing"], out=tmp_path / "page.html")
    assert not (tmp_path / "page.html").exists()


def test_somebody_elses_page_is_not_replaced(tmp_path):
    path = REPORT.save(tmp_path / "fold.json")
    (tmp_path / "page.html").write_text("<title>mine</title>")
    with pytest.raises(StorageError, match="was not written by this program"):
        report([path], out=tmp_path / "page.html")


def test_results_of_one_name_are_told_apart_by_their_folders(tmp_path):
    paths = [REPORT.save(tmp_path / name / "fold.json") for name in ("first", "second")]
    text = report(paths, out=tmp_path / "page.html").file.read_text()
    assert "(first)" in text
    assert "(second)" in text


def test_a_file_is_shown_once_however_often_and_by_whatever_path_it_is_given(tmp_path):
    path = study_cases.study().save(tmp_path / "in" / "a.demo.json")
    (tmp_path / "link").symlink_to(tmp_path / "in")
    given = [path, tmp_path / "in", tmp_path / "in" / ".." / "in", tmp_path / "link"]
    assert len(report(given, out=tmp_path / "page.html").results) == 1


def test_a_damaged_result_is_named_and_not_taken_for_somebody_elses_file(tmp_path):
    study_cases.study().save(tmp_path / "in" / "a.demo.json")
    whole = study_cases.study().save(tmp_path / "in" / "b.demo.json").read_text()
    (tmp_path / "in" / "b.demo.json").write_text(whole[: len(whole) // 2])
    watcher = Listening()
    made = report([tmp_path / "in"], out=tmp_path / "page.html", watcher=watcher)
    assert len(made.results) == 1
    [note] = watcher.notes
    assert "b.demo.json is left out:" in note
    assert "damaged" in note


def test_a_finished_run_is_shown_as_it_was_sealed(tmp_path, trained):
    shutil.copytree(trained, tmp_path / "run")
    log, [true] = tmp_path / "run" / "log.jsonl", report([trained], out=tmp_path / "a.html").results
    lines = log.read_text().splitlines(keepends=True)
    recipe = tmp_path / "run" / "recipe.toml"
    recipe.write_text(recipe.read_text().replace("epochs = 2", "epochs = 3"))
    changed = lines[0].replace('"test_top1": ', '"test_top1": 0.5, "was": ')
    for text in (lines[0], changed + lines[1], "".join(lines)[:-9], "", None):
        log.unlink(missing_ok=True)
        if text is not None:
            log.write_text(text)
        [shown] = report([tmp_path / "run"], out=tmp_path / "b.html").results
        assert shown.rows == true.rows
        assert shown.facts == true.facts | {"run": str(tmp_path / "run")}
        assert len(shown.rows) == 2


def test_a_damaged_log_of_an_unfinished_run_is_named(tmp_path, trained):
    shutil.copytree(trained, tmp_path / "run", ignore=shutil.ignore_patterns("final"))
    log, watcher = tmp_path / "run" / "log.jsonl", Listening()
    log.write_text(log.read_text()[:-9])
    with pytest.raises(DataError, match="nothing to show"):
        report([tmp_path], out=tmp_path / "a.html", watcher=watcher)
    [note] = watcher.notes
    assert note.startswith(f"{log} is left out: ")
    assert "line 2 was cut off" in note
