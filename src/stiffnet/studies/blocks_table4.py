"""Block stiffness, Table 4: S and P of the blocks of ResNet-34 against accuracy and loss."""

from stiffnet.studies.block_tables import correlations

STUDY = correlations(
    "blocks-table4",
    "ResNet-34",
    claim="In ResNet-34, images on which the last block is stiffer are classified less accurately "
    "and with a larger loss.",
    notes=(
        "The text calls the blocks of the latter half significant. S of blocks 13 and 14 is not (p "
        "of 0.08 to 0.41), nor is P of block 14 with accuracy (0.08).",
    ),
)
