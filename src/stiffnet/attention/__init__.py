"""The step-size modules by name: what `attach` takes, and what `stiffnet list attention` shows."""

import inspect
import re

from torch import nn

from stiffnet.attention.base import Attention as Attention
from stiffnet.attention.cbam import CBAM
from stiffnet.attention.constant import VECTOR
from stiffnet.attention.dia import DIA
from stiffnet.attention.eca import ECA
from stiffnet.attention.fca import FCA
from stiffnet.attention.ie import IE
from stiffnet.attention.iebn import IEBN
from stiffnet.attention.se import SE
from stiffnet.attention.sem import SEM
from stiffnet.attention.sge import SGE
from stiffnet.attention.spa import SPA
from stiffnet.attention.srm import SRM
from stiffnet.attention.stepnet import StepNet
from stiffnet.errors import StepError
from stiffnet.registry import Entry, Registry

_MODULES: tuple[type[Attention], ...] = (
    SE, ECA, CBAM, SRM, FCA, IE, IEBN, SEM, SGE, SPA, DIA, StepNet,
)  # fmt: skip
_OURS = {module.__name__.lower(): module for module in _MODULES}


class AttentionTable(Registry[type[Attention]]):
    """The modules of the papers, and those that users add."""

    def add(self, entry: Entry[type[Attention]]) -> None:
        """Enter a module of the user's; one of theirs with the same name gives way to it."""
        self._entries[entry.name] = entry


def _described(module: type[Attention]) -> str:
    parameters = f"parameters: {module.formula}" if module.formula else ""
    first = module.summary or (inspect.getdoc(module) or "").partition("\n")[0]
    return "; ".join(part for part in (first, module.reference, parameters) if part)


ATTENTION = AttentionTable(
    "attention module",
    [Entry(name, module, _described(module)) for name, module in _OURS.items()],
)


def register_attention(name: str, module: type[nn.Module], *, summary: str = "") -> None:
    """Give a module of your own a name, under which everything here takes it.

    Args:
        name: Lower-case letters, digits and underscores. Registering it again replaces the module.
        module: A class derived from `Attention`, made by ``module(channels, **options)``.
        summary: What lists show; without one, what the class says of itself.

    Raises:
        StepError: If the name or the class cannot be used.
    """
    if name in _OURS or name == VECTOR:
        raise StepError(
            f"There is already an attention module called {name!r}; choose another name."
        )
    if not re.fullmatch(r"[a-z][a-z0-9_]*", name):
        raise StepError(
            f"An attention module cannot be called {name!r}; use lower-case letters, digits and "
            "underscores, and begin with a letter."
        )
    if not (isinstance(module, type) and issubclass(module, Attention)):
        what = getattr(module, "__name__", repr(module))
        raise StepError(
            f"{what} is not an attention module; derive it from `stiffnet.attention.Attention` and "
            "write its `describe` and `excite`."
        )
    if inspect.isabstract(module):
        missing = " and ".join(f"`{method}`" for method in sorted(module.__abstractmethods__))
        raise StepError(f"{module.__name__} is unfinished; write its {missing}.")
    ATTENTION.add(Entry(name, module, summary or _described(module)))
