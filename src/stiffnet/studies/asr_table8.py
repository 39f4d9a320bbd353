"""ASR, Table 8: training under noise."""

from stiffnet.studies.scales import on_datasets, scales, train
from stiffnet.studies.study import Column, Published, Study, higher

NOISES = {
    "constant 0.8, 0.8": ("constant", 0.8, 0.8),
    "constant 0.5, 0.5": ("constant", 0.5, 0.5),
    "constant 0.5, 0.2": ("constant", 0.5, 0.2),
    "random 0.1, 0.1": ("random", 0.1, 0.1),
}
# One of each kind: the constant noise under which the paper's network loses most, and a random one.
AT_SMALL_SCALE = ("constant 0.5, 0.5", "random 0.1, 0.1")
MODULES = {"none": "none", "asr:se": "SE"}
ROWS = {f"{module}, {noise}": (module, noise) for noise in NOISES for module in MODULES}

PUBLISHED = Published(
    "asr_table8",
    "top1",
    {
        label: {
            "attention": MODULES[module],
            "noise_type": NOISES[noise][0],
            "noise_a": NOISES[noise][1],
            "noise_b": NOISES[noise][2],
        }
        for label, (module, noise) in ROWS.items()
    },
)
STUDY = Study(
    name="asr-table8",
    locator="Table 8",
    claim="Trained under noise in every batch norm, a network is more accurate with ASR.",
    rows={
        label: train(
            module,
            noise=NOISES[noise][0],
            noise_a=NOISES[noise][1],
            noise_b=NOISES[noise][2],
        )
        for label, (module, noise) in ROWS.items()
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
        small_without=[label for label, (_, noise) in ROWS.items() if noise not in AT_SMALL_SCALE],
    ),
    notes=(
        "Noise is there in training alone; the test images are seen without it. Constant noise "
        "shifts what every norm hands on, so a network that learnt with it may know nothing "
        "without it.",
        "The paper calls σ a variance and a deviation; here it is a standard deviation.",
    ),
)
