"""StepNet, Figure 9: attention values against NSI."""

from stiffnet.studies.scales import RESNET56, look, on_datasets, scales, train
from stiffnet.studies.study import Column, Picture, Study, higher

MODULES = ("se", "eca", "stepnet")

STUDY = Study(
    name="stepnet-figure9",
    locator="Figure 9",
    claim="In the first stage of a network with SE, the stiffer a step is, the smaller is its "
    "attention value.",
    rows={name: look("values", train(name)) for name in MODULES},
    metric="correlation",
    unit="correlation of attention values with NSI over images, mean over steps",
    columns=(
        Column("correlation", "over images"),
        Column("step_correlation", "over steps"),
        Column("accuracy", "accuracy, %"),
    ),
    judges=(higher(0.0, "se"), higher(0.0, "se", metric="step_correlation")),
    scales=scales(
        {},
        on_datasets("CIFAR100"),
        network=RESNET56,
        small_without=("eca", "stepnet"),
    ),
    picture=Picture(
        "curves", "steps", "correlations", "Attention values against NSI, step by step", "step",
        "correlation over images",
    ),
    notes=(
        "An image's attention value at a step is the mean over channels. The figure shows "
        "correlations over images at three steps, and over the steps for each image: both are "
        "judged, for SE alone, as the paper does.",
    ),
)  # fmt: skip
