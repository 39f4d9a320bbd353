"""ASR, Table 9: ASR without a module."""

from stiffnet.studies.scales import on_datasets, scales, train
from stiffnet.studies.study import Published, Study, higher

STUDY = Study(
    name="asr-table9",
    locator="Table 9",
    claim="A learnt vector without an attention module helps a little, and ASR with a module more.",
    rows={"none": train("none"), "asr:vector": train("asr:vector"), "asr:ie": train("asr:ie")},
    published=Published(
        "asr_table9",
        "top1",
        {
            "none": {"attention_module": "none"},
            "asr:vector": {"attention_module": "no attention module"},
            "asr:ie": {"attention_module": "with attention module"},
        },
    ),
    judges=(higher("asr:vector", "none"), higher("asr:ie", "asr:vector")),
    scales=scales({"dataset": "CIFAR100"}, on_datasets("STL10", "CIFAR100")),
    notes=(
        "Without a module, the paper's own number on CIFAR-10 is a loss of 0.13 points.",
        "The row with a module is IE on STL-10 and CIFAR-100, and SPA on CIFAR-10, which is not "
        "run.",
    ),
)
