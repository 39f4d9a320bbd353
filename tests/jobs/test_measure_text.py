"""``stiffnet measure hf:FOLDER --data sentences.txt``: padded batches, and a page on sentences."""

import io

import pytest
import tokenizers
import torch
import transformers
from rich.console import Console

from network.transformers_cases import DECODERS, ENCODERS, OTHERS, network
from stiffnet.errors import CheckpointError, DataError
from stiffnet.jobs.measure import measure
from stiffnet.jobs.watching import Watcher
from stiffnet.report.stiffness import parts, terminal
from tolerances import RTOL

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")

WORDS = ["the", "cat", "sat", "on", "a", "mat", "and", "then", "it", "slept"]
LINES = ["the cat sat", "on a mat and then it slept", "it sat", "", "a cat and a cat and a cat"]
CASES = [DECODERS[0], DECODERS[1], ENCODERS[0], next(case for case in OTHERS if case.name == "T5")]


def folder_of(case, folder):
    """Save a network and a tokenizer of a few words."""
    model = network(case)
    model.config.bos_token_id = model.config.eos_token_id = None
    model.save_pretrained(folder)
    vocabulary = {word: i for i, word in enumerate(["<pad>", "<unk>", *WORDS])}
    made = tokenizers.Tokenizer(tokenizers.models.WordLevel(vocabulary, unk_token="<unk>"))
    made.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    transformers.PreTrainedTokenizerFast(
        tokenizer_object=made, pad_token="<pad>", unk_token="<unk>", model_max_length=32
    ).save_pretrained(folder)
    return f"hf:{folder}"


@pytest.fixture
def sentences(tmp_path):
    file = tmp_path / "sentences.txt"
    file.write_text("\n".join(LINES) + "\n")
    return file


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_sentences_are_measured_without_their_padding(case, tmp_path, sentences):
    spec = folder_of(case, tmp_path / "network")
    whole = measure(spec, sentences, out=tmp_path / "all", device="cpu")
    single = measure(spec, sentences, out=tmp_path / "one", device="cpu", batch_size=1)
    assert whole.report.samples == 4
    assert len(whole.report.steps) == case.steps
    assert whole.report.nsi == pytest.approx(single.report.nsi, rel=RTOL["batch32"])
    assert measure(spec, sentences, out=tmp_path / "n", device="cpu", limit=2).report.samples == 2
    shown = (tmp_path / "all" / "report.html").read_text()
    assert "4 sentences" in shown
    assert "average sentence" in shown


def test_nothing_on_the_page_says_images(tmp_path, sentences):
    spec = folder_of(ENCODERS[0], tmp_path / "network")
    measured = measure(spec, sentences, out=tmp_path / "out", device="cpu", attention="se")
    texts = repr(parts([(measured.report, "")])).lower()
    assert "sentences" in texts
    assert "image" not in texts
    console = Console(width=100, record=True, file=io.StringIO())
    console.print(terminal(measured.report))
    said = console.export_text()
    assert "4 sentences" in said
    assert "image" not in said


def test_long_sentences_are_cut_with_a_word(tmp_path):
    heard = []

    class Ears(Watcher):
        def note(self, text):
            heard.append(text)

    file = tmp_path / "long.txt"
    file.write_text("the cat\n" + "a " * 50)
    spec = folder_of(ENCODERS[0], tmp_path / "network")
    measured = measure(spec, file, out=tmp_path / "out", device="cpu", watcher=Ears())
    assert heard == [
        "1 of 2 sentences have more than the 32 tokens that network takes, and are cut."
    ]
    assert measured.report.steps[0].shape == (32, 16)


BAD = {
    "no file": (lambda tmp: tmp / "none.txt", DataError, "is not a file"),
    "no sentence": (lambda tmp: written(tmp, b"\n \n"), DataError, "has no sentence"),
    "no text": (lambda tmp: written(tmp, b"a\xff"), DataError, "not UTF-8 text .byte 1."),
}


def written(folder, content):
    (folder / "data.txt").write_bytes(content)
    return folder / "data.txt"


@pytest.mark.parametrize(("made", "error", "words"), BAD.values(), ids=BAD)
def test_bad_texts_are_refused(made, error, words, tmp_path):
    with pytest.raises(error, match=words):
        measure("hf:nothing", made(tmp_path), out=tmp_path / "out", device="cpu")


def test_bad_networks_and_options_are_refused(tmp_path, sentences):
    (tmp_path / "empty").mkdir()
    with pytest.raises(CheckpointError, match="cannot be opened as a transformers network"):
        measure(f"hf:{tmp_path / 'empty'}", sentences, out=tmp_path / "out", device="cpu")
    with pytest.raises(DataError, match=r"`classes` means nothing for hf:x"):
        measure("hf:x", sentences, classes="imagenet", out=tmp_path / "out", device="cpu")
    folder_of(ENCODERS[0], tmp_path / "pickled")
    weights = tmp_path / "pickled" / "model.safetensors"
    weights.unlink()
    torch.save(network(ENCODERS[0]).state_dict(), tmp_path / "pickled" / "pytorch_model.bin")
    with pytest.raises(CheckpointError, match="cannot be opened as a transformers network"):
        measure(f"hf:{tmp_path / 'pickled'}", sentences, out=tmp_path / "out", device="cpu")
    assert not (tmp_path / "out").exists()
