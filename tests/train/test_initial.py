"""A run begins with what was trained before: its weights, its head where it fits, new modules."""

import os
import signal
from dataclasses import replace

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from stiffnet.data import open_splits
from stiffnet.data.splits import subset
from stiffnet.errors import CheckpointError, DataError, RecipeError, StiffnetError
from stiffnet.jobs.fold import fold
from stiffnet.jobs.train import train
from stiffnet.network.attach import attached
from stiffnet.network.classes import imagenet
from stiffnet.network.create import create_model
from stiffnet.network.model_folder import read_folder
from stiffnet.network.open import open_model
from stiffnet.train.build import open_subject
from stiffnet.train.initial import fast_parameters, initial_network
from stiffnet.train.recipe import Recipe
from stiffnet.train.run import Audience, run
from stiffnet.train.stopping import Stopped
from stiffnet.train.tasks import task_of
from tolerances import RTOL

NAMES = tuple("abcd")
TUNED = Recipe(
    model="resnet20_cifar",
    data="generated:48",
    image_size=8,
    batch_size=16,
    epochs=1,
    padding=1,
    backbone_rate=0.5,
    learning_rate=0.01,
)
IMAGES = torch.randn(4, 3, 8, 8, generator=torch.Generator().manual_seed(1))


class Listener(Audience):
    def __init__(self, stop_at=None):
        self.notes, self.steps, self.stop_at = [], 0, stop_at

    def note(self, text):
        self.notes.append(text)

    def step(self, images, tally):
        self.steps += 1
        if self.steps == self.stop_at:
            os.kill(os.getpid(), signal.SIGTERM)


@pytest.fixture
def file(tmp_path):
    """Weights of a network with seven classes."""
    state = create_model("resnet20_cifar", num_classes=7, seed=9).state_dict()
    save_file(state, tmp_path / "seven.safetensors")
    return tmp_path / "seven.safetensors"


def final(folder):
    return load_file(folder / "final/weights.safetensors")


def same(one, other):
    return one.keys() == other.keys() and all(torch.equal(one[key], other[key]) for key in one)


@pytest.mark.parametrize("attention", ["se", "stepnet", "asr:se", "iebn", "asr:se+se"])
def test_attention_on_trained_weights_changes_nothing_at_first(file, attention):
    plain, _ = initial_network(replace(TUNED, weights=str(file)), 4, NAMES)
    recipe = replace(TUNED, weights=str(file), attention=attention)
    gated, _ = initial_network(recipe, 4, NAMES)
    assert attached(gated.model)
    assert gated.options["attention"] == attention
    with torch.no_grad():
        torch.testing.assert_close(
            gated.model(IMAGES), plain.model(IMAGES), rtol=RTOL["identity"], atol=RTOL["identity"]
        )


def test_a_head_for_another_number_of_classes_is_replaced_and_that_is_said(file):
    loaded, notes = initial_network(replace(TUNED, weights=str(file)), 4, NAMES)
    [note] = notes
    assert "has another number of outputs than the 4 that are needed. Its head (fc.weight," in note
    assert loaded.model(IMAGES).shape == (4, 4)
    held = load_file(file)
    kept = loaded.model.state_dict()
    assert all(torch.equal(kept[key], held[key]) for key in held if not key.startswith("fc."))


def test_which_of_several_state_dicts_was_taken_is_said(tmp_path):
    state = create_model("resnet20_cifar", num_classes=7, seed=9).state_dict()
    other = create_model("resnet20_cifar", num_classes=7, seed=8).state_dict()
    torch.save({"state_dict": state, "state_dict_ema": other}, tmp_path / "both.pth")
    loaded, notes = initial_network(
        replace(TUNED, weights=str(tmp_path / "both.pth")), 7, tuple("abcdefg")
    )
    assert "under 'state_dict' was taken; there is also state_dict_ema" in notes[0]
    assert same(loaded.model.state_dict(), state)


def test_a_key_chooses_which_of_them_a_run_starts_from(tmp_path):
    state = create_model("resnet20_cifar", num_classes=5, seed=9).state_dict()
    other = create_model("resnet20_cifar", num_classes=7, seed=8).state_dict()
    torch.save({"state_dict": state, "state_dict_ema": other}, tmp_path / "both.pth")
    recipe = replace(TUNED, weights=str(tmp_path / "both.pth"), weights_key="state_dict_ema")
    loaded, notes = initial_network(recipe, 7, tuple("abcdefg"))
    assert "under 'state_dict_ema' was taken" in notes[0]
    assert same(loaded.model.state_dict(), other)
    for wrong in (replace(recipe, weights_key="ema"), replace(recipe, weights="")):
        with pytest.raises(StiffnetError, match=r"leave (it )?out"):
            initial_network(wrong, 7, NAMES)


def test_what_was_done_to_the_names_of_the_weights_is_said(tmp_path):
    state = create_model("resnet20_cifar", num_classes=7, seed=9).state_dict()
    held = {f"net.{key}": value for key, value in state.items()} | {"loss.w": torch.ones(2)}
    torch.save({"state_dict": held, "arch": "resnet56_cifar"}, tmp_path / "last.ckpt")
    loaded, notes = initial_network(
        replace(TUNED, weights=str(tmp_path / "last.ckpt")), 7, tuple("abcdefg")
    )
    assert same(loaded.model.state_dict(), state)
    assert "begin with 'net.', which was taken off" in notes[0]
    assert "left out: 1 of loss" in notes[1]
    assert "last.ckpt says that it is of resnet56_cifar, and resnet20_cifar was named" in notes[2]


@pytest.mark.parametrize("prefix", ["", "backbone."])
def test_a_backbone_without_a_head_gets_one(tmp_path, prefix):
    state = create_model("resnet20_cifar", num_classes=7, seed=9).state_dict()
    kept = {key: value for key, value in state.items() if not key.startswith("fc.")}
    save_file({prefix + key: value for key, value in kept.items()}, tmp_path / "backbone")
    loaded, notes = initial_network(replace(TUNED, weights=str(tmp_path / "backbone")), 4, NAMES)
    assert notes[-1].endswith("holds a network without a head; a new one starts at random.")
    found = loaded.model.state_dict()
    assert all(torch.equal(found[key], value) for key, value in kept.items())
    assert loaded.model(IMAGES).shape == (4, 4)
    assert float(found["fc.weight"].abs().max()) < 0.1
    lacking = {key: value for key, value in kept.items() if key != "conv1.weight"}
    save_file({prefix + key: value for key, value in lacking.items()}, tmp_path / "backbone")
    with pytest.raises(CheckpointError, match=r"1 missing: conv1\.weight"):
        initial_network(replace(TUNED, weights=str(tmp_path / "backbone")), 4, NAMES)


def test_weights_that_are_not_finite_are_named_and_not_the_learning_rate(tmp_path):
    state = create_model("resnet20_cifar", num_classes=7, seed=9).state_dict()
    state["layer2.0.bn1.weight"][3] = float("nan")
    save_file(state, tmp_path / "nan")
    with pytest.raises(CheckpointError, match=r"NaN or infinite, in layer2\.0\.bn1\.weight,"):
        initial_network(replace(TUNED, weights=str(tmp_path / "nan")), 4, NAMES)


def test_a_network_on_the_hub_is_fine_tuned(tmp_path, monkeypatch):
    """Both as the network and as the weights of a named one, from Hugging Face's cache."""
    state = create_model("resnet20_cifar", num_classes=7, seed=9).state_dict()
    place = tmp_path / "hub/models--org--net"
    (place / "snapshots/0").mkdir(parents=True)
    (place / "refs").mkdir()
    (place / "refs/main").write_text("0")
    save_file(state, place / "snapshots/0/model.safetensors")
    (place / "snapshots/0/config.json").write_text(
        '{"architecture": "resnet20_cifar", "num_classes": 7}'
    )
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    for spec in ("hf-hub:org/net", "org/net"):
        for recipe in (replace(TUNED, model=spec), replace(TUNED, weights=spec)):
            loaded, notes = initial_network(recipe, 4, NAMES)
            assert spec in notes[-1]
            found = loaded.model.state_dict()
            kept = [key for key in state if not key.startswith("fc.")]
            assert all(torch.equal(found[key], state[key]) for key in kept)
            assert loaded.preparation.input_size == (3, 8, 8)


def test_a_run_stands_for_its_final_network(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    settings = {"image_size": 8, "epochs": 1, "padding": 1}
    train("resnet20_cifar", "generated:48", settings=settings, out="plain")
    trained = train("plain", "generated:48", attention="se", settings=settings, out="gated")
    assert trained.recipe.model == "plain/final"
    assert attached(open_model("gated/final").model)


def test_a_network_that_only_transformers_builds_is_refused(tmp_path):
    transformers = pytest.importorskip("transformers")
    config = transformers.ResNetConfig(embedding_size=8, hidden_sizes=[8], depths=[1])
    transformers.ResNetForImageClassification(config).save_pretrained(tmp_path / "hf")
    with pytest.raises(RecipeError, match="is a network of transformers, which is not built by"):
        initial_network(replace(TUNED, model=str(tmp_path / "hf"), image_size=0), 4, NAMES)


def test_a_head_of_the_right_size_without_names_is_kept_and_that_is_said(file):
    loaded, notes = initial_network(replace(TUNED, weights=str(file)), 7, tuple("abcdefg"))
    [note] = notes
    assert "has 7 outputs, as many as the data have classes; nothing says" in note
    assert same(loaded.model.state_dict(), load_file(file))


def test_a_file_with_gates_is_opened_with_them(tmp_path):
    state = create_model("resnet20_cifar", num_classes=7, attention="se", seed=9).state_dict()
    save_file({f"module.{key}": value for key, value in state.items()}, tmp_path / "gated")
    recipe = replace(TUNED, weights=str(tmp_path / "gated"), attention="se")
    loaded, _ = initial_network(recipe, 4, NAMES)
    held = loaded.model.state_dict()
    assert all(torch.equal(held[key], state[key]) for key in state if not key.startswith("fc."))


def test_a_weights_file_of_another_network_is_refused_as_ever(tmp_path):
    save_file(create_model("resnet32_cifar").state_dict(), tmp_path / "other")
    with pytest.raises(CheckpointError, match="does not fit"):
        initial_network(replace(TUNED, weights=str(tmp_path / "other")), 4, NAMES)


PUBLISHED = replace(TUNED, model="torchvision:squeezenet1_1", weights="pretrained", image_size=32)


@pytest.fixture
def published(monkeypatch, tmp_path):
    """Weights of the network where torchvision keeps those that it has fetched."""
    state = create_model(PUBLISHED.model, seed=9).state_dict()
    folder = tmp_path / "torch/hub/checkpoints"
    folder.mkdir(parents=True)
    torch.save(state, folder / "squeezenet1_1-b8a52dc0.pth")
    monkeypatch.setenv("TORCH_HOME", str(tmp_path / "torch"))
    monkeypatch.setattr("stiffnet.network.pretrained._is_reachable", lambda address: False)
    return state


def test_published_weights_get_a_head_for_other_classes(published):
    loaded, [note] = initial_network(PUBLISHED, 4, NAMES)
    assert "pretrained has another number of outputs than the 4 that are needed" in note
    held = loaded.model.state_dict()
    assert {name for name in held if not torch.equal(held[name], published[name])} == {
        "classifier.1.weight", "classifier.1.bias",
    }  # fmt: skip
    assert loaded.preparation.input_size == (3, 32, 32)


def test_published_weights_keep_their_head_for_their_own_classes_alone(published):
    names = imagenet().names
    loaded, notes = initial_network(PUBLISHED, 1000, names)
    assert notes == []
    assert same(loaded.model.state_dict(), published)
    loaded, [note] = initial_network(PUBLISHED, 1000, names[::-1])
    assert "was trained on other classes, or in another order" in note
    assert not same(loaded.model.state_dict(), published)


def test_random_weights_do_not_learn_slowly():
    with pytest.raises(RecipeError, match=r"`backbone_rate` is 0.5, but .* random weights\. Give"):
        initial_network(TUNED, 4, NAMES)


def test_a_plain_run_gets_a_module_and_keeps_its_head(tmp_path):
    run(replace(TUNED, backbone_rate=1), tmp_path / "plain")
    source = str(tmp_path / "plain/final")
    listener = Listener()
    recipe = replace(TUNED, model=source, attention="se", learning_rate=1e-9)
    run(recipe, tmp_path / "se", audience=listener)
    assert not any("head" in note for note in listener.notes)
    made = open_model(tmp_path / "se/final")
    assert {found.module for found in attached(made.model)} == {"se"}
    assert made.options["attention"] == "se"
    before = open_model(source).model
    torch.testing.assert_close(made.model.fc.weight, before.fc.weight)
    with pytest.raises(RecipeError, match="has the attention that it was trained with"):
        run(replace(recipe, model=str(tmp_path / "se/final")), tmp_path / "more")


def test_a_network_of_other_classes_gets_a_new_head(tmp_path):
    run(replace(TUNED, backbone_rate=1), tmp_path / "run")
    listener = Listener()
    tuned = replace(TUNED, model=str(tmp_path / "run/final"), data="digits", train_images=48)
    run(tuned, tmp_path / "tuned", audience=listener)
    assert any("Its head (fc.weight, fc.bias) was dropped" in note for note in listener.notes)
    assert read_folder(tmp_path / "tuned/final").classes == tuple("0123456789")


def test_as_many_classes_with_other_names_get_a_new_head(tmp_path):
    train, _ = open_splits("generated:48")
    run(replace(TUNED, backbone_rate=1), tmp_path / "run")
    recipe = replace(TUNED, model=str(tmp_path / "run/final"))
    for classes in (train.classes[::-1], tuple(f"not {name}" for name in train.classes)):
        loaded, [note] = initial_network(recipe, len(classes), classes)
        assert "was trained on other classes, or in another order. Its head" in note
        assert not torch.equal(loaded.model.fc.weight, final(tmp_path / "run")["fc.weight"])


def test_head_and_modules_learn_at_the_full_rate_and_the_rest_at_its_share(file, tmp_path):
    moved = {}
    for share in (0.25, 1.0):
        recipe = replace(
            TUNED, weights=str(file), attention="se", batch_size=48, weight_decay=0.0,
            backbone_rate=share, precision="64-true",
        )  # fmt: skip
        _, loaded, *_ = open_subject(recipe, task_of(recipe))
        start = {key: value.double() for key, value in loaded.model.state_dict().items()}
        fast = fast_parameters(loaded)
        run(recipe, tmp_path / str(share))
        after = final(tmp_path / str(share))
        names = [name for name, _ in loaded.model.named_parameters()]
        moved[share] = {name: after[name].double() - start[name] for name in names}
    assert {name for name in names if ".step_size." in name or name.startswith("fc.")} == fast
    for name in names:
        expected = moved[1.0][name] * (1.0 if name in fast else 0.25)
        torch.testing.assert_close(
            moved[0.25][name], expected, rtol=RTOL["steps64"], atol=1e-12, msg=name
        )
    assert any(moved[1.0][name].abs().max() > 0 for name in fast if ".step_size." in name)


def test_a_norm_that_was_replaced_learns_slowly_but_for_what_is_new(file):
    recipe = replace(TUNED, weights=str(file), attention="iebn")
    loaded, _ = initial_network(recipe, 4, NAMES)
    fast = fast_parameters(loaded)
    assert "layer1.0.bn1.weight" not in fast
    assert any(name.startswith("layer1.0.bn1.") for name in fast)


@pytest.mark.parametrize("optimizer", ["sgd", "adamw"])
def test_a_stopped_fine_tuning_goes_on_without_the_weights_file(file, tmp_path, optimizer):
    recipe = replace(TUNED, weights=str(file), attention="asr:se", epochs=2, optimizer=optimizer)
    run(recipe, tmp_path / "whole")
    with pytest.raises(Stopped):
        run(recipe, tmp_path / "run", audience=Listener(stop_at=2))
    file.unlink()
    run(recipe, tmp_path / "run", resume=True)
    assert same(final(tmp_path / "run"), final(tmp_path / "whole"))


def test_a_run_from_a_folder_goes_on_without_that_folder(tmp_path):
    run(replace(TUNED, backbone_rate=1), tmp_path / "plain")
    recipe = replace(TUNED, model=str(tmp_path / "plain/final"), attention="se")
    run(recipe, tmp_path / "whole")
    with pytest.raises(Stopped):
        run(recipe, tmp_path / "run", audience=Listener(stop_at=1))
    (tmp_path / "plain").rename(tmp_path / "elsewhere")
    run(recipe, tmp_path / "run", resume=True)
    assert same(final(tmp_path / "run"), final(tmp_path / "whole"))


def test_the_images_are_prepared_as_the_trained_network_had_them(tmp_path):
    state = create_model("test_efficientnet").state_dict()
    save_file(state, tmp_path / "weights")
    recipe = replace(
        TUNED, model="test_efficientnet", weights=str(tmp_path / "weights"), image_size=24
    )
    run(recipe, tmp_path / "run")
    published = open_model("test_efficientnet").preparation
    found = read_folder(tmp_path / "run/final").preparation
    assert found == replace(published, input_size=(3, 24, 24))


def test_a_fine_tuned_network_is_folded_to_the_same_answers(file, tmp_path):
    recipe = replace(TUNED, weights=str(file), attention="asr:se", epochs=2)
    run(recipe, tmp_path / "run")
    made = fold(tmp_path / "run")
    tuned = open_model(tmp_path / "run/final")
    folded = open_model(made.folder)
    assert not attached(folded.model)
    with torch.no_grad():
        torch.testing.assert_close(
            folded.model(IMAGES), tuned.model(IMAGES), rtol=RTOL["batch32"], atol=RTOL["batch32"]
        )


def test_a_part_of_the_images_gives_each_class_its_share(tmp_path):
    train, _ = open_splits("generated:48")
    train = replace(train, labels=np.sort(train.labels))
    part = subset(train, 12)
    classes = len(train.classes)
    counts = [int((part.labels == label).sum()) for label in range(classes)]
    assert len(part) == 12
    assert max(counts) - min(counts) <= 1
    run(replace(TUNED, backbone_rate=1, train_images=17), tmp_path / "run")
    assert read_folder(tmp_path / "run/final").made_by["steps"] == 2


@pytest.mark.parametrize(
    ("count", "match"),
    [(49, "has 48 images, and 49 were asked for"), (1, "Ask for at least one image per class")],
)
def test_a_part_that_cannot_be_is_refused(count, match):
    train, _ = open_splits("generated:48")
    with pytest.raises(DataError, match=match):
        subset(train, count)
