"""What a number depends on beside the data: versions and hardware."""

import platform
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


def provenance(model: "nn.Module") -> dict[str, str]:
    """Versions and hardware that a number which a network gave depends on."""
    parameter = next(model.parameters(), None)
    packages = ("stiffnet", "torch", "timm", "torchvision")
    return {
        "versions": ", ".join(f"{name} {version_of(name)}" for name in packages),
        "python": platform.python_version(),
        "device": "cpu" if parameter is None else parameter.device.type,
        "precision": str("float32" if parameter is None else parameter.dtype).split(".")[-1],
        "parameters": f"{sum(p.numel() for p in model.parameters()):,}",
    }
