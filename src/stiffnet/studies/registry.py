"""The studies by name: what `stiffnet study` takes, and what `stiffnet list studies` shows."""

from stiffnet.registry import Entry, Registry
from stiffnet.studies import (
    asr_figure2,
    asr_figure3,
    asr_figure4,
    asr_figure5,
    asr_growth,
    asr_replacement,
    asr_table1,
    asr_table2,
    asr_table3,
    asr_table4,
    asr_table5,
    asr_table6,
    asr_table7,
    asr_table8,
    asr_table9,
    asr_table13,
    blocks,
    stepnet_figure2,
    stepnet_figure3,
    stepnet_figure6,
    stepnet_figure7,
    stepnet_figure8,
    stepnet_figure9,
    stepnet_table1,
    stepnet_table2,
    stepnet_table3,
    stepnet_table4,
    stepnet_table7,
    stepnet_tickets,
)
from stiffnet.studies.study import Study

_FILES = (
    stepnet_table1, stepnet_table2, stepnet_table3, stepnet_table4, stepnet_table7, stepnet_figure2,
    stepnet_figure3, stepnet_figure6, stepnet_figure7, stepnet_figure8, stepnet_figure9,
    stepnet_tickets, asr_table1, asr_table2, asr_table3, asr_table4, asr_table5, asr_table6,
    asr_table7, asr_table8, asr_table9, asr_table13, asr_figure2, asr_figure3, asr_figure4,
    asr_figure5, asr_replacement, asr_growth,
)  # fmt: skip

_ALL = (*(file.STUDY for file in _FILES), *blocks.STUDIES)

STUDIES: Registry[Study] = Registry("study", [Entry(each.name, each, each.claim) for each in _ALL])
