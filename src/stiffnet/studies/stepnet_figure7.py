"""StepNet, Figure 7: stiffer networks are more accurate."""

from stiffnet.studies.scales import look, on_datasets, scales, train
from stiffnet.studies.study import Column, Picture, Study, rank_correlation

MODULES = ("none", "se", "eca", "srm", "fca", "stepnet", "asr:se", "asr:ie")

STUDY = Study(
    name="stepnet-figure7",
    locator="Figure 7",
    claim="Over networks, accuracy rises with the total neural stiffness (TNS).",
    rows={name: look("measure", train(name)) for name in MODULES},
    metric="tns",
    unit="TNS",
    columns=(Column("tns", "TNS"), Column("accuracy", "accuracy, %")),
    judges=(rank_correlation("tns", "accuracy"),),
    scales=scales({}, on_datasets("CIFAR100", "STL10"), small_without=("srm", "fca", "asr:ie")),
    picture=Picture(
        "points", "tns", "accuracy", "Accuracy against total stiffness", "TNS", "accuracy, %"
    ),
    notes=("The figure's networks are not named; these are one backbone with different modules.",),
)
