"""StepNet, Table 3: attention modules in the backbone of a detector."""

from stiffnet.studies.scales import train
from stiffnet.studies.study import Group, Scale, Study, by_attention, higher

MODULES = {"none": "none", "se": "SE", "eca": "ECA", "sge": "SGE", "stepnet": "StepNet"}
LIKE = {"backbone": "ResNet50"}  # what stands beside the two small scales
_DEMO = {
    "recipe": "quick-detect", "model": "fasterrcnn-small:resnet10t", "data": "shapes",
    "image_size": 96, "epochs": 3,
}  # fmt: skip
_SMALL = {
    "recipe": "quick-detect", "model": "fasterrcnn-small:resnet18", "data": "coco", "epochs": 20,
}  # fmt: skip

STUDY = Study(
    name="stepnet-table3",
    locator="Table 3",
    claim="Attention in its backbone makes a detector more precise, and StepNet does so more than "
    "every other module.",
    rows={name: train(name) for name in MODULES},
    metric="ap",
    unit="AP, %",
    published=by_attention("stepnet_table3", MODULES, "ap"),
    judges=(
        *(higher(name, "none") for name in ("se", "eca", "sge")),
        *(higher("stepnet", name) for name in MODULES if name != "stepnet"),
    ),
    scales={
        "demo": Scale(
            (Group("A small Faster R-CNN on drawn shapes", published=LIKE),),
            {"train": _DEMO},
            {"train": 0.7},
        ),
        "small": Scale(
            (Group("A small Faster R-CNN on `coco:DIR`", published=LIKE),),
            {"train": _SMALL},
            {"train": 5.0},
            leave_out=("eca", "sge"),
        ),
        "paper": Scale(
            tuple(
                Group(
                    f"Faster R-CNN on ResNet-{depth}",
                    {"train": {"model": f"fasterrcnn:resnet{depth}"}},
                    {"backbone": f"ResNet{depth}"},
                )
                for depth in (50, 101)
            ),
            {"train": {"recipe": "stepnet-fasterrcnn"}},
        ),
    },
    notes=(
        "The paper gives no settings but MMDetection's name; those of its 12 epochs are used.",
        "At scale small the backbone is not trained before; 5 minutes are for a set of 45 images.",
        "AP is the mean over overlaps from 50 % to 95 %, in percent.",
    ),
)
