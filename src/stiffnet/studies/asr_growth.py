"""ASR, Theorem 6.1: how a perturbation grows."""

from stiffnet.studies.scales import look, on_datasets, scales, train
from stiffnet.studies.study import Picture, Study, higher

MODULES = ("none", "asr:se")

STUDY = Study(
    name="asr-growth",
    locator="Theorem 6.1",
    claim="A perturbation grows at most as the theorem says, and less in a network with ASR.",
    rows={name: look("growth", train(name)) for name in MODULES},
    metric="log_growth",
    unit="logarithm of the growth",
    judges=(
        *(higher(100.0, name, metric="share_of_bound") for name in MODULES),
        higher("none", "asr:se"),
    ),
    scales=scales({}, on_datasets("CIFAR100")),
    picture=Picture(
        "curves", "steps", "growths", "Growth of a perturbation along the network", "step", "growth"
    ),
    notes=("For ‖W‖ of the theorem a real branch has the norm of its Jacobian at an image.",),
)
