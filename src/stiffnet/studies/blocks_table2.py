"""Block stiffness, Table 2: S and P of the blocks of ResNet-18."""

from stiffnet.studies.block_tables import depth

STUDY = depth(
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
