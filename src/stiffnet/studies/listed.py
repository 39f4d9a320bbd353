"""What `stiffnet list studies` says of each study: where, what, and what it costs."""

from stiffnet.studies.published import PAPERS
from stiffnet.studies.registry import STUDIES
from stiffnet.studies.study import Scale, Study


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
