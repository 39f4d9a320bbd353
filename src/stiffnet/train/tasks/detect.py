"""Where is what: torchvision's losses of a detector, and COCO's average precisions."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torchmetrics.detection import MeanAveragePrecision

from stiffnet.data import Data
from stiffnet.data.boxes import Batch, BoxedImages
from stiffnet.errors import CheckpointError, DataError, RecipeError
from stiffnet.network.loaded import LoadedModel
from stiffnet.network.model_names import is_detector_name
from stiffnet.train.recipe import Recipe
from stiffnet.train.tasks.base import Judged, Network, Row, Task

PARTS = ("loss_classifier", "loss_box_reg", "loss_objectness", "loss_rpn_box_reg")
NAMES = {  # ours, and torchmetrics' for the same
    "ap": "map",
    "ap50": "map_50",
    "ap75": "map_75",
    "ap_s": "map_small",
    "ap_m": "map_medium",
    "ap_l": "map_large",
}

OVERLAPS = np.linspace(0.5, 0.95, 10).tolist()  # COCO's; torchmetrics would round them to float32,
RECALLS = np.linspace(0.0, 1.0, 101).tolist()  # and a recall of 0.1 would miss the one at 0.1

WHOLE = ("32-true", "64-true")

Boxes = Sequence[Mapping[str, Tensor]]  # of each image: boxes, labels, and scores or areas


class Detect(Task):
    """Boxes around the things in an image, and what each is."""

    best = "test_ap"
    sums = PARTS
    uses = ("frozen_stages", "frozen_norms")

    def __init__(self, recipe: Recipe) -> None:
        super().__init__(recipe)
        if recipe.crop != "none":
            raise RecipeError(
                f"`crop` is {recipe.crop!r}, but `task` is 'detect', and crops would cut boxes "
                "off. Set `crop` to 'none'."
            )
        if recipe.precision not in WHOLE:  # Fabric would round the corners of boxes, too
            raise RecipeError(
                f"`precision` is {recipe.precision!r}, but `task` is 'detect', and half a float "
                "does not tell the pixels of a large image apart. Set `precision` to '32-true'."
            )

    def outputs(self, data: Data) -> int:
        """As many as there are classes; the background has one of its own."""
        if not isinstance(data, BoxedImages):
            raise DataError(
                f"A detector learns from boxes, and {data.name} has none. Give `--data coco:DIR`, "
                "or `shapes` for a trial."
            )
        return len(data.classes)

    def classes(self, data: Data) -> tuple[str, ...]:
        """In the order of their numbers, from 1."""
        return data.classes

    def inputs(self, batch: Batch) -> Any:
        """Return the images by the name that detectors have for them."""
        return {"images": batch["images"]}

    def judge(self, network: Network, batch: Batch, *, training: bool) -> Judged:
        """Add torchvision's four losses up in training; keep what was found in tests.

        Each loss is a mean over the boxes of a batch. Times the number of its images, it is a sum
        as those of other tasks are.
        """
        images, targets = batch["images"], batch["targets"]
        if not images:
            raise RecipeError(
                f"`batch_size` is {self.recipe.batch_size}, which leaves a rank without an image. "
                "Give at least one image for each rank."
            )
        if training:
            means = network(images, targets)
            parts = {name: means[name] * len(images) for name in PARTS}
            return Judged(len(images), torch.stack(list(parts.values())).sum(), parts)
        found = network(images)
        nothing = torch.zeros((), device=images[0].device)
        kept = [[{key: t.cpu() for key, t in each.items()} for each in many]
                for many in (found, targets)]  # fmt: skip
        return Judged(len(images), nothing, dict.fromkeys(PARTS, nothing), kept)

    def tested(self, sums: Mapping[str, float], kept: Sequence[Any]) -> dict[str, float | None]:
        """COCO's average precisions, of all images together.

        Of boxes with equal scores that of the earlier image counts first, so the images are put
        back into their order.
        """
        found = [each for batch, _ in kept for each in batch]
        wanted = [each for _, batch in kept for each in batch]
        order = sorted(range(len(wanted)), key=lambda each: int(wanted[each]["image_id"]))
        return average_precisions([found[each] for each in order], [wanted[each] for each in order])

    def check(self, loaded: LoadedModel, data: Data, output: Any) -> None:
        """See that it is a detector, of as many classes as the data have."""
        if not is_detector_name(loaded.name):
            raise RecipeError(
                f"`task` is 'detect', and {loaded.name} is no detector that can be trained here. "
                "Put it on a backbone, as in `fasterrcnn:resnet50`."
            )
        known = loaded.model.get_submodule("roi_heads.box_predictor.cls_score")
        if (width := known.get_parameter("bias").numel() - 1) != len(data.classes):
            raise CheckpointError(
                f"{loaded.name} finds things of {width} classes, and {data.name} has "
                f"{len(data.classes)}. Start from a network by its name."
            )

    def so_far(self, sums: Mapping[str, float]) -> str:
        """The loss."""
        return f"loss {self.columns(sums)['loss']:.3f}"

    def in_words(self, row: Row) -> str:
        """The loss, and the average precisions as percentages."""
        return f"train loss {row['train_loss']:.4f}; test {_said(row, NAMES)}"

    def conclusion(self, last: Row, best: Row) -> str:
        """Say the precision that counts first, the best one after it."""
        return (
            f"Test {_said(last, ('ap', 'ap50'))} after the last epoch. Best epoch, chosen on the "
            f"test set: {best['epoch']}, {_said(best, ('ap',))}."
        )


def average_precisions(found: Boxes, wanted: Boxes) -> dict[str, float | None]:
    """Return COCO's average precisions, by pycocotools, each between 0 and 1.

    None stands for a precision that does not exist, as that of large things where there are none.
    """
    metric = MeanAveragePrecision(
        iou_thresholds=OVERLAPS,
        rec_thresholds=RECALLS,
        backend="pycocotools",
        sync_on_compute=False,
    )
    metric.update(list(found), list(wanted))
    all_of_them = metric.compute()
    values = {name: float(all_of_them[theirs]) for name, theirs in NAMES.items()}
    return {name: None if value < 0 else value for name, value in values.items()}


def _said(row: Row, names: Sequence[str] | Mapping[str, str]) -> str:
    known = ((name.upper(), row[f"test_{name}"]) for name in names)
    return ", ".join(f"{words} {value:.2%}" for words, value in known if value is not None)
