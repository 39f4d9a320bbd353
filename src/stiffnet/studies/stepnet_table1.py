"""StepNet, Table 1: attention modules compared."""

from stiffnet.studies.scales import on_datasets, scales, train
from stiffnet.studies.study import Study, by_attention, higher

MODULES = {
    "none": "none",
    "se": "SE",
    "cbam": "CBAM",
    "eca": "ECA",
    "sem": "SEM",
    "srm": "SRM",
    "fca": "FCA",
    "iebn": "IEBN",
    "stepnet": "StepNet",
}

STUDY = Study(
    name="stepnet-table1",
    locator="Table 1",
    claim="Attention makes a residual network more accurate, and StepNet does so more than every "
    "other module.",
    rows={name: train(name) for name in MODULES},
    published=by_attention("stepnet_table1", MODULES),
    judges=(
        *(higher(name, "none") for name in MODULES if name not in ("none", "stepnet")),
        *(higher("stepnet", name) for name in MODULES if name != "stepnet"),
    ),
    scales=scales(
        {"dataset": "CIFAR10"},
        on_datasets("CIFAR10", "CIFAR100", "STL10"),
        small_without=("cbam", "sem", "srm", "fca", "iebn"),
    ),
    notes=("The paper gives no settings for STL-10; those of the ASR paper are used.",),
)
