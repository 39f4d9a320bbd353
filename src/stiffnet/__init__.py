"""Residual networks read as ODE solvers: measure their stiffness, choose their step sizes.

The public names, and nothing else. Each is imported when it is first used, so that
``stiffnet --help`` does not wait for torch.
"""

import sys
from importlib import import_module
from types import ModuleType

TYPE_CHECKING = False  # as type checkers know it; `typing` would take its time
if TYPE_CHECKING:
    from typing import Any

    from stiffnet.attention import register_attention as register_attention
    from stiffnet.attention.asr import asr as asr
    from stiffnet.fold.fold import FoldResult as FoldResult, fold as fold
    from stiffnet.network.attach import (
        Attachment as Attachment,
        attach as attach,
        attached as attached,
        detach as detach,
    )
    from stiffnet.network.attachment import attachment as attachment, reattach as reattach
    from stiffnet.network.attachment_hosts import (
        LightningAttachment as LightningAttachment,
        from_pretrained as from_pretrained,
    )
    from stiffnet.network.create import create_model as create_model
    from stiffnet.network.positions import (
        Position as Position,
        register_positions as register_positions,
    )
    from stiffnet.network.where import top_k as top_k
    from stiffnet.observe.compare import compare as compare
    from stiffnet.observe.epochs import (
        first_differences as first_differences,
        stripes_over_epochs as stripes_over_epochs,
    )
    from stiffnet.observe.gradcam import gradcam as gradcam
    from stiffnet.observe.growth import growth as growth
    from stiffnet.observe.measure import measure as measure
    from stiffnet.observe.spectrum import spectrum as spectrum
    from stiffnet.observe.stripes import stripes as stripes
    from stiffnet.results.comparison import Comparison as Comparison
    from stiffnet.results.gradcam import GradcamReport as GradcamReport
    from stiffnet.results.spectra import SpectrumReport as SpectrumReport
    from stiffnet.results.spectrum import Spectrum as Spectrum
    from stiffnet.results.stiffness import StiffnessReport as StiffnessReport
    from stiffnet.results.stripes import StripeReport as StripeReport
    from stiffnet.stiffness.metric import StiffnessMetric as StiffnessMetric
    from stiffnet.stiffness.relate import rank_models as rank_models, relate as relate
    from stiffnet.stiffness.total import tns as tns
    from stiffnet.train.freeze import freeze_attention as freeze_attention
    from stiffnet.trajectory.record import Trajectory as Trajectory, record as record
    from stiffnet.trajectory.step import Step as Step
    from stiffnet.trajectory.steps import steps as steps

    __version__: str

_NAMES = {
    "attention": ("register_attention",),
    "attention.asr": ("asr",),
    "fold.fold": ("FoldResult", "fold"),
    "network.attach": ("Attachment", "attach", "attached", "detach"),
    "network.attachment": ("attachment", "reattach"),
    "network.attachment_hosts": ("LightningAttachment", "from_pretrained"),
    "network.create": ("create_model",),
    "network.positions": ("Position", "register_positions"),
    "network.where": ("top_k",),
    "observe.compare": ("compare",),
    "observe.epochs": ("first_differences", "stripes_over_epochs"),
    "observe.gradcam": ("gradcam",),
    "observe.growth": ("growth",),
    "observe.measure": ("measure",),
    "observe.spectrum": ("spectrum",),
    "observe.stripes": ("stripes",),
    "results.comparison": ("Comparison",),
    "results.gradcam": ("GradcamReport",),
    "results.spectra": ("SpectrumReport",),
    "results.spectrum": ("Spectrum",),
    "results.stiffness": ("StiffnessReport",),
    "results.stripes": ("StripeReport",),
    "stiffness.metric": ("StiffnessMetric",),
    "stiffness.relate": ("rank_models", "relate"),
    "stiffness.total": ("tns",),
    "train.freeze": ("freeze_attention",),
    "trajectory.record": ("Trajectory", "record"),
    "trajectory.step": ("Step",),
    "trajectory.steps": ("steps",),
}
_HOME = {name: f"stiffnet.{module}" for module, names in _NAMES.items() for name in names}


def __getattr__(name: str) -> "Any":
    if name == "__version__":
        value = _version()
    elif name in _HOME:
        value = getattr(import_module(_HOME[name]), name)
    else:
        raise AttributeError(f"module 'stiffnet' has no attribute {name!r}")
    globals()[name] = value
    return value


def _version() -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("stiffnet")
    except PackageNotFoundError:  # running from a checkout that was never installed
        return "0+unknown"


def __dir__() -> list[str]:
    return sorted([*_HOME, "__version__"])


class _Door(ModuleType):
    """Lets `stiffnet.measure` be the function, though a module of that name exists too."""

    def __setattr__(self, name: str, value: "Any") -> None:
        if not (name in _HOME and isinstance(value, ModuleType)):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Door
