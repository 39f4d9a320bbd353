"""Which module's own code is running, and which tensor function it calls."""

import threading
from abc import abstractmethod
from contextlib import AbstractContextManager, ExitStack
from typing import Any, Self

from torch import nn
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook
from torch.overrides import TorchFunctionMode


class ModuleStack(AbstractContextManager["ModuleStack"]):
    """Knows which module's own code is running, by hooks that no module carries.

    The hooks are torch's process-wide ones, so a deep copy made meanwhile takes none along, and
    leaving the context, also by an exception, removes both. Every tensor function is run by
    `function`.
    """

    def __init__(self, model: nn.Module) -> None:
        self.paths = {module: name for name, module in model.named_modules()}
        self.model = model
        self._thread = threading.get_ident()  # the hooks run in every thread; this one counts
        self._functions = _Functions(self)

    def __enter__(self) -> Self:
        self.watching = ExitStack()  # what ends with it, hooks of those derived from it too
        self.watching.enter_context(register_module_forward_pre_hook(self._enter))
        self.watching.enter_context(register_module_forward_hook(self._leave, always_call=True))
        self.watching.enter_context(self._functions)
        return self

    def __exit__(self, *error: Any) -> None:
        self.watching.__exit__(*error)

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

    @abstractmethod
    def function(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run one tensor function of the code that runs."""


class _Functions(TorchFunctionMode):
    """Hands every tensor function to a `ModuleStack`."""

    def __init__(self, stack: ModuleStack) -> None:
        super().__init__()
        self._stack = stack

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        return self._stack.function(func, args, kwargs or {})
