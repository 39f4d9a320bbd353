"""ASR, Table 1: how much speed attention costs."""

from stiffnet.studies.scales import on_datasets, scales
from stiffnet.studies.study import Job, Study, by_attention, higher

MODULES = {"ie": "IE", "srm": "SRM", "cbam": "CBAM", "se": "SE", "dia": "DIA", "spa": "SPA"}

STUDY = Study(
    name="asr-table1",
    locator="Table 1",
    claim="Every attention module makes a ResNet-164 slower at inference.",
    rows={name: Job("speed", {"attention": name}) for name in MODULES},
    metric="slower",
    unit="images/s lost, %",
    published=by_attention("asr_table1", MODULES, "fps_drop_pct"),
    judges=tuple(higher(name, 0.0) for name in MODULES),
    scales=scales(
        {"dataset": "CIFAR100"}, on_datasets("CIFAR100"), title="ResNet-164, images of 32 pixels"
    ),
    notes=(
        "Passes with a module are timed between passes without one, on networks that are made anew "
        "in every round; a seed is a repetition. The paper timed a GPU.",
        "The text says that more than 36 % are lost on average; the mean of the printed losses is "
        "35.1 %.",
    ),
)
