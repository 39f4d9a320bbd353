"""Laws of image sets and their preparation."""

import numpy as np
import pytest
import torch

from stiffnet.data.images import ImageSet, Preparation, spread
from stiffnet.errors import DataError

PLAIN = Preparation((3, 8, 8), (0.0, 0.0, 0.0), (1.0, 1.0, 1.0))


def image_set(count=23, classes=4, channels=3, seed=0):
    generator = np.random.default_rng(seed)
    return ImageSet(
        name="made",
        images=generator.integers(0, 256, (count, channels, 8, 8), dtype=np.uint8),
        labels=generator.integers(0, classes, count),
        classes=tuple(map(str, range(classes))),
    )


def gathered(batches):
    images, labels = zip(*batches, strict=True)
    return torch.cat(images), torch.cat(labels)


def test_preparation_is_the_definition():
    images = torch.randint(0, 256, (2, 3, 4, 5), dtype=torch.uint8)
    mean, std = (0.1, 0.2, 0.3), (0.5, 0.6, 0.7)
    prepared = Preparation((3, 4, 5), mean, std)(images)
    for channel in range(3):
        expected = (images[:, channel].double() / 255 - mean[channel]) / std[channel]
        torch.testing.assert_close(prepared[:, channel].double(), expected, rtol=1e-5, atol=1e-6)


def test_preparation_leaves_the_images_as_they_were():
    images = torch.randint(0, 256, (2, 3, 8, 8), dtype=torch.uint8)
    before = images.clone()
    PLAIN(images)
    assert torch.equal(images, before)


def test_grey_images_are_repeated_over_the_channels():
    grey = torch.randint(0, 256, (2, 1, 8, 8), dtype=torch.uint8)
    assert torch.equal(PLAIN(grey), PLAIN(grey.expand(-1, 3, -1, -1)))


def test_a_flat_image_stays_flat_when_it_is_resized():
    flat = torch.full((1, 1, 8, 8), 51, dtype=torch.uint8)
    resized = Preparation((1, 20, 6), (0.0,), (1.0,))(flat)
    torch.testing.assert_close(resized, torch.full((1, 1, 20, 6), 0.2))


def test_the_wrong_number_of_channels_is_refused():
    with pytest.raises(DataError, match=r"have 3 channels, the network takes 1.*in_chans=3"):
        Preparation((1, 8, 8), (0.0,), (1.0,))(torch.zeros(1, 3, 8, 8, dtype=torch.uint8))


def test_images_that_are_scaled_already_are_refused():
    with pytest.raises(DataError, match="float32"):
        PLAIN(torch.zeros(1, 3, 8, 8))


@pytest.mark.parametrize("batch_size", [1, 5, 23, 100])
def test_samples_come_in_order_once_whatever_the_batch_size(batch_size):
    source = image_set()
    batches = source.batches(PLAIN, batch_size=batch_size)
    assert len(batches) == len(list(batches)) == -(-23 // batch_size)
    for _ in range(2):  # it can be iterated again
        images, labels = gathered(batches)
        assert torch.equal(images, PLAIN(torch.from_numpy(source.images)))
        assert torch.equal(labels, torch.from_numpy(source.labels))


@pytest.mark.parametrize("limit", [1, 7, 22, 23, 1000])
def test_a_limit_gives_that_many_different_samples_in_order(limit):
    source = image_set()
    chosen = spread(source.labels, limit)
    assert len(chosen) == min(limit, 23)
    assert (np.diff(chosen) > 0).all()
    images, labels = gathered(source.batches(PLAIN, batch_size=4, limit=limit))
    assert torch.equal(images, PLAIN(torch.from_numpy(source.images[chosen])))
    assert torch.equal(labels, torch.from_numpy(source.labels[chosen]))


@pytest.mark.parametrize("order", ["sorted", "shuffled", "cyclic"])
def test_every_class_has_its_share_of_a_limit(order):
    labels = np.repeat(np.arange(10), 50)
    if order == "shuffled":
        np.random.default_rng(0).shuffle(labels)
    if order == "cyclic":
        labels = labels.reshape(10, 50).T.ravel()
    for limit in (10, 37, 50, 123, 499):
        share = np.bincount(labels[spread(labels, limit)], minlength=10)
        assert np.abs(share - limit / 10).max() < 1


@pytest.mark.parametrize("value", [0, -1])
@pytest.mark.parametrize("name", ["batch_size", "limit"])
def test_no_images_at_all_is_refused(name, value):
    options = {"batch_size": 4} | {name: value}
    with pytest.raises(DataError, match=f"`{name}` is {value}"):
        image_set().batches(PLAIN, **options)


def test_an_ill_formed_set_is_refused():
    good = image_set()
    with pytest.raises(DataError, match="float64"):
        ImageSet("x", good.images.astype(float), good.labels, good.classes)
    with pytest.raises(DataError, match="shape"):
        ImageSet("x", good.images[:, 0], good.labels, good.classes)
    with pytest.raises(DataError, match="23 images and 22 labels"):
        ImageSet("x", good.images, good.labels[1:], good.classes)
