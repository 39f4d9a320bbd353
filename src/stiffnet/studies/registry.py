"""The studies by name: what `stiffnet study` takes, and what `stiffnet list studies` shows."""

from stiffnet.registry import Entry, Registry
from stiffnet.studies import (
    asr_figure2,
    asr_figure3,
    asr_figure4,
    asr_figure5,
    asr_growth,
    asr_replacement,
    asr_table1,
    asr_table2,
    asr_table3,
    asr_table4,
    asr_table5,
    asr_table6,
    asr_table7,
    asr_table8,
    asr_table9,
    asr_table13,
    blocks,
    stepnet_figure2,
    stepnet_figure3,
    stepnet_figure6,
    stepnet_figure7,
    stepnet_figure8,
    stepnet_figure9,
    stepnet_table1,
    stepnet_table2,
    stepnet_table3,
    stepnet_table4,
    stepnet_table7,
    stepnet_tickets,
)
from stiffnet.studies.published import PAPERS
from stiffnet.studies.study import Scale, Study

_FILES = (
    stepnet_table1, stepnet_table2, stepnet_table3, stepnet_table4, stepnet_table7, stepnet_figure2,
    stepnet_figure3, stepnet_figure6, stepnet_figure7, stepnet_figure8, stepnet_figure9,
    stepnet_tickets, asr_table1, asr_table2, asr_table3, asr_table4, asr_table5, asr_table6,
    asr_table7, asr_table8, asr_table9, asr_table13, asr_figure2, asr_figure3, asr_figure4,
    asr_figure5, asr_replacement, asr_growth,
)  # fmt: skip

_ALL = (*(file.STUDY for file in _FILES), *blocks.STUDIES)

STUDIES: Registry[Study] = Registry("study", [Entry(each.name, each, each.claim) for each in _ALL])


def listed_studies() -> list[tuple[str, str]]:
    """Return the name of each study, and the paper, the place, the claim and the costs."""
    return [
        (entry.name, f"{_source(entry.value)}: {entry.summary} {costs(entry.value)}")
        for entry in STUDIES
    ]


def costs(study: Study) -> str:
    """Say how many trainings a study is at each scale, and how long they take where known."""
    said = [f"{name}: {_cost(study, name, scale)}" for name, scale in study.scales.items()]
    return f"[{'; '.join(said)}]"


def _cost(study: Study, name: str, scale: Scale) -> str:
    found = []
    for _, _, _, job in study.jobs(name, scale.seeds):
        found += [(each.kind, repr(each)) for each in job.all()]
    distinct = [kind for kind, _ in dict.fromkeys(found)]
    runs = distinct.count("train")
    what = f"{runs} trainings" if runs else f"{len(distinct)} timings"
    if study.exact:
        what = "nothing to train"
    minutes = sum(scale.minutes.get(kind, 0.0) for kind in distinct)
    if not minutes:
        return what
    if minutes >= 120:
        return f"{what}, about {minutes / 60:.0f} core hours"
    whole = max(1, round(minutes))
    return f"{what}, about {whole} core minute{'' if whole == 1 else 's'}"


def _source(study: Study) -> str:
    short = {"stepnet": "StepNet", "blocks": "Block stiffness", "asr": "ASR"}
    assert short.keys() == PAPERS.keys()
    return f"{short[study.paper]}, {study.locator}"
