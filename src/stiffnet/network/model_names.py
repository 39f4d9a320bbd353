"""Which networks are known by name: timm's, ours among them, torchvision's, and detectors."""

import fnmatch
from types import ModuleType

import timm
import torchvision

from stiffnet.errors import UnknownNameError
from stiffnet.network.own_models import OWN_MODELS
from stiffnet.registry import unknown

TORCHVISION = "torchvision:"
DETECTORS = ("fasterrcnn", "fasterrcnn-small")  # before the colon and the backbone's name
DENSE = (torchvision.models.detection, torchvision.models.segmentation)  # boxes, masks


def model_names(pattern: str = "*") -> list[tuple[str, str]]:
    """Every name that `create_model` takes and `pattern` matches, as in a shell, and its source."""
    named = [(name, "stiffnet") for name in OWN_MODELS]
    named += [(name, "timm") for name in timm.list_models() if name not in OWN_MODELS]
    named += [(TORCHVISION + name, "torchvision") for name in _torchvision_names()]
    return [
        (name, source)
        for name, source in named
        if fnmatch.fnmatchcase(name, pattern)
        or fnmatch.fnmatchcase(name.removeprefix(TORCHVISION), pattern)
    ]


def is_model_name(name: str) -> bool:
    """Whether `create_model` would know `name`."""
    if is_detector_name(name):
        return is_classifier_name(detector_parts(name)[1])
    if name.startswith(TORCHVISION):
        return name.removeprefix(TORCHVISION) in _torchvision_names()
    architecture, dot, _ = name.partition(".")
    if not timm.is_model(architecture):
        return False
    return not dot or name in timm.list_models(f"{architecture}.*", include_tags=True)


def unknown_model(name: str) -> UnknownNameError:
    """Return an error that names the nearest networks."""
    if is_detector_name(name):
        backbone = detector_parts(name)[1]
        if backbone and not is_model_name(backbone):
            return unknown_model(backbone)
        return UnknownNameError(
            f"There is no detector called {name!r}. After the colon comes a classifier of timm's, "
            "or a ResNet of torchvision's, as in `fasterrcnn:resnet50`."
        )
    known = [known for known, _ in model_names()]
    if "." in name and timm.is_model(name.partition(".")[0]):
        known = timm.list_models(f"{name.partition('.')[0]}.*", include_tags=True)
    return UnknownNameError(unknown("model", name, known, listing="`stiffnet list models`"))


def is_classifier_name(name: str) -> bool:
    """Whether `create_model` would build a network that gives an image one row of logits."""
    if is_detector_name(name):
        return False
    if name in OWN_MODELS:
        return bool(OWN_MODELS[name].classifier)
    return is_model_name(name) and name.removeprefix(TORCHVISION) not in _names_of(*DENSE)


def is_detector_name(name: str) -> bool:
    """Whether a name says that it is a detector of ours, on whatever backbone.

    >>> is_detector_name("fasterrcnn:resnet50"), is_detector_name("resnet50")
    (True, False)
    """
    return name.partition(":")[0] in DETECTORS and ":" in name


def detector_parts(name: str) -> tuple[str, str]:
    """Return the kind of a detector and the name of its backbone.

    >>> detector_parts("fasterrcnn:torchvision:resnet50")
    ('fasterrcnn', 'torchvision:resnet50')
    """
    kind, _, backbone = name.partition(":")
    return kind, backbone


def _torchvision_names() -> list[str]:
    return _names_of(torchvision.models, *DENSE)


def _names_of(*modules: ModuleType) -> list[str]:
    return [name for each in modules for name in torchvision.models.list_models(module=each)]
