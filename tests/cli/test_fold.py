"""`stiffnet fold` as a user meets it: a run in, the network to deploy out, one sentence else."""

import contextlib
import hashlib
import io
import json
import shutil
import subprocess
import sys
from importlib.util import find_spec

import pytest
import torch

from stiffnet.cli.main import main
from stiffnet.network.export import ABOUT, PACKAGES
from stiffnet.network.folded_folder import STRUCTURE
from stiffnet.network.model_folder import MANIFEST, WEIGHTS
from stiffnet.network.open import open_model
from stiffnet.results.stiffness import StiffnessReport
from tolerances import RTOL

needs_onnx = pytest.mark.skipif(
    any(find_spec(name) is None for name in PACKAGES), reason="the optional group onnx"
)


def train(out, attention):
    settings = ["--set", "epochs=1", "--set", "image_size=8", "--set", "batch_size=20"]
    command = ["train", "resnet20_cifar", "--data", "generated:40", "--attention", attention]
    assert main([*command, *settings, "--out", str(out)]) == 0


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A tiny run with constant attention, whose last lines point to `fold`."""
    out = tmp_path_factory.mktemp("runs") / "a run"
    with contextlib.redirect_stdout(io.StringIO()) as said:
        train(out, "asr:se")
    assert f"Fold it:     stiffnet fold '{out}'\n" in said.getvalue()
    return out


@pytest.fixture
def run(trained, tmp_path):
    """A copy of it for one test, so that none sees another's files."""
    shutil.copytree(trained, tmp_path / "run")
    return tmp_path / "run"


def outputs(folder):
    images = torch.randn(4, 3, 8, 8, generator=torch.Generator().manual_seed(9))
    with torch.no_grad():
        return open_model(folder).model(images)


def close(one, other):
    return float((one - other).abs().max() / one.abs().max()) <= RTOL["batch32"]


def test_a_run_from_its_training_to_a_measured_folded_network(run, tmp_path, capsys):
    assert main(["fold", "run", "--program", "net.pt2"]) == 0
    said = capsys.readouterr()
    assert "Folded: 9 × asr:se" in said.out
    assert "Compared on 8 random and 16 real images." in said.out
    assert "The folded network: run/folded" in said.out
    assert "The program: net.pt2; outputs differ by" in said.out
    assert "16 real ones" in said.out
    assert said.err == ""
    loaded = open_model(run / "folded")
    assert (loaded.form, loaded.options["attention"]) == ("folded", None)
    assert loaded.made_by["source"] == "run/final"
    assert "TNS of the folded network differ" in loaded.made_by["notes"]
    assert "TNS of the folded network differ" in " ".join(said.out.split())
    assert loaded.made_by["data"] == "generated-train"
    assert loaded.classes == open_model(run / "final").classes
    assert close(outputs(run / "final"), outputs(run / "folded"))
    about = {ABOUT: ""}
    program = torch.export.load(tmp_path / "net.pt2", extra_files=about).module()
    assert program(torch.zeros(3, 3, 8, 8)).shape == (3, 10)
    kept = {key: json.loads(json.loads(about[ABOUT])[key]) for key in ("preparation", "classes")}
    assert kept == json.loads(json.dumps({k: vars(loaded)[k] for k in kept}, default=vars))
    assert main(["measure", "run/folded", "--data", "generated:20", "--out", "seen"]) == 0
    assert StiffnessReport.load("seen/report.json").facts["form"] == "folded"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["net.pt2", "run", "seen"]


@needs_onnx
@pytest.mark.slow
def test_onnx_beside_the_fused_network(run, tmp_path, capsys):
    import onnxruntime

    command = ["fold", "run", "--fuse", "--onnx", "net.onnx", "--data", "generated:9"]
    assert main([*command, "--limit", "5"]) == 0
    said = capsys.readouterr().out
    assert "8 random and 5 real images" in said
    assert "net.onnx; outputs differ by" in said
    session = onnxruntime.InferenceSession("net.onnx")
    assert session.get_modelmeta().custom_metadata_map["form"] == "folded"
    assert json.loads((run / "folded/structure.json").read_text())[0]["kind"] == "norm"
    model = open_model(run / "folded").model
    for size in (1, 2, 5):
        images = torch.rand(size, 3, 8, 8)
        (result,) = session.run(None, {"images": images.numpy()})
        with torch.no_grad():
            assert close(model(images), torch.from_numpy(result))


def test_a_checkpoint_goes_beside_itself_and_is_not_folded_twice(run, capsys):
    assert main(["fold", "run/best"]) == 0
    assert "The folded network: run/best-folded" in capsys.readouterr().out
    assert main(["fold", "run/best-folded"]) == 2
    assert "run/best-folded is already folded" in capsys.readouterr().err


@pytest.mark.slow
def test_norms_are_merged_later_and_a_folded_network_gives_way(run):
    assert main(["fold", "run/best"]) == 0
    assert main(["fold", "run/best-folded", "--fuse", "--out", "fused"]) == 0
    assert close(outputs("run/best"), outputs("fused"))
    assert open_model("fused").changes
    assert main(["fold", "run/best", "--out", "fused"]) == 0
    assert not open_model("fused").changes


def test_images_that_are_gone_are_a_note_unless_asked_for(run, capsys):
    recipe = run / "final" / "recipe.toml"
    recipe.write_text(recipe.read_text().replace("generated:40", "cifar10:gone"))
    manifest = run / "final" / "MANIFEST.json"
    content = json.loads(manifest.read_text())
    del content["parts"]["recipe.toml"], content["seal"]
    manifest.write_text(sealed(content))
    assert main(["fold", "run"]) == 0
    said = capsys.readouterr()
    assert "only random images are compared, as the run's own cannot be" in said.err
    assert "8 random and 0 real" in said.out
    assert main(["fold", "run", "--data", "cifar10:gone"]) == 3


def sealed(content):
    text = json.dumps(content, indent=2) + "\n"
    return json.dumps({**content, "seal": hashlib.sha256(text.encode()).hexdigest()}, indent=2) + (
        "\n"
    )


def occupied(run):
    (run / "folded").mkdir()
    (run / "folded" / "thesis.tex").write_text("years")


def unfinished(run):
    shutil.rmtree(run / "final")


def damaged(run):
    weights = run / "final" / "weights.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1])


def linked(run):
    (run.parent / "net.pt2").symlink_to(run / "final" / "weights.safetensors")
    (run.parent / "again").symlink_to(run / "final", target_is_directory=True)


def nothing(run):
    return None


BAD = {
    "nowhere": (nothing, ["./none"], 6, "none is not a folder"),
    "an unknown model": (nothing, ["resnet5o"], 2, "Did you mean 'resnet50'"),
    "a name without weights": (nothing, ["resnet18"], 2, "its weights would be random. Give them"),
    "an unfinished run": (unfinished, ["run"], 2, "is not finished. Finish it with"),
    "a damaged one": (damaged, ["run"], 5, "weights.safetensors"),
    "a folder of somebody's": (occupied, ["run"], 2, "run/folded contains something other than"),
    "a trained network": (nothing, ["run", "--out", "run/best"], 2, "run/best contains"),
    "the source": (nothing, ["run", "--out", "run/final"], 2, "run/final is the network that"),
    "the source, otherwise spelled": (
        linked, ["run", "--out", "./run/../again"], 2, "is the network that is being folded",
    ),
    "the run's weights": (
        nothing, ["run", "--program", "run/final/weights.safetensors"], 2,
        "weights.safetensors exists already and is not a program that stiffnet wrote",
    ),
    "a link to them": (linked, ["run", "--program", "net.pt2"], 2, "net.pt2 exists already"),
    "a file of the result": (
        nothing, ["run", "--program", "run/folded/WEIGHTS.safetensors"], 2,
        "will be a part of the folded network",
    ),
    "one file for two, in capitals": (
        nothing, ["run", "--onnx", "a", "--program", "A"], 2, "a file of its own",
    ),
    "a file as the folder": (nothing, ["run", "--out", "run/log.jsonl"], 6, "could not be written"),
    "a folder as the file": (nothing, ["run", "--program", "run"], 6, "run is a folder"),
    "one file for two": (
        nothing, ["run", "--onnx", "a", "--program", "./a"], 2, "a file of its own",
    ),
    "unknown data": (nothing, ["run", "--data", "cifar11:x"], 2, "Did you mean"),
}  # fmt: skip


@pytest.mark.parametrize(("prepare", "arguments", "status", "words"), BAD.values(), ids=BAD)
def test_a_mistake_is_one_sentence_and_a_status(run, capsys, prepare, arguments, status, words):
    prepare(run)
    before = content(run.parent)
    assert main(["fold", *arguments]) == status
    said = capsys.readouterr()
    assert words in said.err
    assert len(said.err.splitlines()) == 1
    assert said.out == ""
    assert content(run.parent) == before


def content(folder):
    return {path: path.is_file() and path.read_bytes() for path in folder.rglob("*")}


@needs_onnx
def test_no_onnx_file_lands_on_what_is_no_onnx_file_of_ours(run, capsys):
    (run / "net.onnx").write_bytes(b"somebody's")
    before = content(run)
    for path in ("run/final/weights.safetensors", "run/net.onnx"):
        assert main(["fold", "run", "--onnx", path]) == 2
        said = capsys.readouterr().err
        assert f"{path} exists already and is not an ONNX file that stiffnet wrote" in said
    assert content(run) == before


def test_a_folded_network_is_not_replaced_by_what_is_made_of_it(run, capsys):
    assert main(["fold", "run/best"]) == 0
    before = content(run)
    assert main(["fold", "run/best-folded", "--fuse", "--out", "run/best-folded"]) == 2
    assert "run/best-folded is the network that is being folded" in capsys.readouterr().err
    assert content(run) == before


def test_missing_onnx_is_said_before_any_work(run, capsys, monkeypatch):
    monkeypatch.setattr("stiffnet.network.export.find_spec", lambda name: None)
    assert main(["fold", "run", "--onnx", "net.onnx"]) == 2
    assert "pip install 'stiffnet[onnx]'" in capsys.readouterr().err
    assert not (run / "folded").exists()


def test_ordinary_attention_is_left_and_said(tmp_path, capsys):
    train(tmp_path / "se", "se")
    assert "Fold it" not in capsys.readouterr().out
    assert main(["fold", "se"]) == 2
    said = capsys.readouterr().err
    assert "Nothing in" in said
    assert "depends on the input" in said
    assert not (tmp_path / "se" / "folded").exists()


def test_a_file_cannot_be_where_the_network_goes(run, capsys):
    assert main(["fold", "run", "--out", "there", "--onnx", "there"]) == 6
    assert "there is a folder. Give the name of a file" in capsys.readouterr().err


KILLED = """
import os, sys
from stiffnet.cli.main import main

replace, left = os.replace, int(sys.argv[1])

def killed(*args):
    global left
    left -= 1
    if left < 0:
        os._exit(9)
    replace(*args)

os.replace = killed
main(["fold", "run", "--out", "out"])
"""


@pytest.mark.parametrize("there", [False, True], ids=["a new folder", "an empty folder"])
def test_a_killed_fold_leaves_nothing_in_the_way_of_the_next(run, there):
    out = run.parent / "out"
    if there:
        out.mkdir()
    for files in (0,) if there else (0, 2):  # that were finished before
        command = [sys.executable, "-c", KILLED, str(files)]
        assert subprocess.run(command, cwd=run.parent, check=False).returncode == 9
        assert out.exists() == there
    assert main(["fold", str(run), "--out", str(out)]) == 0
    assert open_model(out).form == "folded"
    assert {path.name for path in run.parent.iterdir()} == {"run", "out"}
    assert {path.name for path in out.iterdir()} == {MANIFEST, WEIGHTS, STRUCTURE}
