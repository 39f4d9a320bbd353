"""Block stiffness, Table 11: entries and eigenvalues of the Jacobians of ResNet-34, counted."""

from stiffnet.studies.block_tables import numbers

STUDY = numbers("blocks-table11", "ResNet-34")
