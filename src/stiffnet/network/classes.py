"""What the outputs of a network stand for, as far as it is known, and what that allows.

Known are the classes that one of our folders names, ImageNet's for the weights that timm and
torchvision published for it, and what a user says. A number of outputs alone says nothing: a
network with 1,000 of them may have been trained on anything.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache

import timm.data
import torchvision

from stiffnet.data.classes import ClassNames, Mismatch, displaced, match_classes
from stiffnet.errors import DataError
from stiffnet.network.loaded import LoadedModel
from stiffnet.network.pretrained import PRETRAINED
from stiffnet.words import few

DATA = "data"  # the data's own classes, in their order
IMAGENET = "imagenet"
HOW = "Give `--classes FILE` with one class name per line, in the order of the network's outputs"


@dataclass(frozen=True)
class Judging:
    """Whether a network can be judged on labelled data, and how."""

    outputs: tuple[int, ...] | None  # the network's for each class of the data; None without such
    names: tuple[str, ...]  # of the outputs, or of the data's classes if these are not outputs
    told: str  # how it was decided, in a sentence
    remarkable: bool = True  # the user should see that sentence


@cache
def imagenet() -> ClassNames:
    """ImageNet's 1,000 classes: torchvision's words, timm's WordNet numbers and synonyms."""
    words = torchvision.models.ResNet18_Weights.DEFAULT.meta["categories"]
    info = timm.data.ImageNetInfo("imagenet-1k")
    lemmas = [text.split(", ") for text in info.label_descriptions()]
    further = zip(info.label_names(), (first for first, *_ in lemmas), strict=True)
    return ClassNames(tuple(words), tuple(further), tuple(map(tuple, lemmas)))


def known_classes(loaded: LoadedModel) -> ClassNames | None:
    """Return what is known of a network's classes without asking, or None."""
    if loaded.classes:
        names = tuple(loaded.classes)
        return imagenet() if names == imagenet().names else ClassNames(names)
    config = getattr(loaded.model, "pretrained_cfg", None) or {}
    own_head = loaded.options.get("num_classes") in (None, config.get("num_classes"))
    published = loaded.made_by.get("weights") == PRETRAINED and own_head
    usual = is_imagenet_tag(config.get("tag") or "")
    if published and usual and config.get("num_classes") == len(imagenet()):
        return imagenet()
    return None


def is_imagenet_tag(tag: str) -> bool:
    """Whether timm's tag of some weights says that they were last trained on ImageNet's classes.

    >>> is_imagenet_tag("augreg_in21k_ft_in1k"), is_imagenet_tag("augreg_in21k")
    (True, False)
    """
    return re.findall(r"in\d+k", tag)[-1:] == ["in1k"]


def judging(
    loaded: LoadedModel,
    labels: Sequence[str],
    width: int | None,
    *,
    said: ClassNames | str | None = None,
    folders: bool = False,
) -> Judging:
    """Decide which output of a network stands for which class of the data, the `labels`.

    `width` is how many logits the network gave for a sample, if any; `said` is what the user says
    of them: their names, `DATA`, or nothing. Where `folders` name the classes, their numbers may be
    those of outputs.
    """
    named = len(said if isinstance(said, ClassNames) else labels)
    if said is not None and width != named:
        has = f"{width:,} outputs" if width is not None else "no row of logits for an image"
        raise DataError(
            f"`--classes` names {named:,} classes, and the network has {has}. Name each output "
            "once, in their order, or leave `--classes` out."
        )
    if width is None:
        return _unjudged(labels, "the network gives no row of logits for an image")
    known = known_classes(loaded)
    if said == DATA:
        found = Judging(tuple(range(width)), tuple(labels), "the data's, as was said", False)
        return _told_apart(found, known)
    if isinstance(said, ClassNames):
        found = _matched(said, labels, "the classes that were given", numbers=folders)
        return _told_apart(found, known)
    if known is not None and len(known) == width:
        whole = folders and len(labels) == width and known is imagenet()
        return _matched(known, labels, "the network's classes", numbers=whole)
    if loaded.made_by.get("weights") == "random" and width == len(labels):
        told = "the data's: the network was built for them, with random weights"
        return Judging(tuple(range(width)), tuple(labels), told, False)
    if width == len(imagenet()):
        guessed = _matched(imagenet(), labels, "ImageNet's classes")
        if guessed.outputs is not None:
            told = (
                f"the network has {width:,} outputs and all classes of the data are ImageNet's "
                f"({few(labels)}), so its outputs are taken for ImageNet's in their usual order; "
                f"give `--classes` if they are others."
            )
            return Judging(guessed.outputs, guessed.names, told)
    return _unjudged(
        labels,
        f"nothing says what the network's {width:,} outputs stand for. {HOW}, or `--classes data` "
        f"if they are the data's {len(labels):,} classes in order ({few(labels)})",
    )


def _told_apart(found: Judging, known: ClassNames | None) -> Judging:
    """Remark on classes that a user says if the network is known to have them in another order."""
    if found.outputs is None or known is None or not (places := displaced(found.names, known)):
        return found
    said, place = places
    told = (
        f"labels may be compared with the wrong outputs: `--classes` has {found.names[said]!r} as "
        f"output {said}, and the network was trained with it as output {place} "
        f"({few(known.names)}). Leave `--classes` out, unless the network's own order is wrong."
    )
    return replace(found, told=told, remarkable=True)


def _matched(
    known: ClassNames, labels: Sequence[str], whose: str, *, numbers: bool = False
) -> Judging:
    found = match_classes(labels, known, numbers=numbers)
    if isinstance(found, Mismatch):
        return _unjudged(labels, f"{found.why}. {HOW}, and name the folders after them")
    by_number = all(label.isdigit() for label in labels) and any(
        known.names[number] != label for number, label in zip(found, labels, strict=True)
    )
    told = f"matched by name with {whose}"
    if by_number:
        told = f"folders are taken for the numbers of outputs, from 0, of {whose}."
    return Judging(found, known.names, told, by_number)


def _unjudged(labels: Sequence[str], why: str) -> Judging:
    return Judging(None, tuple(labels), f"loss and accuracy are left out: {why}.")
