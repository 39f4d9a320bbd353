"""Every study is well-formed: what it names exists, and what it claims is judged."""

from pathlib import Path

import pytest

from naming import case
from stiffnet.attention import ATTENTION
from stiffnet.attention.asr import PREFIX
from stiffnet.attention.constant import VECTOR
from stiffnet.data import DATA
from stiffnet.jobs.study_plan import Plan, planned
from stiffnet.jobs.study_rows import TASKS, settled
from stiffnet.network.attention_text import NONE, read_attention
from stiffnet.network.model_names import is_model_name
from stiffnet.studies import blocks
from stiffnet.studies.published import PAPERS
from stiffnet.studies.registry import STUDIES, listed_studies
from stiffnet.studies.study import SCALES

IDS = [entry.name for entry in STUDIES]


@pytest.fixture(params=[entry.value for entry in STUDIES], ids=IDS)
def study(request):
    return request.param


def test_it_says_where_and_what(study):
    assert study.paper in PAPERS
    assert study.locator.split()[0] in {
        "Table",
        "Tables",
        "Figure",
        "Figures",
        "Section",
        "Theorem",
    }
    assert study.claim.endswith(".")
    assert all(note.endswith(".") for note in study.notes)
    assert study.judges
    assert set(study.scales) == set(SCALES)


@pytest.mark.parametrize("scale", SCALES)
def test_its_rows_can_be_computed(study, scale):
    chosen = study.scales[scale]
    assert chosen.seeds >= 3
    assert set(chosen.leave_out) <= set(study.rows)
    for _, label, _, row in study.jobs(scale, 1):
        for job in row.all():
            with case(label):
                assert job.kind in TASKS
                settings = settled(job.kind, job.settings)
                if job.kind == "train":
                    assert settings["data"] in {entry.name for entry in DATA}
                if "model" in settings:
                    assert is_model_name(settings["model"])
                for module in modules_of(settings.get("attention", NONE)):
                    assert module in {entry.name for entry in ATTENTION} | {VECTOR}


def modules_of(attention):
    if attention == NONE:
        return []
    return [name.removeprefix(f"{PREFIX}:") for name, _ in read_attention(attention)]


@pytest.mark.parametrize("scale", SCALES)
def test_its_judges_compare_rows_that_are_there(study, scale):
    for judge in study.judges:
        assert set(judge.rows) <= set(study.rows), judge
    left = set(study.rows) - set(study.scales[scale].leave_out)
    assert any(set(judge.rows) <= left for judge in study.judges)


@pytest.mark.parametrize("scale", SCALES)
def test_what_it_leaves_out_is_what_the_published_setting_has_more(study, scale):
    run, paper = (
        {label for _, label, _, _ in study.jobs(each, 1)} for each in (scale, "paper")
    )  # fmt: skip
    assert set(study.left_out(scale)) == paper - run
    skipped = [
        judge for judge in study.judges if set(judge.rows) - run and set(judge.rows) <= paper
    ]
    assert all(set(judge.rows) & set(study.left_out(scale)) for judge in skipped)


@pytest.mark.parametrize("scale", SCALES)
def test_what_was_published_is_in_its_table(study, scale):
    every = [study.published, *(column.published for column in study.columns)]
    for published in (each for each in every if each is not None):
        assert set(published.rows) <= set(study.rows)
        for group in study.scales[scale].groups:
            for label in published.rows:
                kind = float if group.published is not None else type(None)
                assert isinstance(published.value(label, group), kind), label


def test_its_parts_are_rows_and_counts_are_judged_by_what_was_printed(study):
    assert set(study.parts) <= set(study.rows)
    printed = {each.metric for each in study.columns if each.published is not None}
    assert {judge.metric for judge in study.judges if judge.how == "printed"} <= printed
    assert not study.exact or [seed for _, _, seed, _ in study.jobs("demo", 3)] == [0] * len(
        study.rows
    )


def test_studies_share_their_rows():
    """`none` and `se` at scale demo are trained once, whoever asks."""
    plan, asked = Plan({}), {}
    for entry in STUDIES:
        for wanted in planned(entry.value, "demo", 1, plan):
            asked.setdefault(wanted.address, []).append(f"{entry.name}, {wanted.row}")
    plain = {f"{name}, none" for name in ("stepnet-table1", "stepnet-table4", "stepnet-tickets",
                                          "asr-table3", "asr-table9")}  # fmt: skip
    assert any(plain <= set(names) for names in asked.values())
    assert {"asr-table6, δ = 1", "asr-table7, learnt", "asr-replacement, asr:se"} <= next(
        set(names) for names in asked.values() if "asr-table3, asr:se" in names
    )


def test_the_tables_of_the_block_paper_share_three_trainings_and_their_spectra():
    plan = Plan({})
    names = [f"blocks-table{i}" for i in range(1, 12)]
    for name in names:
        planned(STUDIES[name].value, "demo", 1, plan)
    kinds = [row.kind for row in plan.rows.values()]
    assert {kind: kinds.count(kind) for kind in kinds} == {"train": 3, "spectra": 3, "counts": 2}


def test_a_study_is_a_page_of_declarations_at_most():
    import stiffnet.studies.registry as registry

    for file in registry._FILES:
        with case(file.__name__):
            text = Path(file.__file__).read_text()
            assert len(text.splitlines()) <= 75
            assert "def " not in text
    assert "def " not in Path(blocks.__file__).read_text()  # eleven studies, of four makes


def test_the_list_says_the_claim_and_the_cost_at_each_scale():
    rows = dict(listed_studies())
    assert list(rows) == IDS
    for entry in STUDIES:
        assert entry.value.claim in rows[entry.name]
        assert all(f"{scale}: " in rows[entry.name] for scale in SCALES)
