"""Laws of the model folder: what is read is what was written, to the bit, or an error."""

import hashlib
import json
import random

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch import nn

from stiffnet.data.images import Preparation
from stiffnet.errors import CheckpointError, CorruptFileError, StorageError
from stiffnet.network.model_folder import MANIFEST, WEIGHTS, read_folder, write_folder

PREPARATION = Preparation((1, 8, 8), (0.1,), (0.3,))
MADE_BY = {"command": "a test", "seed": 3, "accuracy": 1 / 3, "finished": True, "note": None}


class Tied(nn.Module):
    """Two names for one tensor, a view of another, and a buffer."""

    def __init__(self):
        super().__init__()
        self.first = nn.Linear(4, 4, bias=False)
        self.second = nn.Linear(4, 4, bias=False)
        self.second.weight = self.first.weight
        self.norm = nn.BatchNorm1d(4)
        self.register_buffer("beginning", self.norm.running_mean[:2])


def write(path, model=None, **changes):
    facts = {
        "name": "resnet20_cifar",
        "options": {"num_classes": 2, "in_chans": 1},
        "classes": ["cat", "dög"],
        "preparation": PREPARATION,
        "made_by": MADE_BY,
    }
    return write_folder(path, model or nn.Linear(3, 2), **(facts | changes))


def rewrite_manifest(folder, change):
    """Change the manifest and seal it again, as an attacker would."""
    content = json.loads((folder / MANIFEST).read_text())
    del content["seal"]
    change(content)
    text = json.dumps(content, indent=2) + "\n"
    content["seal"] = hashlib.sha256(text.encode()).hexdigest()
    (folder / MANIFEST).write_text(json.dumps(content, indent=2) + "\n")


def test_what_is_read_is_what_was_written(tmp_path):
    model = nn.Sequential(nn.Conv2d(1, 3, 3), nn.BatchNorm2d(3)).half()
    folder = read_folder(write(tmp_path / "new" / "model", model))
    assert (folder.name, folder.form) == ("resnet20_cifar", "train")
    assert folder.options == {"num_classes": 2, "in_chans": 1}
    assert folder.classes == ("cat", "dög")
    assert folder.preparation == PREPARATION
    assert folder.made_by == MADE_BY
    assert folder.versions.keys() == {"stiffnet", "torch", "timm"}
    stored = load_file(folder.weights)
    assert stored.keys() == model.state_dict().keys()
    for name, value in model.state_dict().items():
        assert stored[name].dtype == value.dtype
        assert torch.equal(stored[name], value)


def test_a_shared_tensor_is_stored_once_and_a_view_is_stored_whole(tmp_path):
    model = Tied()
    stored = load_file(read_folder(write(tmp_path, model)).weights)
    assert stored.keys() == model.state_dict().keys() - {"second.weight"}
    assert torch.equal(stored["beginning"], model.beginning)


def test_equal_models_give_equal_bytes(tmp_path):
    model = Tied()
    write(tmp_path / "one", model)
    write(tmp_path / "two", model)
    for part in (WEIGHTS, MANIFEST):
        assert (tmp_path / "one" / part).read_bytes() == (tmp_path / "two" / part).read_bytes()


def test_a_folder_can_be_written_again(tmp_path):
    write(tmp_path, classes=["a", "b"])
    write(tmp_path, nn.Linear(30, 2), classes=["c", "d"])
    assert read_folder(tmp_path).classes == ("c", "d")
    assert sorted(path.name for path in tmp_path.iterdir()) == [MANIFEST, WEIGHTS]


@pytest.mark.parametrize("part", [WEIGHTS, MANIFEST])
def test_every_flipped_bit_is_seen(tmp_path, part):
    write(tmp_path)
    path = tmp_path / part
    whole = path.read_bytes()
    for bit in random.Random(0).sample(range(8 * len(whole)), 60):
        damaged = bytearray(whole)
        damaged[bit // 8] ^= 1 << bit % 8
        path.write_bytes(damaged)
        with pytest.raises(CorruptFileError, match=part):
            read_folder(tmp_path)
    path.write_bytes(whole)
    read_folder(tmp_path)


@pytest.mark.parametrize("part", [WEIGHTS, MANIFEST])
def test_every_truncation_and_addition_is_seen(tmp_path, part):
    write(tmp_path)
    path = tmp_path / part
    whole = path.read_bytes()
    for length in {0, 1, *range(0, len(whole), 17), len(whole) - 1}:
        path.write_bytes(whole[:length])
        with pytest.raises(CorruptFileError, match=part):
            read_folder(tmp_path)
    for more in (b" ", b"\n", b"\0"):
        path.write_bytes(whole + more)
        with pytest.raises(CorruptFileError, match=part):
            read_folder(tmp_path)


def test_the_same_content_in_other_bytes_is_refused(tmp_path):
    write(tmp_path)
    content = json.loads((tmp_path / MANIFEST).read_text())
    (tmp_path / MANIFEST).write_text(json.dumps(content))
    with pytest.raises(CorruptFileError, match="its bytes were changed"):
        read_folder(tmp_path)


def test_a_missing_part_is_named(tmp_path):
    write(tmp_path)
    (tmp_path / WEIGHTS).unlink()
    with pytest.raises(CorruptFileError, match=f"{WEIGHTS} is missing"):
        read_folder(tmp_path)


def test_a_folder_without_a_manifest_is_told_what_one_holds(tmp_path):
    write(tmp_path)
    (tmp_path / MANIFEST).unlink()
    with pytest.raises(CheckpointError, match=f"holds {WEIGHTS} and {MANIFEST}"):
        read_folder(tmp_path)


def test_no_folder_at_all_is_a_storage_error(tmp_path):
    with pytest.raises(StorageError, match="is not a folder"):
        read_folder(tmp_path / "nowhere")
    (tmp_path / "file").touch()
    with pytest.raises(StorageError, match="could not be written"):
        write(tmp_path / "file")


@pytest.mark.parametrize("part", ["../x", "/etc/hostname", "a/b", "..", "a\\b", "", "a\0b"])
def test_a_part_outside_the_folder_is_refused(tmp_path, part):
    write(tmp_path)
    facts = {"size": 1, "sha256": "0"}
    rewrite_manifest(tmp_path, lambda content: content["parts"].update({part: facts}))
    with pytest.raises(CorruptFileError, match="outside its folder"):
        read_folder(tmp_path)


def test_a_part_that_links_outside_the_folder_is_refused(tmp_path):
    write(tmp_path / "model")
    (tmp_path / "model" / WEIGHTS).rename(tmp_path / "elsewhere")
    (tmp_path / "model" / WEIGHTS).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(CorruptFileError, match="a link that leaves"):
        read_folder(tmp_path / "model")


ILL_TYPED = {
    "name": [1, "", None, ["a"]],
    "form": [0],
    "classes": ["ab", [1], {"a": 1}],
    "options": [[], {"a": [1]}, {"a": {"_target_": "os.system"}}],
    "made_by": [None, {"a": []}],
    "versions": [{"torch": 2}],
    "preparation": [
        {},
        {"input_size": [1, 8], "mean": [0], "std": [1]},
        {"input_size": [1, 8, 0], "mean": [0], "std": [1]},
        {"input_size": [1, 8, True], "mean": [0], "std": [1]},
        {"input_size": [1, 8, 8], "mean": [0, 0], "std": [1]},
        {"input_size": [1, 8, 8], "mean": [0], "std": [0]},
        {"input_size": [1, 8, 8], "mean": ["0"], "std": [1]},
        {"input_size": [1, 8, 8], "mean": [0], "std": [1], "interpolation": "random"},
        {"input_size": [1, 8, 8], "mean": [0], "std": [1], "_target_": "os.system"},
    ],
    "parts": [{}, [], {WEIGHTS: 3}, {WEIGHTS: {"size": "1", "sha256": ""}}],
    "format": [2, "1", None],
    "_target_": ["os.system"],
}


@pytest.mark.parametrize(
    ("key", "value"), [(key, value) for key, values in ILL_TYPED.items() for value in values]
)
def test_a_value_of_the_wrong_kind_is_refused_though_sealed(tmp_path, key, value):
    write(tmp_path)
    rewrite_manifest(tmp_path, lambda content: content.update({key: value}))
    with pytest.raises(CorruptFileError, match=MANIFEST):
        read_folder(tmp_path)


@pytest.mark.parametrize("raw", ["", "[]", "null", '{"format": 1}', "[" * 100_000, "NaN", "\ud800"])
def test_a_manifest_that_is_none_is_refused(tmp_path, raw):
    write(tmp_path)
    (tmp_path / MANIFEST).write_bytes(raw.encode("utf-8", "surrogatepass"))
    with pytest.raises(CorruptFileError, match=MANIFEST):
        read_folder(tmp_path)


@pytest.mark.parametrize(
    "changes",
    [
        {"made_by": {"accuracy": float("nan")}},
        {"made_by": {"accuracy": float("inf")}},
        {"made_by": {"history": [1, 2]}},
        {"made_by": {"count": np.int64(3)}},
        {"options": {"act_layer": nn.ReLU}},
        {"classes": [1, 2]},
        {"name": ""},
        {"preparation": Preparation((1, 8, 8), (float("nan"),), (1.0,))},
    ],
    ids=str,
)
def test_what_json_cannot_hold_is_refused_before_anything_is_written(tmp_path, changes):
    with pytest.raises(CheckpointError, match="cannot be written"):
        write(tmp_path / "model", **changes)
    assert not (tmp_path / "model").exists()


def test_a_failed_write_leaves_the_old_model(tmp_path, monkeypatch):
    write(tmp_path, classes=["old"])

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(StorageError, match="No space left"):
        write(tmp_path, classes=["new"])
    assert read_folder(tmp_path).classes == ("old",)
    assert sorted(path.name for path in tmp_path.iterdir()) == [MANIFEST, WEIGHTS]
