"""Laws of training batches: a sample's view is its own, whoever decodes it and with whom."""

import multiprocessing
import os
import signal
import threading
import time

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import _utils as torch_loading
from torch.utils.data.dataloader import _MultiProcessingDataLoaderIter

from stiffnet.data import workers as processes
from stiffnet.data.augment import Augmentation
from stiffnet.data.decode import read_image
from stiffnet.data.folder import image_folder
from stiffnet.data.images import ImageSet, Preparation
from stiffnet.data.order import epoch_batches, part_of, share
from stiffnet.errors import DataError

COUNT = 23
PREPARATION = Preparation((3, 12, 10), (0.4, 0.5, 0.6), (0.2, 0.3, 0.25))
CROPS = [Augmentation(crop=crop) for crop in ("none", "pad", "resized")]
every_crop = pytest.mark.parametrize("augmentation", CROPS, ids=lambda each: each.crop)


def pixels(index, height=16, width=14):
    return np.random.default_rng(index).integers(0, 256, (height, width, 3), dtype=np.uint8)


@pytest.fixture
def memory():
    images = np.stack([pixels(index).transpose(2, 0, 1) for index in range(COUNT)])
    return ImageSet("made", images, np.arange(COUNT) % 3, ("a", "b", "c"))


@pytest.fixture
def disk(tmp_path):
    """Files of different sizes, in three classes."""
    for index in range(COUNT):
        path = tmp_path / "set" / "abc"[index // 8] / f"{index:02}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels(index, 10 + index, 30 - index)).save(path)
    return image_folder(tmp_path / "set")


@pytest.fixture(params=["memory", "disk"])
def source(request):
    return request.getfixturevalue(request.param)


def by_sample(source, augmentation, indices, *, seed=1, epoch=2, workers=0):
    """Return what each sample looked like, by its index."""
    batches = source.training_batches(
        PREPARATION, augmentation, indices, seed=seed, epoch=epoch, workers=workers
    )
    views = {}
    for chosen, (images, labels) in zip(indices, batches, strict=True):
        assert images.dtype == torch.float32
        assert labels.dtype == torch.int64
        assert labels.tolist() == source.labels[chosen].tolist()
        views |= dict(zip(chosen.tolist(), images, strict=True))
    return views


def same(one, other):
    return one.keys() == other.keys() and all(torch.equal(one[key], other[key]) for key in one)


@every_crop
def test_any_split_into_batches_gives_the_same_images(source, augmentation):
    whole = by_sample(source, augmentation, [np.arange(COUNT)])
    assert len(whole) == COUNT
    for size in (1, 7, 22):
        batches = epoch_batches(COUNT, size, seed=5, epoch=0)
        assert same(by_sample(source, augmentation, batches), whole)


@every_crop
def test_any_number_of_ranks_gives_the_same_images(source, augmentation):
    batches = epoch_batches(COUNT, 8, seed=5, epoch=0)
    whole = by_sample(source, augmentation, batches)
    ranks = [by_sample(source, augmentation, [share(b, r, 3) for b in batches]) for r in range(3)]
    assert same(ranks[0] | ranks[1] | ranks[2], whole)


@every_crop
def test_a_start_at_a_later_batch_gives_the_same_images(source, augmentation):
    batches = epoch_batches(COUNT, 5, seed=5, epoch=0)
    whole = by_sample(source, augmentation, batches)
    for done in range(len(batches) + 1):
        rest = by_sample(source, augmentation, batches[done:])
        assert same(rest, {key: whole[key] for batch in batches[done:] for key in batch.tolist()})


@pytest.mark.parametrize("workers", [1, 2])
@every_crop
def test_any_number_of_workers_gives_the_same_images(disk, augmentation, workers):
    batches = epoch_batches(COUNT, 5, seed=5, epoch=0)
    expected = by_sample(disk, augmentation, batches)
    assert same(by_sample(disk, augmentation, batches, workers=workers), expected)


@every_crop
def test_seed_and_epoch_change_the_images(source, augmentation):
    chosen = [np.arange(COUNT)]
    first = by_sample(source, augmentation, chosen)
    for change in ({"seed": 2}, {"epoch": 3}):
        other = by_sample(source, augmentation, chosen, **change)
        assert not all(torch.equal(first[index], other[index]) for index in first)


def test_without_augmentation_they_are_the_images_of_a_measurement(source):
    plain = Augmentation(crop="none", flip=False)
    views = by_sample(source, plain, [np.arange(COUNT)])
    [(images, _)] = source.batches(PREPARATION, batch_size=COUNT)
    assert torch.equal(torch.stack(list(views.values())), images)


def test_a_file_and_the_same_pixels_in_memory_are_seen_alike(tmp_path, memory):
    """The boxes are the same ones; resampling differs by a level of 8 bits at most."""
    for index in range(COUNT):
        path = tmp_path / "set" / "only" / f"{index:02}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels(index)).save(path)
    resized, chosen = Augmentation(crop="resized"), [np.arange(COUNT)]
    plain = Preparation((3, 12, 10), (0.0,) * 3, (1 / 255,) * 3)
    [(one, _)] = memory.training_batches(plain, resized, chosen, seed=0, epoch=0)
    folder = image_folder(tmp_path / "set")
    [(other, _)] = folder.training_batches(plain, resized, chosen, seed=0, epoch=0)
    assert (one - other).abs().round().max() <= 1


def test_what_the_frame_adds_is_black_before_it_is_normalised():
    white = ImageSet("white", np.full((40, 3, 12, 10), 255, np.uint8), np.zeros(40, int), ("a",))
    batches = white.training_batches(
        PREPARATION, Augmentation(padding=3), [np.arange(40)], seed=0, epoch=0
    )
    [(images, _)] = batches
    for channel, (mean, std) in enumerate(zip(PREPARATION.mean, PREPARATION.std, strict=True)):
        black, light = ((torch.tensor(value) - mean) / std for value in (0.0, 1.0))
        assert set(images[:, channel].unique().tolist()) == {black.item(), light.item()}


def test_the_random_numbers_of_the_caller_are_left_alone(source):
    torch.manual_seed(1)
    np.random.seed(1)  # noqa: NPY002
    expected = torch.rand(3), np.random.rand(3)  # noqa: NPY002
    torch.manual_seed(1)
    np.random.seed(1)  # noqa: NPY002
    by_sample(source, CROPS[2], [np.arange(COUNT)])
    assert torch.equal(torch.rand(3), expected[0])
    assert np.array_equal(np.random.rand(3), expected[1])  # noqa: NPY002


def test_a_negative_number_of_workers_is_refused_at_once(disk):
    with pytest.raises(DataError, match="`workers` is -1"):
        disk.training_batches(PREPARATION, CROPS[0], [], seed=0, epoch=0, workers=-1)


@pytest.mark.parametrize("workers", [0, 2])
def test_a_broken_file_is_named_when_it_is_read(disk, workers):
    path = disk.root / disk.files[9]
    path.write_bytes(b"<html>404</html>")
    batches = disk.training_batches(
        PREPARATION, CROPS[2], [np.arange(5), np.arange(5, 15)], seed=0, epoch=0, workers=workers
    )
    assert len(next(batches)[1]) == 5
    with pytest.raises(DataError, match="no known image format") as caught:
        next(batches)
    assert str(caught.value).startswith(f"{path} is not an image that can be read: ")


@pytest.mark.parametrize("ranks", [1, 2, 4, 9])
def test_the_parts_of_the_ranks_one_after_the_other_are_the_whole(source, ranks):
    batches = source.batches(PREPARATION, batch_size=4)
    parts = [part_of(batches, rank, ranks) for rank in range(ranks)]
    assert max(map(len, parts)) - min(map(len, parts)) <= 1
    found = [batch for part in parts for batch in part]
    for (images, labels), (its_images, its_labels) in zip(found, batches, strict=True):
        assert torch.equal(images, its_images)
        assert torch.equal(labels, its_labels)


def no_process_is_left():
    for child in multiprocessing.active_children():
        child.join(5)  # it was told to end, which takes a moment
    return not multiprocessing.active_children()


@pytest.fixture
def impatient(monkeypatch):
    """PyTorch looks after its processes every five seconds; here, more often."""
    monkeypatch.setattr(torch_loading, "MP_STATUS_CHECK_INTERVAL", 0.1)
    monkeypatch.setattr(_MultiProcessingDataLoaderIter._try_get_data, "__defaults__", (0.1,))


@pytest.fixture
def slow_later(monkeypatch):
    """All files but the first class's take a minute to decode."""

    def read_slowly(path, channels):
        if path.parent.name != "a":
            time.sleep(60)
        return read_image(path, channels)

    monkeypatch.setattr("stiffnet.data.folder.read_image", read_slowly)


@pytest.mark.usefixtures("impatient", "slow_later")
@pytest.mark.parametrize("in_main_thread", [True, False], ids=["main thread", "other thread"])
def test_a_killed_worker_is_one_sentence_where_the_next_batch_is_asked_for(disk, in_main_thread):
    caught = []

    def train():
        batches = disk.training_batches(
            PREPARATION, CROPS[0], np.array_split(np.arange(23), 10), seed=0, epoch=0, workers=2
        )
        next(batches)
        os.kill(multiprocessing.active_children()[0].pid, signal.SIGKILL)
        time.sleep(0.2)  # PyTorch's own handler would raise here, in the midst of the training
        with pytest.raises(DataError, match="A process that reads images ended or hangs") as error:
            list(batches)
        caught.append(error.value)

    if in_main_thread:
        train()
    else:
        thread = threading.Thread(target=train)
        thread.start()
        thread.join()
    [error] = caught
    assert "give fewer `workers`" in str(error)
    assert "\n" not in str(error)
    assert no_process_is_left()


@pytest.mark.usefixtures("impatient", "slow_later")
def test_a_worker_that_hangs_is_not_waited_for_without_end(disk, monkeypatch):
    monkeypatch.setattr(processes, "PATIENCE", 0.5)
    match = r"batch 2 of 2: DataLoader timed out after 0\.5 seconds"
    with pytest.raises(DataError, match=match):
        by_sample(disk, CROPS[0], [np.arange(3), np.arange(9, 12)], workers=1)


@pytest.fixture
def own_handler(monkeypatch):
    """A program's own handler of dying processes, in a program where PyTorch sets none."""
    monkeypatch.setattr(torch_loading.signal_handling, "_SIGCHLD_handler_set", True)

    def handler(*_):
        pass

    before = signal.signal(signal.SIGCHLD, handler)
    yield handler
    signal.signal(signal.SIGCHLD, before)


@pytest.mark.parametrize("workers", [0, 2])
def test_who_stops_early_leaves_no_process_and_no_signal_handler_behind(disk, workers, own_handler):
    assert no_process_is_left()  # of a test before, which may take a while on a busy machine
    batches = disk.training_batches(
        PREPARATION, CROPS[0], [np.arange(2)] * 30, seed=0, epoch=0, workers=workers
    )
    next(batches)
    assert len(multiprocessing.active_children()) == workers
    batches.close()
    assert signal.getsignal(signal.SIGCHLD) is own_handler
    assert no_process_is_left()
