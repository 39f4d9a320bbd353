"""ASR, Table 13: what a learnt input starts from."""

from stiffnet.studies.scales import on_datasets, scales, train
from stiffnet.studies.study import Published, Study, higher

FIRST = 0.1  # what ASR starts from by itself
OTHERS = (0.2, 0.3, 0.4, 0.5, 0.6)
ROWS = {f"ψ from {value}": value for value in (FIRST, *OTHERS)}

STUDY = Study(
    name="asr-table13",
    locator="Table 13",
    claim="ASR is most accurate if its learnt input ψ starts from 0.1.",
    rows={
        label: train("asr:se" if value == FIRST else f"asr:se,init={value}")
        for label, value in ROWS.items()
    },
    published=Published(
        "asr_table13",
        "top1",
        {label: {"attention": "SE", "psi_init": value} for label, value in ROWS.items()},
    ),
    judges=tuple(higher(f"ψ from {FIRST}", f"ψ from {value}") for value in OTHERS),
    scales=scales(
        {"dataset": "CIFAR100"},
        on_datasets("CIFAR100", recipe="resnet83", title="ResNet-83"),
        rows=("ψ from 0.1", "ψ from 0.3", "ψ from 0.6"),
    ),
)
