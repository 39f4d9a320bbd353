"""Restyle pictures with a trained network: each as large as it was, as a PNG file."""

import io
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from PIL.PngImagePlugin import PngInfo
from torch import Tensor, nn

from stiffnet.backbones.style_transfer import SMALLEST
from stiffnet.data.picture import NAMED, open_picture
from stiffnet.devices import make_fabric
from stiffnet.errors import CheckpointError, DataError, RecipeError
from stiffnet.files import atomic_write, check_replaceable, check_writable
from stiffnet.jobs.subject import Spec, subject_of
from stiffnet.jobs.watching import SILENT, Watcher
from stiffnet.network.loaded import remarks_on
from stiffnet.trajectory.wrappers import plain_run
from stiffnet.words import first_line

MADE_BY = "stiffnet restyle"  # in the header of every picture that was made here
SUFFIX = ".png"


def restyle(
    model: Spec,
    pictures: Sequence[Spec],
    out: Spec,
    *,
    device: str = "auto",
    watcher: Watcher = SILENT,
) -> tuple[Path, ...]:
    """Restyle pictures, and write each to ``OUT/NAME.png``, as large as it was.

    Pictures are turned as their camera says, shown in colour, and lose their transparency.

    Args:
        model: A run of ``stiffnet train style:...``, or a model folder, folded or not.
        pictures: Files; also ``china`` and ``flower``, which come with scikit-learn.
        out: Folder for the pictures. Of what is there, only pictures that were made here are
            replaced.
        device: ``auto``, ``cpu``, ``cuda`` or ``mps``.
        watcher: Whoever follows the job.

    Returns:
        The files, in the order of the pictures.

    Raises:
        StiffnetError: One of its kinds, if the network does not make pictures, or a picture cannot
            be read or written. Pictures before that one are written.
    """
    folder = Path(out)
    check_writable(folder)
    files = _named(pictures, folder)
    for file in files:
        check_replaceable(file, MADE_BY)
    loaded = subject_of(model).open()
    network = loaded.model.to(make_fabric(device=device).device)
    _check(network, loaded.name)
    for text in remarks_on(loaded):
        watcher.note(text)
    with watcher.progress(f"restyling with {loaded.name}", len(files)) as advance:
        for picture, file in zip(pictures, files, strict=True):
            made = restyled(network, open_picture(picture), str(picture))
            atomic_write(file, _packed(made))
            advance(1)
    return tuple(files)


def restyled(network: nn.Module, picture: Image.Image, name: str = "The picture") -> Image.Image:
    """Return what a network for style transfer makes of a picture.

    Raises:
        DataError: If the picture is too small, or the memory.
        CheckpointError: If no pixels come out.
    """
    if min(picture.size) < SMALLEST:
        raise DataError(
            f"{name} has {picture.width}×{picture.height} pixels, and a picture that is restyled "
            f"needs {SMALLEST} on each side. Give a larger one."
        )
    parameter = next(network.parameters())
    pixels = torch.from_numpy(np.array(picture)).permute(2, 0, 1)[None].to(parameter) / 255
    try:
        with plain_run(network):
            made: Tensor = network(pixels)[0]
    except (MemoryError, RuntimeError) as error:
        raise DataError(
            f"{name}, of {picture.width}×{picture.height} pixels, could not be restyled: "
            f"{first_line(error)}. Give a smaller picture."
        ) from error
    if not bool(torch.isfinite(made).all()):
        raise CheckpointError(
            f"The network makes pixels of {name} that are not finite. Train it again."
        )
    levels = made.float().clamp(0, 1).mul(255).round().to(torch.uint8)
    return Image.fromarray(levels.permute(1, 2, 0).cpu().numpy())


def _named(pictures: Sequence[Spec], folder: Path) -> list[Path]:
    """Return the file of each picture; refuse two pictures for one file, and one for itself."""
    files: dict[Path, Spec] = {}
    for picture in pictures:
        file = folder / f"{Path(picture).stem}{SUFFIX}"
        if file in files:
            raise RecipeError(
                f"{files[file]} and {picture} would both become {file}. Restyle them into "
                "different folders."
            )
        files[file] = picture
    if not files:
        raise RecipeError("No picture was given. Name one, or several.")
    sources = {Path(each).resolve() for each in pictures if each not in NAMED}
    for file in files:
        if file.resolve() in sources:  # however it is spelled
            raise RecipeError(f"{file} is one of the pictures. Choose another folder with `--out`.")
    return list(files)


def _check(network: nn.Module, name: str) -> None:
    """Refuse a network that does something else, before the first picture is opened."""
    tried = torch.zeros(1, 3, 7, 9).to(next(network.parameters()))
    reason: Exception | None = None
    try:
        with plain_run(network):
            output = network(tried)
    except Exception as error:  # whatever a network's own code raises
        output, reason = None, error
    if not isinstance(output, Tensor) or output.shape != tried.shape:
        raise CheckpointError(
            f"{name} does not make pictures of pictures. Give a run of `stiffnet train "
            "style:in`, `style:bn` or `style:bn+asr`."
        ) from reason


def _packed(picture: Image.Image) -> bytes:
    """Return a PNG file whose header says who made it."""
    header = PngInfo()
    header.add_text("Software", MADE_BY)
    stream = io.BytesIO()
    picture.save(stream, "PNG", pnginfo=header)
    return stream.getvalue()
