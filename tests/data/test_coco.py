"""COCO's format is read as COCO means it, and what is wrong with a file is said in a sentence."""

import json
import math
import re
from dataclasses import replace

import numpy as np
import pytest
import torch
from PIL import Image

from data.boxed import SIZES, write_coco
from naming import case
from stiffnet.data import open_data, open_labelled, open_splits
from stiffnet.data.augment import FLIP, Augmentation
from stiffnet.data.coco import coco
from stiffnet.data.fingerprint import difference, fingerprint
from stiffnet.data.images import Preparation
from stiffnet.data.shapes import shapes
from stiffnet.data.splits import subset
from stiffnet.errors import DataError
from stiffnet.network.open import open_model

WHOLE = Preparation((3, 32, 32), (0.0,) * 3, (1.0,) * 3)
ORIENTATION = 0x0112  # of EXIF
FLIPS = Augmentation(crop="none")


@pytest.mark.parametrize("years", [True, False])
def test_both_layouts_are_read(tmp_path, years):
    train, test = open_splits(f"coco:{write_coco(tmp_path / 'd', years=years)}")
    assert train.classes == test.classes == ("car", "tree")  # by id, which have gaps
    assert [len(train), len(test)] == [2, 4]
    assert np.array_equal(open_data(f"coco:{tmp_path / 'd'}").boxes, test.boxes)


def test_boxes_are_those_of_the_file(tmp_path):
    test = coco(write_coco(tmp_path / "d"), "test")
    found = {}
    for batch in test.batches(WHOLE, batch_size=3):
        for image, target in zip(batch["images"], batch["targets"], strict=True):
            for index, box in enumerate(target["boxes"].tolist()):
                rest = [target[key][index].item() for key in ("labels", "area", "iscrowd")]
                found[tuple(box)] = (tuple(image.shape), *rest)
    shape = (3, 30, 40)
    assert found == {
        (5, 4, 15.5, 12): (shape, 2, 60.5, 0),  # the area of the outline, not of the box
        (0, 0, 4, 4): (shape, 1, 16, 0),
        (30, 20, 80, 25): (shape, 2, 250, 0),  # as COCO's own evaluation has it
        (1, 1, 21, 21): (shape, 1, 400, 1),
        (1, 1, 3, 3): (shape, 1, 4, 1),
    }


def test_nothing_is_learnt_from_crowds_and_images_without_boxes(tmp_path):
    train = coco(write_coco(tmp_path / "d"), "train")
    assert train.pictures.files == ("000000000001.png", "000000000007.png")
    assert not train.crowd.any()
    assert train.boxes.tolist() == [[0, 0, 4, 4], [30, 20, 40, 25], [5, 4, 15.5, 12]]  # cut
    [note] = train.notes
    assert note.startswith("2 of 4 images of d/train2017 have no box")


def test_a_mirrored_box_is_around_the_same_pixels(tmp_path):
    """Of every box, the pixels within are those of the other image, mirrored."""
    train = coco(write_coco(tmp_path / "d"), "train")
    order = [np.arange(2)] * 8
    turned = set()
    for epoch in range(8):
        varied = next(train.training_batches(WHOLE, FLIPS, order[:1], seed=0, epoch=epoch))
        plain = next(train.training_batches(WHOLE, replace(FLIPS, flip=False), order[:1], seed=0,
                                            epoch=epoch))  # fmt: skip
        for one, other, mine, theirs in zip(
            plain["images"], varied["images"], plain["targets"], varied["targets"], strict=True
        ):
            turned.add(not torch.equal(one, other))
            for box, moved in zip(mine["boxes"].int(), theirs["boxes"].ceil().int(), strict=True):
                if (box[2] - box[0]) != (moved[2] - moved[0]):
                    continue  # whose borders lie between pixels
                inside = one[:, box[1] : box[3], box[0] : box[2]]
                now = other[:, moved[1] : moved[3], moved[0] : moved[2]]
                assert torch.equal(now, inside) or torch.equal(now.flip(-1), inside)
    assert turned == {True, False}


def test_a_detector_gets_boxes_that_were_mirrored_and_scaled_with_their_images(tmp_path):
    """Against corners that are computed by hand; an image may be scaled a little more one way."""
    train = coco(write_coco(tmp_path / "d"), "train")
    detector = open_model("fasterrcnn-small:test_resnet", image_size=50).model.train()
    given = {
        "000000000001.png": [(0, 0, 4, 4), (30, 20, 10, 5)],
        "000000000007.png": [(5, 4, 10.5, 8)],
    }
    seen = set()
    for epoch in range(6):
        batch = next(train.training_batches(WHOLE, FLIPS, [np.arange(2)], seed=0, epoch=epoch))
        images, targets = detector.transform(batch["images"], batch["targets"])
        turned = FLIPS.chances(0, epoch, np.arange(2))[:, FLIP] < 0.5
        for at, file in enumerate(train.pictures.files):
            left, top, width, height = np.array(given[file], np.float64).T
            left = np.where(turned[at], 40 - left - width, left)
            corners = np.stack([left, top, left + width, top + height], 1)
            assert images.image_sizes[at] == (50, 66)  # of 30 × 40: 66.7, and torch rounds down
            expected = corners * np.array([66 / 40, 50 / 30] * 2)
            np.testing.assert_allclose(targets[at]["boxes"].numpy(), expected, rtol=1e-6)
            seen.add(bool(turned[at]))
    assert seen == {True, False}


def test_a_picture_is_turned_as_its_camera_says(tmp_path):
    """Boxes are for what one sees; a size that is that of the unturned picture is refused."""
    write_coco(tmp_path / "d")
    file = tmp_path / "d" / "val2017" / "000000000001.png"
    pixels = np.asarray(Image.open(file))
    for orientation, expected in ((3, pixels[::-1, ::-1]), (6, None)):
        exif = Image.Exif()
        exif[ORIENTATION] = orientation
        Image.fromarray(pixels).save(file, exif=exif)
        batches = coco(tmp_path / "d").chosen(np.arange(1)).batches(WHOLE, batch_size=1)
        if expected is None:
            with pytest.raises(DataError, match="is 30 × 40 pixels, and its boxes are for one of"):
                next(iter(batches))
        else:
            [image] = next(iter(batches))["images"]
            assert np.array_equal(image.mul(255).round().numpy(), expected.transpose(2, 0, 1))


def test_test_images_are_in_the_order_of_their_ids(tmp_path):
    """That is COCO's own: of boxes with equal scores, that of the smaller id counts first."""
    test = coco(write_coco(tmp_path / "d", val=lambda c: c["images"].reverse()), "test")
    assert test.pictures.files == tuple(f"{id:012}.png" for id in sorted(SIZES))
    boxes = {tuple(box) for box in test.boxes[test.starts[2] : test.starts[3]].tolist()}
    assert boxes == {(5, 4, 15.5, 12), (1, 1, 21, 21)}  # those of image 7
    numbers = [
        int(target["image_id"])
        for batch in test.batches(WHOLE, batch_size=3)
        for target in batch["targets"]
    ]
    assert sorted(numbers) == [0, 1, 2, 3]
    assert numbers[:3] == [0, 2, 3] or numbers[1:] == [0, 2, 3]  # image 2 has another size


def test_a_batch_holds_images_of_one_size_and_all_come_once(tmp_path):
    test = coco(write_coco(tmp_path / "d"), "test")
    for size in (1, 2, 5):
        batches = test.batches(WHOLE, batch_size=size)
        assert sorted(index for chosen in batches.indices for index in chosen) == [0, 1, 2, 3]
        for batch, chosen in zip(batches, batches.indices, strict=True):
            assert len({tuple(image.shape) for image in batch["images"]}) == 1
            assert len(chosen) <= size
    assert [len(each) for each in test.batches(WHOLE, batch_size=9, limit=2).indices] == [1, 1]


def test_workers_read_the_same(tmp_path):
    test = coco(write_coco(tmp_path / "d"), "test")
    here, there = (list(test.batches(WHOLE, batch_size=2, workers=n)) for n in (0, 1))
    for one, other in zip(here, there, strict=True):
        for mine, theirs in zip(one["images"], other["images"], strict=True):
            assert torch.equal(mine, theirs)


def test_the_fingerprint_changes_with_a_box_and_with_a_pixel(tmp_path):
    before = fingerprint(coco(write_coco(tmp_path / "a"), "test"))
    assert fingerprint(coco(write_coco(tmp_path / "b"), "test")) == before

    def moved(content):
        content["annotations"][0]["bbox"][0] += 0.25

    now = fingerprint(coco(write_coco(tmp_path / "c", val=moved), "test"))
    assert difference(before, now, "test images") == "the test images now have other boxes"
    file = tmp_path / "b" / "val2017" / "000000000002.png"
    Image.new("RGB", SIZES[2]).save(file)
    now = fingerprint(coco(tmp_path / "b", "test"))
    assert "other content in the files" in difference(before, now, "test images")


def test_some_of_the_images_have_their_own_boxes(tmp_path):
    for whole in (coco(write_coco(tmp_path / "d"), "test"), shapes()):
        some = whole.chosen(np.array([2, 0]))
        for mine, theirs in ((0, 2), (1, 0)):
            rows = slice(*some.starts[mine : mine + 2]), slice(*whole.starts[theirs : theirs + 2])
            assert np.array_equal(some.boxes[rows[0]], whole.boxes[rows[1]])
    assert len(subset(shapes("train"), 5)) == 5


def test_a_shape_is_all_of_its_box_and_nothing_else_is_bright():
    for split in ("train", "test"):
        found = shapes(split)
        bright = found.pictures.images.min(1) > 120
        for image in range(len(found)):
            covered = np.zeros_like(bright[image])
            for row in range(found.starts[image], found.starts[image + 1]):
                left, top, right, bottom = found.boxes[row].astype(int)
                inside = bright[image, top:bottom, left:right]
                assert inside.any(0).all()  # no column and no row of it is empty
                assert inside.any(1).all()
                assert inside.all() == (found.classes[found.labels[row]] == "square")
                covered[top:bottom, left:right] = True
            assert not (bright[image] & ~covered).any()
    with pytest.raises(DataError, match="`shapes` needs no folder, and 'x' was given"):
        open_data("shapes:x")


def images(content, **change):
    content["images"][0].update(change)


def boxes(content, **change):
    content["annotations"][1].update(change)


REFUSED = {
    "no JSON": (lambda c: "{", r"_val2017\.json is not a file of boxes .*: it is not JSON"),
    "a list": (lambda c: "[]", "not a file of boxes in COCO's format: expected 'object'"),
    "no boxes": (lambda c: c.pop("annotations") and None, "missing required field 'annotations'"),
    "three numbers": (lambda c: boxes(c, bbox=[1, 2, 3]), r"Box 11 of .* is \[1.0, 2.0, 3.0\]"),
    "no width": (lambda c: c["images"][0].pop("width") and None, "missing required field 'width'"),
    "negative": (lambda c: boxes(c, bbox=[1, 2, -3, 4]), r"Box 11 of image 1 of .* \[1.0, 2.0, -3"),
    "negative area": (lambda c: boxes(c, area=-1), "Box 11 of image 1 of .*, of area -1"),
    "no category": (lambda c: boxes(c, category_id=4), "the category with id 4, and there is none"),
    "no image": (lambda c: boxes(c, image_id=4), "Box 11 of image 4 .* with id 4, and there is"),
    "up": (lambda c: images(c, file_name="../x.png"), r"the image '\.\./x\.png', which is not"),
    "absolute": (lambda c: images(c, file_name="/etc/passwd"), "names the image '/etc/passwd'"),
    "empty": (lambda c: images(c, file_name=""), "names the image ''"),
    "not a number": (lambda c: boxes(c, bbox=[3, math.nan, 4, 5]), r"Box 11 .* is \[3.0, nan"),
    "infinite": (lambda c: boxes(c, area=math.inf), "Box 11 .* area inf"),
    "infinite list": (lambda c: json.dumps({"images": math.inf}), "got 'float' at 'images'"),
    "infinite text": (lambda c: "Infinity!", "it is not JSON"),
    "far away": (lambda c: boxes(c, bbox=[1, 1, 1e300, 1]), "Box 11 of image 1 .* is .*1e.300"),
    "only an outline": (lambda c: c["annotations"][1].pop("bbox") and None,
                        r"missing required field 'bbox' at 'annotations\[1\]'"),
    "results": (lambda c: json.dumps(c["annotations"]), "expected 'object', got 'array'"),
    "captions": (lambda c: c.update(annotations=[{"image_id": 1, "caption": "a tree"}]),
                 "missing required field 'category_id'"),
    "two spellings": (lambda c: images(c, file_name="./000000000002.png"), "image file .* 2 times"),
    "two ids": (lambda c: images(c, id=2), "has the image id 2 2 times. Keep one"),
    "two boxes": (lambda c: boxes(c, id=12), "has the box id 12 2 times. Keep one"),
    "a box twice": (lambda c: c["annotations"].append(c["annotations"][0]), "box id 10 2 times"),
    "two files": (lambda c: images(c, file_name="000000000002.png"), "image file .* 2 times"),
    "two names": (lambda c: c["categories"][0].update(name="car"), "category name 'car' 2 times"),
    "all crowds": (
        lambda c: [box.update(iscrowd=1) for box in c["annotations"]] and None,
        "no box to be found, so nothing can be tested",
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", REFUSED)
def test_what_is_wrong_is_said(tmp_path, what):
    change, said = REFUSED[what]
    write_coco(tmp_path / "d", val=change)
    with pytest.raises(DataError, match=said) as caught:
        coco(tmp_path / "d", "test")
    assert str(caught.value).endswith(".")


def test_boxes_without_area_are_left_out_and_named(tmp_path):
    """The official training file has two such boxes."""

    def flat(content):
        boxes(content, bbox=[3, 3, 5, 0], area=0)
        content["annotations"][2]["bbox"] = [41, 3, 5, 5]

    test = coco(write_coco(tmp_path / "d", val=flat), "test")
    assert len(test.boxes) == 3
    [note] = test.notes
    assert re.search("box 11 of image 1, box 12 of image 1 have no area within the image", note)


def test_a_box_too_thin_to_be_mirrored_is_left_out(tmp_path):
    """In float32 it would have no width at the other side, and torchvision stops at such a box."""

    def thin(content):
        boxes(content, bbox=[0.5, 3, 1e-6, 5], area=None)
        content["annotations"][2].update(bbox=[0.5, 3, 0.011, 5])
        del content["annotations"][1]["id"]

    train = coco(write_coco(tmp_path / "d", train=thin), "train")
    assert len(train.boxes) == 2
    assert "a box of image 1 has no area within the image, and is left out" in train.notes[0]
    for epoch in range(4):
        batch = next(train.training_batches(WHOLE, FLIPS, [np.arange(2)], seed=0, epoch=epoch))
        for target in batch["targets"]:
            assert bool((target["boxes"][:, 2:] > target["boxes"][:, :2]).all())


def test_a_box_without_an_area_or_with_none_has_that_of_its_sides(tmp_path):
    for area in (None, 0):
        test = coco(write_coco(tmp_path / str(area), val=lambda c: boxes(c, area=area)), "test")  # noqa: B023
        assert test.areas[0] == 16


def test_missing_places_are_named(tmp_path):
    with pytest.raises(DataError, match="Write `coco:DIR`"):
        open_data("coco")
    with pytest.raises(
        DataError, match=r"neither .*instances_val2017\.json nor instances_val\.json"
    ):
        open_data(f"coco:{tmp_path}")
    write_coco(tmp_path / "d")
    (tmp_path / "d" / "val2017").rename(tmp_path / "d" / "elsewhere")
    with pytest.raises(DataError, match=r"the folder .*val2017 with its images is not"):
        open_data(f"coco:{tmp_path / 'd'}")


def test_links_that_leave_the_folder_are_refused(tmp_path):
    write_coco(tmp_path / "d")
    file = tmp_path / "d" / "val2017" / "000000000001.png"
    file.rename(tmp_path / "outside.png")
    file.symlink_to(tmp_path / "outside.png")
    with pytest.raises(DataError, match=r"'000000000001.png', which is not a file in"):
        coco(tmp_path / "d")


def test_a_picture_that_cannot_be_read_or_has_another_size_is_named(tmp_path):
    write_coco(tmp_path / "d")
    files = [tmp_path / "d" / "val2017" / f"00000000000{id}.png" for id in (1, 2)]
    files[0].write_bytes(b"no picture")
    Image.new("RGB", (33, 44)).save(files[1])
    test = coco(tmp_path / "d")
    for index, said in (
        (0, r"1\.png is not an image that can be read: it has no known image format"),
        (1, r"2\.png is 33 × 44 pixels, and its boxes are for one of 30 × 40"),
    ):
        with case(index), pytest.raises(DataError, match=said):
            list(test.chosen(np.array([index])).batches(WHOLE, batch_size=1))
    left, faults = test.without_bad_images()
    assert left.pictures.files == ("000000000007.png", "000000000009.png")
    assert len(faults) == 2


def test_splits_with_other_classes_are_refused(tmp_path):
    write_coco(tmp_path / "d", val=lambda c: c["categories"][0].update(name="bush"))
    with pytest.raises(
        DataError, match="only d/train2017 has 'tree', and only d/val2017 has 'bush'"
    ):
        open_splits(f"coco:{tmp_path / 'd'}")


@pytest.mark.parametrize("copied", [(), (7,), (1, 7)])
def test_test_images_that_are_trained_on_are_told(tmp_path, copied):
    """By their content, whatever they are called; image 2 has no box, and is not trained on."""
    write_coco(tmp_path)
    for id, other in zip(copied, (2, 9), strict=False):
        picture = (tmp_path / "train2017" / f"{id:012}.png").read_bytes()
        (tmp_path / "val2017" / f"{other:012}.png").write_bytes(picture)
    _, test = open_splits(f"coco:{tmp_path}")
    wanted = [f"{len(copied)} of 4 test images"] if copied else []
    assert [note.split(" are ")[0] for note in test.notes] == wanted


def test_boxes_are_for_detectors_alone(tmp_path):
    test = shapes()
    with pytest.raises(DataError, match="which are for detectors, and this network is none"):
        test.batches(replace(WHOLE, mean=(0.5,) * 3), batch_size=1)
    with pytest.raises(DataError, match="crops would cut the boxes"):
        test.training_batches(WHOLE, Augmentation(), [np.arange(1)], seed=0, epoch=0)
    with pytest.raises(DataError, match="shapes-test has boxes in its images"):
        open_labelled("shapes")
