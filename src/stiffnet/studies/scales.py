"""The three scales at which studies are run, and the jobs that their rows are made of.

``demo`` needs no data and little time: digits, a ResNet-20, three epochs. ``small`` is CIFAR-10 on
two cores: a ResNet-20 by the recipe `quick`. ``paper`` is the published setting.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from stiffnet.studies.study import Group, Job, Scale, Settings

Keys = Mapping[str, str | float]


def _defaults(
    *,
    looks: int,
    gradcam: int,
    growth: int,
    forms: tuple[int, int],
    speed: tuple[int, int],
    train: Settings,
) -> dict[str, Settings]:
    """Return the settings of every kind of job at a scale.

    Of looks, `gradcam` and `growth`: the largest number of images. Of `forms` and `speed`: the
    batch size and the rounds.
    """
    return {
        **{kind: {"limit": looks} for kind in ("measure", "stripes", "values")},
        "surface": {"limit": looks, "m1": 4.0, "m2": 2.5, "points": 51},  # where it is counted
        "gradcam": {"limit": gradcam},
        "growth": {"limit": growth},
        "forms": {"batch_size": forms[0], "rounds": forms[1]},
        "train": train,
        "speed": {
            "model": "resnet164_cifar", "image_size": 32, "batch_size": speed[0],
            "rounds": speed[1],
        },
    }  # fmt: skip


_DEMO_TRAIN: Settings = {
    "recipe": "quick", "model": "resnet20_cifar", "data": "digits", "epochs": 3, "batch_size": 32,
    "image_size": 16, "learning_rate": 0.1, "crop": "none", "flip": False,
}  # fmt: skip
_SMALL_TRAIN: Settings = {"recipe": "quick", "model": "resnet20_cifar", "data": "cifar10"}
_DEMO = _defaults(
    looks=360, gradcam=360, growth=4, forms=(64, 10), speed=(16, 5), train=_DEMO_TRAIN
)
_SMALL = _defaults(  # all test images of CIFAR-10; the ASR paper took 500 for Grad-CAM
    looks=10_000, gradcam=500, growth=8, forms=(128, 10), speed=(64, 6), train=_SMALL_TRAIN
)
_PAPER = _defaults(
    looks=10_000, gradcam=500, growth=16, forms=(256, 20), speed=(128, 20),
    train={"recipe": "asr-resnet164"},
)  # fmt: skip
_MINUTES = {  # demo, small: means of rows in results/small; speed, surface and values are guesses
    "train": (0.07, 14.0),
    "measure": (0.02, 0.1),
    "freeze": (0.02, 1.4),
    "stripes": (0.02, 0.1),
    "growth": (0.05, 0.1),
    "gradcam": (0.02, 0.1),
    "speed": (0.2, 3.0),
    "surface": (0.02, 0.2),
    "values": (0.03, 0.2),
    "forms": (0.2, 0.5),
}
DATASETS = {"CIFAR10": "cifar10", "CIFAR100": "cifar100", "STL10": "stl10"}


@dataclass(frozen=True)
class Network:
    """What the two small scales of a study train."""

    title: str
    settings: Settings = field(default_factory=dict)
    """Fields of the recipe."""
    at_demo: Settings = field(default_factory=dict)
    """More of them, at scale ``demo``."""
    demo_times: float = 1.0
    """What it costs at scale ``demo``, as a multiple of the ResNet-20."""
    small_times: float = 1.0


RESNET20 = Network("ResNet-20")
RESNET56 = Network(
    "ResNet-56", {"model": "resnet56_cifar"}, {"epochs": 6}, demo_times=6.0, small_times=3.0
)
"""Where more than two steps of a stage have to count; three epochs are too few for it."""
RESNET18 = Network("ResNet-18 of a quarter width", {"model": "resnet18_small_025"}, small_times=0.7)
"""In the place of ImageNet's networks."""
VIT = Network(
    "ViT-Ti",
    {
        "model": "vit_tiny_cifar",
        "optimizer": "adamw",
        "nesterov": False,
        "learning_rate": 1e-3,
        "weight_decay": 0.05,
    },
    {"image_size": 8, "epochs": 2},
    demo_times=3.0,
    small_times=20.0,
)


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
    network: Network = RESNET20,
    title: str = "",
    rows: Sequence[str] = (),
) -> dict[str, Scale]:
    """Return the three scales of a study.

    Args:
        like: Which part of the published table stands beside the two small scales.
        paper: The published settings.
        small_without: Labels of rows that are left out at scale ``small``, for their cost.
        network: What the two small scales train.
        title: What the two small scales are called, where nothing is trained.
        rows: Labels of the rows of the two small scales; nothing for all.
    """
    own: dict[str, Settings] = {"train": dict(network.settings)}
    shorter: dict[str, Settings] = {"train": {**network.settings, **network.at_demo}}
    only = tuple(rows)
    return {
        "demo": Scale(
            (Group(title or f"{network.title} on digits", shorter, like, only),),
            _DEMO,
            {kind: network.demo_times * minutes for kind, (minutes, _) in _MINUTES.items()},
        ),
        "small": Scale(
            (Group(title or f"{network.title} on CIFAR-10", own, like, only),),
            _SMALL,
            {kind: network.small_times * minutes for kind, (_, minutes) in _MINUTES.items()},
            leave_out=tuple(small_without),
        ),
        "paper": Scale(tuple(paper), _PAPER),
    }


def on_imagenet(recipe: str, title: str, **keys: str | float) -> Group:
    """Return the group of a network on ImageNet, by its recipe."""
    settings = {"train": {"recipe": recipe, "data": "folder"}}
    return Group(f"{title} on ImageNet", settings, keys)


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
