"""Laws of the random crop and flip."""

import pytest
import torch

from stiffnet.data.augment import crop_and_flip


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def batch(count=40, channels=2, height=7, width=5):
    return torch.rand(count, channels, height, width, generator=generator(9)) + 1  # no zeros


def naive(image, row, column, mirrored, padding):
    """Crop one image out of a frame of zeros, pixel by pixel; mirror it afterwards."""
    channels, height, width = image.shape
    result = torch.zeros_like(image)
    for channel in range(channels):
        for y in range(height):
            for x in range(width):
                source_y = y + row - padding
                source_x = (width - 1 - x if mirrored else x) + column - padding
                if 0 <= source_y < height and 0 <= source_x < width:
                    result[channel, y, x] = image[channel, source_y, source_x]
    return result


@pytest.mark.parametrize("padding", [1, 2, 4])
def test_it_is_a_crop_of_each_image_as_the_definition_says(padding):
    images = batch()
    result = crop_and_flip(images, generator(), padding=padding)
    draws = generator()
    rows, columns = torch.randint(0, 2 * padding + 1, (2, len(images), 1), generator=draws)
    mirrored = torch.rand(len(images), generator=draws) < 0.5
    for index, image in enumerate(images):
        expected = naive(
            image, int(rows[index]), int(columns[index]), bool(mirrored[index]), padding
        )
        assert torch.equal(result[index], expected)


def test_every_result_is_one_of_the_possible_crops():
    images = batch(count=60, channels=1, height=3, width=3)
    for image, found in zip(images, crop_and_flip(images, generator(), padding=1), strict=True):
        possible = [
            naive(image, row, column, mirrored, 1)
            for row in range(3)
            for column in range(3)
            for mirrored in (False, True)
        ]
        assert any(torch.equal(found, crop) for crop in possible)


def test_without_padding_it_only_mirrors():
    images = batch(count=200)
    result = crop_and_flip(images, generator(), padding=0)
    same = (result == images).flatten(1).all(1)
    mirrored = (result == images.flip(-1)).flatten(1).all(1)
    assert torch.equal(same, ~mirrored)
    assert 60 < int(mirrored.sum()) < 140  # half of 200, within six standard deviations
    assert torch.equal(result.flatten(1).sort(1).values, images.flatten(1).sort(1).values)


def test_every_shift_comes_up():
    images = torch.ones(500, 1, 9, 9)
    kept = crop_and_flip(images, generator(), padding=4).flatten(1).sum(1)
    assert set(kept.tolist()) == {float(h * w) for h in range(5, 10) for w in range(5, 10)}


def test_it_depends_on_the_generator_alone():
    images = batch()
    torch.manual_seed(1)
    expected = torch.rand(3)
    torch.manual_seed(1)
    first = crop_and_flip(images, generator())
    assert torch.equal(torch.rand(3), expected), "the global random numbers were used"
    assert torch.equal(first, crop_and_flip(images, generator()))
    assert not torch.equal(first, crop_and_flip(images, generator(1)))


def test_the_images_stay_as_they_were_and_channels_move_together():
    images = batch()
    before = images.clone()
    images[:, 1] = images[:, 0] + 1
    before = images.clone()
    result = crop_and_flip(images, generator())
    assert torch.equal(images, before)
    inside = result[:, 0] != 0
    torch.testing.assert_close(result[:, 1][inside], result[:, 0][inside] + 1)
