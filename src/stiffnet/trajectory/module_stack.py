"""Which module's own code is running."""

import threading
from abc import abstractmethod
from contextlib import AbstractContextManager
from typing import Any, Self

from torch import nn
from torch.nn.modules.module import (
    register_module_forward_hook,
    register_module_forward_pre_hook,
)


class ModuleStack(AbstractContextManager["ModuleStack"]):
    """Knows which module's own code is running, by hooks that no module carries.

    The hooks are torch's process-wide ones, so a deep copy made meanwhile takes none along, and
    leaving the context, also by an exception, removes both.
    """

    def __init__(self, model: nn.Module) -> None:
        self.paths = {module: name for name, module in model.named_modules()}
        self.model = model
        self._thread = threading.get_ident()  # the hooks run in every thread; this one counts

    def __enter__(self) -> Self:
        self._handles = (
            register_module_forward_pre_hook(self._enter),
            register_module_forward_hook(self._leave, always_call=True),
        )
        return self

    def __exit__(self, *_: object) -> None:
        for handle in self._handles:
            handle.remove()

    def _enter(self, module: nn.Module, args: tuple[Any, ...]) -> None:
        if module in self.paths and threading.get_ident() == self._thread:
            self.enter(self.paths[module], module, args)

    def _leave(self, module: nn.Module, args: tuple[Any, ...], output: Any) -> Any:
        if module in self.paths and threading.get_ident() == self._thread:
            return self.leave(module, output)
        return None

    @abstractmethod
    def enter(self, path: str, module: nn.Module, args: tuple[Any, ...]) -> None:
        """Handle the start of a module's code."""

    @abstractmethod
    def leave(self, module: nn.Module, output: Any) -> Any:
        """Handle its end, also by an exception (`output` is None then).

        What it returns, unless that is None, the module returns in the place of `output`.
        """
