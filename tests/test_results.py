"""The page of results is what the rows that are kept in the repository say."""

from pathlib import Path

from stiffnet.jobs.report import report

ROOT = Path(__file__).parent.parent
HEADING = "What came out on small data"


def test_the_page_is_made_from_the_results(tmp_path):
    made = report([ROOT / "results" / "small"], out=tmp_path / "results.md", heading=HEADING)
    assert made.file.read_text() == (ROOT / "docs" / "results.md").read_text()
