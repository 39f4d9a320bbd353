"""What a number depends on beside the data: versions and hardware."""

import platform
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import nn


def version_of(package: str) -> str:
    """Version of a package; it may be used from a checkout that was never installed."""
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"


def versions_of(*packages: str) -> str:
    """Write the versions of some packages."""
    return ", ".join(f"{name} {version_of(name)}" for name in packages)


def facts_on(
    model: "nn.Module", what: Mapping[str, str], told: Mapping[str, object] | None
) -> dict[str, str]:
    """What a result says of its network: its class, what the samples are, what else is told."""
    said = {key: str(value) for key, value in (told or {}).items()}
    return {"model": type(model).__name__, **what, **said, **provenance(model)}


def provenance(model: "nn.Module") -> dict[str, str]:
    """Versions and hardware that a number which a network gave depends on."""
    parameter = next(model.parameters(), None)
    return {
        "versions": versions_of("stiffnet", "torch", "timm", "torchvision"),
        "python": platform.python_version(),
        "device": "cpu" if parameter is None else parameter.device.type,
        "precision": str("float32" if parameter is None else parameter.dtype).split(".")[-1],
        "parameters": f"{sum(p.numel() for p in model.parameters()):,}",
    }
