"""ASR, Table 3: constant attention on four backbones."""

from stiffnet.studies.scales import on_datasets, scales, train
from stiffnet.studies.study import Study, by_attention, higher

MODULES = {"none": "none", "asr:se": "SE", "asr:ie": "IE", "asr:srm": "SRM", "asr:spa": "SPA"}
BACKBONES = {
    "resnet164": "ResNet164",
    "vgg19": "VGG19",
    "shufflenetv2": "ShuffleNetV2",
    "mobilenet": "MobileNet",
}

STUDY = Study(
    name="asr-table3",
    locator="Table 3",
    claim="ASR makes a network more accurate, whatever its module.",
    rows={name: train(name) for name in MODULES},
    published=by_attention("asr_table3", MODULES),
    judges=tuple(higher(name, "none") for name in MODULES if name != "none"),
    scales=scales(
        {"dataset": "CIFAR10", "model": "ResNet164"},
        [
            group
            for recipe, title in BACKBONES.items()
            for group in on_datasets(
                "STL10", "CIFAR100", "CIFAR10", recipe=recipe, title=title, model=title
            )
        ],
        small_without=("asr:ie", "asr:srm", "asr:spa"),
    ),
    notes=(
        "That ASR costs nothing at inference is what `stiffnet fold` proves, network by network.",
    ),
)
