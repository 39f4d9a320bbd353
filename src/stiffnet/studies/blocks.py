"""Block stiffness, Tables 1 to 11: the blocks of ResNets, and counts of their eigenvalues."""

from stiffnet.studies.block_tables import (
    NOTES,
    PLANE,
    SPECTRA,
    WAYS,
    block_scales,
    correlations,
    depth,
    figures,
    labels,
    numbers,
)
from stiffnet.studies.study import Study, higher

TABLE_1 = correlations(
    "blocks-table1",
    "ResNet-18",
    notes=(
        "The text has −0.36 and 0.34 for S of the last block. The table has −0.23 and 0.21; the "
        "others are those of P.",
        "The text calls the stiff blocks significant; S of block 7 is not (p of 0.08 and 0.34).",
    ),
)

TABLE_2 = depth(
    "blocks-table2",
    "ResNet-18",
    late="last three blocks",
    doubles=True,
    claim="The last three blocks of ResNet-18 are stiffer than the others: S spikes, and the "
    "percentage P of eigenvalues with a negative real part doubles.",
    notes=(
        "In the table S spikes in block 8 only: block 7 has −1.28, no more than blocks 3 and 5, "
        "and block 6 has less than block 2.",
        "Equation 11 counts positive real parts; text and tables mean negative ones.",
    ),
)

TABLE_3 = labels(
    "blocks-table3",
    "ResNet-18",
    claim="Stiffness of ResNet-18 does not change with the label of the image.",
    notes=(
        "The printed P spreads over 24 % of its mean. The paper also relates stiffness to the loss "
        "over images, for which it has to depend on them.",
    ),
)

TABLE_4 = correlations(
    "blocks-table4",
    "ResNet-34",
    notes=(
        "The text calls the blocks of the latter half significant. S of blocks 13 and 14 is not (p "
        "of 0.08 to 0.41), nor is P of block 14 with accuracy (0.08).",
    ),
)

TABLE_5 = depth(
    "blocks-table5",
    "ResNet-34",
    late="last eight blocks",
    claim="The last eight blocks of ResNet-34 are stiffer than the others, in S and in the "
    "percentage P of eigenvalues with a negative real part.",
    notes=(
        "The text has S of most of them at about twice the mean; by the table it is 0.24 to 2.15 "
        "times the mean, and at least 1.8 times in two of the eight.",
    ),
)

TABLE_6 = labels(
    "blocks-table6",
    "ResNet-34",
    claim="Stiffness of ResNet-34 does not change with the label of the image.",
    notes=("The printed P spreads over 20 % of its mean.",),
)

TABLE_7 = correlations(
    "blocks-table7",
    "ResNet-50",
    only_last=True,
    notes=(
        "The printed correlations of P have the opposite sign to those of ResNet-18 and ResNet-34, "
        "which the text does not mention; it has 0.25, the one of S, for P with the loss.",
    ),
)

LAST = {"ResNet-50": "block 16", "ResNet-34": "block 16", "ResNet-18": "block 8"}
TABLE_8 = Study(
    name="blocks-table8",
    locator="Table 8",
    claim="The last block of ResNet-50 is stiffer, in |S|, than those of ResNet-18 and ResNet-34.",
    rows={network: SPECTRA[network] for network in LAST},
    parts=LAST,
    metric="",
    unit="|S| of the last block",
    columns=figures("blocks-table8", {"ResNet-50": {"block": 16}}),
    judges=tuple(
        higher("ResNet-50", other, f"{way}_abs", f"ResNet-50 above {other} in |S| ({way})")
        for way in WAYS
        for other in ("ResNet-18", "ResNet-34")
    ),
    scales=block_scales(*LAST),
    picture=PLANE,
    notes=(
        "The text has an S of 35.32 once; the table has −35.32. Of the others, the last blocks "
        "have the largest |S| in print: 16.82 and 12.99.",
        "The text calls the last block the smallest by Tables 10 and 11, which are of the other "
        "networks; in Table 11 blocks 15 and 16 are of one size.",
        *NOTES,
    ),
)

TABLE_9 = labels(
    "blocks-table9",
    "ResNet-50",
    claim="Stiffness of the last block of ResNet-50 does not change with the label of the image.",
    notes=("The printed S spreads over 36 % of its mean, P over 29 %.",),
)

TABLE_10 = numbers("blocks-table10", "ResNet-18")

TABLE_11 = numbers("blocks-table11", "ResNet-34")

STUDIES = (
    TABLE_1, TABLE_2, TABLE_3, TABLE_4, TABLE_5, TABLE_6, TABLE_7, TABLE_8, TABLE_9, TABLE_10,
    TABLE_11,
)  # fmt: skip
