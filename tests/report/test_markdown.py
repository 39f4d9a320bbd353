"""Markdown documents, read back by a parser: the page's sentences and tables, and only text."""

from dataclasses import replace

import plotly.graph_objects as go
import pytest
from markdown_it import MarkdownIt

from observe import spectrum_cases, stripe_cases
from report import study_cases
from report.payloads import PAYLOADS
from results.test_fold import REPORT
from stiffnet.report.blocks import Cell, Column, Plot, Row, Table, Title, Words, all_blocks
from stiffnet.report.kinds import parts_of
from stiffnet.report.markdown import SIGN, _of, markdown
from stiffnet.report.text import clean, plain

RESULTS = {
    "fold": REPORT,
    "stripes": stripe_cases.report(),
    "spectra": spectrum_cases.report(),
    "study": study_cases.study(failed=True, groups=("ResNet-20", "ResNet-56")),
}
HARMLESS = {"text", "strong_open", "strong_close"}


def parsed(text):
    sign, _, document = text.partition("\n")
    assert sign == SIGN
    return MarkdownIt("commonmark").enable("table").parse(document)


def inline(tokens):
    return [token for token in tokens if token.type == "inline"]


def shown(token):
    return "".join(child.content for child in token.children)


def tables(tokens):
    """Every table as rows of cells."""
    found = []
    for i, token in enumerate(tokens):
        if token.type == "table_open":
            found.append([])
        elif token.type == "tr_open":
            found[-1].append([])
        elif token.type in ("td_open", "th_open"):
            found[-1][-1].append(shown(tokens[i + 1]))
    return found


@pytest.mark.parametrize("result", RESULTS.values(), ids=RESULTS)
def test_tables_are_those_that_the_page_shows_open(result):
    [part] = parts_of([result], [""])
    blocks = [*part.lead, *(b for _, each in part.articles for b in each), *part.sections]
    open_ones = [
        each
        for each in all_blocks(blocks)
        if isinstance(each, Table) and (each.opened or each.sheet)
    ]
    expected = [
        [[column.heading for column in each.columns]]
        + [[cell.text for cell in row.cells] for row in each.rows]
        for each in open_ones
    ]
    found = tables(parsed(markdown([result], heading="x")))
    assert [[[" ".join(c.split()) for c in row] for row in each] for each in expected] == [
        [[" ".join(c.split()) for c in row] for row in each] for each in found
    ]


def test_a_study_says_its_claim_and_its_verdict():
    report = study_cases.study()
    said = [shown(token) for token in inline(parsed(markdown([report], heading="Studies")))]
    assert said[0] == "Studies"
    assert any(report.claim in each and report.why in plain(each) for each in said)


@pytest.mark.parametrize("payload", PAYLOADS)
def test_what_a_user_wrote_stays_text(payload):
    report = study_cases.study(groups=(payload,), rows=("none", payload or "x"))
    report = replace(report, name=payload or "x", facts={"command": payload})
    tokens = parsed(markdown([report], heading=payload))
    kinds = {child.type for token in inline(tokens) for child in token.children}
    assert kinds <= HARMLESS
    assert not {token.type for token in tokens} & {"html_block", "fence", "code_block"}
    assert any(
        " ".join(clean(payload, longest=60).split()) in " ".join(shown(token).split())
        for token in inline(tokens)
    )


def test_a_title_stands_only_above_what_is_written():
    table = Table("t", "c", [Column("a")], [Row([Cell("1")])], sheet=True)
    drawn = Plot("p", go.Figure(), "label")
    blocks = [Title("one"), drawn, table, Title("two"), Words("said"), Title("three")]
    assert [line for line in _of(blocks) if line.startswith("#")] == ["### two"]
