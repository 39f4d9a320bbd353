"""Block stiffness, Table 9: S and P of the last block of ResNet-50 by label."""

from stiffnet.studies.block_tables import labels

STUDY = labels(
    "blocks-table9",
    "ResNet-50",
    claim="Stiffness of the last block of ResNet-50 does not change with the label of the image.",
    notes=("The printed S spreads over 36 % of its mean, P over 29 %.",),
)
