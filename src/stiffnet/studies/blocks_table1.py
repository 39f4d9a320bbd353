"""Block stiffness, Table 1: S and P of the blocks of ResNet-18 against accuracy and loss."""

from stiffnet.studies.block_tables import correlations

STUDY = correlations(
    "blocks-table1",
    "ResNet-18",
    claim="In ResNet-18, images on which the last block is stiffer are classified less accurately "
    "and with a larger loss.",
    notes=(
        "The text has −0.36 and 0.34 for S of the last block. The table has −0.23 and 0.21; the "
        "others are those of P.",
        "The text calls the stiff blocks significant; S of block 7 is not (p of 0.08 and 0.34).",
    ),
)
