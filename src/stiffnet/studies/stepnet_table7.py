"""StepNet, Table 7: StepNet in the place of a ViT's self-attention."""

from stiffnet.studies.scales import DATASETS, VIT, scales, train
from stiffnet.studies.study import Group, Study, by_attention, higher

ROWS = {"self-attention": "vit_tiny_cifar", "stepnet": "vit_tiny_stepnet_cifar"}
PRINTED = {"self-attention": "self-attention", "stepnet": "StepNet"}
RECIPE = {"recipe": "asr-vit-s", "crop": "pad"}

STUDY = Study(
    name="stepnet-table7",
    locator="Table 7",
    claim="A ViT is more accurate with StepNet in the place of self-attention.",
    rows={name: train(model=model) for name, model in ROWS.items()},
    published=by_attention("stepnet_table7", PRINTED),
    judges=(higher("stepnet", "self-attention"),),
    scales=scales(
        {"dataset": "CIFAR10"},
        [
            Group(
                f"ViT-Ti on {name}",
                {"train": {**RECIPE, "data": DATASETS[name], "image_size": size}},
                {"dataset": name},
            )
            for name, size in (("CIFAR10", 32), ("CIFAR100", 32), ("STL10", 96))
        ],
        network=VIT,
    ),
    notes=(
        "The paper describes neither its ViT nor the replacement nor the settings. The network is "
        "timm's ViT-Ti with patches of 4 pixels, the replacement is our reading, and the settings "
        "are those that the ASR paper prints for its ViT-S.",
    ),
)
