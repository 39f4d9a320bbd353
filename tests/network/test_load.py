"""Laws of opening a network: by name, deterministic, offline, and leaving the caller alone."""

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from stiffnet import backbones
from stiffnet.data.images import Preparation
from stiffnet.errors import (
    CheckpointError,
    CorruptFileError,
    StorageError,
    UnknownNameError,
    UnsafeFileError,
)
from stiffnet.network import load
from stiffnet.network.load import create_model, model_names, open_model, preparation_of
from stiffnet.network.model_folder import WEIGHTS, write_folder

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


@pytest.fixture
def closed(monkeypatch, tmp_path):
    """No network and no cache, on any machine."""

    def refuse(*_, **__):
        raise OSError("the network is closed")

    monkeypatch.setattr("socket.create_connection", refuse)
    monkeypatch.setattr("socket.getaddrinfo", refuse)
    monkeypatch.setenv("TORCH_HOME", str(tmp_path / "torch"))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr("urllib.request.getproxies", dict)


@pytest.mark.parametrize("name", [TINY, TINY_TORCHVISION])
def test_random_weights_depend_on_the_seed_alone(name):
    first = create_model(name, num_classes=3, seed=1)
    torch.rand(7)
    assert_same(create_model(name, num_classes=3, seed=1), first)
    other = create_model(name, num_classes=3, seed=2)
    assert not all(
        torch.equal(a, b) for a, b in zip(first.parameters(), other.parameters(), strict=True)
    )


@pytest.mark.parametrize("name", [TINY, TINY_TORCHVISION])
def test_the_caller_keeps_its_random_numbers(name):
    torch.manual_seed(3)
    expected = torch.rand(4)
    torch.manual_seed(3)
    open_model(name, num_classes=3)
    assert torch.equal(torch.rand(4), expected)


@pytest.mark.parametrize("name", [TINY, TINY_TORCHVISION])
def test_the_number_of_classes_is_the_number_of_logits(name):
    opened = open_model(name, num_classes=3)
    channels, _, _ = opened.preparation.input_size
    assert opened.model(torch.zeros(2, channels, 32, 32)).shape == (2, 3)
    assert not opened.model.training
    assert (opened.name, opened.form, opened.classes) == (name, "train", ())
    assert opened.made_by == {"weights": "random", "seed": 0}


def test_one_channel_is_normalised_by_the_mean_of_three():
    opened = open_model(TINY, in_chans=1)
    assert opened.preparation.input_size == (1, 32, 32)
    three = preparation_of(create_model(TINY), TINY)
    assert opened.preparation.mean == pytest.approx((sum(three.mean) / 3,))
    assert opened.model(torch.zeros(1, 1, 32, 32)).shape == (1, 10)


def test_preparations_are_those_of_the_publishers():
    mean, std = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
    nothing = nn.Identity()
    assert preparation_of(nothing, "torchvision:resnet18") == Preparation(
        (3, 224, 224), mean, std, crop=224 / 256
    )
    assert preparation_of(nothing, "torchvision:vit_h_14").input_size == (3, 518, 518)
    assert preparation_of(create_model(TINY), TINY).mean == backbones.cifar_resnet.CIFAR_MEAN


@pytest.mark.parametrize("name", ["torchvision:inception_v3", "torchvision:googlenet"])
def test_nothing_is_announced(name):
    assert isinstance(create_model(name, num_classes=2), nn.Module)  # warnings are errors here


@pytest.mark.parametrize(
    ("name", "match"),
    [
        ("resnet20_cifr", "Did you mean 'resnet20_cifar'"),
        ("torchvision:resnt18", "Did you mean 'torchvision:resnet18'"),
        ("resnet18.tv_in1", "Did you mean 'resnet18.tv_in1k'"),
        ("zzzzqqqq", "`stiffnet list models` lists them all"),
        ("torchvision:fasterrcnn_mobilenet_v3_large_fpn", "There is no model"),
        ("hf-hub:timm/resnet18.a1_in1k", "There is no model"),
        ("resnet18.hf-hub:timm/resnet18", "There is no model"),
        ("local-dir:/tmp", "There is no model"),
        ("", "There is no model"),
    ],
)
def test_an_unknown_name_gets_the_nearest_ones(name, match):
    with pytest.raises(UnknownNameError, match=match):
        create_model(name)


def test_a_known_tag_is_known():
    assert load.is_model_name("resnet18.tv_in1k")
    assert not load.is_model_name("resnet18.")


@pytest.mark.parametrize(
    ("name", "options", "match"),
    [
        (TINY, {"num_classes": 0}, "`num_classes` is 0"),
        (TINY, {"in_chans": -1}, "`in_chans` is -1"),
        ("torchvision:resnet18", {"in_chans": 1}, "grey images are repeated"),
        ("torchvision:resnet18", {"num_classes": 7, "pretrained": True}, "have 1000 classes"),
    ],
)
def test_impossible_options_are_refused(name, options, match):
    with pytest.raises(CheckpointError, match=match):
        create_model(name, **options)


@pytest.mark.parametrize(
    ("name", "match"),
    [
        ("resnet10t", "resnet10t could not be fetched: there is no copy on this machine"),
        (TINY_TORCHVISION, "squeezenet1_1 could not be fetched"),
        (TINY, "Nobody has published pretrained weights for resnet20_cifar"),
    ],
)
def test_pretrained_weights_offline_are_one_sentence_at_once(
    closed, caplog, monkeypatch, name, match
):
    waits = []
    monkeypatch.setattr("time.sleep", waits.append)  # Hugging Face's retries: 24 seconds of them
    with pytest.raises(CheckpointError, match=match):
        open_model(name, weights="pretrained")
    assert waits == []
    assert "Retrying" not in caplog.text


def test_a_poisoned_cache_is_not_unpickled(closed, tmp_path):
    canary = tmp_path / "canary"

    class Payload:
        def __reduce__(self):
            return canary.touch, ()

    cache = tmp_path / "torch" / "hub" / "checkpoints"
    cache.mkdir(parents=True)
    torch.save({"classifier.1.bias": Payload()}, cache / "squeezenet1_1-b8a52dc0.pth")
    with pytest.raises(CheckpointError, match="could not be fetched"):
        create_model(TINY_TORCHVISION, pretrained=True)
    assert not canary.exists()


def test_a_download_leaves_the_settings_as_they_were(closed, monkeypatch):
    import os

    import huggingface_hub.constants as constants

    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    for value in (None, "0"):
        if value:
            monkeypatch.setenv(load.TENSORS_ONLY, value)
        with pytest.raises(CheckpointError, match="could not be fetched"):
            create_model(TINY_TORCHVISION, pretrained=True)
        assert os.environ.get(load.TENSORS_ONLY) == value
        assert not constants.HF_HUB_OFFLINE


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
    for name in backbones.OWN_MODELS[:2]:
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
    assert opened.classes == ("a", "b", "c", "d")
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


def test_every_listed_name_is_known_once():
    names = [name for name, _ in model_names()]
    assert len(set(names)) == len(names) > 1000
    assert all(load.is_model_name(name) for name in names)


def test_the_list_is_filtered_by_a_glob_with_and_without_the_source():
    assert ("resnet20_cifar", "stiffnet") in model_names("*_cifar")
    assert {source for _, source in model_names("resnet18")} == {"timm", "torchvision"}
    assert model_names("torchvision:resnet18") == [("torchvision:resnet18", "torchvision")]
    assert model_names("zzz*") == []
