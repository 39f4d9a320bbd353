"""ASR, Table 2: constant attention on ImageNet's networks."""

from stiffnet.studies.scales import RESNET18, on_imagenet, scales, train
from stiffnet.studies.study import Study, by_attention, higher

MODULES = {"none": "none", "asr:se": "SE", "asr:eca": "ECA", "asr:srm": "SRM"}
NETWORKS = {
    "asr-resnet34": ("ResNet34", 224),
    "asr-resnet50": ("ResNet50", 224),
    "asr-resnet101": ("ResNet101", 224),
    "asr-vit-s": ("ViT-S", 224),
    "asr-vit-b": ("ViT-B", 224),
    "asr-vit-b-384": ("ViT-B", 384),
}

STUDY = Study(
    name="asr-table2",
    locator="Table 2",
    claim="ASR makes ResNets and ViTs more accurate on ImageNet, whatever its module.",
    rows={name: train(name) for name in MODULES},
    published=by_attention("asr_table2", MODULES),
    judges=tuple(higher(name, "none") for name in MODULES if name != "none"),
    scales=scales(
        {"model": "ResNet34", "image_size": 224},
        [
            on_imagenet(recipe, f"{model} at {size} pixels", model=model, image_size=size)
            for recipe, (model, size) in NETWORKS.items()
        ],
        network=RESNET18,
        small_without=("asr:eca", "asr:srm"),
    ),
    notes=(
        "The two small scales train a ResNet-18 of a quarter of the channels on small images, not "
        "ImageNet. The published numbers beside them are those of the ResNet-34.",
        "The paper's plain ResNet-34 and ResNet-50 have the accuracies of torchvision's weights, "
        "so that they may not be runs under its settings.",
    ),
)
