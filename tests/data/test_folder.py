"""Laws of image folders: what is in them, in which order, and which file is broken."""

import dataclasses
import io
import os
import shutil
import struct

import numpy as np
import pytest
import timm
import torch
from PIL import Image
from torchvision import transforms
from torchvision.datasets.folder import IMG_EXTENSIONS

from stiffnet.data import open_data
from stiffnet.data.decode import Middle
from stiffnet.data.folder import SUFFIXES, image_folder
from stiffnet.data.images import Preparation
from stiffnet.data.photos import photographs
from stiffnet.errors import DataError

RGB = Preparation((3, 8, 8), (0.0,) * 3, (1.0,) * 3)
GREY = Preparation((1, 8, 8), (0.0,), (1.0,))


def pixels(height, width, seed=0):
    return np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)


def save(path, array=None, **options):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels(8, 8) if array is None else array).save(path, **options)
    return path


def read(folder, preparation=RGB, **options):
    batches = image_folder(folder).batches(preparation, **({"batch_size": 3} | options))
    images, labels = zip(*batches, strict=True)
    return torch.cat(images), torch.cat(labels)


def bytes_of(image):
    return image.mul(255).round().to(torch.uint8).permute(0, 2, 3, 1).numpy()


@pytest.fixture
def place(tmp_path):
    """Two classes of four and three images."""
    for index in range(4):
        save(tmp_path / "cat" / f"{index}.png", pixels(8, 8, index))
    for index in range(3):
        save(tmp_path / "dog" / "deep" / f"{index}.PNG", pixels(8, 8, 10 + index))
    return tmp_path


def test_classes_and_files_are_sorted_and_complete(place):
    folder = image_folder(place)
    assert folder.name == place.name
    assert folder.classes == ("cat", "dog")
    assert folder.labels.tolist() == [0, 0, 0, 0, 1, 1, 1]
    assert folder.files == (
        *(f"cat/{index}.png" for index in range(4)),
        *(f"dog/deep/{index}.PNG" for index in range(3)),
    )
    assert len(folder) == 7


@pytest.mark.parametrize("workers", [0, 2])
def test_pixels_are_those_of_the_files_whatever_the_workers(place, workers):
    batches = image_folder(place).batches(RGB, batch_size=3, workers=workers)
    assert len(batches) == 3
    images, labels = zip(*batches, strict=True)
    assert [len(part) for part in labels] == [3, 3, 1]
    expected = np.stack([pixels(8, 8, seed) for seed in (0, 1, 2, 3, 10, 11, 12)])
    assert np.array_equal(bytes_of(torch.cat(images)), expected)
    assert torch.cat(labels).tolist() == [0, 0, 0, 0, 1, 1, 1]


def test_the_preparation_is_applied(place):
    shifted = Preparation((3, 8, 8), (0.5,) * 3, (0.25,) * 3)
    torch.testing.assert_close(read(place, shifted)[0], (read(place)[0] - 0.5) / 0.25)


def test_a_limit_sees_every_class(place):
    assert read(place, limit=2)[1].tolist() == [0, 1]
    assert read(place, limit=100)[1].tolist() == [0, 0, 0, 0, 1, 1, 1]


def test_reading_leaves_the_random_numbers_alone(place):
    torch.manual_seed(1)
    expected = torch.rand(3)
    torch.manual_seed(1)
    read(place)
    assert torch.equal(torch.rand(3), expected)


def test_it_opens_by_path_by_name_and_by_split(place):
    for spec in (place, str(place), f"folder:{place}"):
        assert open_data(spec).classes == ("cat", "dog")
    assert open_data(place.parent, place.name).classes == ("cat", "dog")


def test_no_file_is_left_out_that_torchvision_takes_for_an_image():
    assert set(IMG_EXTENSIONS) <= set(SUFFIXES)


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_every_format_is_read(tmp_path, suffix):
    flat = np.full((8, 8, 3), (200, 100, 50), dtype=np.uint8)
    save(tmp_path / "a" / f"x{suffix}", flat)
    assert np.abs(bytes_of(read(tmp_path)[0]).astype(int) - flat).max() <= 3  # JPEG's loss


@pytest.mark.parametrize("mode", ["L", "1", "P", "RGBA", "LA", "CMYK", "RGB"])
def test_every_mode_becomes_colour_or_grey(tmp_path, mode):
    suffix = "tif" if mode == "CMYK" else "png"
    path = tmp_path / "a" / f"x.{suffix}"
    path.parent.mkdir()
    Image.fromarray(np.full((8, 8, 3), 255, dtype=np.uint8)).convert(mode).save(path)
    assert torch.equal(read(tmp_path)[0], torch.ones(1, 3, 8, 8))
    assert torch.equal(read(tmp_path, GREY)[0], torch.ones(1, 1, 8, 8))


def test_a_palette_with_transparency_is_read_in_silence(tmp_path):
    path = tmp_path / "a" / "x.png"
    path.parent.mkdir()
    image = Image.fromarray(pixels(8, 8)).quantize(4)
    image.save(path, transparency=bytes([0, 128, 255, 255]))
    assert read(tmp_path)[0].shape == (1, 3, 8, 8)


def test_sixteen_bits_are_scaled_and_not_cut(tmp_path):
    grey = np.linspace(0, 65535, 64).astype(np.uint16).reshape(8, 8)
    save(tmp_path / "a" / "x.png", grey)
    assert np.array_equal(bytes_of(read(tmp_path, GREY)[0])[0, :, :, 0], grey >> 8)


@pytest.mark.parametrize("most", [255, 100, 4095, 65535])
def test_grey_values_are_scaled_by_the_largest_that_a_file_names(tmp_path, most):
    grey = np.linspace(0, most, 64).astype(np.uint16).reshape(8, 8)
    data = grey.astype(">u2" if most > 255 else "u1").tobytes()
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "x.pgm").write_bytes(b"P5 8 8 %d\n" % most + data)
    shown = bytes_of(read(tmp_path, GREY)[0])[0, :, :, 0]
    assert np.abs(shown - grey * (255 / most)).max() <= 1


def tiff_of_grey(data, bits, kind):
    """Write a TIFF file of 8×8 grey values, as its specification has it."""
    fields = {256: 8, 257: 8, 258: bits, 259: 1, 262: 1, 273: 8, 277: 1, 278: 8, 279: len(data)}
    entries = [
        struct.pack("<HHIHH", key, 3, 1, at, 0) for key, at in (fields | {339: kind}).items()
    ]
    start = struct.pack("<4sI", b"II*\0", 8 + len(data))
    return b"".join((start, data, struct.pack("<H", len(entries)), *entries, bytes(4)))


def test_twelve_bits_are_scaled_and_signed_ones_are_refused(tmp_path):
    """Read as 16 bits, 12 would be nearly black; read as unsigned, signed ones would wrap."""
    grey = np.linspace(0, 4095, 64).astype(np.int64)
    pairs = [(int(a) << 12 | int(b)).to_bytes(3, "big") for a, b in grey.reshape(32, 2)]
    (tmp_path / "a").mkdir()
    path = tmp_path / "a" / "x.tif"
    path.write_bytes(tiff_of_grey(b"".join(pairs), 12, kind=1))
    assert np.array_equal(bytes_of(read(tmp_path, GREY)[0])[0, :, :, 0], grey.reshape(8, 8) >> 4)
    signed = ((grey >> 4) - 128).astype(np.int8)
    path.write_bytes(tiff_of_grey(signed.tobytes(), 8, kind=2))
    with pytest.raises(DataError, match="signed values"):
        read(tmp_path, GREY)


def test_white_is_white_where_a_file_has_it_as_zero(tmp_path):
    """TIFF files say so in their photometric interpretation: 0 where white is, 1 where black is."""
    grey = np.linspace(0, 65535, 64).astype(np.uint16).reshape(8, 8)
    path = tmp_path / "a" / "x.tif"
    save(path, 65535 - grey)
    black, white = (struct.pack("<HHIHH", 262, 3, 1, value, 0) for value in (1, 0))
    assert path.read_bytes().count(black) == 1
    path.write_bytes(path.read_bytes().replace(black, white))
    assert np.array_equal(bytes_of(read(tmp_path, GREY)[0])[0, :, :, 0], grey >> 8)


def test_the_orientation_in_the_file_is_honoured(tmp_path):
    image = Image.fromarray(pixels(8, 8))
    exif = image.getexif()
    exif[0x0112] = 6  # the camera was turned: show it rotated by 90 degrees clockwise
    (tmp_path / "a").mkdir()
    image.save(tmp_path / "a" / "x.png", exif=exif)
    assert np.array_equal(bytes_of(read(tmp_path)[0])[0], np.rot90(pixels(8, 8), -1))


@pytest.mark.parametrize(
    ("height", "width"), [(8, 20), (20, 8), (8, 9), (40, 16), (3, 5), (16, 16)]
)
def test_proportions_are_kept_and_the_middle_is_shown(tmp_path, height, width):
    smooth = np.add.outer(np.arange(height) * 4, np.arange(width) * 4)[:, :, None].repeat(3, 2)
    save(tmp_path / "a" / "x.png", smooth.astype(np.uint8))
    reference = transforms.Compose([transforms.Resize(8), transforms.CenterCrop(8)])
    expected = np.array(reference(Image.fromarray(smooth.astype(np.uint8))))
    found = bytes_of(read(tmp_path)[0])[0]
    half_a_pixel = 4 * max(min(height, width) / 8, 1) / 2 + 1  # theirs rounds the crop to a pixel
    assert np.abs(found.astype(int) - expected).max() <= 2 * half_a_pixel
    mirrored = save(tmp_path / "b" / "x.png", smooth[::-1, ::-1].astype(np.uint8))
    assert mirrored.exists()
    both = bytes_of(read(tmp_path)[0]).astype(int)
    assert np.abs(both[0] - both[1][::-1, ::-1]).max() <= 1  # the crop is in the middle


def test_a_target_that_is_no_square_is_filled(tmp_path):
    array = pixels(10, 30)
    save(tmp_path / "a" / "x.png", array)
    found = bytes_of(read(tmp_path, Preparation((3, 10, 20), (0.0,) * 3, (1.0,) * 3))[0])[0]
    assert np.array_equal(found, array[:, 5:25])


def test_a_very_long_image_needs_little_memory(tmp_path):
    save(tmp_path / "a" / "x.png", np.full((1, 50_000, 3), 255, dtype=np.uint8))
    large = Preparation((3, 224, 224), (0.0,) * 3, (1.0,) * 3)
    assert torch.equal(read(tmp_path, large)[0], torch.ones(1, 3, 224, 224))


def test_a_train_among_other_vehicles_is_a_class(tmp_path):
    for name in ("bus", "train"):
        save(tmp_path / name / "x.png")
    assert image_folder(tmp_path).classes == ("bus", "train")


def test_hidden_and_other_files_are_left_out(place):
    save(place / ".ipynb_checkpoints" / "x.png")
    save(place / "cat" / ".ipynb_checkpoints" / "x.png")
    (place / "cat" / "._0.png").write_bytes(b"a Mac was here")
    (place / "cat" / "notes.txt").write_text("hello")
    (place / "README.md").write_text("hello")
    assert len(image_folder(place)) == 7
    assert image_folder(place).classes == ("cat", "dog")


@pytest.mark.parametrize(
    ("make", "match"),
    [
        (lambda root: root.rmdir(), "is not a folder"),
        (lambda root: None, "holds no folders"),
        (lambda root: save(root / "x.png"), "holds no folders"),
        (lambda root: (root / "cat").mkdir(), "holds no images"),
        (
            lambda root: (save(root / "train/a/x.png"), save(root / "val/a/x.png")),
            r"holds splits \(train, val\).*root/val",
        ),
        (
            lambda root: [save(root / name / "a/x.png") for name in ("Train", "meta", "Val")],
            r"holds splits \(Train, Val\).*root/Val",
        ),
    ],
)
def test_a_folder_without_images_is_told_so(tmp_path, make, match):
    root = tmp_path / "root"
    root.mkdir()
    make(root)
    with pytest.raises(DataError, match=match):
        image_folder(root)


def _png():
    stream = io.BytesIO()
    Image.fromarray(pixels(40, 40)).save(stream, "PNG")
    return stream.getvalue()


def _jpeg():
    stream = io.BytesIO()
    Image.fromarray(pixels(40, 40)).save(stream, "JPEG")
    return stream.getvalue()


def _gif():
    stream = io.BytesIO()
    Image.fromarray(pixels(4, 4)).save(stream, "GIF")
    return stream.getvalue()


BROKEN = {
    "empty": (b"", "it is empty"),
    "text": (b"not an image at all", "no known image format"),
    "short png": (_png()[:500], r"."),
    "short jpeg": (_jpeg()[:700], "truncated"),
    "gif": (_gif(), "no known image format"),
    "postscript": (b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n", "no known image format"),
}


@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize("kind", BROKEN)
def test_a_broken_file_is_named_when_it_is_read(place, kind, workers):
    content, match = BROKEN[kind]
    path = place / "cat" / "2.png"
    path.write_bytes(content)
    batches = iter(image_folder(place).batches(RGB, batch_size=1, workers=workers))
    next(batches)
    next(batches)
    with pytest.raises(DataError, match=match) as caught:
        next(batches)
    assert str(caught.value).startswith(f"{path} is not an image that can be read: ")
    assert "\n" not in str(caught.value)
    assert caught.type is DataError


@pytest.mark.parametrize("workers", [0, 1])
def test_a_file_that_goes_away_is_named(place, workers):
    batches = image_folder(place).batches(RGB, batch_size=2, workers=workers)
    (place / "cat" / "1.png").unlink()
    with pytest.raises(DataError, match=r"1\.png .* it is gone"):
        list(batches)


@pytest.mark.parametrize("factor", [0.9, 0.4])  # Pillow only warns, then refuses
def test_a_decompression_bomb_is_refused(place, monkeypatch, factor):
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", int(64 * factor))
    with pytest.raises(DataError, match="more pixels than is safe"):
        read(place)


def test_a_pipe_is_not_waited_for(place):
    os.mkfifo(place / "cat" / "x.png")
    with pytest.raises(DataError, match=r"x\.png .* a pipe"):
        read(place)


def test_thirty_two_bits_a_pixel_are_refused(tmp_path):
    save(tmp_path / "a" / "x.tif", np.ones((8, 8), dtype=np.float32))
    with pytest.raises(DataError, match="32 bits a pixel"):
        read(tmp_path)


@pytest.mark.parametrize("name", ["cat/loop.png", "cat/loop", "cat/sub/loop.jpg", "loop", "cat/0"])
def test_a_link_to_itself_is_a_sentence_or_nothing(tmp_path, name):
    (tmp_path / "cat" / "sub").mkdir(parents=True)
    Image.new("RGB", (4, 4)).save(tmp_path / "cat" / "1.png")
    link = tmp_path / name
    link.symlink_to(".." if link.name == "0" else link.name)
    if link.name == "0" or (link.suffix == "" and link.parent != tmp_path):
        assert image_folder(tmp_path).files == ("cat/1.png",)
        return
    with pytest.raises(DataError, match=f"{link}.* Take it away"):
        image_folder(tmp_path)


def test_a_class_that_is_a_link_to_nothing_does_not_change_the_numbers_of_the_others(tmp_path):
    """It would be left out, and every label after it would be of another class."""
    for name in ("ant", "cat"):
        (tmp_path / name).mkdir()
        Image.new("RGB", (4, 4)).save(tmp_path / name / "1.png")
    (tmp_path / "bee").symlink_to(tmp_path / "not mounted")
    with pytest.raises(DataError, match=r"bee is a link to nothing.* point it to a folder of imag"):
        image_folder(tmp_path)
    (tmp_path / "bee").rename(tmp_path / ".bee")
    assert image_folder(tmp_path).classes == ("ant", "cat")


def test_an_empty_folder_is_a_class_without_images(tmp_path):
    for name in ("ant", "cat", "eel"):
        (tmp_path / name).mkdir()
    save(tmp_path / "bee" / "x.png")
    save(tmp_path / "dog" / "x.png")
    folder = image_folder(tmp_path)
    assert folder.classes == ("ant", "bee", "cat", "dog", "eel")
    assert folder.labels.tolist() == [1, 3]  # as if the empty ones had images
    assert folder.empty_classes == ("ant", "cat", "eel")
    whole, faults = folder.without_bad_images()
    assert whole.files == folder.files
    assert faults == []
    with pytest.raises(DataError, match="ant holds no images"):
        image_folder(tmp_path, allow_empty=False)


def test_images_whose_format_is_not_read_are_named(tmp_path):
    save(tmp_path / "ant" / "x.png")
    assert image_folder(tmp_path).notes == ()
    for name in ("a.gif", "b.JFIF", "c.heic", "d.avif", "labels.csv", ".hidden.gif", "notes"):
        (tmp_path / "ant" / name).write_bytes(b"")
    folder = image_folder(tmp_path)
    assert folder.files == ("ant/x.png",)
    assert folder.unread == ("ant/a.gif", "ant/b.JFIF", "ant/c.heic", "ant/d.avif")
    [note] = folder.notes
    assert note.startswith("4 images are left out")
    assert "ant/a.gif, ant/b.JFIF, ant/c.heic and 1 more" in note
    assert photographs(tmp_path).unread == folder.unread


def test_a_class_may_be_a_link_to_a_folder_anywhere(tmp_path):
    save(tmp_path / "far" / "away" / "sub" / "x.png", pixels(4, 4))
    save(tmp_path / "root" / "cat" / "x.png", pixels(8, 8))
    (tmp_path / "root" / "dog").symlink_to(tmp_path / "far" / "away")
    (tmp_path / "far" / "away" / "y.png").symlink_to("sub/x.png")
    folder = image_folder(tmp_path / "root")
    assert folder.files == ("cat/x.png", "dog/sub/x.png", "dog/y.png")
    copied = tmp_path / "copied"
    shutil.copytree(tmp_path / "root", copied)  # which follows links
    linked, plain = (image_folder(each) for each in (tmp_path / "root", copied))
    assert plain.labels.tolist() == linked.labels.tolist()
    [(images, _)], [(same, _)] = (each.batches(RGB, batch_size=9) for each in (linked, plain))
    assert torch.equal(images, same)


@pytest.mark.parametrize("target", [".", "..", "../root"])
def test_a_class_that_is_a_link_to_a_folder_above_it_is_refused(tmp_path, target):
    save(tmp_path / "root" / "cat" / "x.png")
    (tmp_path / "root" / "dog").symlink_to(target)
    with pytest.raises(DataError, match="dog is a link to a folder that it is in itself"):
        image_folder(tmp_path / "root")


@pytest.mark.parametrize("where", ["folder", "file"])
def test_a_link_within_a_class_that_leaves_the_folder_is_refused(tmp_path, where):
    outside, root = tmp_path / "outside", tmp_path / "root"
    save(outside / "x.png")
    save(root / "cat" / "x.png")
    link, target = {
        "folder": (root / "cat" / "more", outside),
        "file": (root / "cat" / "y.png", outside / "x.png"),
    }[where]
    link.symlink_to(target)
    with pytest.raises(DataError, match=f"{link.name} is a link that leaves"):
        image_folder(root)


def test_a_link_that_stays_inside_is_read_and_a_circle_ends(place):
    (place / "cat" / "again.png").symlink_to(place / "cat" / "0.png")
    (place / "cat" / "circle").symlink_to(place / "cat")
    assert len(image_folder(place)) == 8
    assert len(read(place)[1]) == 8


@pytest.mark.parametrize("options", [{"batch_size": 0}, {"limit": 0}, {"workers": -1}], ids=str)
def test_impossible_numbers_are_refused(place, options):
    with pytest.raises(DataError, match=f"`{next(iter(options))}` is"):
        read(place, **options)


def test_the_crop_keeps_the_middle_share(tmp_path):
    """A picture whose middle half is white: a crop of a half sees nothing else."""
    (tmp_path / "set" / "only").mkdir(parents=True)
    pixels = np.zeros((40, 40, 3), np.uint8)
    pixels[10:30, 10:30] = 255
    Image.fromarray(pixels).save(tmp_path / "set" / "only" / "a.png")
    whole = Preparation((3, 8, 8), (0.0,) * 3, (1.0,) * 3)
    for crop, mean in ((0.5, 1.0), (1.0, 0.25)):
        preparation = dataclasses.replace(whole, crop=crop, interpolation="nearest")
        [(images, _)] = image_folder(tmp_path / "set").batches(preparation, batch_size=1)
        assert images.mean().item() == mean


@pytest.mark.parametrize("mode", ["squash", "border"])
@pytest.mark.parametrize("size", [(50, 31), (20, 47), (40, 40), (9, 300)])
def test_other_proportions_are_brought_to_the_network_s_as_timm_does(mode, size):
    mean, std = (0.5, 0.4, 0.3), (0.2, 0.3, 0.25)
    found = Preparation((3, 24, 16), mean, std, 1.0, "bicubic", mode)
    pixels = np.random.default_rng(0).integers(0, 256, (size[1], size[0], 3), dtype=np.uint8)
    image = Image.fromarray(pixels)
    theirs = timm.data.create_transform(
        (3, 24, 16), crop_pct=1.0, crop_mode=mode, interpolation="bicubic", mean=mean, std=std
    )
    assert torch.allclose(found(Middle(found)(image, 0)[None])[0], theirs(image), atol=1e-6)
