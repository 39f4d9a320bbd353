"""StepNet, Figure 3: NSI along the depth of a network has peaks."""

from stiffnet.studies.scales import RESNET56, look, on_datasets, scales, train
from stiffnet.studies.study import Picture, Study, higher

STUDY = Study(
    name="stepnet-figure3",
    locator="Figures 3 and 10",
    claim="Along the depth of a trained network, a few steps have a far larger NSI than the "
    "others.",
    rows={name: look("measure", train(name)) for name in ("none", "se")},
    metric="peak",
    unit="largest NSI over the mean of its stage",
    judges=(higher("none", 2.0), higher("se", 2.0)),
    scales=scales({}, on_datasets("CIFAR100", "STL10"), network=RESNET56),
    picture=Picture("curves", "steps", "nsi", "NSI along the network", "step", "mean NSI"),
    notes=(
        "That far larger means twice the mean of the stage is our reading. The first step of a "
        "stage does not count.",
    ),
)
