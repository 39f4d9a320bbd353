"""ASR, Table 8: training under noise."""

from stiffnet.studies.scales import on_datasets, scales, train
from stiffnet.studies.study import Column, Published, Study, higher

NOISES = {
    "constant 0.8, 0.8": ("constant", 0.8, 0.8),
    "constant 0.5, 0.5": ("constant", 0.5, 0.5),
    "constant 0.5, 0.2": ("constant", 0.5, 0.2),
    "random 0.1, 0.1": ("random", 0.1, 0.1),
}
# Of each kind one: the constant noise that costs the paper's network most, and the random one.
AT_SMALL_SCALE = ("constant 0.5, 0.5", "random 0.1, 0.1")
MODULES = {"none": "none", "asr:se": "SE"}
ROWS = {
    f"{module}, {name}": (module, *noise) for name, noise in NOISES.items() for module in MODULES
}

PUBLISHED = Published(
    "asr_table8",
    "top1",
    {
        label: {"attention": MODULES[module], "noise_type": kind, "noise_a": a, "noise_b": b}
        for label, (module, kind, a, b) in ROWS.items()
    },
)
STUDY = Study(
    name="asr-table8",
    locator="Table 8",
    claim="Trained under noise in every batch norm, a network is more accurate with ASR.",
    rows={
        label: train(module, noise=kind, noise_a=a, noise_b=b)
        for label, (module, kind, a, b) in ROWS.items()
    },
    published=PUBLISHED,
    columns=(
        Column("accuracy", "accuracy, %", published=PUBLISHED),
        Column("train_accuracy", "in training, with the noise, %"),
    ),
    judges=tuple(higher(f"asr:se, {noise}", f"none, {noise}") for noise in NOISES),
    scales=scales(
        {"dataset": "CIFAR100"},
        on_datasets("CIFAR100"),
        small_without=[
            f"{module}, {name}"
            for name in NOISES
            for module in MODULES
            if name not in AT_SMALL_SCALE
        ],
    ),
    notes=(
        "Noise is there in training alone; the test images are seen without it. Constant noise "
        "shifts what every norm hands on, so a network that learnt with it may know nothing "
        "without it.",
        "The paper calls σ a variance and a deviation; here it is a standard deviation.",
    ),
)
