"""Block stiffness, Table 10: entries and eigenvalues of the Jacobians of ResNet-18, counted."""

from stiffnet.studies.block_tables import numbers

STUDY = numbers("blocks-table10", "ResNet-18")
