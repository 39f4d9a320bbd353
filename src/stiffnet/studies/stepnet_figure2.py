"""StepNet, Figure 2: TNS surfaces of networks with and without attention."""

from stiffnet.studies.scales import RESNET56, look, on_datasets, scales, train
from stiffnet.studies.study import Column, Picture, Study, higher

MODULES = ("none", "se", "fca", "eca", "srm", "stepnet")

STUDY = Study(
    name="stepnet-figure2",
    locator="Figure 2",
    claim="Networks with attention have a larger total neural stiffness (TNS) than the network "
    "without.",
    rows={name: look("surface", train(name)) for name in MODULES},
    metric="tns",
    unit="TNS",
    columns=(Column("tns", "TNS"), Column("accuracy", "accuracy, %")),
    judges=tuple(higher(name, "none") for name in MODULES if name != "none"),
    scales=scales(
        {},
        on_datasets("CIFAR100", "STL10"),
        network=RESNET56,
        small_without=("fca", "eca", "srm", "stepnet"),
    ),
    picture=Picture("surfaces", "m1", "delta", "Share of images with a stiff step", "M₁", "M₂"),
    notes=(
        "δ(M₁, M₂) is the share of images with a step whose NSI is at least M₂ and at least 1 + M₁ "
        "times the mean of its stage. TNS is the volume under it, counted exactly.",
        "NSI is taken before attention multiplies the rate, as Equation 4 says. The paper does not "
        "state which reading its figure shows.",
    ),
)
