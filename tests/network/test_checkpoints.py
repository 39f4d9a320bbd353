"""Laws of the checkpoints that people have: timm's, Lightning's, legacy ones, shards, folders."""

import argparse
import copy
import json
import pathlib
import pickle
import struct
from collections import OrderedDict

import numpy as np
import pytest
import timm
import torch
from safetensors.torch import save_file
from torch import nn

from stiffnet.errors import CheckpointError, CorruptFileError, UnsafeFileError
from stiffnet.jobs.subject import subject_of
from stiffnet.network.create import create_model
from stiffnet.network.loaded import remarks_on
from stiffnet.network.open import open_model
from stiffnet.network.torch_files import MAGIC
from stiffnet.network.weights import load_weights

TINY = "resnet20_cifar"


def network(seed=0):
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Conv2d(1, 3, 3), nn.BatchNorm2d(3), nn.Flatten(), nn.Linear(3, 2))
    model[1].running_mean.normal_()
    return model


def assert_same(model, other):
    state, expected = model.state_dict(), other.state_dict()
    assert state.keys() == expected.keys()
    for name in state:
        assert torch.equal(state[name], expected[name]), name


def refuses(path, error, match, model=None, **options):
    """Whether loading raises `error` in one sentence and leaves the network as it was."""
    model = model or network(1)
    before = copy.deepcopy(model)
    with pytest.raises(error, match=match) as caught:
        load_weights(model, path, **options)
    assert caught.type is error
    assert "\n" not in str(caught.value)
    assert_same(model, before)
    return str(caught.value)


def legacy(content, path):
    torch.save(content, path, _use_new_zipfile_serialization=False)
    return path


def prefixed(prefix, state):
    return {f"{prefix}{name}": value for name, value in state.items()}


def training(state, averaged):
    """A checkpoint as timm's training script writes it, with what people add."""
    return {
        "epoch": 3,
        "arch": "tiny",
        "state_dict": state,
        "optimizer": {"state": {0: {"exp_avg": torch.ones(3)}}, "param_groups": [{"lr": 0.1}]},
        "args": argparse.Namespace(lr=0.1, out=pathlib.Path("out"), best=np.float64(0.5)),
        "state_dict_ema": averaged,
        "metric": np.float64(77.5),
    }


def test_legacy_files_give_the_same_tensors_also_of_views(tmp_path):
    state = OrderedDict(network().state_dict())
    state["0.weight"] = torch.arange(81.0).view(9, 3, 3).transpose(0, 2)[:, None, :, 3:6]  # a view
    model = network(1)
    assert load_weights(model, legacy(state, tmp_path / "w.pth")) == {}
    assert torch.equal(model[0].weight, state["0.weight"])
    assert torch.equal(model[1].running_mean, network()[1].running_mean)


def test_a_timm_checkpoint_is_read_past_its_arguments_and_the_key_is_said(tmp_path):
    source, averaged = network(2), network(3)
    content = training(source.state_dict(), averaged.state_dict())
    torch.save(content, tmp_path / "zip.tar")
    legacy(content, tmp_path / "legacy.tar")
    for name in ("zip.tar", "legacy.tar"):
        model = network(1)
        told = load_weights(model, tmp_path / name)
        assert told == {"key": "state_dict", "other_keys": "state_dict_ema"}
        assert_same(model, source)
    assert load_weights(model, tmp_path / "zip.tar", key="state_dict_ema")["key"] == (
        "state_dict_ema"
    )
    assert_same(model, averaged)
    refuses(
        tmp_path / "zip.tar",
        CheckpointError,
        r"nothing under the key 'ema': it has a state dict under state_dict and state_dict_ema",
        key="ema",
    )


def test_a_namespace_is_not_a_door_for_code(tmp_path):
    canary = tmp_path / "canary"

    class Payload:
        def __reduce__(self):
            return canary.touch, ()

    torch.save({"args": argparse.Namespace(a=Payload()), "model": {}}, tmp_path / "w.pth")
    refuses(tmp_path / "w.pth", UnsafeFileError, "could run code")
    assert not canary.exists()


@pytest.mark.parametrize("prefix", ["model.", "net.", "backbone.", "model.module.", "a.b."])
def test_what_stands_before_all_names_is_taken_off(tmp_path, prefix):
    state = prefixed(prefix, network().state_dict())
    torch.save({"state_dict": state, "loops": {}}, tmp_path / "w.ckpt")
    model = network(1)
    told = load_weights(model, tmp_path / "w.ckpt")
    assert told["prefix"].startswith(prefix.split(".")[0])
    assert "left_out" not in told
    assert_same(model, network())


def test_other_modules_beside_the_network_are_left_out_with_a_word(tmp_path):
    state = prefixed("model.", network().state_dict())
    state |= {"criterion.weight": torch.ones(2), "metric.total": torch.ones(1)}
    torch.save({"state_dict": state}, tmp_path / "w.ckpt")
    model = network(1)
    told = load_weights(model, tmp_path / "w.ckpt")
    assert told == {"prefix": "model.", "left_out": "2 of criterion and metric"}
    assert_same(model, network())


def test_two_networks_that_fit_are_a_question_and_a_key_is_the_answer(tmp_path):
    student, teacher = network(2), network(3)
    both = prefixed("student.", student.state_dict()) | prefixed("teacher.", teacher.state_dict())
    torch.save({"state_dict": both}, tmp_path / "w.ckpt")
    refuses(tmp_path / "w.ckpt", CheckpointError, "several networks that fit, under student and t")
    for key in ("teacher", "state_dict.teacher"):
        model = network(1)
        load_weights(model, tmp_path / "w.ckpt", key=key)
        assert_same(model, teacher)
    torch.save({"a": student.state_dict(), "b": teacher.state_dict()}, tmp_path / "ab.pth")
    refuses(tmp_path / "ab.pth", CheckpointError, "under a and b.*--weights-key a")
    torch.save({"a": {"x.weight": torch.ones(1)}, "b": teacher.state_dict()}, tmp_path / "b.pth")
    assert load_weights(model, tmp_path / "b.pth") == {"key": "b", "other_keys": "a"}
    assert_same(model, teacher)


def test_extra_tensors_without_a_prefix_are_never_dropped(tmp_path):
    state = network().state_dict() | {"gate.weight": torch.ones(2)}
    torch.save(state, tmp_path / "w.pth")
    refuses(tmp_path / "w.pth", CheckpointError, "1 unexpected: gate.weight")
    inner = prefixed("model.", state)
    torch.save(inner, tmp_path / "w.pth")
    match = r"even if model\. is taken off its names: 1 unexpected: gate\.weight"
    refuses(tmp_path / "w.pth", CheckpointError, match)


def damaged_legacy(pickled):
    """A legacy file whose content is this pickle."""
    parts = [MAGIC, 1001, {"protocol_version": 1001, "little_endian": True, "type_sizes": {}}]
    return b"".join(pickle.dumps(part, 2) for part in parts) + pickled


def storage(numel):
    """A pickle of one tensor with a storage of so many elements, and what follows it."""
    number = b"\x8a\x08" + struct.pack("<q", numel)
    tensor = (
        b"\x80\x02}X\x01\x00\x00\x00actorch._utils\n_rebuild_tensor_v2\n((X\x07\x00\x00\x00storage"
        b"ctorch\nFloatStorage\nX\x01\x00\x00\x000X\x03\x00\x00\x00cpu" + number + b"NtQK\x00"
        b"(" + number + b"t(K\x01t\x89}tRs."
    )
    return tensor + pickle.dumps(["0"], 2) + struct.pack("<q", numel)


def test_a_legacy_file_that_asks_for_more_memory_than_it_explains_is_refused(tmp_path):
    path = tmp_path / "w.pth"
    path.write_bytes(damaged_legacy(storage(3)) + np.arange(3, dtype="<f4").tobytes())
    with pytest.raises(CheckpointError, match=r"1 unexpected: a"):  # an honest one is read
        load_weights(network(), path)
    path.write_bytes(damaged_legacy(storage(2**28)))
    refuses(path, CorruptFileError, "more than 0.5 GiB of memory, which its size does not explain")


def test_a_view_that_repeats_itself_does_not_fill_the_disk(tmp_path):
    path = legacy({"a": torch.ones(1).expand(2**28)}, tmp_path / "w.pth")
    refuses(path, CorruptFileError, "which its size does not explain")


def test_a_legacy_file_that_is_cut_short_is_damaged(tmp_path):
    whole = legacy(network().state_dict(), tmp_path / "whole").read_bytes()
    for length in (40, len(whole) // 2, len(whole) - 1):
        (tmp_path / "w.pth").write_bytes(whole[:length])
        refuses(tmp_path / "w.pth", CorruptFileError, r"w\.pth is damaged")


def test_a_reader_that_takes_too_long_is_stopped(tmp_path, monkeypatch):
    path = legacy(network().state_dict(), tmp_path / "w.pth")
    monkeypatch.setattr("stiffnet.network.torch_files.SHORTEST", 0.01)
    refuses(path, CorruptFileError, "took longer than 0 seconds")


@pytest.fixture
def shards(tmp_path):
    """The weights in two files, and their index."""
    state, index = network().state_dict(), {}
    for number, names in enumerate((list(state)[:3], list(state)[3:])):
        file = f"model-{number}-of-2.safetensors"
        save_file({name: state[name] for name in names}, tmp_path / file)
        index |= dict.fromkeys(names, file)
    path = tmp_path / "model.safetensors.index.json"
    path.write_text(json.dumps({"metadata": {}, "weight_map": index}))
    return path


def test_shards_are_one_state_dict_by_their_index_and_by_their_folder(shards):
    for path in (shards, shards.parent):
        model = network(1)
        load_weights(model, path)
        assert_same(model, network())


def test_shards_of_torch_s_own_format_are_read(shards):
    index = json.loads(shards.read_text())
    for file in set(index["weight_map"].values()):
        names = [n for n, f in index["weight_map"].items() if f == file]
        state = network().state_dict()
        torch.save({n: state[n] for n in names}, shards.parent / f"{file}.bin")
        (shards.parent / file).unlink()
    shards.unlink()
    renamed = {name: f"{file}.bin" for name, file in index["weight_map"].items()}
    path = shards.parent / "pytorch_model.bin.index.json"
    path.write_text(json.dumps({"weight_map": renamed}))
    model = network(1)
    load_weights(model, shards.parent)
    assert_same(model, network())


@pytest.mark.parametrize(
    ("change", "match"),
    [
        (lambda m: m | {"0.bias": "gone"}, "names 3 files, and 1 of them is missing: gone"),
        (lambda m: m | {"0.bias": "../w"}, r"names a file outside its folder, '\.\./w'"),
        (lambda m: m | {"more": m["0.bias"]}, "do not agree: the file does not hold 'more'"),
        (lambda m: {k: v for k, v in m.items() if k != "0.bias"}, "the file holds '0.bias'"),
        (lambda m: dict.fromkeys(m, "model.safetensors.index.json"), "that is an index itself"),
        (lambda m: {}, "names no tensor"),
        (lambda m: [1], "without a `weight_map`"),
    ],
)
def test_an_index_that_its_files_contradict_is_refused(shards, change, match):
    index = json.loads(shards.read_text())["weight_map"]
    shards.write_text(json.dumps({"weight_map": change(index)}))
    refuses(shards, CorruptFileError, match)


def test_two_values_for_one_tensor_are_refused(tmp_path):
    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.read, self.write = nn.Linear(3, 3), nn.Linear(3, 3)
            self.write.weight = self.read.weight

    state = {key: torch.rand_like(value) for key, value in Tied().state_dict().items()}
    torch.save(state, tmp_path / "w.pth")
    with pytest.raises(CheckpointError, match=r"different values under read\.weight and write\."):
        load_weights(Tied(), tmp_path / "w.pth")
    state["write.weight"] = state["read.weight"].clone()
    torch.save(state, tmp_path / "w.pth")
    assert load_weights(Tied(), tmp_path / "w.pth") == {}


def test_another_network_with_the_same_tensors_is_a_remark(tmp_path):
    state = timm.create_model("test_efficientnet").state_dict()
    for said, remarks in (("resnet18", 1), ("test_efficientnet.r160_in1k", 0), ("mine", 0)):
        torch.save({"state_dict": state, "arch": said}, tmp_path / "w.pth")
        loaded = subject_of("test_efficientnet").open(weights=tmp_path / "w.pth")
        found = [text for text in remarks_on(loaded) if "says that it is of" in text]
        assert len(found) == remarks


def test_a_folder_with_several_weights_files_is_a_question(tmp_path):
    for name in ("a.pth", "b.pth"):
        torch.save(network().state_dict(), tmp_path / name)
    refuses(tmp_path, CheckpointError, r"several weights files \(a\.pth, b\.pth\)")
    (tmp_path / "b.pth").unlink()
    load_weights(network(1), tmp_path)


def saved(tmp_path, name, **options):
    torch.save(create_model(name, **options).state_dict(), tmp_path / "w.pth")
    return tmp_path / "w.pth"


@pytest.mark.parametrize(
    ("theirs", "ours", "match"),
    [
        ((TINY, {"num_classes": 7}), TINY, r"`--num-classes 7`, in Python `num_classes=7`\.$"),
        (("resnet56_cifar", {}), TINY, r"a deeper variant .*\(layer1 has 9 blocks, and here .* 3"),
        ((TINY, {}), "resnet56_cifar", "a shallower variant"),
        ((TINY, {"in_chans": 1}), TINY, "takes images of 1 channels, and this one of 3"),
        ((TINY, {"attention": "se"}), TINY, r"with attention, so give its `attention` too\.$"),
        (
            (TINY, {"attention": "se", "num_classes": 7}),
            TINY,
            "give its `attention` too; its classifier has 7 outputs",
        ),
        (("resnet29_cifar", {}), TINY, "of another depth or width or with other parts"),
        (("mobilenet_cifar", {}), TINY, "of another network, or of another library's version"),
    ],
)
def test_a_mismatch_names_its_cause_where_names_and_shapes_show_it(tmp_path, theirs, ours, match):
    path = saved(tmp_path, theirs[0], **theirs[1])
    refuses(path, CheckpointError, match, create_model(ours))


def test_another_width_is_named(tmp_path):
    small, large = (
        nn.Sequential(*(nn.Conv2d(a, b, 1) for a, b in ((3, n), (n, n), (n, n), (n, 5))))
        for n in (8, 12)
    )
    torch.save(large.state_dict(), tmp_path / "w.pth")
    refuses(tmp_path / "w.pth", CheckpointError, "a variant of another width", small)


def test_what_nothing_explains_is_listed_and_no_more(tmp_path):
    state = network().state_dict()
    state["0.weight"] = torch.zeros(3, 1, 5, 5)
    torch.save(state, tmp_path / "w.pth")
    refuses(tmp_path / "w.pth", CheckpointError, r"Nothing was loaded; give the file of this very")


def test_a_key_that_would_fit_is_named(tmp_path):
    content = {"state_dict": {"x.weight": torch.ones(1)}, "state_dict_ema": network().state_dict()}
    torch.save(content, tmp_path / "w.pth")
    match = "what is under state_dict_ema fits, so give `--weights-key state_dict_ema`"
    refuses(tmp_path / "w.pth", CheckpointError, match)


def test_a_job_s_network_has_as_many_outputs_as_its_weights_unless_told_otherwise(tmp_path):
    path = saved(tmp_path, TINY, num_classes=7)
    loaded = subject_of(TINY).open(weights=path, guess=3)
    assert loaded.options["num_classes"] == 7
    with pytest.raises(CheckpointError, match=r"--num-classes 7"):
        subject_of(TINY).open(weights=path, num_classes=3)
    with pytest.raises(CheckpointError, match=r"--num-classes 7"):
        open_model(TINY, weights=path)


def test_what_was_taken_is_a_remark(tmp_path):
    state = create_model(TINY).state_dict()
    inner = prefixed("net.", state) | {"loss.weight": torch.ones(1)}
    torch.save({"state_dict": inner, "ema": inner}, tmp_path / "w.ckpt")
    said = list(remarks_on(subject_of(TINY).open(weights=tmp_path / "w.ckpt")))
    assert [text.split(":")[0] for text in said] == [
        "of w.ckpt, the state dict under 'state_dict' was taken; there is also ema, which "
        "`--weights-key` would take.",
        "names in the weights file begin with 'net.', which was taken off.",
        "tensors of other modules in the weights file were left out",
    ]


def test_a_key_without_a_file_is_refused():
    for weights in (None, "pretrained"):
        with pytest.raises(CheckpointError, match="no file is given"):
            open_model(TINY, weights=weights, weights_key="ema")
