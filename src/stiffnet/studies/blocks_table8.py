"""Block stiffness, Table 8: S and P of the last block of ResNet-50."""

from stiffnet.studies.block_tables import NOTES, PLANE, SPECTRA, WAYS, block_scales, figures
from stiffnet.studies.study import Study, higher

LAST = {"ResNet-50": "block 16", "ResNet-34": "block 16", "ResNet-18": "block 8"}

STUDY = Study(
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
