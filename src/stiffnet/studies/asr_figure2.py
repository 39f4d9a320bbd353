"""ASR, Figure 2: attention values are nearly the same for all images."""

from stiffnet.studies.scales import look, on_datasets, scales, train
from stiffnet.studies.study import Picture, Study, higher

MODULES = ("se", "ie", "srm")

STUDY = Study(
    name="asr-figure2",
    locator="Figure 2 and appendix",
    claim="After training, the attention values of a channel are nearly the same for all images "
    "(the stripe observation).",
    rows={name: look("stripes", train(name)) for name in MODULES},
    metric="score",
    unit="share of variance between channels, %",
    judges=tuple(higher(name, 50.0) for name in MODULES),
    scales=scales({}, on_datasets("CIFAR100", "STL10"), small_without=("ie", "srm")),
    picture=Picture(
        "curves", "steps", "scores", "Stripes along the network", "step",
        "share of variance between channels, %",
    ),
    notes=("The paper shows pictures. That more than half of the variance lies between channels "
           "is our reading of them.",),
)  # fmt: skip
