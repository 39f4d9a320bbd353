"""Which class is it: the cross-entropy, and how often the label is among the first one or five."""

from collections.abc import Mapping
from typing import Any

from torch import Tensor
from torch.nn import functional as F

from stiffnet.data import Data
from stiffnet.data.boxes import BoxedImages
from stiffnet.errors import CheckpointError, DataError
from stiffnet.network.loaded import LoadedModel
from stiffnet.train.mixing import mix, mixings
from stiffnet.train.recipe import Recipe
from stiffnet.train.tasks.base import Judged, Network, Row, Task


class Classify(Task):
    """One label for each image."""

    best = "test_top1"
    counts = ("top1", "top5")
    uses = ("label_smoothing", "mixup", "cutmix")

    def __init__(self, recipe: Recipe) -> None:
        super().__init__(recipe)
        self.mixings = mixings(recipe.mixup, recipe.cutmix)

    def outputs(self, data: Data) -> int:
        """One logit for each class."""
        if isinstance(data, BoxedImages):
            raise DataError(
                f"{data.name} holds boxes, from which a detector learns. Name one, such as "
                "`fasterrcnn:resnet50`, or set `task` to 'detect'."
            )
        return len(data.classes)

    def classes(self, data: Data) -> tuple[str, ...]:
        """In the order of the logits."""
        return data.classes

    def judge(self, network: Network, batch: tuple[Tensor, Tensor], *, training: bool) -> Judged:
        """Compare the logits with the labels.

        In training only, labels are smoothed, and images are mixed. An image that is mixed of two
        counts as recognised by the label of its larger part.
        """
        images, labels = batch
        smoothing = self.recipe.label_smoothing if training else 0.0
        if training and self.mixings:
            images, shares = mix(images, self.mixings)
            logits = logits_of(network(images))
            targets = shares.to(logits.dtype) @ F.one_hot(labels, logits.shape[1]).to(logits.dtype)
            loss = F.cross_entropy(logits, targets, reduction="sum", label_smoothing=smoothing)
            labels = targets.argmax(1)
        else:
            logits = logits_of(network(images))
            loss = F.cross_entropy(logits, labels, reduction="sum", label_smoothing=smoothing)
        first = logits.detach().topk(min(5, logits.shape[1]), dim=1).indices == labels[:, None]
        return Judged(len(labels), loss, {"top1": first[:, 0].sum(), "top5": first.sum()})

    def check(self, loaded: LoadedModel, data: Data, output: Any) -> None:
        """See that the network has a logit for each class of the data, and that they are several.

        With a single class every answer is right and the loss is 0, so that nothing is learnt.
        """
        if len(data.classes) == 1:
            raise DataError(
                f"{data.name} has one class, {data.classes[0]!r}, so that there is nothing to tell "
                "apart. Give images of two classes or more."
            )
        logits = logits_of(output)
        if logits.ndim != 2:
            raise CheckpointError(
                f"{loaded.name} does not tell classes apart: it makes {logits.ndim - 1} axes of an "
                "image. Train a classifier, or set `task` to what this network is for."
            )
        if (width := logits.shape[1]) != len(data.classes):
            raise CheckpointError(
                f"{loaded.name} has {width} outputs, and {data.name} has {len(data.classes)} "
                "classes. Start from a network by its name."
            )

    def so_far(self, sums: Mapping[str, float]) -> str:
        """Loss and accuracy."""
        now = self.columns(sums)
        return f"loss {now['loss']:.3f}  top-1 {now['top1']:.1%}"

    def in_words(self, row: Row) -> str:
        """Losses, and accuracies as percentages."""
        return (
            f"train loss {row['train_loss']:.4f}, top-1 {row['train_top1']:.2%}; "
            f"test loss {row['test_loss']:.4f}, top-1 {row['test_top1']:.2%}, "
            f"top-5 {row['test_top5']:.2%}"
        )

    def conclusion(self, last: Row, best: Row) -> str:
        """Say the accuracy that counts first, the best one after it."""
        return (
            f"Test accuracy after the last epoch: {last['test_top1']:.2%} (top-5 "
            f"{last['test_top5']:.2%}). Best epoch, chosen on the test set: {best['epoch']}, "
            f"{best['test_top1']:.2%}."
        )


def logits_of(output: Any) -> Tensor:
    """Return the main logits where a network also gives others for training."""
    if isinstance(output, tuple):
        output = output[0]
    assert isinstance(output, Tensor)
    return output
