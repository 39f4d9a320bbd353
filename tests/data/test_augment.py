"""Laws of random crops and mirror images."""

import itertools
import math

import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st
from PIL import Image, ImageOps
from scipy import stats

from stiffnet.data.augment import COLUMN, FLIP, ROW, SHAPES, Augmentation
from stiffnet.errors import DataError


def raw(count=12, channels=3, height=9, width=7, seed=0):
    generator = np.random.default_rng(seed)
    pixels = generator.integers(1, 256, (count, channels, height, width), dtype=np.uint8)
    return torch.from_numpy(pixels)  # no black ones


def by_the_book(augmentation, image, size, chances):
    """One image, by Pillow and by the description of the recipe."""
    picture = Image.fromarray(image.permute(1, 2, 0).numpy())
    if augmentation.crop == "pad":
        padding = augmentation.padding
        framed = ImageOps.expand(picture, padding, fill=0)
        top, left = (int(chance * (2 * padding + 1)) for chance in chances[[ROW, COLUMN]])
        picture = framed.crop((left, top, left + picture.width, top + picture.height))
    elif augmentation.crop == "resized":
        top, left, tall, wide = first_box(augmentation, picture.height, picture.width, chances)
        part = picture.crop((left, top, left + wide, top + tall))
        picture = part.resize(size[::-1], Image.Resampling.BILINEAR)
    if augmentation.flip and chances[FLIP] < 0.5:
        picture = ImageOps.mirror(picture)
    return torch.from_numpy(np.array(picture)).permute(2, 0, 1)


def first_box(augmentation, height, width, chances):
    """Try one shape after the other, as the recipe tells it."""
    (small, large), (slim, broad) = augmentation.scale, augmentation.ratio
    for area_chance, ratio_chance in chances[SHAPES].reshape(-1, 2):
        area = height * width * (small + area_chance * (large - small))
        ratio = math.exp(math.log(slim) + ratio_chance * (math.log(broad) - math.log(slim)))
        tall, wide = round(math.sqrt(area / ratio)), round(math.sqrt(area * ratio))
        if 0 < tall <= height and 0 < wide <= width:
            top = int(chances[ROW] * (height - tall + 1))
            return top, int(chances[COLUMN] * (width - wide + 1)), tall, wide
    tall, wide = height, width
    if width / height < slim:
        tall = round(width / slim)
    elif width / height > broad:
        wide = round(height * broad)
    return (height - tall) // 2, (width - wide) // 2, tall, wide


EVERY = {
    "flip": Augmentation(crop="none"),
    "nothing": Augmentation(crop="none", flip=False),
    "no frame": Augmentation(crop="pad", padding=0),
    "narrow frame": Augmentation(crop="pad", padding=1, flip=False),
    "frame": Augmentation(crop="pad", padding=4),
    "resized": Augmentation(crop="resized"),
    "half": Augmentation(crop="resized", flip=False, scale=(0.5, 0.5), ratio=(1.0, 1.0)),
}
every = pytest.mark.parametrize("augmentation", EVERY.values(), ids=EVERY)


@every
@pytest.mark.parametrize(("height", "width"), [(9, 7), (32, 32), (5, 40)])
def test_it_is_what_pillow_does_to_each_image(augmentation, height, width):
    images, size = raw(height=height, width=width), (12, 10)
    before = images.clone()
    chances = augmentation.chances(1, 2, np.arange(12))
    result = augmentation(images, size, chances)
    assert torch.equal(images, before)
    assert result.is_contiguous()
    expected = [
        by_the_book(augmentation, image, size, row)
        for image, row in zip(images, chances, strict=True)
    ]
    difference = (result.int() - torch.stack(expected).int()).abs().max()
    assert difference <= (augmentation.crop == "resized")  # its weights are rounded elsewhere


@every
@pytest.mark.parametrize("channels", [1, 3, 4])
def test_a_sample_does_not_see_its_batch(augmentation, channels):
    images, samples = raw(count=11, channels=channels), np.arange(100, 111)

    def varied(chosen):
        chances = augmentation.chances(3, 4, samples[chosen])
        return augmentation(images[chosen], (8, 8), chances)

    whole = varied(np.arange(11))
    for size in (1, 4):
        parts = [varied(np.arange(start, min(start + size, 11))) for start in range(0, 11, size)]
        assert torch.equal(whole, torch.cat(parts))
    assert torch.equal(varied(np.arange(11)[::-1].copy()), whole.flip(0))


@every
def test_a_rank_without_samples_gets_an_empty_batch(augmentation):
    none = np.array([], dtype=np.int64)
    empty = augmentation(raw(count=0, height=8, width=8), (8, 8), augmentation.chances(0, 0, none))
    assert empty.shape == (0, 3, 8, 8)


def test_seeds_and_epochs_show_another_part():
    images, augmentation = raw(count=30, height=32, width=32), Augmentation()
    samples = np.arange(30)
    shown = [
        augmentation(images, (32, 32), augmentation.chances(seed, epoch, samples))
        for seed, epoch in ((0, 0), (0, 1), (1, 0), (1, 1))
    ]
    for one, other in itertools.combinations(shown, 2):
        same = (one == other).flatten(1).all(1).float().mean()
        assert same < 0.2  # one of 162 views, each alike


def test_every_shift_and_both_sides_come_up_equally():
    chances = Augmentation().chances(0, 0, np.arange(20_000))
    places = np.arange(81, dtype=np.uint8).reshape(1, 1, 9, 9)
    images = torch.from_numpy(places).expand(20_000, -1, -1, -1)
    augmentation = Augmentation(crop="pad", padding=4, flip=False)
    corner = augmentation(images[:, :, 4:5, 4:5] * 0 + 1, (1, 1), chances)
    assert corner.float().mean() == pytest.approx(1 / 81, rel=0.2)  # 1 of 9 × 9 places holds it
    turned = Augmentation(crop="none").mirror(images, chances)[:, 0, 0, 0] == 8
    assert turned.float().mean() == pytest.approx(0.5, abs=0.02)  # six deviations


def test_boxes_are_spread_as_the_recipe_says():
    """Of a large square every shape fits but the largest: area, ratio and place as described."""
    augmentation = Augmentation(crop="resized", scale=(0.08, 0.5))
    side = 10_000
    chances = augmentation.chances(0, 0, np.arange(20_000))
    top, left, tall, wide = augmentation.boxes(chances, side, side).T
    area, ratio = tall * wide / side**2, np.log(wide / tall)
    assert stats.kstest(area, stats.uniform(0.08, 0.42).cdf).pvalue > 0.01
    bound = math.log(4 / 3)
    assert stats.kstest(ratio, stats.uniform(-bound, 2 * bound).cdf).pvalue > 0.01
    for start, length in ((top, tall), (left, wide)):
        assert stats.kstest(start / (side - length), "uniform").pvalue > 0.01


@given(
    st.integers(1, 300),
    st.integers(1, 300),
    st.floats(0.01, 1.0),
    st.floats(0.1, 1.0),
    st.integers(0, 1000),
)
def test_boxes_lie_within_the_image(height, width, smallest, slimmest, sample):
    augmentation = Augmentation(
        crop="resized", scale=(smallest, 1.0), ratio=(slimmest, 1 / slimmest)
    )
    chances = augmentation.chances(0, 0, np.array([sample]))
    [[top, left, tall, wide]] = augmentation.boxes(chances, height, width)
    assert top >= 0
    assert left >= 0
    assert tall >= 1
    assert wide >= 1
    assert top + tall <= height
    assert left + wide <= width


@pytest.mark.parametrize(
    ("settings", "match"),
    [
        ({"crop": "random"}, "`crop` is 'random'. Give one of 'none', 'pad', 'resized'"),
        ({"padding": -1}, "`padding` is -1"),
        ({"scale": (0.0, 1.0)}, r"`scale` is \(0.0, 1.0\)"),
        ({"scale": (0.5, 0.2)}, "`scale` is"),
        ({"scale": (0.5, 1.5)}, "`scale` is"),
        ({"ratio": (0.0, 1.0)}, r"`ratio` is \(0.0, 1.0\)"),
        ({"ratio": (2.0, 1.0)}, "`ratio` is"),
        ({"ratio": (1.0, math.inf)}, "`ratio` is"),
        ({"ratio": (math.nan, 1.0)}, "`ratio` is"),
    ],
    ids=str,
)
def test_an_impossible_augmentation_is_refused(settings, match):
    with pytest.raises(DataError, match=match):
        Augmentation(**settings)
