"""ASR, Figure 4: average Grad-CAM is biased toward the centre."""

from stiffnet.studies.scales import look, on_datasets, scales, train
from stiffnet.studies.study import Column, Picture, Study, higher

MODULES = ("none", "se", "srm")

STUDY = Study(
    name="asr-figure4",
    locator="Figure 4",
    claim="On average the evidence of networks with attention is biased toward the centre of the "
    "images, and that is a prior of the data.",
    rows={name: look("gradcam", train(name)) for name in MODULES},
    metric="centre",
    unit="share of the mean Grad-CAM in the central quarter, %",
    columns=(
        Column("centre", "in the central quarter, %"),
        Column("noise_centre", "the same for noise, %"),
        Column("followed", "follows shifted images, %"),
    ),
    judges=(
        *(higher(name, 25.0) for name in MODULES),
        *(higher(name, 0.0, metric="above_noise") for name in ("se", "srm")),
        *(higher(name, 50.0, metric="followed") for name in ("se", "srm")),
    ),
    scales=scales({}, on_datasets("STL10"), small_without=("srm",)),
    picture=Picture("maps", "", "map", "Mean Grad-CAM", "", ""),
    notes=(
        "The paper shows pictures of networks on STL-10 and ImageNet, over 500 images each. That "
        "more than a quarter of the mean map lies in the central quarter, where an even map has "
        "25 %, is our reading of them.",
        "That the bias is a prior of the data is judged by two controls of ours: noise has less of "
        "it, and the mean map moves at least half as far as the images when they are shifted by a "
        "quarter of their width, around the edge.",
    ),
)
