"""What the tables of the block-level paper share: rows, columns, scales, and how they are judged.

Every network is trained once a seed, and its spectra are found once, for all tables. S and P stand
in a table as published, of the slices of the block (which is what the paper computed) and of the
branch (which is the right-hand side of the differential equation).
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from stiffnet.studies.scales import look, scales, train
from stiffnet.studies.study import (
    Column,
    Group,
    Job,
    Judge,
    Picture,
    Published,
    Scale,
    Settings,
    Study,
    as_printed,
    higher,
)

Keys = Mapping[str, Mapping[str, str | float]]

BLOCKS = {"ResNet-18": 8, "ResNet-34": 16, "ResNet-50": 16}
SPECTRA = {
    "ResNet-18": look("spectra", train(model="resnet18_small"), late=3),
    "ResNet-34": look("spectra", train(model="resnet34_small"), late=8),
    "ResNet-50": look("spectra", train(model="resnet50_small"), last=True),
}
EPOCHS = {18: 1, 34: 2, 50: 6}  # on digits: few enough that the networks make mistakes
STAND_INS: dict[str, dict[str, Settings]] = {
    "demo": {
        f"resnet{depth}_small": {"model": f"resnet{depth}_small_025", "epochs": epochs}
        for depth, epochs in EPOCHS.items()
    },
    "small": {f"resnet{depth}_small": {"model": f"resnet{depth}_small_025"} for depth in EPOCHS},
    "paper": {},
}
WAYS = ("slices", "branch")
FIGURES = {"S": "stiffness_index", "P": "pct_neg_eigenvalues"}
PLACES = {"demo": "digits", "small": "CIFAR-10", "paper": "CIFAR-10"}
LIMITS = {  # blocks with more than `large` numbers take `few` of the images
    "demo": {"images": 30, "few": 4, "large": 512},
    "small": {"images": 200, "few": 8, "large": 2_048},
    "paper": {"images": 1_000, "few": 2, "large": 4_096},
}
MINUTES: dict[str, dict[str, tuple[float, float]]] = {  # of a training, and of its spectra
    "demo": {"ResNet-18": (0.02, 0.7), "ResNet-34": (0.05, 1.9), "ResNet-50": (0.2, 0.25)},
    "small": {"ResNet-18": (28.0, 17.0), "ResNet-34": (31.0, 40.0), "ResNet-50": (40.0, 7.0)},
}
LEAST = 10.0  # per cent of the variance: labels that explain less are said not to matter
NOTES = (
    "S = max Re λ / min Re λ over the eigenvalues λ; P is the percentage with Re λ < 0.",
    "The paper's numbers of eigenvalues are those of H × W slices of a block's Jacobian. Columns "
    "called slices do that computation; those called branch have the eigenvalues of the Jacobian "
    "of what the block adds.",
    "The paper says neither how its networks were trained nor on how many images it looked. Its "
    "p-values fit 2,945 to 3,897 for ResNet-18 and 1,066 to 1,189 for ResNet-34.",
)
PLANE = Picture(
    "plane", "real", "imaginary", "Eigenvalues of the last block on one image", "real part",
    "imaginary part",
)  # fmt: skip
_RELATED = "Correlation with the loss"
_PROFILE = Picture("profile", "block ", _RELATED, _RELATED, "block", "correlation")
UNSQUARE = (
    "Blocks that change the shape have no square Jacobian and so no eigenvalues, though the paper "
    "has some for them; their slices have."
)


def correlations(
    name: str, network: str, *, notes: tuple[str, ...], only_last: bool = False
) -> Study:
    """Make a study of how S and P of every block go with accuracy and loss over images."""
    last, table = f"block {BLOCKS[network]}", _table(name)
    rows = {last: {"block": BLOCKS[network]}} if only_last else _blocks(network)
    columns = []
    for target in ("accuracy", "loss"):
        sheet = f"Correlation with the {target}"
        for figure, printed in FIGURES.items():
            keys = {k: {**v, "target": target, "metric": printed} for k, v in rows.items()}
            for way in WAYS:
                own = f"{way}_{figure}_{target}"
                found = Published(table, "corr", keys)
                columns.append(Column(own, figure, way, sheet, f"{own}_p", found))
        columns.append(Column("slices_images", "images", sheet=sheet))
    return _study(
        name,
        {label: label for label in rows},
        SPECTRA[network],
        claim=f"In {network}, images on which the last block is stiffer are classified less "
        "accurately and with a larger loss.",
        unit="correlation",
        columns=tuple(columns),
        judges=tuple(judge for way in WAYS for judge in _related(way, last)),
        scales=block_scales(network),
        picture=PLANE if only_last else _PROFILE,
        notes=(
            "Pearson's correlation over images; (2/3) says that p is at most 0.05 in two of three "
            "seeds, not corrected for the number of blocks, as in the paper. Blocks that saw fewer "
            "than 20 images are not related.",
            "The paper reads its correlations as those of the size of S, which is negative; with S "
            "itself they mean the opposite. The size |S| is judged.",
            *notes,
            *NOTES,
        ),
    )


def depth(
    name: str, network: str, *, late: str, doubles: bool = False, claim: str, notes: tuple[str, ...]
) -> Study:
    """Make a study of S and P of every block; `late` is what the row of the last ones is called."""
    rows = _blocks(network)
    judges = [
        higher(late, 1.0, f"{way}_{figure}_times", f"{word} larger in the last blocks ({way})")
        for figure, word in (("abs", "|S|"), ("P", "P"))
        for way in WAYS
    ]
    if doubles:
        said = "P doubled in the last blocks"
        judges += [higher(late, 2.0, f"{way}_P_times", f"{said} ({way})") for way in WAYS]
    return _study(
        name,
        {**{label: label for label in rows}, late: "last blocks"},
        SPECTRA[network],
        claim=claim,
        unit="ratio to all blocks",
        columns=figures(name, rows),
        judges=tuple(judges),
        scales=block_scales(network),
        picture=Picture("profile", "block ", "", "Along the network", "block", ""),
        notes=(UNSQUARE, *notes, *NOTES),
    )


def labels(name: str, network: str, *, claim: str, notes: tuple[str, ...]) -> Study:
    """Make a study of S and P by the label of the image."""
    rows = {f"label {i}": {"label": i} for i in range(10)}
    sheet = "Variance between labels, %"
    shares = [
        Column(f"{way}_{figure}_between", figure, way, sheet) for figure in FIGURES for way in WAYS
    ]
    return _study(
        name,
        {label: label for label in (*rows, "all labels")},
        SPECTRA[network],
        claim=claim,
        unit="% of the variance",
        columns=(*figures(name, rows), *shares),
        judges=tuple(
            higher(LEAST, "all labels", each.metric,
                   f"labels explain < {LEAST:g} % of {each.figure} ({each.how})")
            for each in shares
        ),
        scales=block_scales(network, labels=True),
        picture=Picture("profile", "label ", "", "By label", "label", ""),
        notes=(
            "The variance is that of the ranks of images (Kruskal and Wallis), less what chance "
            "gives. That labels matter from 10 % on is our reading.",
            *notes,
            *NOTES,
        ),
    )  # fmt: skip


def numbers(name: str, network: str) -> Study:
    """Make a study of how many entries and eigenvalues the Jacobian of every block has."""
    rows = {label: keys for label, keys in _blocks(network).items() if label != "all blocks"}
    rows["total"] = {"block": "total"}
    model = network.lower().replace("-", "") + "_small"
    entries, values = (
        Published(_table(name), f"jacobian_{each}", rows) for each in ("elements", "eigenvalues")
    )
    scale = Scale((Group(f"{network}, 32 pixels"),), {})
    return _study(
        name,
        {label: label for label in rows},
        Job("counts", {"model": model, "image_size": 32}),
        claim=f"The Jacobian of every block of {network} has as many entries and eigenvalues as "
        "printed.",
        unit="counts",
        columns=(
            Column("elements", "entries", "counted", published=entries),
            Column("slices", "eigenvalues", "of slices", published=values),
            Column("eigenvalues", "eigenvalues", "of the Jacobian", published=values),
        ),
        judges=(
            as_printed("elements", "entries of the Jacobian, as many as printed"),
            as_printed("slices", "eigenvalues of its slices, as many as printed"),
            as_printed("eigenvalues", "eigenvalues of the Jacobian itself, as many as printed"),
        ),
        scales=dict.fromkeys(("demo", "small", "paper"), scale),
        notes=(
            "An n × n Jacobian has n eigenvalues. As many as printed has an unflattened Jacobian "
            "whose last two axes are taken for matrices: its entries divided by the input's width.",
            UNSQUARE,
        ),
    )


def block_scales(*networks: str, labels: bool = False) -> dict[str, Scale]:
    """Return the scales of a study of spectra; the labels of digits are not those published."""
    published = {"train": {"recipe": "asr-resnet164", "data": "cifar10"}}
    made = {}
    for name, scale in scales({}, [Group("", published)]).items():
        width = ", at a quarter of the width" if name != "paper" else ""
        group = Group(
            f"{', '.join(networks)} on {PLACES[name]}{width}",
            scale.groups[0].settings,
            None if labels and name == "demo" else {},
        )
        times = [MINUTES.get(name, {}).get(network, (0.0, 0.0)) for network in networks]
        made[name] = replace(
            scale,
            groups=(group,),
            defaults={**scale.defaults, "spectra": LIMITS[name]},
            stand_ins=STAND_INS[name],
            minutes={
                kind: sum(each) / len(networks)
                for kind, each in zip(("train", "spectra"), zip(*times, strict=True), strict=True)
            },
        )
    return made


def _study(name: str, parts: Mapping[str, str], job: Job, **declared: Any) -> Study:
    """Make the study of a table whose rows are parts of what one job gives."""
    locator = name.partition("-")[2].replace("table", "Table ")
    rows = dict.fromkeys(parts, job)
    return Study(name=name, locator=locator, rows=rows, parts=parts, metric="", **declared)


def _related(way: str, last: str) -> list[Judge]:
    judges = []
    for figure, word in (("abs", "|S|"), ("P", "P")):
        of = f"with {word} ({way})"
        judges += [
            higher(0.0, last, f"{way}_{figure}_accuracy", f"accuracy falls {of}"),
            higher(last, 0.0, f"{way}_{figure}_loss", f"loss rises {of}"),
        ]
    return judges


def figures(name: str, rows: Keys) -> tuple[Column, ...]:
    """Return the columns of S and P, in both ways, beside what was published."""
    return tuple(
        Column(
            f"{way}_{figure}",
            figure if figure == "S" else "P (%)",
            way,
            published=Published(_table(name), printed, rows),
        )
        for figure, printed in FIGURES.items()
        for way in WAYS
    )


def _blocks(network: str) -> dict[str, dict[str, str | float]]:
    own = {f"block {i}": str(i) for i in range(1, BLOCKS[network] + 1)}
    return {label: {"block": block} for label, block in {**own, "all blocks": "all"}.items()}


def _table(name: str) -> str:
    return f"blockstiff_{name.partition('-')[2]}"
