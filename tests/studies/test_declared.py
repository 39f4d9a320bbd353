"""What declarations come to: rows of a group, columns of a table, sentences of a comparison."""

import pytest

from stiffnet.studies.judged import sentence
from stiffnet.studies.registry import STUDIES
from stiffnet.studies.study import (
    Group,
    Job,
    Published,
    Scale,
    Study,
    equal_within,
    higher,
    rank_correlation,
)


def labels(study, scale):
    found = {}
    for group, label, _, _ in study.jobs(scale, 1):
        found.setdefault(group.title, []).append(label)
    return found


def test_a_group_has_all_rows_or_those_that_it_names_and_a_scale_leaves_some_out():
    study = Study(
        name="asr-fake",
        locator="Table 0",
        claim="So.",
        rows={name: Job("number") for name in ("a", "b", "c")},
        metric="x",
        unit="x",
        judges=(),
        scales={
            "demo": Scale((Group("all"), Group("some", rows=("c", "a"))), {}),
            "small": Scale((Group("some", rows=("a", "b")),), {}, leave_out=("b",)),
        },
    )
    assert labels(study, "demo") == {"all": ["a", "b", "c"], "some": ["a", "c"]}
    assert labels(study, "small") == {"some": ["a"]}


def test_table_5_has_each_network_under_the_recipe_of_its_kind():
    found = labels(STUDIES["asr-table5"].value, "paper")
    for title, rows in found.items():
        kinds = {"RepVGG"} if title.startswith("RepVGG") else {"ACNet", "ResNet"}
        assert {row.partition("-")[0] for row in rows} == kinds
    assert sum(map(len, found.values())) == 2 * (4 + 8)  # without the plain ResNet-164


def test_a_row_may_have_a_column_of_its_own():
    published = Published(
        "asr_table4",
        "top1_without_asr",
        {name: {"attention": "SE", "model": "ResNet164"} for name in ("se", "both")},
        columns={"both": "top1_with_asr"},
    )
    group = Group("x", published={"dataset": "STL10"})
    assert [published.value(row, group) for row in ("se", "both", "else")] == [83.81, 86.41, None]


@pytest.mark.parametrize(
    ("judge", "said"),
    [
        (higher("se", "none"), "accuracy: se above none"),
        (higher("se", 50.0), "accuracy: se above 50"),
        (higher(0.0, "se"), "accuracy: se below 0"),
        (equal_within("se", "none", 0.5), "accuracy: se and none differ by less than 0.5"),
        (rank_correlation("tns", "accuracy"), "accuracy rises with TNS"),
        (rank_correlation("tns", "accuracy", -1), "accuracy falls with TNS"),
    ],
)
def test_a_comparison_is_said_in_words(judge, said):
    assert sentence(judge, "accuracy") == said


def test_the_papers_names_are_there():
    names = {entry.name for entry in STUDIES}
    assert names >= {f"stepnet-table{n}" for n in (1, 2, 4, 7)}
    assert names >= {f"stepnet-figure{n}" for n in (2, 3, 6, 7, 8, 9)} | {"stepnet-tickets"}
    assert names >= {f"asr-table{n}" for n in range(1, 10)}
    assert names >= {"asr-figure2", "asr-figure3", "asr-replacement", "asr-growth"}
