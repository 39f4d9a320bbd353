"""Laws of opening a network: what was written comes back, what contradicts it is refused."""

import pytest
import torch
from safetensors.torch import save_file

from stiffnet import backbones
from stiffnet.data.images import Preparation
from stiffnet.errors import (
    CheckpointError,
    CorruptFileError,
    StorageError,
    UnsafeFileError,
)
from stiffnet.network.create import create_model
from stiffnet.network.model_folder import WEIGHTS, write_folder
from stiffnet.network.open import open_model
from stiffnet.network.pretrained import preparation_of

TINY = "resnet20_cifar"
TINY_TORCHVISION = "torchvision:squeezenet1_1"


def assert_same(model, other):
    state, expected = model.state_dict(), other.state_dict()
    assert state.keys() == expected.keys()
    for name in state:
        assert torch.equal(state[name], expected[name]), name


def written(path, **changes):
    model = create_model(TINY, num_classes=4, in_chans=1, seed=5)
    facts = {
        "name": TINY,
        "options": {"num_classes": 4, "in_chans": 1},
        "classes": list("abcd"),
        "preparation": Preparation((1, 16, 16), (0.5,), (0.25,)),
        "made_by": {"seed": 5},
    }
    write_folder(path, model, **(facts | changes))
    return model


def test_a_folder_gives_back_what_was_written(tmp_path):
    model = written(tmp_path / "model")
    opened = open_model(tmp_path / "model")
    assert_same(opened.model, model)
    assert opened.name == TINY
    assert opened.classes == ("a", "b", "c", "d")
    assert opened.preparation == Preparation((1, 16, 16), (0.5,), (0.25,))
    assert opened.made_by == {"seed": 5}
    assert not opened.model.training


def test_every_own_model_can_be_written_and_opened(tmp_path):
    for name in list(backbones.OWN_MODELS)[:2]:
        model = create_model(name, seed=2)
        preparation = preparation_of(model, name)
        write_folder(
            tmp_path, model, name=name, options={}, classes=[], preparation=preparation, made_by={}
        )
        assert_same(open_model(str(tmp_path)).model, model)


def test_a_torchvision_model_can_be_written_and_opened(tmp_path):
    model = create_model(TINY_TORCHVISION, num_classes=2)
    written(tmp_path, name=TINY_TORCHVISION, options={"num_classes": 2})
    preparation = preparation_of(model, TINY_TORCHVISION)
    write_folder(
        tmp_path,
        model,
        name=TINY_TORCHVISION,
        options={"num_classes": 2},
        classes=["a", "b"],
        preparation=preparation,
        made_by={},
    )
    assert_same(open_model(tmp_path).model, model)


def test_a_name_wins_over_a_folder_and_a_path_over_a_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    written(tmp_path / TINY)
    assert open_model(TINY).classes == ()
    assert open_model(f"./{TINY}").classes == ("a", "b", "c", "d")


def test_other_weights_can_be_put_into_a_folder_s_network(tmp_path):
    written(tmp_path / "model")
    other = create_model(TINY, num_classes=4, in_chans=1, seed=9)
    save_file(other.state_dict(), tmp_path / "other.safetensors")
    opened = open_model(tmp_path / "model", weights=tmp_path / "other.safetensors")
    assert_same(opened.model, other)
    assert opened.classes == ()  # what other weights stand for is not known
    assert opened.made_by == {"weights": "other.safetensors"}


def test_weights_from_a_file_go_into_a_named_network(tmp_path):
    source = create_model(TINY, num_classes=4, seed=9)
    torch.save({"state_dict": source.state_dict()}, tmp_path / "w.pth")
    assert_same(open_model(TINY, weights=tmp_path / "w.pth", num_classes=4).model, source)
    with pytest.raises(CheckpointError, match=r"fc\.weight \(\[4, 64\] for \[10, 64\]\)"):
        open_model(TINY, weights=tmp_path / "w.pth")


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"num_classes": 5}, "num_classes=4, not 5"),
        ({"in_chans": 3}, "in_chans=1, not 3"),
        ({"weights": "pretrained"}, "weights of its own"),
    ],
)
def test_what_contradicts_a_folder_is_refused(tmp_path, options, match):
    written(tmp_path)
    with pytest.raises(CheckpointError, match=match):
        open_model(tmp_path, **options)


def test_a_folder_with_options_of_another_version_is_refused(tmp_path):
    for strange in ({"depth": 3}, {"checkpoint_path": "x"}, {"num_classes": "4"}):
        written(tmp_path, options={"num_classes": 4, "in_chans": 1} | strange)
        with pytest.raises(CheckpointError, match=next(iter(strange))):
            open_model(tmp_path)


def test_a_folder_with_the_weights_of_another_network_is_refused(tmp_path):
    written(tmp_path, options={"num_classes": 3, "in_chans": 1})
    with pytest.raises(CheckpointError, match="does not fit CifarResNet"):
        open_model(tmp_path)


def test_a_damaged_folder_is_refused(tmp_path):
    written(tmp_path)
    content = bytearray((tmp_path / WEIGHTS).read_bytes())
    content[-1] ^= 1
    (tmp_path / WEIGHTS).write_bytes(content)
    with pytest.raises(CorruptFileError, match=WEIGHTS):
        open_model(tmp_path)


def test_a_place_that_is_not_there_is_named(tmp_path):
    with pytest.raises(StorageError, match="nowhere is not a folder"):
        open_model(tmp_path / "nowhere")
    with pytest.raises(StorageError, match=r"w\.pth could not be read"):
        open_model(TINY, weights=tmp_path / "w.pth")
    (tmp_path / "w.pth").write_bytes(b"\x80\x02.")
    with pytest.raises(UnsafeFileError, match="bare pickle"):
        open_model(TINY, weights=tmp_path / "w.pth")
