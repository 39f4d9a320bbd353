"""Compare networks on the same images: a comparison, a JSON file and a page."""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from stiffnet.data import open_data
from stiffnet.devices import make_fabric
from stiffnet.errors import NonFiniteError, RecipeError
from stiffnet.jobs.measure import Setting, report_on
from stiffnet.jobs.places import check_places, result_name
from stiffnet.jobs.result_files import write_result
from stiffnet.jobs.subject import Spec, subject_of
from stiffnet.jobs.watching import SILENT, Watcher
from stiffnet.network.text_model import is_text_model
from stiffnet.observe.compare import compare as look
from stiffnet.results.comparison import Comparison

FILES = ("comparison.json", "comparison.html")
NONE = "none"


@dataclass(frozen=True)
class Compared:
    """A comparison, and where it was written."""

    comparison: Comparison
    files: tuple[Path, ...]
    """`FILES`; under torchrun only the first rank writes any."""


def compare(
    models: Sequence[Spec],
    data: Spec,
    *,
    weights: Sequence[Spec] = (),
    weights_key: Sequence[str] = (),
    attention: Sequence[str] = (),
    num_classes: int | None = None,
    classes: str = "",
    limit: int | None = None,
    batch_size: int = 64,
    device: str = "auto",
    workers: int = 0,
    seed: int = 0,
    out: Spec | None = None,
    command: str = "",
    watcher: Watcher = SILENT,
) -> Compared:
    """Measure networks on the same images, and compare each with the first, image by image.

    Each network gets the images prepared as it wants them: its own size, mean and deviation. One
    network is in memory at a time.

    Arguments and errors are those of `stiffnet.jobs.measure.measure`, for two or more `models`.
    `weights` is one for all networks that are built from a name, or one for each network, with
    ``"none"`` where it has none; so are `weights_key` and `attention`. The folder is
    ``comparison/FIRST-SECOND`` if `out` is not given.
    """
    if len(models) < 2:
        raise RecipeError("A comparison needs two networks or more. Name another one.")
    stem = "-".join(result_name(model) for model in models[:2])
    folder = Path("comparison", stem) if out is None else Path(out)
    check_places(folder, *FILES)
    for model in models:
        if is_text_model(model):
            raise RecipeError(
                f"{model} reads text, and networks are compared on images here. Measure each with "
                "`stiffnet.measure(..., keep=N)` on all N sentences, and give the reports to "
                "`stiffnet.observe.compare.compare`."
            )
    filled, gated = each_of(models, weights, "weights"), each_of(models, attention, "attention")
    keys = each_of(models, weights_key, "weights-key")
    if any(keys) and not any(filled):
        raise RecipeError("`--weights-key` is given without weights. Add `--weights FILE`.")
    fabric = make_fabric(device=device)
    watcher = watcher if fabric.is_global_zero else SILENT
    images = open_data(data)
    setting = Setting(fabric, classes, limit, batch_size, workers, seed, command)
    reports = {}
    for name, model, file, key, module in zip(
        names_of(models, gated), models, filled, keys, gated, strict=True
    ):
        try:
            reports[name] = report_on(
                model, images, setting, weights=file, weights_key=(file and key) or "",
                attention=module, num_classes=num_classes, keep=len(images), watcher=watcher,
            )  # fmt: skip
        except NonFiniteError as error:
            raise NonFiniteError(f"{name} has no finite values here. {error}") from error
    facts = {"data": images.name} | ({"command": command} if command else {})
    comparison = look(reports, facts=facts)
    first = fabric.is_global_zero
    return Compared(comparison, write_result(folder, FILES, comparison, watcher, first=first))


def each_of(models: Sequence[Spec], given: Sequence[Spec], what: str) -> list[str | None]:
    """Return what each network gets of an option that is given once, for each, or not at all."""
    texts = [None if str(value) in ("", NONE) else str(value) for value in given]
    if len(texts) == len(models):
        return texts
    if len(texts) > 1:
        raise RecipeError(
            f"`--{what}` is given {len(texts)} times for {len(models)} networks. Give it once for "
            f"all of them, or once for each, with `{NONE}` where it does not apply."
        )
    every = texts[0] if texts else None
    return [every if subject_of(model).named else None for model in models]


def names_of(models: Sequence[Spec], attention: Sequence[str | None]) -> list[str]:
    """Call each network as it was given, with its attention, and number those that are alike.

    >>> names_of(["a", "a", "a"], [None, "se", None])
    ['a', 'a with se', 'a (2)']
    """
    names: list[str] = []
    for model, module in zip(models, attention, strict=True):
        name = f"{model} with {module}" if module else str(model)
        numbered = (f"{name} ({number})" for number in itertools.count(2))
        names.append(next(each for each in itertools.chain([name], numbered) if each not in names))
    return names
