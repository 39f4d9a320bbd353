"""The three scales at which studies are run, and the jobs that their rows are made of.

``demo`` needs no data and little time: digits, a ResNet-20, three epochs. ``small`` is CIFAR-10 on
two cores: a ResNet-20 by the recipe `quick`. ``paper`` is the published setting.
"""

from collections.abc import Mapping, Sequence

from stiffnet.studies.study import Group, Job, Scale, Settings

Keys = Mapping[str, str | float]

_LOOKS: dict[str, dict[str, int]] = {
    "demo": {"limit": 360},
    "small": {"limit": 2000},
    "paper": {"limit": 10_000},
}
_DEMO: dict[str, Settings] = {
    "train": {
        "recipe": "quick",
        "model": "resnet20_cifar",
        "data": "digits",
        "epochs": 3,
        "batch_size": 32,
        "image_size": 16,
        "learning_rate": 0.1,
        "crop": "none",
        "flip": False,
    },
    "speed": {"model": "resnet164_cifar", "image_size": 32, "batch_size": 16, "rounds": 5},
}
_SMALL: dict[str, Settings] = {
    "train": {"recipe": "quick", "model": "resnet20_cifar", "data": "cifar10"},
    "speed": {"model": "resnet164_cifar", "image_size": 32, "batch_size": 64, "rounds": 6},
}
_PAPER: dict[str, Settings] = {
    "train": {"recipe": "asr-resnet164"},
    "speed": {"model": "resnet164_cifar", "image_size": 32, "batch_size": 128, "rounds": 20},
}
_GRADCAM = {"demo": 360, "small": 500, "paper": 500}  # images; the paper took 500
_GROWTH = {"demo": 4, "small": 8, "paper": 16}  # images that noise is followed for

DEMO_MINUTES = {
    "train": 0.07,
    "measure": 0.02,
    "freeze": 0.02,
    "stripes": 0.02,
    "growth": 0.05,
    "gradcam": 0.02,
    "speed": 0.2,
}
SMALL_MINUTES = {
    "train": 15.0,
    "measure": 1.0,
    "freeze": 2.0,
    "stripes": 1.0,
    "growth": 1.0,
    "gradcam": 0.3,
    "speed": 3.0,
}
DATASETS = {"CIFAR10": "cifar10", "CIFAR100": "cifar100", "STL10": "stl10"}


def train(attention: str = "none", needs: Sequence[Job] = (), **settings: object) -> Job:
    """Train a network with a module; fields of the recipe by name."""
    return Job("train", {"attention": attention, **settings}, tuple(needs))


def look(kind: str, of: Job, **settings: object) -> Job:
    """Look at a trained network: ``measure``, ``stripes``, ``growth``, ``gradcam``, ``freeze``."""
    return Job(kind, settings, (of,))


def scales(
    like: Keys,
    paper: Sequence[Group],
    *,
    small_without: Sequence[str] = (),
    deep: bool = False,
    title: str = "",
) -> dict[str, Scale]:
    """Return the three scales of a study.

    Args:
        like: Which part of the published table stands beside the two small scales.
        paper: The published settings.
        small_without: Labels of rows that are left out at scale ``small``, for their cost.
        deep: Whether the two small scales need a network with more steps in a stage than two that
            count: a ResNet-56.
        title: What the two small scales are called, where nothing is trained.
    """
    network = "ResNet-56" if deep else "ResNet-20"
    own: dict[str, Settings] = {"train": {"model": "resnet56_cifar"}} if deep else {}
    longer = {"train": {**own["train"], "epochs": 6}} if deep else {}  # three are too few for it
    times = 3.0 if deep else 1.0
    return {
        "demo": Scale(
            (Group(title or f"{network} on digits", longer, like),),
            _defaults("demo", _DEMO),
            {kind: 2 * times * minutes for kind, minutes in DEMO_MINUTES.items()}
            if deep
            else DEMO_MINUTES,
        ),
        "small": Scale(
            (Group(title or f"{network} on CIFAR-10", own, like),),
            _defaults("small", _SMALL),
            {kind: times * minutes for kind, minutes in SMALL_MINUTES.items()},
            leave_out=tuple(small_without),
        ),
        "paper": Scale(tuple(paper), _defaults("paper", _PAPER)),
    }


def on_datasets(
    *names: str, recipe: str = "resnet164", title: str = "ResNet-164", **keys: str
) -> list[Group]:
    """Return a group for each data set of the papers, with its recipe of the ASR paper."""
    groups = []
    for name in names:
        own = f"asr-{recipe}-stl10" if name == "STL10" else f"asr-{recipe}"
        settings = {"train": {"recipe": own, "data": DATASETS[name]}}
        groups.append(Group(f"{title} on {name}", settings, {"dataset": name, **keys}))
    return groups


def _defaults(scale: str, given: Mapping[str, Settings]) -> dict[str, Settings]:
    looks: dict[str, Settings] = dict.fromkeys(("measure", "stripes", "freeze"), _LOOKS[scale])
    return {
        **looks,
        "growth": {"limit": _GROWTH[scale]},
        "gradcam": {"limit": _GRADCAM[scale]},
        **given,
    }
