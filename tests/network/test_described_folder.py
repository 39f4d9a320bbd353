"""Laws of the folders that timm and transformers write, on the disk and in the hub's cache."""

import json
import shutil

import pytest
import timm
import torch
from safetensors.torch import save_file

from stiffnet.data.images import Preparation
from stiffnet.errors import CheckpointError, CorruptFileError, StorageError
from stiffnet.network.create import create_model
from stiffnet.network.open import open_model


@pytest.fixture
def offline(monkeypatch, tmp_path):
    """No network, and an empty cache."""

    def refuse(*_, **__):
        raise OSError("the network is closed")

    monkeypatch.setattr("socket.create_connection", refuse)
    monkeypatch.setattr("socket.getaddrinfo", refuse)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr("urllib.request.getproxies", dict)
    return tmp_path / "hub"


@pytest.fixture
def timm_folder(tmp_path):
    folder = tmp_path / "published"
    folder.mkdir()
    model = create_model("resnet20_cifar", num_classes=3, seed=4)
    save_file(model.state_dict(), folder / "model.safetensors")
    said = {"input_size": [3, 40, 40], "mean": [0.1, 0.2, 0.3], "std": [0.5, 0.5, 0.5]}
    said |= {"crop_pct": 0.9, "interpolation": "bicubic", "tag": "a1_in1k"}
    config = {"architecture": "resnet20_cifar", "num_classes": 3, "pretrained_cfg": said}
    config["label_names"] = ["ant", "bee", "cat"]
    (folder / "config.json").write_text(json.dumps(config))
    return folder


def changed(folder, **changes):
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def cached(folder, cache, name="org/net"):
    """Put a folder where Hugging Face's cache keeps it."""
    place = cache / f"models--{name.replace('/', '--')}"
    (place / "refs").mkdir(parents=True)
    (place / "refs" / "main").write_text("0" * 40)
    shutil.copytree(folder, place / "snapshots" / ("0" * 40))


def test_a_folder_of_timm_says_what_it_is(timm_folder):
    loaded = open_model(timm_folder)
    expected = create_model("resnet20_cifar", num_classes=3, seed=4).state_dict()
    assert all(torch.equal(v, expected[k]) for k, v in loaded.model.state_dict().items())
    assert loaded.classes == ("ant", "bee", "cat")
    means = (0.1, 0.2, 0.3), (0.5, 0.5, 0.5)
    assert loaded.preparation == Preparation((3, 40, 40), *means, 0.9, "bicubic")
    assert loaded.name == "resnet20_cifar"
    assert loaded.made_by == {"weights": "published"}


def test_a_folder_that_timm_writes_is_read(tmp_path):
    for name, options in (("resnet18", {"num_classes": 3}), ("test_vit", {"img_size": 64})):
        torch.manual_seed(0)
        model = timm.create_model(name, **options).eval()
        timm.models.save_for_hf(model, tmp_path / name, safe_serialization=True)
        loaded = open_model(tmp_path / name)
        images = torch.rand(2, *loaded.preparation.input_size)
        assert torch.equal(loaded.model(images), model(images))


def test_a_folder_of_timm_says_how_images_get_its_proportions(timm_folder):
    said = json.loads((timm_folder / "config.json").read_text())["pretrained_cfg"]
    for mode in ("center", "squash", "border"):
        changed(timm_folder, pretrained_cfg=said | {"crop_mode": mode})
        assert open_model(timm_folder).preparation.crop_mode == mode
    changed(timm_folder, pretrained_cfg=said | {"crop_mode": "fold"})
    with pytest.raises(CorruptFileError, match="crop_mode is 'fold'"):
        open_model(timm_folder)


def test_a_folder_of_timm_that_resamples_in_an_unknown_way_is_refused(timm_folder):
    said = json.loads((timm_folder / "config.json").read_text())["pretrained_cfg"]
    for way in ("random", "bi-cubic"):
        changed(timm_folder, pretrained_cfg=said | {"interpolation": way})
        with pytest.raises(CorruptFileError, match=f"interpolation is '{way}', none of nearest"):
            open_model(timm_folder)


def test_a_folder_of_timm_takes_images_of_another_size(timm_folder):
    assert open_model(timm_folder, image_size=24).preparation.input_size == (3, 24, 24)


@pytest.mark.parametrize(
    ("changes", "error", "match"),
    [
        ({"model_args": {"global_pool": "max"}}, CheckpointError, "built with global_pool='max'"),
        ({"architecture": "os.system"}, CheckpointError, "does not have"),
        ({"model_args": {"checkpoint_path": "x"}}, CheckpointError, "built with checkpoint_path"),
        ({"num_classes": "3"}, CorruptFileError, "impossible num_classes"),
        ({"num_classes": 4}, CheckpointError, "does not fit"),
    ],
)
def test_what_a_description_may_not_say_is_refused(timm_folder, changes, error, match):
    changed(timm_folder, **changes)
    with pytest.raises(error, match=match):
        open_model(timm_folder)


def test_a_network_in_the_cache_of_the_hub_opens_offline(timm_folder, offline):
    cached(timm_folder, offline)
    for spec in ("hf-hub:org/net", "org/net"):
        loaded = open_model(spec)
        assert loaded.classes == ("ant", "bee", "cat")
        assert loaded.made_by["weights"] == spec
    other = open_model("resnet20_cifar", weights="hf-hub:org/net", num_classes=3)
    expected = loaded.model.state_dict()
    assert all(torch.equal(v, expected[k]) for k, v in other.model.state_dict().items())


def test_what_is_not_in_the_cache_is_one_sentence_offline(offline, monkeypatch):
    waits = []
    monkeypatch.setattr("time.sleep", waits.append)
    for spec, error, match in (
        ("hf-hub:org/none", CheckpointError, "could not be downloaded.*it is offline"),
        ("org/none", StorageError, "neither a path nor can it be downloaded.*it is offline"),
        ("hf-hub:none", CheckpointError, "Write `hf-hub:ORG/NAME`"),
    ):
        with pytest.raises(error, match=match) as caught:
            open_model(spec)
        assert "\n" not in str(caught.value)
        with pytest.raises(error, match=match):
            open_model("resnet20_cifar", weights=spec)
    assert waits == []


@pytest.fixture
def transformers_folder(tmp_path):
    transformers = pytest.importorskip("transformers")
    names = {0: "ant", 1: "bee", 2: "cat"}
    config = transformers.ResNetConfig(
        embedding_size=8, hidden_sizes=[8, 16], depths=[1, 2], layer_type="basic", id2label=names
    )
    torch.manual_seed(0)
    model = transformers.ResNetForImageClassification(config).eval()
    model.save_pretrained(tmp_path / "hf")
    said = {"do_resize": True, "size": {"shortest_edge": 36}, "do_center_crop": True}
    said |= {"crop_size": {"height": 32, "width": 32}, "image_mean": [0.5] * 3}
    said |= {"image_std": [0.25] * 3, "resample": 3, "do_normalize": True}
    said |= {"image_processor_type": "CLIPImageProcessor"}
    (tmp_path / "hf" / "preprocessor_config.json").write_text(json.dumps(said))
    return tmp_path / "hf", model


def test_a_folder_of_transformers_opens_as_transformers_opens_it(transformers_folder):
    folder, model = transformers_folder
    loaded = open_model(folder)
    images = torch.rand(2, 3, 32, 32)
    with torch.no_grad():
        assert torch.equal(loaded.model(images).logits, model(images).logits)
    assert loaded.classes == ("ant", "bee", "cat")
    assert loaded.name == "transformers:ResNetForImageClassification"
    assert loaded.preparation == Preparation(
        (3, 32, 32), (0.5,) * 3, (0.25,) * 3, 32 / 36, "bicubic"
    )
    (folder / "preprocessor_config.json").unlink()
    assert open_model(folder).made_by["preparation"] == "assumed"


def test_colours_in_another_order_are_refused(transformers_folder):
    folder, _ = transformers_folder
    path = folder / "preprocessor_config.json"
    said = json.loads(path.read_text()) | {"image_processor_type": "MobileViTImageProcessor"}
    path.write_text(json.dumps(said | {"do_flip_channel_order": True}))
    with pytest.raises(CheckpointError, match="in a way that is not known here: its processor"):
        open_model(folder)


def test_a_folder_of_transformers_that_lacks_a_tensor_is_refused(transformers_folder):
    folder, model = transformers_folder
    state = model.state_dict()
    del state["classifier.1.weight"]
    save_file(state, folder / "model.safetensors")
    with pytest.raises(CheckpointError, match=r"1 missing: classifier\.1\.weight"):
        open_model(folder)


TINY = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
TINY |= {"intermediate_size": 16, "image_size": 32, "patch_size": 8}


@pytest.mark.parametrize("kind", ["", "WithTeacher"])
def test_of_several_classes_the_one_that_was_saved_is_built(tmp_path, kind):
    transformers = pytest.importorskip("transformers")
    name = f"DeiTForImageClassification{kind}"
    model = getattr(transformers, name)(transformers.DeiTConfig(**TINY)).eval()
    model.save_pretrained(tmp_path)
    loaded = open_model(tmp_path)
    assert loaded.name == f"transformers:{name}"
    images = torch.rand(2, 3, 32, 32)
    with torch.no_grad():
        assert torch.allclose(loaded.model(images).logits, model(images).logits, atol=1e-6)


def test_weights_that_were_saved_in_half_precision_run_in_single(tmp_path):
    transformers = pytest.importorskip("transformers")
    model = transformers.ViTForImageClassification(transformers.ViTConfig(**TINY)).half()
    model.save_pretrained(tmp_path)
    loaded = open_model(tmp_path).model
    assert {weight.dtype for weight in loaded.parameters()} == {torch.float32}


def test_a_network_that_reads_text_is_refused(tmp_path):
    transformers = pytest.importorskip("transformers")
    transformers.BertConfig().save_pretrained(tmp_path)
    with pytest.raises(CheckpointError, match="BertModel, which does not read images"):
        open_model(tmp_path)


def test_code_in_a_repository_is_never_trusted(tmp_path):
    pytest.importorskip("transformers")
    code = {"model_type": "mine", "auto_map": {"AutoConfig": "mine.Config"}}
    (tmp_path / "config.json").write_text(json.dumps(code))
    (tmp_path / "mine.py").write_text(f"open({str(tmp_path / 'canary')!r}, 'w')")
    with pytest.raises(CheckpointError, match="transformers cannot build"):
        open_model(tmp_path)
    assert not (tmp_path / "canary").exists()


def test_without_transformers_it_is_asked_for(transformers_folder, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "transformers", None)
    with pytest.raises(CheckpointError, match="pip install transformers"):
        open_model(transformers_folder[0])
