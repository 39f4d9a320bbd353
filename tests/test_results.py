"""The page of results is what the rows that are kept in the repository say."""

from collections import Counter
from dataclasses import asdict
from pathlib import Path

import pytest

from stiffnet.jobs.report import report
from stiffnet.jobs.row_run import TIMED
from stiffnet.jobs.row_store import RowStore
from stiffnet.results.study import StudyReport
from stiffnet.studies.judged import comparisons, verdict_of
from stiffnet.studies.registry import STUDIES

ROOT = Path(__file__).parent.parent
SMALL = ROOT / "results" / "small"
HEADING = "What came out on small data"
RECORDS = [StudyReport.load(path) for path in sorted(SMALL.glob("*.json"))]


def test_the_page_is_made_from_the_results(tmp_path):
    made = report([SMALL], out=tmp_path / "results.md", heading=HEADING)
    assert made.file.read_text() == (ROOT / "docs" / "results.md").read_text()


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: record.name)
def test_a_record_has_the_values_of_its_rows(record):
    study = STUDIES[record.name].value
    for line in record.lines:
        row = RowStore(SMALL).finished(line.address)
        assert row is not None, line.address
        kept, shown = study.values(line.row, row.values), line.values
        assert {k: v for k, v in kept.items() if k not in TIMED} == {
            k: v for k, v in shown.items() if k not in TIMED
        }


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: record.name)
def test_a_verdict_is_what_the_present_rule_says(record):
    """`stiffnet study` with the same rows writes it anew."""
    study = STUDIES[record.name].value
    made = comparisons(study, record.lines, record.published, record.columns)
    found = verdict_of(made, study.left_out(record.scale))
    assert (record.claim, record.verdict, record.why) == (study.claim, found.verdict, found.why)
    for kept, now in zip(record.comparisons, made, strict=True):
        assert asdict(kept) == pytest.approx(asdict(now))


def test_the_readme_counts_the_verdicts():
    many = Counter(record.verdict for record in RECORDS)
    assert (
        f"{many['held']} of {len(RECORDS)} claims held, {many['refuted']} were refuted and "
        f"{many['undecided']} are undecided"
    ) in (ROOT / "README.md").read_text()
