"""Recipes from names, files and the command line, and back to a file."""

import os
import re
from collections.abc import Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from stiffnet.errors import RecipeError, UnknownNameError
from stiffnet.network.model_names import is_detector_name
from stiffnet.registry import check_known, unknown
from stiffnet.train.flat import SUFFIX, flat_lines, word, written
from stiffnet.train.recipe import DEFAULTS, KINDS, Recipe, Value, checked, shown
from stiffnet.train.recipes import RECIPES

RECIPE = "recipe.toml"  # in the folder of a run, and in every model folder that it writes
BASE = "base"  # of a file: the named recipe that it changes
BOXED = ("coco", "shapes")  # data for detectors
OTHERS = (".yaml", ".yml")  # which are told apart from names, and refused

STYLE = "style"
_RESTYLE = {"task": "restyle", "model": "style_bn"}
NETWORKS: dict[str, Mapping[str, str]] = {
    "style:in": {**_RESTYLE, "model": "style_in"},
    "style:bn": _RESTYLE,
    "style:bn+asr": {**_RESTYLE, "attention": "asr:se"},
}
"""Names of networks that stand for several fields of a recipe at once."""


def build_recipe(
    name_or_path: str | os.PathLike[str],
    settings: Mapping[str, object] | None = None,
    **known: object,
) -> Recipe:
    """Return a recipe by its name or from a file, with changes.

    Args:
        name_or_path: A name in `RECIPES`, or a TOML file.
        settings: Fields to change. Text is read as the field's type: ``"81/122"``, ``"81,122"``
            and ``"[81, 122]"`` are the same milestones.
        **known: Fields to change after those, such as the model; None changes nothing.

    Raises:
        RecipeError: If a field is not known, or the result contradicts itself.
        UnknownNameError: If no recipe has that name.
        StorageError: If the file cannot be read.
    """
    start = os.fspath(name_or_path)
    changes: dict[str, Any] = read_recipe(start) if _is_file(name_or_path) else {BASE: start}
    given = {name: value for name, value in known.items() if value is not None}
    asked = {**changes, **(settings or {}), **given}
    base = _named(_for_task(str(changes.pop(BASE)), asked)) if BASE in changes else Recipe()
    for name, setting in (*(settings or {}).items(), *given.items()):
        changes[name] = _from_setting(name, setting)
    try:
        return replace(base, **changes)
    except RecipeError as error:
        raise RecipeError(f"Recipe {start}: {error}") from error


def read_recipe(path: str | os.PathLike[str]) -> dict[str, Value]:
    """Return the fields that a TOML file sets, each checked, and its ``base`` if any.

    An error in a field names its line.
    """
    found: dict[str, Value] = {}
    for key, value, number in flat_lines(path):
        try:
            found[key] = _from_line(key, value)
        except (RecipeError, UnknownNameError) as error:
            raise type(error)(f"{path}, line {number}: {error}") from error
    if not found:
        raise RecipeError(
            f"{path} sets nothing. Write a line for each field that differs from the default, such "
            "as `epochs = 2`."
        )
    return found


def to_toml(recipe: Recipe) -> str:
    """Write every field, in order; `build_recipe` makes an equal recipe of it."""
    return "".join(
        f"{each.name} = {written(getattr(recipe, each.name))}\n" for each in fields(Recipe)
    )


def written_out(model: str) -> Mapping[str, str]:
    """Return the fields that a network's name stands for: itself alone, mostly.

    >>> written_out("resnet18"), sorted(written_out("style:bn+asr"))
    ({'model': 'resnet18'}, ['attention', 'model', 'task'])

    Raises:
        UnknownNameError: If it begins as one of ours, and is none.
    """
    if not model.startswith(f"{STYLE}:"):
        return {"model": model}
    check_known("network for style transfer", model, NETWORKS)
    return NETWORKS[model]


def usual_recipe(model: str | None) -> str:
    """Name the recipe that a network is trained by where none is given."""
    return STYLE if model in NETWORKS else "quick"


def _is_file(name_or_path: str | os.PathLike[str]) -> bool:
    if not isinstance(name_or_path, str):
        return True
    return os.sep in name_or_path or Path(name_or_path).suffix.lower() in (SUFFIX, *OTHERS)


def _from_line(key: str, value: object) -> Value:
    if isinstance(value, dict):
        raise RecipeError(
            f"{shown(key)} is a table, and a recipe has none. Write its fields without a heading."
        )
    if key == BASE:
        if not isinstance(value, str):
            raise RecipeError(f"`{BASE}` is {shown(value)}; it must be the name of a recipe.")
        _named(value)
        return value
    _check_field(key)
    return checked(key, value)


def _from_setting(name: str, setting: object) -> Value:
    """Check one field; text is read as a bare word where the field is not text itself."""
    _check_field(name)
    if not isinstance(setting, str) or isinstance(DEFAULTS[name], str):
        return checked(name, setting)
    content = setting.strip()
    if not isinstance(DEFAULTS[name], tuple):
        return checked(name, word(content))
    if content[:1] + content[-1:] in ("[]", "()"):
        content = content[1:-1].strip()
    row = [word(each.strip()) for each in re.split("[/,]", content)] if content else []
    return checked(name, row)


def _named(name: str) -> Recipe:
    recipes = {entry.name: entry.value for entry in RECIPES}
    if name in recipes:
        return recipes[name]
    listing = "`stiffnet list recipes`"
    raise UnknownNameError(unknown("recipe", name[:80], recipes, listing=listing))


def _for_task(name: str, asked: Mapping[str, object]) -> str:
    """Return the name of the recipe for detectors that goes by the name of one for classifiers."""
    model, data = (str(asked.get(field, "")) for field in ("model", "data"))
    detects = is_detector_name(model) or data.partition(":")[0] in BOXED
    twin = f"{name}-detect"
    return twin if detects and twin in {entry.name for entry in RECIPES} else name


def _check_field(name: str) -> None:
    if name not in KINDS:
        raise RecipeError(unknown("recipe field", name[:80], KINDS))
