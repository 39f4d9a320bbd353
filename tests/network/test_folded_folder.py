"""Laws of the folded folder: the same numbers to the bit, its form said, its structure checked."""

import hashlib
import json

import pytest
import safetensors
import timm
import torch

from stiffnet.errors import CheckpointError, CorruptFileError
from stiffnet.fold.fold import fold
from stiffnet.network.attention_text import split_attention
from stiffnet.network.create import create_model
from stiffnet.network.deployed import Change
from stiffnet.network.folded_folder import STRUCTURE, write_folded
from stiffnet.network.model_folder import MANIFEST, ORIGIN, WEIGHTS, read_folder
from stiffnet.network.open import open_model
from stiffnet.network.weights import load_weights, read_weights

CASES = {
    "plain": ("asr:se", False, None),
    "fused": ("asr:se", True, None),
    "staying": ("asr:se+se,reduction=8", False, "se,reduction=8"),
    "norms": ("asr:iebn", False, None),
}


@pytest.fixture(scope="module")
def made():
    """Folded networks by case, each made once: where it came from, and what the fold gave."""
    kept = {}

    def get(case):
        if case not in kept:
            attention, fuse, _ = CASES[case]
            source = open_model(
                "resnet20_cifar", num_classes=4, image_size=8, attention=attention, seed=3
            )
            kept[case] = source, fold(source.model, images(), fuse=fuse, passes=0)
        return kept[case]

    return get


def images(count=3):
    return torch.randn(count, 3, 8, 8, generator=torch.Generator().manual_seed(5))


def written(folder, made, case):
    source, result = made(case)
    changes, origin = result.report.changes, {"source": "a test"}
    return write_folded(folder, result.model, changes, source=source, made_by=origin)


def forge(folder, content):
    """Put another structure into a folder and seal it anew, as an attacker would."""
    data = content if isinstance(content, bytes) else json.dumps(content).encode()
    (folder / STRUCTURE).write_bytes(data)
    manifest = json.loads((folder / MANIFEST).read_text())
    del manifest["seal"]
    facts = {"size": len(data), "sha256": hashlib.sha256(data).hexdigest()}
    manifest["parts"][STRUCTURE] = facts
    text = json.dumps(manifest, indent=2) + "\n"
    manifest["seal"] = hashlib.sha256(text.encode()).hexdigest()
    (folder / MANIFEST).write_text(json.dumps(manifest, indent=2) + "\n")


@pytest.mark.parametrize("case", CASES)
def test_a_folder_gives_the_folded_network_back_to_the_bit(tmp_path, made, case):
    source, result = made(case)
    loaded = open_model(written(tmp_path, made, case))
    assert (loaded.form, source.form) == ("folded", "train")
    assert loaded.options["attention"] == CASES[case][2]
    assert loaded.changes == result.report.changes
    assert bool(loaded.changes) == CASES[case][1]
    with torch.no_grad():
        assert torch.equal(loaded.model(images()), result.model(images()))
    assert not any(module.training for module in loaded.model.modules())


@pytest.mark.slow
@pytest.mark.parametrize(("name", "fuse"), [("repvgg_a0", False), ("acresnet56_cifar", True)])
def test_joined_branches_come_back_to_the_bit(tmp_path, name, fuse):
    source = open_model(name, num_classes=4, seed=3)
    batch = torch.randn(2, 3, 32, 32, generator=torch.Generator().manual_seed(5))
    result = fold(source.model, batch, fuse=fuse, passes=0)
    changes = result.report.changes
    assert {change.kind for change in changes} >= {"branches"}
    loaded = open_model(write_folded(tmp_path, result.model, changes, source=source, made_by={}))
    with torch.no_grad():
        assert torch.equal(loaded.model(batch), result.model(batch))


def test_folded_weights_load_strictly_into_timms_plain_model(tmp_path, made):
    folder = written(tmp_path, made, "plain")
    plain = timm.create_model("resnet20_cifar", num_classes=4).eval()
    plain.load_state_dict(read_weights(folder / WEIGHTS), strict=True)
    with torch.no_grad():
        assert torch.equal(plain(images()), made("plain")[1].model(images()))


def test_the_folder_and_its_weights_say_what_made_them(tmp_path, made):
    folder = read_folder(written(tmp_path, made, "staying"))
    assert folder.made_by["attention"] == "asr:se"
    assert folder.made_by["source"] == "a test"
    with safetensors.safe_open(folder.weights, "pt") as file:
        said = json.loads(file.metadata()[ORIGIN])
    assert said == {"form": "folded", "made_by": dict(folder.made_by)}


def test_equal_folds_give_equal_bytes(tmp_path, made):
    one, two = (written(tmp_path / name, made, "fused") for name in ("one", "two"))
    for part in (WEIGHTS, MANIFEST, STRUCTURE):
        assert (one / part).read_bytes() == (two / part).read_bytes()


@pytest.mark.parametrize(
    ("case", "attention", "words"),
    [
        ("plain", "asr:se", "is a folded network, with its attention in it"),
        ("plain", "se", "so leave `attention` out"),
        ("fused", None, "is a folded network with merged layers, so open the folder"),
    ],
)
def test_folded_weights_in_another_network_say_what_they_are(
    tmp_path, made, case, attention, words
):
    folder = written(tmp_path, made, case)
    model = create_model("resnet20_cifar", num_classes=4, attention=attention)
    with pytest.raises(CheckpointError, match=words):
        load_weights(model, folder / WEIGHTS)


def test_forms_are_told_by_their_names_where_the_file_does_not_say(tmp_path, made):
    source, result = made("fused")
    torch.save(result.model.state_dict(), "fused.pth")
    torch.save(source.model.state_dict(), "attached.pth")
    torch.save(create_model("resnet20_cifar", num_classes=4).state_dict(), "plain.pth")
    plain = create_model("resnet20_cifar", num_classes=4)
    with pytest.raises(CheckpointError, match="looks like a folded network"):
        load_weights(plain, "fused.pth")
    fused = open_model(written(tmp_path / "fused", made, "fused")).model
    with pytest.raises(CheckpointError, match="looks like a network with attention"):
        load_weights(fused, "attached.pth")
    with pytest.raises(CheckpointError, match="looks like a network that is not folded"):
        load_weights(fused, "plain.pth")


NORM = {"kind": "norm", "path": "bn1", "into": "conv1"}
STRANGE = {
    "no JSON": (b"\xff{", "it is not JSON"),
    "a deep one": (b"[" * 100_000, "expected 'object', got 'array'"),
    "no list": ({}, "expected 'array', got 'object'"),
    "no table": ([1], r"expected 'object', got 'int' at '\[0\]'"),
    "one key more": ([NORM | {"_target_": "os.system"}], "unknown field '_target_'"),
    "one key less": ([{"kind": "norm", "path": "bn1"}], "missing required field 'into'"),
    "another kind": ([NORM | {"kind": "delete"}], "invalid enum value 'delete'"),
    "a kind that is a list": ([NORM | {"kind": ["norm"]}], r"got 'array' at '\[0\].kind'"),
    "a number": ([NORM | {"path": 3}], r"got 'int' at '\[0\].path'"),
    "no such module": ([NORM | {"path": "bn7"}], "'bn7', which .* does not have"),
    "no module at all": ([NORM | {"path": "__class__"}], "does not have"),
    "into nothing": ([NORM | {"into": ""}], "a norm goes into a layer"),
    "into no layer": ([NORM | {"into": "layer1"}], "'layer1' is not a layer"),
    "into a norm": ([NORM | {"into": "layer1.0.bn1"}], "is not a layer"),
    "no norm": ([NORM | {"path": "fc"}], "'fc' is not a norm"),
    "the network itself": ([NORM | {"path": ""}], "'' is not a norm"),
    "no branches": ([{"kind": "branches", "path": "conv1", "into": ""}], "no branches"),
    "branches into": (
        [{"kind": "branches", "path": "conv1", "into": "bn1"}],
        "a norm goes into a layer",
    ),
    "twice": ([NORM, NORM], "'bn1' is not a norm"),
}


@pytest.mark.parametrize(("content", "words"), STRANGE.values(), ids=STRANGE)
def test_a_structure_that_folding_cannot_have_made_is_refused(tmp_path, made, content, words):
    folder = written(tmp_path, made, "plain")
    forge(folder, content)
    with pytest.raises(CorruptFileError, match=f"{STRUCTURE} is not what was written.*{words}"):
        open_model(folder)


def test_a_structure_of_another_fold_does_not_take_the_weights(tmp_path, made):
    folder = written(tmp_path, made, "plain")
    forge(folder, [NORM])
    with pytest.raises(CheckpointError, match="does not fit"):
        open_model(folder)


def test_a_flipped_bit_in_the_structure_is_seen(tmp_path, made):
    folder = written(tmp_path, made, "fused")
    data = bytearray((folder / STRUCTURE).read_bytes())
    data[40] ^= 1
    (folder / STRUCTURE).write_bytes(data)
    with pytest.raises(CorruptFileError, match=f"{STRUCTURE} is not as it was written"):
        open_model(folder)


def test_a_form_of_the_future_is_refused(tmp_path, made):
    folder = written(tmp_path, made, "plain")
    text = (folder / MANIFEST).read_text().replace('"form": "folded"', '"form": "frozen"')
    (folder / MANIFEST).write_text(text)
    forge(folder, [])
    with pytest.raises(CheckpointError, match=r"form 'frozen'.*Update stiffnet"):
        open_model(folder)


def test_weights_that_no_network_of_that_name_takes_are_not_written(tmp_path, made):
    source, result = made("fused")
    with pytest.raises(ValueError, match="could not be built again as a resnet20_cifar"):
        write_folded(tmp_path / "new", result.model, [], source=source, made_by={})
    assert not (tmp_path / "new").exists()


def test_norms_of_a_folded_network_are_merged_later(tmp_path, made):
    once = open_model(written(tmp_path / "once", made, "plain"))
    result = fold(once.model, images(), fuse=True, passes=0)
    changes = result.report.changes
    folder = write_folded(tmp_path / "twice", result.model, changes, source=once, made_by={})
    twice = open_model(folder)
    assert twice.changes == changes
    assert Change("norm", "bn1", "conv1") in changes
    assert twice.made_by["attention"] == "asr:se"


@pytest.mark.parametrize(
    ("text", "stays", "folded"),
    [
        ("none", None, None),
        ("se", "se", None),
        ("asr:se,init=1e-3,learnable=false", None, "asr:se,init=0.001,learnable=false"),
        ("asr:se+eca+asr:srm,where=layer3.*", "eca", "asr:se+asr:srm,where=layer3.*"),
    ],
)
def test_constant_attention_goes_and_the_rest_stays(text, stays, folded):
    assert split_attention(text) == (stays, folded)
