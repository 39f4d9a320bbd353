"""Block stiffness, Table 6: S and P of ResNet-34 by label."""

from stiffnet.studies.block_tables import labels

STUDY = labels(
    "blocks-table6",
    "ResNet-34",
    claim="Stiffness of ResNet-34 does not change with the label of the image.",
    notes=("The printed P spreads over 20 % of its mean.",),
)
