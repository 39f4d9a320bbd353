"""What stands for several fields of a recipe at once, where a network is named."""

from collections.abc import Mapping

from stiffnet.registry import check_known

STYLE = "style"
_RESTYLE = {"task": "restyle", "model": "style_bn"}
NETWORKS: dict[str, Mapping[str, str]] = {
    "style:in": {**_RESTYLE, "model": "style_in"},
    "style:bn": _RESTYLE,
    "style:bn+asr": {**_RESTYLE, "attention": "asr:se"},
}


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
