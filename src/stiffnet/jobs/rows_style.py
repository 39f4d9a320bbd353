"""Rows of studies that train a network to restyle photographs, and show what it makes of some."""

import base64
import io
import math
from dataclasses import replace

import torch
from PIL import Image
from torch import Tensor

from stiffnet.data import open_splits
from stiffnet.data.boxes import BoxedImages
from stiffnet.data.decode import Middle
from stiffnet.data.folder import ImageFolder
from stiffnet.data.picture import open_picture
from stiffnet.jobs.row_run import DATA, Work
from stiffnet.jobs.rows_speed import parameters
from stiffnet.network.open import open_model
from stiffnet.results.study import Values
from stiffnet.train.recipe import Recipe
from stiffnet.train.run import run
from stiffnet.train.run_folder import RunFolder
from stiffnet.trajectory.wrappers import plain_run

SHOWN = 4  # held-out photographs in the gallery
SIDE = 128  # pixels of a picture there, where photographs have as many
QUALITY = 85  # of its JPEG


def restyle(work: Work) -> Values:
    """Train by a recipe, and restyle photographs that were held out; a killed run goes on."""
    recipe = Recipe(**{**work.settings, **work.files, DATA: work.data})
    folder = RunFolder(work.folder)
    result = run(recipe, folder.path, resume=folder.recipe.exists(), command=work.command)
    last = result.history[-1]
    loaded = open_model(folder.final)
    _, held_out = open_splits(result.task.data(work.data))
    assert not isinstance(held_out, BoxedImages), "a run on boxes does not restyle"
    preparation = loaded.preparation
    if isinstance(held_out, ImageFolder):
        preparation = replace(preparation, input_size=(3, SIDE, SIDE))
    [(photographs, _)] = held_out.batches(preparation, batch_size=SHOWN, limit=SHOWN)
    with plain_run(loaded.model):
        made = loaded.model(photographs)
    style = Middle(preparation)(open_picture(recipe.style), 0)  # as the losses see it
    return {
        "loss": last["test_loss"],
        "log_loss": math.log(last["test_loss"]),
        "content": last["test_content"],
        "style": last["test_style"],
        "tv": last["test_tv"],
        "best_loss": result.best["test_loss"],
        "train_loss": last["train_loss"],
        "epochs": last["epoch"],
        "images_per_second": last["images_per_second"],
        "parameters": parameters(loaded.model),
        "attention": recipe.attention,
        "photographs": [_packed(each) for each in photographs],
        "pictures": [_packed(each) for each in made],
        "style_picture": _packed(preparation(style[None])[0]),
    }


def _packed(picture: Tensor) -> str:
    """Return pixels from 0 to 1 as a JPEG file in base64."""
    levels = picture.clamp(0, 1).mul(255).round().to(torch.uint8).permute(1, 2, 0)
    stream = io.BytesIO()
    Image.fromarray(levels.numpy()).save(stream, "JPEG", quality=QUALITY)
    return base64.b64encode(stream.getvalue()).decode()
