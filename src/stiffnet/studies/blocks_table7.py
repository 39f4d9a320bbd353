"""Block stiffness, Table 7: S and P of the last block of ResNet-50 against accuracy and loss."""

from stiffnet.studies.block_tables import correlations

STUDY = correlations(
    "blocks-table7",
    "ResNet-50",
    only_last=True,
    claim="In ResNet-50, images on which the last block is stiffer are classified less accurately "
    "and with a larger loss.",
    notes=(
        "The printed correlations of P have the opposite sign to those of ResNet-18 and ResNet-34, "
        "which the text does not mention; it has 0.25, the one of S, for P with the loss.",
    ),
)
