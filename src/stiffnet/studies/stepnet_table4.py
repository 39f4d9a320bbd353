"""StepNet, Table 4: what the adaptor reads, and how it is built."""

from stiffnet.studies.scales import on_datasets, scales, train
from stiffnet.studies.study import Published, Study, higher

INPUTS = {
    "x_t": "F(x_t)",
    "x_t+1": "F(x_{t+1})",
    "difference": "F(x_{t+1} - x_t)",
    "both": "F(x_{t+1}, x_t) (ours)",
}
ADAPTORS = ("separate", "shared", "narrow", "bare")

STUDY = Study(
    name="stepnet-table4",
    locator="Table 4",
    claim="StepNet is most accurate when its adaptor reads both states, and is built as it is.",
    rows={
        "none": train("none"),
        **{
            f"input {name}": train("stepnet" if name == "both" else f"stepnet,input={name}")
            for name in INPUTS
        },
        **{f"adaptor {name}": train(f"stepnet,adaptor={name}") for name in ADAPTORS},
    },
    published=Published(
        "stepnet_table4",
        "top1",
        {
            "none": {"ablation": "baseline"},
            **{
                f"input {name}": {"ablation": "input", "variant": text}
                for name, text in INPUTS.items()
            },
        },
    ),
    judges=(
        *(higher("input both", f"input {name}") for name in INPUTS if name != "both"),
        *(higher("input both", f"adaptor {name}") for name in ADAPTORS),
    ),
    scales=scales(
        {"dataset": "CIFAR10"},
        on_datasets("CIFAR10", "CIFAR100", "STL10"),
        small_without=[f"adaptor {name}" for name in ADAPTORS],
    ),
    notes=(
        "The paper draws four other adaptors and does not describe them. The four here are ours, "
        "so that no published number stands beside them.",
    ),
)
