"""Classes of the data are found among a network's by name, or not at all."""

import re

import pytest

from stiffnet.data.classes import ClassNames, Mismatch, match_classes

LETTERS = ClassNames(tuple("abcdef"))


@pytest.mark.parametrize("labels", [list("abcdef"), list("fedcba"), ["c"], ["e", "b"]])
def test_the_output_found_bears_the_name(labels):
    assert [LETTERS.names[i] for i in match_classes(labels, LETTERS)] == labels


def test_numbers_are_names_before_they_are_numbers():
    """A network trained on folders has them as they sort, "10" before "2"."""
    sorted_as_text = ClassNames(tuple(sorted(map(str, range(12)))))
    labels = ["2", "10"]
    assert match_classes(labels, sorted_as_text, numbers=True) == (4, 2)
    assert match_classes(["B", "2"], ClassNames(("2", "b"))) == (1, 0)


def test_numbers_are_outputs_only_where_that_was_allowed():
    assert match_classes(["10", "2", "007"], ClassNames(tuple("abcdefghijk")), numbers=True) == (
        10, 2, 7,
    )  # fmt: skip
    assert isinstance(match_classes(["1", "2"], LETTERS), Mismatch)
    assert isinstance(match_classes(["1", "x"], LETTERS, numbers=True), Mismatch)
    assert "'6'" in match_classes(["0", "6"], LETTERS, numbers=True).why  # beyond the last


def test_capitals_and_punctuation_do_not_matter_but_exact_names_come_first():
    known = ClassNames(("Polar Bear", "polar bear cub", "A", "a"))
    assert match_classes(["polar_bear", "POLAR-BEAR.CUB", "a", "A"], known) == (0, 1, 3, 2)


@pytest.mark.parametrize(
    ("labels", "names", "words"),
    [
        (["g"], tuple("abcdef"), r"class 'g' is not among the network's \(a, b, c and 3 more\)"),
        (["a", "g", "h", "i", "j"], tuple("ab"), "classes g, h, i and 1 more are not"),
        (["x"], ("x", "y", "x"), r"'x' is the name of several .*numbers 0, 2"),
        (["a b", "A_B"], ("A b", "c"), "'a b' and 'A_B' are both the network's class 'A b'"),
    ],
)
def test_what_is_not_certain_is_refused_with_a_reason(labels, names, words):
    found = match_classes(labels, ClassNames(names))
    assert isinstance(found, Mismatch)
    assert re.search(words, found.why)


@pytest.mark.parametrize(
    ("label", "name"),
    [("बेल", "बैल"), ("กิน", "กุน"), ("lion ♀", "lion ♂"), ("C++", "C"), ("-10 °C", "10 °C")],
)
def test_what_changes_a_meaning_is_no_punctuation(label, name):
    """A vine is no ox: vowel signs are marks, neither letters nor punctuation, to Unicode."""
    assert isinstance(match_classes([label], ClassNames((name, "dog"))), Mismatch)
    assert match_classes([f"({label})"], ClassNames((name, label))) == (1,)


def test_a_name_that_another_class_leaves_free_is_certain():
    cranes = ClassNames(("crane bird", "crane"), (("crane",), ()))
    assert isinstance(match_classes(["crane"], cranes), Mismatch)
    assert match_classes(["crane", "crane_bird"], cranes) == (1, 0)
