"""Laws of loading weights: all of them or none, never code, and every damage has a name."""

import copy
import io
import json
import os
import pickle
import random
import struct
import zipfile
from collections import OrderedDict

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from stiffnet.errors import CheckpointError, CorruptFileError, StorageError, UnsafeFileError
from stiffnet.network.create import create_model
from stiffnet.network.open import open_model
from stiffnet.network.weights import load_weights

SUFFIXES = [".pth", ".pt", ".bin", ".safetensors"]


def network(seed=0):
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Conv2d(1, 3, 3), nn.BatchNorm2d(3), nn.Flatten(), nn.Linear(3, 2))
    model[1].running_mean.normal_()
    return model


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(4, 4, bias=False)
        self.second = nn.Linear(4, 4, bias=False)
        self.second.weight = self.first.weight


def assert_same(model, other):
    state, expected = model.state_dict(), other.state_dict()
    assert state.keys() == expected.keys()
    for name in state:
        assert torch.equal(state[name], expected[name]), name


def refuses(path, error, match, model=None):
    """Whether loading raises `error` and leaves the network as it was."""
    model = model or network(1)
    before = copy.deepcopy(model)
    with pytest.raises(error, match=match) as caught:
        load_weights(model, path)
    assert caught.type is error
    assert_same(model, before)
    return str(caught.value)


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_round_trip_is_exact(tmp_path, suffix):
    path = tmp_path / f"w{suffix}"
    state = network().state_dict()
    save_file(state, path) if suffix == ".safetensors" else torch.save(state, path)
    model = network(1)
    load_weights(model, path)
    assert_same(model, network())


@pytest.mark.parametrize("number", [0, 1, 5, 40])
def test_a_header_of_any_length_is_not_taken_for_a_pickle(tmp_path, number):
    model = nn.ParameterDict({f"p{index}": nn.Parameter(torch.ones(1)) for index in range(number)})
    model["last"] = nn.Parameter(torch.ones(1))
    for padding in range(0, 700, 8):  # a header of 128 bytes begins like a pickle of protocol 0
        save_file(model.state_dict(), tmp_path / "w", metadata={"text": "x" * padding})
        nn.init.zeros_(model["last"])
        load_weights(model, tmp_path / "w")
        assert model["last"].item() == 1.0


def test_what_is_loaded_does_not_depend_on_the_file_any_more(tmp_path):
    path = tmp_path / "w.pth"
    torch.save(network().state_dict(), path)
    model = network(1)
    load_weights(model, path)
    path.write_bytes(b"\0" * path.stat().st_size)
    assert_same(model, network())


@pytest.mark.parametrize(
    "keys",
    [
        ["state_dict"],
        ["model"],
        ["model_state_dict"],
        ["state_dict_ema"],
        ["model_ema"],
        ["model", "state_dict"],
    ],
    ids=".".join,
)
def test_wrappers_are_taken_off(tmp_path, keys):
    content = network().state_dict()
    for key in reversed(keys):
        content = {"epoch": 3, "optimizer": {"lr": 0.1}, key: content}
    torch.save(content, tmp_path / "w.pth")
    model = network(1)
    load_weights(model, tmp_path / "w.pth")
    assert_same(model, network())


@pytest.mark.parametrize(
    "prefix", ["module.", "_orig_mod.", "module.module.", "module._orig_mod.", "_orig_mod.module."]
)
@pytest.mark.parametrize("suffix", [".pth", ".safetensors"])
def test_prefixes_are_taken_off(tmp_path, prefix, suffix):
    state = {prefix + name: value for name, value in network().state_dict().items()}
    path = tmp_path / f"w{suffix}"
    save_file(state, path) if suffix == ".safetensors" else torch.save(state, path)
    model = network(1)
    load_weights(model, path)
    assert_same(model, network())


def test_a_compiled_part_is_found(tmp_path):
    state = {name.replace(".", "._orig_mod.", 1): v for name, v in network().state_dict().items()}
    torch.save(state, tmp_path / "w.pth")
    model = network(1)
    load_weights(model, tmp_path / "w.pth")
    assert_same(model, network())


def test_a_child_that_is_called_module_keeps_its_name(tmp_path):
    source, model = nn.ModuleDict({"module": network()}), nn.ModuleDict({"module": network(1)})
    save_file(source.state_dict(), tmp_path / "w.safetensors")
    load_weights(model, tmp_path / "w.safetensors")
    assert_same(model, source)


@pytest.mark.parametrize("kept", ["first.weight", "second.weight"])
def test_a_shared_tensor_is_needed_under_one_name_only(tmp_path, kept):
    save_file({kept: torch.full((4, 4), 7.0)}, tmp_path / "w.safetensors")
    model = Tied()
    load_weights(model, tmp_path / "w.safetensors")
    assert torch.equal(model.second.weight, torch.full((4, 4), 7.0))
    assert model.second.weight is model.first.weight


def test_counters_of_batch_norm_may_be_missing(tmp_path):
    state = network().state_dict()
    del state["1.num_batches_tracked"]
    save_file(state, tmp_path / "w.safetensors")
    model = network(1)
    load_weights(model, tmp_path / "w.safetensors")
    assert_same(model, network())


def test_half_precision_is_widened(tmp_path):
    save_file(network().half().state_dict(), tmp_path / "w.safetensors")
    model = network(1)
    load_weights(model, tmp_path / "w.safetensors")
    assert model[0].weight.dtype == torch.float32
    assert torch.equal(model[0].weight.half(), network()[0].weight.half())


def test_a_mismatch_lists_every_kind_of_key_and_loads_nothing(tmp_path):
    state = network().state_dict()
    state["3.weight"] = torch.zeros(5, 3)
    state["more.weight"] = state.pop("0.bias")
    torch.save(state, tmp_path / "w.pth")
    text = refuses(tmp_path / "w.pth", CheckpointError, "does not fit Sequential")
    assert "1 missing: 0.bias" in text
    assert "1 unexpected: more.weight" in text
    assert "3.weight ([5, 3] for [2, 3])" in text


def test_a_long_list_is_cut_and_counted(tmp_path):
    save_file({f"x{index}": torch.zeros(1) for index in range(9)}, tmp_path / "w.safetensors")
    text = refuses(tmp_path / "w.safetensors", CheckpointError, "and 5 more")
    assert "9 unexpected" in text
    assert "x8" not in text


@pytest.mark.parametrize(
    "bad",
    [
        torch.zeros(3, dtype=torch.int8),
        torch.zeros(3, dtype=torch.complex64),
        torch.zeros(3, device="meta"),
        torch.zeros(3).to_sparse(),
        3.0,
        "os.system",
    ],
    ids=str,
)
def test_a_tensor_of_another_kind_is_refused(tmp_path, bad):
    state = network().state_dict()
    state["0.bias"] = bad
    torch.save(state, tmp_path / "w.pth")
    refuses(tmp_path / "w.pth", CheckpointError, r"of another shape or kind: 0\.bias")


def test_a_name_that_is_there_twice_is_refused(tmp_path):
    state = network().state_dict()
    state["module.0.bias"] = torch.zeros(3)
    torch.save(state, tmp_path / "w.pth")
    refuses(tmp_path / "w.pth", CheckpointError, "twice")


def _contains_itself():
    content = {"epoch": 1}
    content["model"] = content
    return content


@pytest.mark.parametrize(
    "content",
    [
        [1],
        torch.zeros(2),
        {},
        {"epoch": 1},
        {"model": {"_target_": "os.system"}},
        {0: torch.ones(1)},
    ],
    ids=str,
)
def test_a_file_without_a_state_dict_is_refused(tmp_path, content):
    torch.save(content, tmp_path / "w.pth")
    refuses(tmp_path / "w.pth", CheckpointError, r"state_dict\(\)")


def test_a_file_that_contains_itself_is_refused(tmp_path):
    torch.save(_contains_itself(), tmp_path / "w.pth")
    refuses(tmp_path / "w.pth", CheckpointError, "no state dict")


def test_a_missing_file_and_a_folder_are_named(tmp_path):
    refuses(tmp_path / "none.pth", StorageError, r"none\.pth could not be read")
    refuses(tmp_path, CheckpointError, "is a folder")


class Canary:
    """Unpickling it would touch a file."""

    def __init__(self, path):
        self.path = str(path)

    def __reduce__(self):
        return os.system, (f"touch {self.path}",)


def _bare(protocol):
    return lambda content: pickle.dumps(content, protocol)


def _saved(**options):
    def save(content):
        stream = io.BytesIO()
        torch.save(content, stream, **options)
        return stream.getvalue()

    return save


WRITERS = {f"pickle{number}": _bare(number) for number in range(6)} | {
    "zip": _saved(),
    "legacy": _saved(_use_new_zipfile_serialization=False),
    "zip4": _saved(pickle_protocol=4),
}


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize("writer", WRITERS)
def test_no_pickle_is_ever_run(tmp_path, suffix, writer):
    if writer == "legacy" and suffix not in (".pth", ".safetensors"):
        pytest.skip("each starts a process, and the others show that the suffix does not matter")
    canary = tmp_path / "canary"
    for content in (Canary(canary), {"state_dict": {"0.bias": Canary(canary)}}):
        path = tmp_path / f"w{suffix}"
        path.write_bytes(WRITERS[writer](content))
        refuses(path, UnsafeFileError, r"run code")
        assert not canary.exists()
    pickle.loads(pickle.dumps(Canary(canary)))
    assert canary.exists(), "the payload works, so the refusals above mean something"


def test_an_honest_object_is_named(tmp_path):
    torch.save({"args": os.stat_result(range(10)), "model": network().state_dict()}, tmp_path / "w")
    refuses(tmp_path / "w", UnsafeFileError, "stat_result, which could run code")


def test_a_whole_model_is_refused(tmp_path):
    torch.save(network(), tmp_path / "w.pt")
    refuses(tmp_path / "w.pt", UnsafeFileError, "Python objects")


def test_a_scripted_model_is_refused(tmp_path):
    with zipfile.ZipFile(tmp_path / "w.pt", "w") as archive:
        archive.writestr("w/data.pkl", b"N.")
        archive.writestr("w/constants.pkl", b"N.")
        archive.writestr("w/code/model.py", "import os")
    refuses(tmp_path / "w.pt", UnsafeFileError, "TorchScript")


@pytest.mark.parametrize("suffix", [".pth", ".safetensors"])
def test_every_truncation_is_seen(tmp_path, suffix):
    whole, path = tmp_path / f"whole{suffix}", tmp_path / f"w{suffix}"
    state = network().state_dict()
    save_file(state, whole) if suffix == ".safetensors" else torch.save(state, whole)
    content = whole.read_bytes()
    model = network(1)
    before = copy.deepcopy(model)
    for length in {0, 1, 7, 8, 9, *range(0, len(content), 61), len(content) - 1}:
        path.write_bytes(content[:length])
        with pytest.raises(CorruptFileError, match=r"w\."):
            load_weights(model, path)
    assert_same(model, before)


def test_flipped_bits_in_a_checkpoint_never_pass_silently(tmp_path):
    path = tmp_path / "w.pth"
    torch.save(network().state_dict(), path)
    whole = path.read_bytes()
    seen = 0
    for bit in random.Random(0).sample(range(8 * len(whole)), 80):
        damaged = bytearray(whole)
        damaged[bit // 8] ^= 1 << bit % 8
        path.write_bytes(damaged)
        model = network(1)
        try:
            load_weights(model, path)
        except CheckpointError:
            seen += 1
            assert_same(model, network(1))
        else:
            assert_same(model, network())  # the bit was padding
    assert seen >= 40


@pytest.mark.parametrize(
    "content",
    [b"", b"hello", b".hidden", b"\0" * 100, b"GIF89a", b"PK\x03\x04", b"PK\x03\x04" + b"\0" * 99],
    ids=str,
)
@pytest.mark.parametrize("suffix", [".pth", ".safetensors"])
def test_what_is_no_weights_file_is_called_damaged(tmp_path, content, suffix):
    path = tmp_path / f"w{suffix}"
    path.write_bytes(content)
    refuses(path, CorruptFileError, rf"w\{suffix} is")


def _header(content, length=None):
    raw = json.dumps(content).encode()
    return struct.pack("<Q", len(raw) if length is None else length) + raw


LIES = {
    "long": _header({}, length=2**62),
    "longer": _header({}, length=2**64 - 1),
    "above": _header({}, length=99_000_000),
    "huge": _header({"a": {"dtype": "F32", "shape": [2**40], "data_offsets": [0, 2**42]}}),
    "overflow": _header({"a": {"dtype": "F32", "shape": [2**63, 4], "data_offsets": [0, 0]}}),
    "outside": _header({"a": {"dtype": "F32", "shape": [1], "data_offsets": [4, 8]}}),
    "backward": _header({"a": {"dtype": "F32", "shape": [1], "data_offsets": [8, 4]}}),
    "strange": _header({"a": {"dtype": "os.system", "shape": [1], "data_offsets": [0, 4]}})
    + b"1234",
    "list": _header([]),
}


@pytest.mark.parametrize("lie", LIES)
def test_a_lying_header_is_refused(tmp_path, lie):
    (tmp_path / "w.safetensors").write_bytes(LIES[lie])
    refuses(tmp_path / "w.safetensors", CorruptFileError, "damaged or not a weights file")


def test_a_packed_archive_is_refused_before_it_is_unpacked(tmp_path):
    with zipfile.ZipFile(tmp_path / "w.pth", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("w/data.pkl", b"\0" * 10_000_000)
    refuses(tmp_path / "w.pth", CorruptFileError, "not one that `torch.save` wrote")


def test_the_part_with_the_wrong_sum_is_named(tmp_path):
    path = tmp_path / "w.pth"
    torch.save(OrderedDict(network().state_dict()), path)
    content = path.read_bytes()
    tensor = network()[0].weight.detach().numpy().tobytes()
    assert content.count(tensor) == 1
    path.write_bytes(content.replace(tensor, b"\1" * len(tensor)))
    refuses(path, CorruptFileError, r"part w/data/\d fails its checksum")


def theirs(state):
    """The names that the ASR authors' ResNets have."""
    return {name.replace("shortcut", "downsample"): value for name, value in state.items()}


def wrapped(path, state):
    """As their code saves it: beside other facts, with the names of a DataParallel network."""
    content = {f"module.{name}": value for name, value in state.items()}
    torch.save({"epoch": 3, "state_dict": content, "best_acc": 0.5}, path)


@pytest.mark.parametrize("name", ["resnet20_cifar", "resnet29_cifar", "acresnet56_cifar"])
def test_the_names_of_the_authors_fit_our_resnets_and_the_change_is_said(tmp_path, name):
    source, model = (create_model(name, num_classes=4, seed=seed) for seed in (1, 2))
    state = theirs(source.state_dict())
    assert state.keys() != source.state_dict().keys()
    wrapped(tmp_path / "w.pth.tar", state)
    assert load_weights(model, tmp_path / "w.pth.tar") == {"renamed": "downsample to shortcut"}
    assert_same(model, source)
    opened = open_model(name, weights=tmp_path / "w.pth.tar", num_classes=4)
    assert opened.made_by == {"weights": "w.pth.tar", "renamed": "downsample to shortcut"}
    assert_same(opened.model, source)


def test_names_that_fit_are_left_alone(tmp_path):
    source = create_model("resnet20_cifar", num_classes=4, seed=1)
    torch.save(source.state_dict(), tmp_path / "w.pth")
    assert load_weights(create_model("resnet20_cifar", num_classes=4), tmp_path / "w.pth") == {}
    one = nn.ModuleDict({"downsample": nn.Linear(2, 2), "shortcut": nn.Linear(2, 2)})
    other = copy.deepcopy(one)
    nn.init.zeros_(one["shortcut"].weight)
    torch.save(one.state_dict(), tmp_path / "both.pth")
    assert load_weights(other, tmp_path / "both.pth") == {}
    assert_same(other, one)


def test_names_are_changed_only_if_then_all_of_them_fit(tmp_path):
    model = create_model("resnet20_cifar", num_classes=4)
    state = theirs(model.state_dict())
    one = next(name for name in state if "downsample" in name)
    both = state | {one.replace("downsample", "shortcut"): state[one] + 1}
    for changed, match in (
        (both, r"unexpected: layer2\.0\.downsample"),
        (state | {"more": torch.ones(1)}, r"missing: layer2\.0\.shortcut.* more\. Nothing was"),
        ({k: v for k, v in state.items() if k != one}, r"missing: layer2\.0\.shortcut"),
    ):
        torch.save(changed, tmp_path / "w.pth")
        refuses(tmp_path / "w.pth", CheckpointError, match, model)


def test_a_file_of_other_names_and_another_shape_is_told_its_shape_only(tmp_path):
    source = create_model("resnet20_cifar", num_classes=5)
    torch.save(theirs(source.state_dict()), tmp_path / "w.pth")
    match = r"does not fit CifarResNet, even if downsample is renamed to shortcut: 2 of another"
    model = create_model("resnet20_cifar", num_classes=4)
    refuses(tmp_path / "w.pth", CheckpointError, match, model)


@pytest.mark.parametrize("attention", [None, "se"])
def test_a_file_of_the_authors_with_attention_is_refused_for_what_it_is(tmp_path, attention):
    model = create_model("resnet20_cifar", num_classes=4, attention=attention)
    state = theirs({k: v for k, v in model.state_dict().items() if "step_size" not in k})
    torch.save(state | {"layer1.0.attention_module.fc1.bias": torch.ones(1)}, tmp_path / "w.pth")
    match = "looks like one of the ASR authors' networks with attention, whose modules are not read"
    refuses(tmp_path / "w.pth", CheckpointError, match, model)
