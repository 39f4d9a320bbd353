"""`jobs.spectrum`: what was found is kept, whatever stops it, and nothing else is taken for it."""

from contextlib import contextmanager
from pathlib import Path
from typing import get_args

import numpy as np
import pytest
from PIL import Image

from stiffnet.cli import spectrum as command
from stiffnet.data import fingerprint, open_data
from stiffnet.data.images import Preparation
from stiffnet.errors import StepError, StorageError, UnknownNameError
from stiffnet.jobs import spectrum as file
from stiffnet.jobs.spectrum import spectrum
from stiffnet.jobs.spectrum_parts import weights_digest
from stiffnet.jobs.watching import Watcher
from stiffnet.network.create import create_model
from stiffnet.network.model_folder import write_folder
from stiffnet.observe import spectrum as loop
from stiffnet.results.spectra import SpectrumReport
from stiffnet.results.spectrum import Spectrum
from stiffnet.stiffness.spectrum import METHODS, Plan

STEPS = ("layer3.0", "layer3.1", "layer3.2")  # the first changes the shape; n is 256
GIVEN = {"steps": STEPS, "images": 3}


def write_model(path, seed=0, size=8):
    return write_folder(
        path,
        create_model("resnet20_cifar", num_classes=10, seed=seed),
        name="resnet20_cifar",
        options={"num_classes": 10},
        classes=[str(digit) for digit in range(10)],
        preparation=Preparation((3, size, size), (0.3,) * 3, (0.4,) * 3),
        made_by={},
    )


@pytest.fixture
def model(tmp_path):
    return write_model(tmp_path / "model")


class Notes(Watcher):
    """Writes down what a watcher hears."""

    def __init__(self):
        self.notes, self.results, self.done = [], [], []

    def note(self, text):
        self.notes.append(text)

    def found(self, result):
        self.results.append(result)

    @contextmanager
    def progress(self, what, total):
        self.done.append(-total)
        yield self.done.append


@pytest.fixture
def computed(monkeypatch):
    """The steps whose spectra are computed, until the number in `last` are."""
    asked = []
    plain = loop.spectrum

    def counting(network, step, image, **options):
        found = plain(network, step, image, **options)
        if len(asked) == counting.last:
            raise KeyboardInterrupt
        asked.append(step.name)
        return found

    counting.last = None
    monkeypatch.setattr(loop, "spectrum", counting)
    counting.asked = asked
    return counting


def assert_same(one, other):
    assert one.images == other.images
    assert one.steps == other.steps
    assert one.facts == other.facts
    for step in one.steps:
        for mine, yours in zip(one.spectra[step], other.spectra[step], strict=True):
            np.testing.assert_array_equal(mine.eigenvalues, yours.eigenvalues)
            np.testing.assert_array_equal(mine.singular_values, yours.singular_values)
            assert mine.facts == yours.facts
            assert mine.row() | {"seconds": 0, "peak_bytes": 0} == yours.row() | {
                "seconds": 0,
                "peak_bytes": 0,
            }


def test_a_job_writes_a_file_a_page_and_a_part_for_each_spectrum(model, capfd):
    watcher = Notes()
    done = spectrum(model, "digits", out="out", watcher=watcher, **GIVEN)
    assert capfd.readouterr() == ("", "")
    assert done.files == (Path("out/spectrum.json"), Path("out/spectrum.html"))
    loaded = SpectrumReport.load("out/spectrum.json")
    assert_same(loaded, done.report)
    assert watcher.results == [done.report]
    assert watcher.done == [-9, *[1] * 9]
    assert loaded.steps == STEPS
    assert [found.count for found in loaded.spectra["layer3.1"]] == [256] * 3
    assert [found.method for found in loaded.spectra["layer3.0"]] == ["krylov"] * 3
    assert all(image.loss is not None for image in loaded.images)
    kept = [Spectrum.load(path) for path in Path("out/parts").iterdir()]
    assert len(kept) == 9
    assert "Eigenvalues of resnet20_cifar on digits" in Path("out/spectrum.html").read_text()


def test_a_stopped_job_goes_on_and_ends_as_an_undisturbed_one(model, computed):
    whole = spectrum(model, "digits", out="whole", **GIVEN).report
    assert len(computed.asked) == 9
    computed.asked.clear()
    computed.last = 4
    with pytest.raises(KeyboardInterrupt):
        spectrum(model, "digits", out="out", **GIVEN)
    assert len(list(Path("out/parts").iterdir())) == 4
    assert not Path("out/spectrum.json").exists()
    computed.asked.clear()
    computed.last = None
    resumed = spectrum(model, "digits", out="out", resume=True, **GIVEN).report
    assert len(computed.asked) == 5
    assert_same(resumed, whole)
    computed.asked.clear()
    again = spectrum(model, "digits", out="out", resume=True, **GIVEN).report
    assert computed.asked == []
    assert_same(again, whole)


def test_an_image_that_changed_behind_its_size_is_computed_again(model, computed, monkeypatch):
    """Of a large folder a fingerprint opens a part: here the first image of each class alone."""
    monkeypatch.setattr(fingerprint, "OPENED", 2)
    random = np.random.default_rng(0)

    def draw(name):
        Path("data", name).parent.mkdir(parents=True, exist_ok=True)
        pixels = random.integers(0, 256, (8, 8, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(Path("data", name))

    names = [f"{label}/{number}.bmp" for label in "ab" for number in range(3)]
    for name in names:
        draw(name)
    given = {"steps": STEPS[1:2], "images": 6}
    spectrum(model, "data", out="out", **given)
    opened = fingerprint.fingerprint(open_data("data"))
    changed = 0
    for name in names:
        before = Path("data", name).read_bytes()
        draw(name)
        if fingerprint.fingerprint(open_data("data")) != opened:
            Path("data", name).write_bytes(before)
        else:
            changed += 1
    assert changed == 4
    computed.asked.clear()
    resumed = spectrum(model, "data", out="out", resume=True, **given).report
    assert len(computed.asked) == changed
    assert_same(resumed, spectrum(model, "data", out="whole", **given).report)


def test_a_damaged_part_is_a_note_and_is_computed_again(model, computed):
    given = {"steps": ["layer3.1"], "images": 2, "out": "out"}
    whole = spectrum(model, "digits", **given).report
    path = sorted(Path("out/parts").iterdir())[0]
    good = path.read_bytes()
    for bad in (good[:-200], b"", good.replace(b'"count": 256', b'"count": 255')):
        path.write_bytes(bad)
        computed.asked.clear()
        watcher = Notes()
        again = spectrum(model, "digits", resume=True, watcher=watcher, **given).report
        assert watcher.notes == [f"{path} is damaged, and is computed again."]
        assert computed.asked == ["layer3.1"]
        assert_same(again, whole)
        Spectrum.load(path)


OTHER = {
    "weights": ({}, "its digest of the weights is not the same"),
    "method": ({"method": "dense"}, "its method asked for is not"),
    "cap of auto": ({"cap": 3}, "its method asked for is not"),
    "part": ({"of": "block"}, "its part is not"),
    "data": ({"data": "generated:40"}, "its data and fingerprint of the data are not"),
}


@pytest.mark.parametrize(("changes", "words"), OTHER.values(), ids=OTHER)
def test_parts_of_other_work_are_refused_before_anything_is_computed(
    model, tmp_path, computed, changes, words
):
    given = {"data": "digits", "steps": ["layer3.1"], "images": 1, "out": "out"}
    spectrum(model, **given)
    before = {path: path.read_bytes() for path in Path("out").rglob("*.*")}
    computed.asked.clear()
    other = model if changes else write_model(tmp_path / "other", seed=1)
    with pytest.raises(StorageError, match=words):
        spectrum(other, **(given | changes), resume=True)
    assert computed.asked == []
    assert {path: path.read_bytes() for path in Path("out").rglob("*.*")} == before


def test_parts_without_resume_are_refused_and_more_images_are_added_with_it(model, computed):
    spectrum(model, "digits", steps=["layer3.1"], images=1, out="out")
    with pytest.raises(StorageError, match=r"holds 1 spectra .* `--resume`, or .* `--out`"):
        spectrum(model, "digits", steps=["layer3.1"], images=1, out="out")
    more = spectrum(model, "digits", steps=["layer3.1", "layer3.2"], images=1, out="out",
                    resume=True)  # fmt: skip
    assert computed.asked == ["layer3.1", "layer3.2"]
    assert more.report.steps == ("layer3.1", "layer3.2")


def test_an_unknown_step_is_refused_with_the_nearest_ones(model):
    with pytest.raises(UnknownNameError, match=r"called 'layer3\.7'. Did you mean 'layer3\.\d'"):
        spectrum(model, "digits", steps=["layer3.7"], out="out")
    assert not Path("out").exists()


def test_long_work_is_told_once_for_each_step():
    watcher = Notes()
    tell = file._telling(watcher)
    plan = Plan("reduced", 4096, 1000, "relu", 1 << 30, 600.0)
    for step in ("a", "a", "b"):
        tell(step, plan)
    tell("c", Plan("reduced", 4096, 1000, "relu", 1 << 30, 9.0))
    tell("c", Plan("krylov", 4096, 1000, "relu", 0, None))
    assert watcher.notes == [
        f"{step}: n = 4,096, reduced to k = 1,000 behind relu; about 1 GiB and 10 minutes for "
        "each image." for step in "ab"
    ]  # fmt: skip


def test_the_digest_changes_with_every_weight():
    model = create_model("resnet20_cifar", seed=0)
    before = weights_digest(model)
    assert before == weights_digest(create_model("resnet20_cifar", seed=0))
    for tensor in (model.fc.bias, model.layer1[0].bn1.num_batches_tracked):
        kept = tensor.data.clone()
        tensor.data.view(-1)[0] += 1
        assert weights_digest(model) != before
        tensor.data.copy_(kept)
    assert weights_digest(model) == before
    assert weights_digest(model.double()) != before


def test_the_command_has_the_methods_of_the_library():
    assert get_args(command.Method) == METHODS


@pytest.mark.parametrize("name", ["images", "cap"])
def test_nothing_to_look_at_and_no_memory_are_told_by_their_names(name):
    with pytest.raises(StepError, match=f"`{name}` is 0. Give 1 or more"):
        spectrum("resnet20_cifar", "digits", out="out", **{name: 0})
