"""The documents do what they say."""

import re
from pathlib import Path

import pytest
import torch

import stiffnet

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def examples(page):
    return re.findall(r"```python\n(.*?)```", page.read_text(), flags=re.DOTALL)


RUNS = {
    "README.md": "21,454,774 -> 21,289,802 parameters",
    "docs/measuring.md": "TNS 0, mean NSI [0. ",
    "docs/jobs.md": "run/folded TNS",
    "docs/deployment.md": "eight bits move the outputs by less than a fifth",
    "docs/weights.md": "{'prefix': 'model.'}",
    "docs/finetuning.md": "the same bits: True",
    "docs/style.md": "62 squares to train on",
    "docs/text.md": "a sentence alone and padded: equal",
    "docs/folding.md": "Folded(name='layer1.0.step_size', kind='asr:se', into=('layer1.0.bn2',))",
}


def test_every_page_with_an_example_is_run_here():
    with_examples = {str(page.relative_to(ROOT)) for page in PAGES if examples(page)}
    others = {"docs/attention.md", "docs/cifar10.md", "docs/training-scripts.md"}
    assert with_examples == {*RUNS, *others}


@pytest.mark.parametrize("page", RUNS)
def test_the_examples_run(page, tmp_path, capsys):
    names = {}  # a later example may use what an earlier one has made
    for example in examples(ROOT / page):
        exec(compile(example, page, "exec"), names)  # our own text, from this checkout
    assert RUNS[page] in capsys.readouterr().out
    assert (tmp_path / "report.html").exists() or page != "README.md"


def test_attention_is_attached_registered_and_taken_off_as_its_page_says(capsys):
    for example in examples(ROOT / "docs" / "attention.md"):
        exec(compile(example, "attention.md", "exec"), {})
    said = capsys.readouterr().out
    assert "Attachment(name='layer1.0.step_size', module='se'" in said
    assert "9 of mean" in said


SCRIPTS = {
    "lightning": "stiffness/nsi/layer3.2",
    "transformers": "[",
    "optimizer": "0 ",
    "timm": "eval_stiffness/tns",
}


@pytest.mark.parametrize("script", SCRIPTS)
@pytest.mark.filterwarnings("ignore:.*LeafSpec")  # Lightning on a newer torch
@pytest.mark.filterwarnings("ignore:.*does not have many workers")
@pytest.mark.filterwarnings("ignore:.*pin_memory", "ignore:.*smaller than the logging interval")
@pytest.mark.filterwarnings("ignore::ResourceWarning")  # timm leaves the files open
def test_training_scripts_log_stiffness_as_their_page_says(script, capsys):
    if script == "transformers":
        pytest.importorskip("accelerate")
    page = ROOT / "docs" / "training-scripts.md"
    example = dict(zip(SCRIPTS, examples(page), strict=True))[script]
    assert script in example
    exec(compile(example, page.name, "exec"), {})
    assert SCRIPTS[script] in capsys.readouterr().out


def test_two_reports_make_one_page_as_their_page_says(tmp_path):
    for seed, name in enumerate(("untrained", "trained")):
        model = stiffnet.create_model("resnet20_cifar", seed=seed)
        report = stiffnet.measure(model, [torch.rand(2, 3, 32, 32)])
        report.save(tmp_path / "measured" / name / "report.json")
    [example] = examples(ROOT / "docs" / "cifar10.md")
    exec(compile(example, "cifar10.md", "exec"), {})
    made = (tmp_path / "both.html").read_text()
    assert "before training" in made
    assert "after 10 epochs" in made


def test_the_readme_is_short():
    assert len((ROOT / "README.md").read_text().splitlines()) < 120


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_no_link_is_dead(page):
    for target in re.findall(r"\]\(([^)#]+)", page.read_text()):
        assert target.startswith("http") or (page.parent / target).exists(), target


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # torchao's own, on a newer torch
def test_eight_bits_in_pytorch_work_as_the_page_says():
    pytest.importorskip("torchao")
    page = (ROOT / "docs" / "deployment.md").read_text()
    recipe = page.split("## Eight bits in PyTorch")[1].split("\n## ")[0]
    lines = [line[4:] for line in recipe.splitlines() if line.startswith("    ") or not line]
    torch.manual_seed(0)
    images = torch.rand(16, 3, 32, 32)
    model = stiffnet.create_model("resnet20_cifar", num_classes=10, attention="asr:se", seed=0)
    folded = stiffnet.fold(model.eval(), images[:2], fuse=True).model
    names = {"torch": torch, "images": images, "folded": folded}
    exec(compile("\n".join(lines), "deployment.md", "exec"), names)
    with torch.no_grad():
        small, whole = names["small"]._orig_mod(images), folded(images)
    error = float((small - whole).abs().max() / whole.abs().max())
    assert 1e-6 < error < 0.2  # eight bits, and not the same network again
