"""ASR, Figure 3: accuracy against speed and size, with folded networks."""

from stiffnet.studies.scales import on_datasets, scales, train
from stiffnet.studies.study import Column, Job, Picture, Study, equal_within, higher

MODULES = ("se", "ie", "srm", "spa")
TOGETHER = {
    name: Job("forms", {}, (train("none"), train(name), train(f"asr:{name}"))) for name in MODULES
}
FORMS = {"{}": "attention", "asr:{}": "asr", "asr:{}, folded": "folded"}
SMALL = ("none", *(label.format(name) for name in ("se", "ie") for label in FORMS))

STUDY = Study(
    name="asr-figure3",
    locator="Figure 3",
    claim="Folded, a network with ASR has the speed and size of the plain network and is more "
    "accurate, where attention makes it slower.",
    rows={
        "none": Job("form", {"form": "plain"}, (TOGETHER["se"],)),
        **{
            label.format(name): Job("form", {"form": form}, (TOGETHER[name],))
            for name in MODULES
            for label, form in FORMS.items()
        },
    },
    metric="speed",
    unit="images/s, % of the plain network's",
    columns=(
        Column("speed", "images/s, % of the plain network's"),
        Column("images_per_second", "images/s"),
        Column("accuracy", "accuracy, %"),
        Column("parameters", "parameters"),
    ),
    judges=tuple(
        judge
        for name in MODULES
        for judge in (
            higher(f"asr:{name}, folded", name),
            equal_within(f"asr:{name}, folded", "none", 3.0),
            equal_within(f"asr:{name}, folded", "none", 0.5, metric="parameters"),
            equal_within(f"asr:{name}, folded", f"asr:{name}", 0.1, metric="accuracy"),
            higher(f"asr:{name}, folded", "none", metric="accuracy"),
        )
    ),
    scales=scales(
        {},
        on_datasets("CIFAR100", "STL10"),
        small_without=[label.format("ie") for label in FORMS],
        rows=SMALL,
    ),
    picture=Picture(
        "points", "speed", "accuracy", "Accuracy against speed",
        "images/s, % of the plain network's", "accuracy, %",
    ),
    notes=(
        "All forms of a module are timed in turns, in one process and on the same images; a seed "
        "is a training and a repetition. Speeds are in percent of the plain network's, since the "
        "machine's own may change between modules. The paper timed a GPU; the margins are ours.",
    ),
)  # fmt: skip
