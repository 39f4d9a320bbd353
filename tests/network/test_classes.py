"""What a network's outputs stand for is known or said, never guessed from their number."""

import re
from dataclasses import replace

import pytest
import timm
import torch
from torch import nn

from stiffnet.data.classes import ClassNames
from stiffnet.data.images import Preparation
from stiffnet.errors import DataError
from stiffnet.network.classes import DATA, imagenet, judging, known_classes
from stiffnet.network.loaded import LoadedModel

WORDNET = timm.data.ImageNetInfo("imagenet-1k").label_names()


def network(*, weights="w.pth", classes=(), options=None, config=None):
    model = nn.Linear(2, 2)
    model.pretrained_cfg = config or {}
    preparation = Preparation((3, 8, 8), (0.0,) * 3, (1.0,) * 3)
    made_by = {"weights": weights}
    return LoadedModel(model, "net", preparation, classes, "train", made_by, options or {})


PUBLISHED = network(weights="pretrained", config={"tag": "a1_in1k", "num_classes": 1000})
OWN = network(classes=("cat", "dog", "emu"))


def test_all_of_imagenet_by_any_of_its_names():
    every = tuple(range(1000))
    for names in (WORDNET, imagenet().names, [n.replace(" ", "_") for n in imagenet().names]):
        assert judging(PUBLISHED, names, 1000, folders=True).outputs == every
    sorted_as_text = sorted(map(str, every))  # "10" before "2"
    found = judging(PUBLISHED, sorted_as_text, 1000, folders=True)
    assert found.outputs == tuple(map(int, sorted_as_text))
    assert "numbers of outputs, from 0" in found.told
    assert found.remarkable


def test_some_of_imagenet_by_name():
    assert judging(PUBLISHED, ["n01484850", "goldfish", "Tinca tinca"], 1000).outputs == (2, 1, 0)


@pytest.mark.parametrize("name", ["crane", "maillot", "cardigan", "Cardigan"])
def test_a_name_that_imagenet_has_twice_is_refused(name):
    found = judging(PUBLISHED, [name, "goldfish"], 1000, folders=True)
    assert found.outputs is None
    assert f"{name!r} is the name of several" in found.told


def test_digits_are_not_imagenets_first_ten_classes():
    digits = [str(digit) for digit in range(10)]
    for folders in (False, True):
        assert judging(PUBLISHED, digits, 1000, folders=folders).outputs is None


@pytest.mark.parametrize(
    "config",
    [
        {"tag": "fb_dino", "num_classes": 1000},
        {"tag": "x_in21k", "num_classes": 1000},
        {"tag": "", "num_classes": 1000},
        {"tag": "a_in1k", "num_classes": 10},
        {},
    ],
)
def test_only_weights_trained_on_imagenet_are_known_to_be(config):
    assert known_classes(network(weights="pretrained", config=config)) is None


def test_a_new_head_or_other_weights_have_other_classes():
    config = {"tag": "a1_in1k", "num_classes": 1000}
    other = network(weights="pretrained", config=config, options={"num_classes": 999})
    assert known_classes(other) is None
    assert known_classes(network(weights="mine.pth", config=config)) is None
    assert known_classes(network(weights="random", config=config)) is None


def test_a_folders_classes_are_matched_by_name():
    assert judging(OWN, ["emu", "cat"], 3).outputs == (2, 0)
    found = judging(OWN, ["emu", "fox"], 3)
    assert found.outputs is None
    assert "'fox' is not among the network's (cat, dog, emu)" in found.told
    assert judging(OWN, ["0", "1", "2"], 3, folders=True).outputs is None


def test_as_many_outputs_as_classes_say_nothing():
    found = judging(network(), ["cat", "dog", "emu"], 3, folders=True)
    assert found.outputs is None
    assert "nothing says what the network's 3 outputs stand for" in found.told
    assert "--classes data" in found.told


def test_imagenets_names_and_number_of_outputs_together_are_taken_for_it_with_a_note():
    found = judging(network(), ["n01484850", "n01440764"], 1000, folders=True)
    assert found.outputs == (2, 0)
    assert found.remarkable
    assert "taken for ImageNet's" in found.told
    for labels in (["goldfish", "my cat"], ["0", "1"], sorted(map(str, range(1000)))):
        assert judging(network(), labels, 1000, folders=True).outputs is None
    assert judging(network(), ["n01484850"], 999).outputs is None


def test_a_network_built_here_for_the_data_has_its_classes():
    random = replace(network(), made_by={"weights": "random", "seed": 0})
    assert judging(random, ["b", "a"], 2).outputs == (0, 1)
    assert judging(random, WORDNET[:19], 1000).outputs == tuple(range(19))
    assert judging(random, ["b", "a"], 3).outputs is None


def test_what_the_user_says_comes_first():
    said = ClassNames(("emu", "cat", "dog"))
    assert judging(OWN, ["cat", "dog"], 3, said=said).outputs == (1, 2)
    assert judging(network(), ["x", "y", "z"], 3, said=DATA).outputs == (0, 1, 2)
    assert judging(network(), ["2", "0"], 3, said=said, folders=True).outputs == (2, 0)


@pytest.mark.parametrize("width", [2, 4, None])
@pytest.mark.parametrize("said", [ClassNames(("a", "b", "c")), DATA])
def test_what_does_not_fit_the_outputs_is_refused(said, width):
    with pytest.raises(DataError, match="names 3 classes, and the network has"):
        judging(network(), ["a", "b", "c"], width, said=said)


@pytest.mark.parametrize(
    "said", [ClassNames(("Emu", "cat", "dog")), ClassNames(tuple("xyE")), DATA]
)
def test_an_order_that_contradicts_the_networks_own_is_never_taken_silently(said):
    """Judged by it, a network that is always right would never be."""
    labels = ["emu", "cat", "dog"]
    names = labels if said == DATA else said.names
    found = judging(OWN, names, 3, said=said)
    assert found.outputs == (0, 1, 2)
    assert found.remarkable == ("x" not in names)
    if found.remarkable:
        assert re.search("wrong outputs: .*'[eE]mu' as output 0, .* as output 2", found.told)
    assert not judging(OWN, ["cat", "dog", "emu"], 3, said=DATA).remarkable
    assert not judging(OWN, ["gato", "dog", "emu"], 3, said=DATA).remarkable
    assert not judging(PUBLISHED, WORDNET, 1000, said=imagenet()).remarkable
    assert judging(PUBLISHED, sorted(imagenet().names), 1000, said=DATA).remarkable


def test_without_logits_nobody_is_judged():
    assert "no row of logits" in judging(OWN, ["cat"], None).told


def test_the_published_tables_agree_class_by_class():
    """torchvision's words and timm's WordNet numbers are joined by their order alone."""
    info = timm.data.ImageNetInfo("imagenet-1k")
    agree = [
        any(word.lower() in lemma.lower() or lemma.lower() in word.lower() for lemma in lemmas)
        for word, lemmas in zip(imagenet().names, imagenet().synonyms, strict=True)
    ]
    assert len(info.label_names()) == 1000
    assert sum(agree) >= 999  # a few words were chosen anew


def test_the_width_is_seen_in_a_pass():
    from stiffnet.observe.measure import logit_width

    assert logit_width(nn.Linear(3, 7), torch.rand(1, 3)) == 7
    assert logit_width(nn.Unflatten(1, (3, 1)), torch.rand(1, 3)) is None
