"""Block stiffness, Table 3: S and P of ResNet-18 by label."""

from stiffnet.studies.block_tables import labels

STUDY = labels(
    "blocks-table3",
    "ResNet-18",
    claim="Stiffness of ResNet-18 does not change with the label of the image.",
    notes=(
        "The printed P spreads over 24 % of its mean. The paper also relates stiffness to the loss "
        "over images, for which it has to depend on them.",
    ),
)
