"""Published weights: one sentence where they cannot be had, and never code."""

import pytest
import torch

from stiffnet.errors import (
    CheckpointError,
)
from stiffnet.network import pretrained
from stiffnet.network.create import create_model
from stiffnet.network.open import open_model

TINY = "resnet20_cifar"
TINY_TORCHVISION = "torchvision:squeezenet1_1"


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
            monkeypatch.setenv(pretrained.TENSORS_ONLY, value)
        with pytest.raises(CheckpointError, match="could not be fetched"):
            create_model(TINY_TORCHVISION, pretrained=True)
        assert os.environ.get(pretrained.TENSORS_ONLY) == value
        assert not constants.HF_HUB_OFFLINE
