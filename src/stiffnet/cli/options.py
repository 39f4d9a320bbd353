"""Options that several commands have in common, and numbers without a range in the help."""

from collections.abc import Callable
from typing import Annotated, Any, Literal, get_args

import typer

LARGEST = 2**63 - 1
Device = Literal["auto", "cpu", "cuda", "mps"]


def number(help: str, *, least: int = 0, most: int = LARGEST) -> Any:
    """Return an option that takes a whole number."""
    return typer.Option(metavar="N", parser=_whole(least, most), help=help)


def argument(metavar: str, help: str) -> Any:
    """Return what is given by its place."""
    return typer.Argument(metavar=metavar, help=help)


def flag(name: str, help: str) -> Any:
    """Return an option that is there or not."""
    return typer.Option(name, help=help)


def text(metavar: str, help: str) -> Any:
    """Return an option that takes a word, or the name of a file or folder."""
    return typer.Option(metavar=metavar, help=help)


def choice(kind: Any, help: str) -> Any:
    """Return an option that takes one of the words of a `Literal`, and lists them."""
    return text("|".join(get_args(kind)), help)


def pairs(
    settings: list[str], form: str = "--set FIELD=VALUE", *, empty: bool = True
) -> dict[str, str]:
    """Return what an option that can be given several times gave, by field; values may be empty."""
    from stiffnet.errors import RecipeError

    found: dict[str, str] = {}
    for given in settings:
        field, sign, value = (part.strip() for part in given.partition("="))
        if not sign or not (empty or (field and value)):
            raise RecipeError(f"`{form.split()[0]} {given}` has no value. Write `{form}`.")
        if field in found:
            raise RecipeError(f"`{field}` is given twice. Keep one of the two.")
        found[field] = value
    return found


def _whole(least: int, most: int) -> Callable[[str], int]:
    def whole(text: str) -> int:
        try:
            value = int(text)
        except ValueError:
            raise typer.BadParameter(f"{text!r} is not a whole number.") from None
        if not least <= value <= most:
            end = "or more" if most == LARGEST else f"to {most:,}"
            raise typer.BadParameter(f"{value} is out of range. Give {least} {end}.")
        return value

    return whole


Model = Annotated[
    str,
    argument(
        "MODEL",
        "A timm name, torchvision:NAME, a run folder, a model folder (of ours, timm or "
        "transformers) or hf-hub:ORG/NAME.",
    ),
]
Data = Annotated[str, text("DATA", "digits, cifar10:DIR, or a folder of class folders.")]
Weights = Annotated[
    str,
    text(
        "FILE|pretrained",
        "A weights file (.safetensors, .pth, .ckpt, an index), a folder or hf-hub:ORG/NAME with "
        "one, or the published weights. By default a folder's own, or random ones.",
    ),
]
WeightsKey = Annotated[
    str,
    text(
        "KEY",
        "Which weights of a checkpoint with several, e.g. state_dict_ema, or of several "
        "networks in one state dict, e.g. teacher.",
    ),
]
Attention = Annotated[
    str,
    text(
        "NAME",
        "Attention module on every step of a named network, e.g. se or asr:se. A folder "
        "has its own.",
    ),
]
NumClasses = Annotated[
    int,
    number(
        "Number of outputs of a named network; 0: that of the weights, else the data's.",
        most=1_000_000,
    ),
]
Classes = Annotated[
    str,
    text(
        "FILE|imagenet|data",
        "What the outputs stand for, where the network does not know: the names in a file "
        "(one per line, or JSON), ImageNet's classes, or the data's classes in order.",
    ),
]
Limit = Annotated[int, number("Use this many images, evenly chosen; 0: all of them.")]
BatchSize = Annotated[
    int,
    number(
        "Images at a time. The result is the same, unless a norm uses batch statistics.", least=1
    ),
]
Where = Annotated[Device, choice(Device, "Device to compute on.")]
Workers = Annotated[int, number("Number of processes that decode image files.")]
Seed = Annotated[int, number("Random seed for weights that are not given.")]
Settings = Annotated[
    list[str],
    typer.Option(
        "--set",
        metavar="FIELD=VALUE",
        help="Change a field of the recipe. Can be given several times.",
    ),
]
