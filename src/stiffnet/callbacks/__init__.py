"""Stiffness by epoch in training scripts that are not ours: Lightning, transformers, your own loop.

`lightning` and `transformers` are imported when their callback is asked for, and not before.
"""

from typing import TYPE_CHECKING, Any

from stiffnet.callbacks.monitor import StiffnessMonitor as StiffnessMonitor

if TYPE_CHECKING:
    from stiffnet.callbacks.lightning import LightningStiffness as LightningStiffness
    from stiffnet.callbacks.trainer import TrainerStiffness as TrainerStiffness

__all__ = ["LightningStiffness", "StiffnessMonitor", "TrainerStiffness"]


def __getattr__(name: str) -> Any:
    if name == "LightningStiffness":
        from stiffnet.callbacks.lightning import LightningStiffness

        return LightningStiffness
    if name == "TrainerStiffness":
        from stiffnet.callbacks.trainer import TrainerStiffness

        return TrainerStiffness
    raise AttributeError(f"module 'stiffnet.callbacks' has no attribute {name!r}")
