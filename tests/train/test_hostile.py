"""A run folder from a stranger: what could run code or leave the folder is refused, unopened."""

import hashlib
import json
import os
import pickle
import shutil
import signal
import struct
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from stiffnet.cli.main import main
from stiffnet.network.model_folder import MANIFEST
from stiffnet.train import build
from train import faults
from train.faults import EVERYTHING, begin, kept

COMMAND = "touch canary"


class Canary:
    """Sings when it is unpickled."""

    def __reduce__(self):
        return os.system, (COMMAND,)


@pytest.fixture(autouse=True)
def _signals():
    """`main` takes the signals over; a test run wants its own back."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.fixture(scope="module")
def innocent(tmp_path_factory):
    """Return the folder of a run that died and has a single checkpoint."""
    out = tmp_path_factory.mktemp("innocent") / "run"
    assert begin(EVERYTHING, out, "--save-every", 1, at={3: faults.die}).end() == -9
    for name in kept(out)[:-1]:
        shutil.rmtree(out / "checkpoints" / name)
    return out


@pytest.fixture
def given(innocent, tmp_path, monkeypatch):
    """Return a copy of it, to be made hostile."""
    pictures = faults.pictures(faults.SAMPLES, 0), faults.pictures(10, 1)
    monkeypatch.setattr(build, "open_splits", lambda spec: pictures)
    return Path(shutil.copytree(innocent, tmp_path / "run"))


def checkpoint(run: Path) -> Path:
    (found,) = (run / "checkpoints").iterdir()
    return found


def sealed(run: Path, change=lambda content: None) -> None:
    """Change a checkpoint's manifest, and make it fit the files and itself, as an attacker can."""
    folder = checkpoint(run)
    content = json.loads((folder / MANIFEST).read_text())
    del content["seal"]
    for part in content["parts"]:
        data = (folder / part).read_bytes()
        facts = {"size": len(data), "sha256": hashlib.sha256(data).hexdigest()}
        content["parts"][part] = facts
    change(content)
    text = json.dumps(content, indent=2) + "\n"
    content["seal"] = hashlib.sha256(text.encode()).hexdigest()
    (folder / MANIFEST).write_text(json.dumps(content, indent=2) + "\n")


def resumed(run: Path, capsys) -> tuple[int, str]:
    """Resume the run; return the status and what was said, once nothing else was touched."""
    outside = sorted(str(path) for path in run.parent.rglob("*") if run not in path.parents)
    status = main(["train", "--resume", "--out", str(run)])
    after = sorted(str(path) for path in run.parent.rglob("*") if run not in path.parents)
    assert after == outside, "nothing is written outside the folder, and no canary sings"
    assert not list(run.rglob("canary"))
    said = capsys.readouterr().err
    assert "Traceback" not in said
    return status, said


def test_the_innocent_one_is_resumed(given, capsys):
    sealed(given)
    status, said = resumed(given, capsys)
    assert status == 0, said
    assert (given / "final" / MANIFEST).exists()


RECIPE_LINES = {
    "a target": ('_target_ = "os.system"', "There is no recipe field called '_target_'"),
    "a table": ('[model]\n_target_ = "os.system"', "`[model]` is given twice"),
    "an import": (f"model = \"__import__('os').system('{COMMAND}')\"", "model"),
    "a module path": ('model = "os.system"', "os.system"),
    "an interpolation": ('data = "${oc.env:HOME}"', "data"),
    "another optimizer": ('optimizer = "os.system"', "`optimizer` is 'os.system'"),
}


@pytest.mark.parametrize(("line", "words"), RECIPE_LINES.values(), ids=RECIPE_LINES)
def test_a_recipe_names_nothing_but_settings(given, capsys, monkeypatch, line, words):
    monkeypatch.undo()  # data sets, too, come by name
    monkeypatch.chdir(given.parent)
    key = line.split()[0]
    text = (given / "recipe.toml").read_text().splitlines(keepends=True)
    rest = [old for old in text if not old.startswith(f"{key} ")]
    (given / "recipe.toml").write_text("".join([*rest, f"{line}\n"]))
    status, said = resumed(given, capsys)
    assert status == 2, said
    assert words in said


def test_a_recipe_that_starts_from_a_pickle_is_refused(given, capsys):
    torch.save(Canary(), given.parent / "evil.pth")
    shutil.rmtree(given / "checkpoints")  # whose own recipe would be compared first
    text = (given / "recipe.toml").read_text()
    evil = text.replace('\nweights = ""', f'\nweights = "{given.parent}/evil.pth"')
    assert evil != text
    (given / "recipe.toml").write_text(evil)
    status, said = resumed(given, capsys)
    assert status == 4, said
    assert "evil.pth" in said


MANIFESTS = {
    "a target": (lambda content: content.update(_target_="os.system"), "'_target_'"),
    "a part above": (
        lambda content: content["parts"].update({"../canary": {"size": 0, "sha256": ""}}),
        "outside its folder",
    ),
    "a part elsewhere": (
        lambda content: content["parts"].update({"/etc/passwd": {"size": 0, "sha256": ""}}),
        "outside its folder",
    ),
    "a number": (lambda content: content.update(parts=7), "'parts'"),
}


@pytest.mark.parametrize(("change", "words"), MANIFESTS.values(), ids=MANIFESTS)
def test_a_manifest_names_nothing_but_its_parts(given, capsys, change, words):
    sealed(given, change)
    status, said = resumed(given, capsys)
    assert status == 5, said
    assert words in said


@pytest.mark.parametrize("content", [b"[" * 200_000, b"{" * 17 * 2**20, b"\x80\x04."])
def test_a_manifest_that_is_none_is_refused(given, capsys, content):
    (checkpoint(given) / MANIFEST).write_bytes(content)
    status, said = resumed(given, capsys)
    assert status == 5, said
    assert f"{MANIFEST} is not as it was written" in said


def test_a_part_that_is_a_link_to_elsewhere_is_refused(given, capsys):
    part = checkpoint(given) / "state.json"
    part.rename(given.parent / "elsewhere")
    part.symlink_to(given.parent / "elsewhere")
    status, said = resumed(given, capsys)
    assert status == 5, said
    assert "state.json is a link that leaves the folder" in said


def lying(header: object, data: bytes = b"\0" * 8, length: int | None = None) -> bytes:
    """Return a file of tensors whose header says what it likes."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text) if length is None else length) + text + data


def entry(first: int, last: int, *shape: int) -> dict[str, object]:
    return {"dtype": "F32", "shape": list(shape), "data_offsets": [first, last]}


TENSORS = {
    "a pickle": b"\x80\x04cos\nsystem\n(X\x0c\x00\x00\x00touch canarytR.",
    "an endless header": lying({}, length=2**63),
    "a header beyond the file": lying({}, length=10_000),
    "data beyond the file": lying({"w": entry(0, 4_000_000_000, 1_000_000_000)}),
    "overlapping tensors": lying({"a": entry(0, 8, 2), "b": entry(4, 8, 1)}),
    "a hole": lying({"a": entry(4, 8, 1)}),
    "a shape that overflows": lying({"w": entry(0, 8, 4194305, 4194305, 211106198978564)}),
    "no JSON": lying(b"_target_: os.system"),
    "a target": lying({"w": {"_target_": "os.system"}}),
    "a header too deep": lying(b"[" * 100_000),
    "nothing": b"",
}


@pytest.mark.parametrize("part", ["weights.safetensors", "optimizer.safetensors"])
@pytest.mark.parametrize("content", TENSORS.values(), ids=TENSORS)
def test_tensors_that_lie_about_themselves_are_refused(given, capsys, part, content):
    (checkpoint(given) / part).write_bytes(content)
    sealed(given)
    status, said = resumed(given, capsys)
    assert status == 5, said
    assert f"{part} is not a file of tensors" in said


def other_shape(tensors):
    name = min(tensors)
    return {**tensors, name: tensors[name].flatten()[:1].repeat(7)}


def other_name(tensors):
    return {**tensors, "os.system|momentum_buffer": torch.ones(1)}


@pytest.mark.parametrize("part", ["weights", "optimizer", "average"])
@pytest.mark.parametrize("change", [other_shape, other_name])
def test_tensors_of_another_network_are_refused(given, capsys, part, change):
    file = checkpoint(given) / f"{part}.safetensors"
    save_file(change(load_file(file)), file)
    sealed(given)
    status, said = resumed(given, capsys)
    assert status in (2, 5), said
    assert "another network" in said or "do not belong" in said


STATES = {
    "a target": {"_target_": "os.system", "_args_": [COMMAND]},
    "a class": {"__class__": "os.system"},
    "a list": [COMMAND],
}
UNTYPED = {
    "text for a number": {"step": "3"},
    "a step before the first": {"step": -1},
    "a step beyond the last": {"step": 10**12},
    "a history that is none": {"history": COMMAND},
    "more epochs than there are": {"history": [{}] * 9},
    "a best that leaves the folder": {"best": {"epoch": "../../canary", "step": 1}},
    "a tally of text": {"tally": {"loss": COMMAND, "hits": [1, 1, 1]}},
    "seconds of text": {"seconds": COMMAND},
    "a number that no run has": {"samples": 3},
    "a scaler of text": {"precision": COMMAND},
}


@pytest.mark.parametrize(
    "change",
    [pytest.param(change, id=name) for name, change in (STATES | UNTYPED).items()],
)
def test_a_state_holds_nothing_but_numbers(given, capsys, change):
    file = checkpoint(given) / "state.json"
    state = json.loads(file.read_text())
    file.write_text(json.dumps({**state, **change} if isinstance(change, dict) else change))
    sealed(given)
    status, said = resumed(given, capsys)
    assert status == 5, said
    assert "state.json" in said


def test_a_state_that_lies_too_deep_is_refused(given, capsys):
    (checkpoint(given) / "state.json").write_text("[" * 200_000)
    sealed(given)
    assert resumed(given, capsys)[0] == 5


def test_a_distributed_checkpoint_is_not_opened(given, capsys):
    (checkpoint(given) / ".metadata").write_bytes(pickle.dumps(Canary()))
    (checkpoint(given) / MANIFEST).unlink()
    status, said = resumed(given, capsys)
    assert status == 0, said
    assert "begins at step 0" in said
