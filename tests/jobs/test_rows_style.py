"""Rows of the study on style transfer: files by name, addresses by content, pictures that open."""

import base64
import io
import math
from pathlib import Path

import pytest
from PIL import Image

from stiffnet.errors import DataError
from stiffnet.jobs.row_run import Work
from stiffnet.jobs.rows_train import restyle
from stiffnet.jobs.study_plan import Plan, check_data, places
from stiffnet.jobs.study_rows import settled
from stiffnet.studies.asr_figure5 import STUDY
from stiffnet.studies.study import Job

SETTINGS = {
    "recipe": "style", "model": "style_in", "data": "tiles", "style": "flower", "seed": 0,
    "loss_weights": "random", "image_size": 16, "epochs": 1, "train_images": 8,
}  # fmt: skip


def test_a_row_has_the_losses_and_the_pictures(tmp_path):
    settings = settled("restyle", SETTINGS)
    values = restyle(Work(settings, (), tmp_path / "own", (), "tiles", "stiffnet study"))
    assert values["loss"] == pytest.approx(sum(values[k] for k in ("content", "style", "tv")))
    assert values["log_loss"] == math.log(values["loss"])
    assert len(values["photographs"]) == len(values["pictures"]) == 4
    for text in (*values["photographs"], *values["pictures"], values["style_picture"]):
        with Image.open(io.BytesIO(base64.b64decode(text))) as picture:
            assert picture.size == (16, 16)


def test_a_file_is_known_by_its_content_wherever_it_is(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    given = {**SETTINGS, "style": "style", "loss_weights": "vgg16"}
    job = Job("restyle", given)

    def address(style, judge):
        known = places([f"style:{style}", f"vgg16:{judge}"])
        plan = Plan(known)
        found = plan.add(job)
        assert plan.files[found] == {"style": style, "loss_weights": judge}
        return found

    for name, content in (("a", "1"), ("b", "1"), ("c", "2")):
        Path(name).write_text(content)
    assert address("a", "c") == address("b", "c")
    assert len({address("a", "a"), address("a", "c"), address("c", "a")}) == 3
    with pytest.raises(DataError, match="none could not be read"):
        address("none", "a")


def test_files_that_nobody_said_the_place_of_are_asked_for():
    check_data([STUDY], "demo", {})
    with pytest.raises(DataError, match=r"needs photos, style, vgg16. .*--data vgg16:"):
        check_data([STUDY], "small", {})
