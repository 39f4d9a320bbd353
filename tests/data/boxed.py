"""A small data set in COCO's layout, written to a folder, with whatever is wrong in it."""

import copy
import json

import numpy as np
from PIL import Image

SIZES = {1: (40, 30), 2: (30, 40), 7: (40, 30), 9: (40, 30)}  # by image id: width and height
CONTENT = {
    "info": {"year": 2017},
    "images": [
        {"id": id, "file_name": f"{id:012}.png", "width": w, "height": h, "license": 3}
        for id, (w, h) in SIZES.items()
    ],
    "annotations": [
        {"id": 10, "image_id": 7, "category_id": 90, "bbox": [5, 4, 10.5, 8], "area": 60.5,
         "iscrowd": 0, "segmentation": [[1, 2, 3, 4]]},
        {"id": 11, "image_id": 1, "category_id": 3, "bbox": [0, 0, 4, 4], "area": 16, "iscrowd": 0},
        {"id": 12, "image_id": 1, "category_id": 90, "bbox": [30, 20, 50, 5]},
        {"id": 13, "image_id": 7, "category_id": 3, "bbox": [1, 1, 20, 20], "iscrowd": 1},
        {"id": 14, "image_id": 9, "category_id": 3, "bbox": [1, 1, 2, 2], "iscrowd": 1},
    ],
    "categories": [{"id": 90, "name": "tree"}, {"id": 3, "name": "car"}],
}  # fmt: skip


def write_coco(folder, *, years=True, train=None, val=None):
    """Write both splits; `train` and `val` change their content."""
    names = ("train2017", "val2017") if years else ("train", "val")
    (folder / "annotations").mkdir(parents=True)
    for number, (name, change) in enumerate(zip(names, (train, val), strict=True)):
        content = copy.deepcopy(CONTENT)
        if change is not None:
            content = change(content) or content
        text = content if isinstance(content, str) else json.dumps(content)
        (folder / "annotations" / f"instances_{name}.json").write_text(text)
        (folder / name).mkdir()
        rng = np.random.default_rng(number)
        for id, (width, height) in SIZES.items():
            pixels = rng.integers(0, 256, (height, width, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(folder / name / f"{id:012}.png")
    return folder
