"""StepNet, Figure 6: only a few steps are stiff."""

from stiffnet.studies.scales import RESNET56, look, on_datasets, scales, train
from stiffnet.studies.study import Study, higher

MODULES = ("none", "se", "eca", "stepnet")

STUDY = Study(
    name="stepnet-figure6",
    locator="Figure 6",
    claim="For most thresholds, at most 10 % of the steps of a network are stiff.",
    rows={name: look("measure", train(name)) for name in MODULES},
    metric="few",
    unit="thresholds with at most 10 % stiff steps, %",
    judges=tuple(higher(name, 50.0) for name in MODULES),
    scales=scales(
        {}, on_datasets("CIFAR100", "STL10"), small_without=("eca", "stepnet"), network=RESNET56
    ),
    notes=(
        "Thresholds are those of the grid that the page on stiffness draws, as far as any step "
        "reaches them. Where a network has few steps, one of them is more than 10 %. That half of "
        "the thresholds are most of them is our reading.",
    ),
)
