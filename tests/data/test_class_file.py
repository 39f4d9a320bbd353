"""The classes of a network, from the files that people have."""

import json

import pytest

from stiffnet.data.class_file import read_classes
from stiffnet.data.classes import match_classes
from stiffnet.errors import DataError, StorageError

FILES = {
    "lines": "tench\ngoldfish\ngreat white shark\n",
    "windows": "\ufefftench\r\ngoldfish\r\ngreat white shark\r\n",
    "synonyms": "tench, Tinca tinca\ngoldfish, Carassius auratus\ngreat white shark, white shark\n",
    "synset words": "n01440764 tench, Tinca tinca\nn01443537 goldfish\nn01484850 great white shark",
    "a list": '["tench", "goldfish", "great white shark"]',
    "id2label": '{"2": "great white shark", "0": "tench", "1": "goldfish"}',
    "class_to_idx": '{"goldfish": 1, "great white shark": 2, "tench": 0}',
    "hugging face": '{"model_type": "vit", "id2label": {"0": "tench", "1": "goldfish", "2": "great white shark"}}',  # noqa: E501
    "keras": '{"0": ["n01440764", "tench"], "1": ["n01443537", "goldfish"], "2": ["n01484850", "great_white_shark"]}',  # noqa: E501
}  # fmt: skip


@pytest.mark.parametrize("text", FILES.values(), ids=FILES)
def test_every_form_names_the_outputs_in_order(tmp_path, text):
    (tmp_path / "classes").write_text(text, newline="")
    known = read_classes(tmp_path / "classes")
    assert match_classes(["goldfish", "Great_White_Shark", "tench"], known) == (1, 2, 0)


@pytest.mark.parametrize("form", ["synset words", "keras"])
def test_wordnet_numbers_are_names_too(tmp_path, form):
    (tmp_path / "classes").write_text(FILES[form])
    known = read_classes(tmp_path / "classes")
    assert match_classes(["n01443537", "n01440764-Tench"], known) == (1, 0)


BAD = {
    "nothing": ("\n \n", "names no class"),
    "an empty line": ("a\n\nb", "Line 2 .* is empty"),
    "broken JSON": ('["a", ', "is not JSON"),
    "deep JSON": ("[" * 100_000, "is not JSON"),
    "a gap": ('{"0": "a", "2": "b"}', "does not number its 2 classes from 0"),
    "numbers from 1": ('{"a": 1, "b": 2}', "from 0"),
    "no name": (json.dumps(["a", None]), "Class 1 .* has no name"),
    "a number for a name": (json.dumps({"id2label": 3}), "neither a list nor a map"),
    "the same number twice": ('{"a": 0, "b": 0}', "from 0"),
    "the same key twice": ('{"0": "a", "1": "b", "0": "c"}', "twice"),
    "words for numbers": ('{"a": "b"}', "from 0"),
}


@pytest.mark.parametrize(("text", "words"), BAD.values(), ids=BAD)
def test_a_bad_file_gets_one_sentence(tmp_path, text, words):
    (tmp_path / "classes").write_text(text)
    with pytest.raises(DataError, match=words) as caught:
        read_classes(tmp_path / "classes")
    assert "in the order of the network's outputs" in str(caught.value)


def test_a_file_that_cannot_be_read_is_said_so(tmp_path):
    with pytest.raises(StorageError, match="could not be read"):
        read_classes(tmp_path / "none")
    (tmp_path / "image").write_bytes(b"\x89PNG\xff")
    with pytest.raises(DataError, match="not UTF-8"):
        read_classes(tmp_path / "image")
