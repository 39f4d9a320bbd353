"""Block stiffness, Table 5: S and P of the blocks of ResNet-34."""

from stiffnet.studies.block_tables import depth

STUDY = depth(
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
