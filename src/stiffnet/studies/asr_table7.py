"""ASR, Table 7: a learnt input against a fixed one."""

from stiffnet.studies.scales import on_datasets, scales, train
from stiffnet.studies.study import Published, Study, higher

FIXED = {
    f"{kind} {value}": (kind, value) for kind in ("constant", "normal") for value in (0.1, 0.3, 0.5)
}
INITS = {"constant": "", "normal": "normal:"}

STUDY = Study(
    name="asr-table7",
    locator="Table 7",
    claim="ASR is more accurate with an input ψ that is learnt than with a fixed one.",
    rows={
        "learnt": train("asr:se"),
        **{
            label: train(f"asr:se,learnable=false,init={INITS[kind]}{value}")
            for label, (kind, value) in FIXED.items()
        },
    },
    published=Published(
        "asr_table7",
        "top1",
        {
            "learnt": {"attention": "SE", "psi_kind": "learnable"},
            **{
                label: {"attention": "SE", "psi_kind": kind, "psi_value": value}
                for label, (kind, value) in FIXED.items()
            },
        },
    ),
    judges=tuple(higher("learnt", label) for label in FIXED),
    scales=scales(
        {"dataset": "CIFAR100"},
        on_datasets("CIFAR100"),
        small_without=("constant 0.3", "constant 0.5", "normal 0.3", "normal 0.5"),
    ),
)
