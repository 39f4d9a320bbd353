"""Mixed images: shares that add up, labels mixed like the images, and the same bits on resuming."""

import pytest
import torch
from torch.nn import functional as F

from stiffnet.train.mixing import mix, mixings
from stiffnet.train.recipe import Recipe
from stiffnet.train.tasks.classify import Classify


def batch(count=6, classes=4):
    chance = torch.Generator().manual_seed(0)
    labels = torch.randint(classes, (count,), generator=chance)
    return torch.rand(count, 3, 8, 8, generator=chance), labels


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
def test_mixup_is_a_weighted_mean_of_images_with_these_shares(layout):
    images = batch()[0].contiguous(memory_format=layout)
    before = images.clone()
    torch.manual_seed(1)
    mixed, shares = mix(images, mixings(1.0, 0.0))
    torch.testing.assert_close(mixed, torch.einsum("ij,jchw->ichw", shares, images))
    torch.testing.assert_close(shares.sum(1), torch.ones(6))
    assert ((shares > 0).sum(1) == 2).all()
    assert torch.equal(images, before)
    assert mixed.is_contiguous(memory_format=layout)


def test_cutmix_has_the_shares_of_the_pixels_that_came_from_each_image():
    images = torch.arange(6.0)[:, None, None, None].expand(6, 3, 8, 8).contiguous()
    seen = set()
    for seed in range(8):
        torch.manual_seed(seed)
        mixed, shares = mix(images, mixings(0.0, 1.0))
        counted = torch.stack([(mixed == i).float().mean((1, 2, 3)) for i in range(6)], dim=1)
        torch.testing.assert_close(shares, counted)
        seen.add(round(float(shares[0, 0]), 3))
    assert len(seen) > 3


def test_where_both_are_asked_for_both_occur():
    images = torch.arange(4.0)[:, None, None, None].expand(4, 3, 8, 8).contiguous()
    whole = set()
    for seed in range(20):
        torch.manual_seed(seed)
        mixed, _ = mix(images, mixings(1.0, 1.0))
        whole.add(bool((mixed == mixed.round()).all()))  # nothing but pixels of one image
    assert whole == {True, False}


def test_the_loss_is_the_mean_over_both_labels_and_the_larger_part_counts():
    labels = torch.tensor([0, 1, 2, 3, 1, 2])
    images = F.one_hot(labels, 4).double().reshape(6, 1, 2, 2)  # whose pixels are the logits
    network = torch.nn.Flatten()
    task = Classify(Recipe(mixup=1.0, label_smoothing=0.2))
    larger = set()
    for seed in range(8):
        torch.manual_seed(seed)
        judged = task.judge(network, (images, labels), training=True)
        torch.manual_seed(seed)
        mixed, shares = mix(images, mixings(1.0, 0.0))
        logits = network(mixed)
        expected, right = 0.0, 0
        for i, row in enumerate(shares.double()):
            for share, label in zip(row, labels, strict=True):
                expected += share * F.cross_entropy(logits[i], label, label_smoothing=0.2)
            right += int(logits[i].argmax() == labels[row.argmax()])
            larger.add(int(row.argmax()) == i)
        torch.testing.assert_close(judged.loss, expected)
        assert int(judged.more["top1"]) == right == 6
    assert larger == {True, False}  # its own part, and the other's


def test_nothing_is_mixed_in_a_test_or_by_default():
    images, labels = batch()
    given = []

    def network(seen):
        given.append(seen)
        return torch.zeros(len(seen), 4)

    Classify(Recipe(mixup=1.0)).judge(network, (images, labels), training=False)
    Classify(Recipe()).judge(network, (images, labels), training=True)
    assert all(seen is images for seen in given)


def test_a_batch_of_one_is_left_as_it_is():
    images = batch(1)[0]
    for ways in (mixings(1.0, 0.0), mixings(0.0, 1.0)):
        mixed, shares = mix(images, ways)
        torch.testing.assert_close(mixed, images)
        torch.testing.assert_close(shares, torch.ones(1, 1))
