"""The recipes by name: every row of the papers' tables of settings, and some of ours.

What a table does not print stays at the default of `Recipe`, so there is no warm-up, no label
smoothing and no Nesterov momentum in them. Four readings are ours:

- ImageNet's random cropping is the resized crop.
- STL-10 images are used whole, at 96 pixels, with the shifts of CIFAR.
- A factor has no meaning under cosine annealing, so the 0.333 of the ACNet column is left out.
- The ViT-B at 384 pixels is a fine-tuning, as its rate and its 30 epochs say. The authors'
  weights are not public, so it starts from published ones that know ImageNet-1k only.

A recipe says which data set it is for, and not where it lies: `--data` adds that.
"""

from dataclasses import replace

from stiffnet.registry import Entry, Registry
from stiffnet.train.recipe import Recipe

_HE = Recipe(data="cifar10", epochs=164, batch_size=128, schedule="multistep", milestones=(81, 122))
_STEEP = replace(_HE, milestones=(60, 120, 160), gamma=0.2, weight_decay=5e-4)
_IMAGENET = Recipe(
    data="folder", epochs=100, schedule="multistep", milestones=(30, 60, 90), crop="resized"
)
_LONG = replace(_IMAGENET, epochs=120, batch_size=256)
_VIT = Recipe(
    data="folder",
    epochs=300,
    batch_size=256,
    optimizer="adamw",
    learning_rate=5e-4,
    weight_decay=0.05,
    schedule="cosine",
    crop="resized",
)
_QUICK = Recipe(
    epochs=10,
    batch_size=128,
    learning_rate=0.2,
    nesterov=True,
    weight_decay=5e-4,
    schedule="onecycle",
    channels_last=True,
)

_FINETUNE = Recipe(
    model="resnet50",
    weights="pretrained",
    data="folder",
    epochs=5,
    batch_size=64,
    optimizer="adamw",
    learning_rate=1e-3,
    backbone_rate=0.3,
    weight_decay=0.05,
    decay="weights",
    schedule="cosine",
    warmup_share=0.1,
    crop="resized",
    crop_scale=(0.5, 1.0),
    channels_last=True,
)

_DETECT = replace(
    _QUICK, task="detect", model="fasterrcnn:resnet18", data="coco", image_size=256, batch_size=4,
    learning_rate=0.02, nesterov=False, weight_decay=1e-4, clip_norm=10.0, crop="none",
    channels_last=False,
)  # fmt: skip
_MMDETECTION = Recipe(
    task="detect",
    model="fasterrcnn:resnet50",
    weights="pretrained",
    data="coco",
    epochs=12,
    batch_size=16,
    image_size=800,
    learning_rate=0.02,
    schedule="multistep",
    milestones=(8, 11),
    warmup_share=0.00569,  # 500 steps of 12 epochs on COCO's 117,266 images with boxes
    crop="none",
    frozen_stages=1,
    frozen_norms=True,
)

# The ASR paper prints no setting for its style transfer. Optimizer, batch and crops are those of
# Johnson et al.; content to style is 1 to 100,000, as in PyTorch's example of the same network.
_STYLE = Recipe(
    task="restyle",
    model="style_in",
    data="photos",
    epochs=2,
    batch_size=4,
    optimizer="adamw",
    learning_rate=1e-3,
    weight_decay=0.0,
    channels_last=True,
    crop="resized",
    crop_scale=(0.5, 1.0),
)

_TABLE_10 = {
    "resnet83": (replace(_HE, model="resnet83_cifar"), "ResNet-83"),
    "resnet164": (replace(_HE, model="resnet164_cifar"), "ResNet-164"),
    "vgg19": (replace(_STEEP, model="vgg19_cifar"), "VGG-19"),
    "shufflenetv2": (replace(_STEEP, model="shufflenetv2_cifar"), "ShuffleNetV2"),
    "mobilenet": (replace(_STEEP, model="mobilenet_cifar"), "MobileNet"),
    "repvgg": (replace(_HE, model="repvgg_a0", image_size=32, milestones=(130,)), "RepVGG"),
    "acnet": (
        replace(_HE, model="acresnet56_cifar", schedule="cosine", milestones=()),
        "ACNet, without the printed factor,",
    ),
}


RECIPES: Registry[Recipe] = Registry(
    "recipe",
    [
        Entry("quick", _QUICK, "ours: one cycle of 10 epochs, for CPUs"),
        Entry("smoke", replace(_QUICK, epochs=1), "ours: `quick` in 1 epoch, for trials"),
        Entry(
            "finetune",
            _FINETUNE,
            "ours: 5 epochs from trained weights, which learn at 0.3 of the rate of the rest",
        ),
        Entry(
            "quick-detect",
            _DETECT,
            "ours: `quick` for detectors, at 256 pixels; `--recipe quick` with a detector is this",
        ),
        Entry("smoke-detect", replace(_DETECT, epochs=1), "ours: `quick-detect` in 1 epoch"),
        Entry(
            "style",
            _STYLE,
            "ours: style transfer by Johnson et al., for which the ASR paper prints no settings",
        ),
        Entry(
            "stepnet-resnet164",
            replace(_HE, model="preresnet164_cifar"),
            "StepNet Table 6: ResNet-164 on CIFAR",
        ),
        *(
            Entry(
                f"stepnet-resnet{depth}",
                replace(_LONG, model=f"resnet{depth}"),
                f"StepNet Table 6: ResNet-{depth} on ImageNet",
            )
            for depth in (34, 50)
        ),
        Entry(
            "stepnet-fasterrcnn",
            _MMDETECTION,
            "StepNet Table 3: Faster R-CNN on COCO, MMDetection's 12 epochs",
        ),
        *(
            Entry(f"asr-{name}", recipe, f"ASR Table 10: {title} on CIFAR")
            for name, (recipe, title) in _TABLE_10.items()
        ),
        *(
            Entry(
                f"asr-{name}-stl10",
                replace(recipe, data="stl10", batch_size=16, image_size=96),
                f"ASR Table 10: {title} on STL-10",
            )
            for name, (recipe, title) in _TABLE_10.items()
        ),
        *(
            Entry(
                f"asr-resnet{depth}",
                replace(_IMAGENET, model=f"resnet{depth}"),
                f"ASR Table 11: ResNet-{depth} on ImageNet",
            )
            for depth in (34, 50, 101)
        ),
        *(
            Entry(
                f"asr-vit-{size[0]}",
                replace(_VIT, model=f"vit_{size}_patch16_224"),
                f"ASR Table 11: ViT-{size[0].upper()} on ImageNet",
            )
            for size in ("small", "base")
        ),
        Entry(
            "asr-vit-b-384",
            replace(
                _VIT,
                model="deit_base_patch16_384",
                weights="pretrained",
                image_size=384,
                epochs=30,
                batch_size=64,
                learning_rate=5e-6,
                weight_decay=1e-8,
            ),
            "ASR Table 11: ViT-B fine-tuned at 384 pixels on ImageNet",
        ),
    ],
)
