"""One recorder for all that looks at a pass: which addition or product runs, and its operands.

`ModuleStack` follows which module's own code runs; `Numbered` numbers the additions and products in
it, as a `Site` does. `Recorder` knows the sites of some steps, and hands over each operand as it
comes up. What becomes of it, a norm or a value with its graph, is for who listens to say: a
subclass.
"""

import threading
from abc import ABC, abstractmethod
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from typing import Any, NamedTuple, Self

import torch
from torch import Tensor, nn
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook
from torch.overrides import TorchFunctionMode
from torch.utils.hooks import RemovableHandle

from stiffnet.errors import StepError
from stiffnet.trajectory.functions import KINDS, name_of, operands_of
from stiffnet.trajectory.step import Site, Step


class ModuleStack(TorchFunctionMode, ABC):
    """Knows which module's own code is running, by hooks that no module carries.

    The hooks are torch's process-wide ones, so a deep copy made meanwhile takes none along, and
    leaving the context, also by an exception, removes both. Every tensor function is run by
    `function`.
    """

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.paths = {module: name for name, module in model.named_modules()}
        self.model = model
        self._thread = threading.get_ident()  # the hooks run in every thread; this one counts

    def __enter__(self) -> Self:
        self.watching = ExitStack()  # what ends with it, hooks of those derived from it too
        self.watching.enter_context(register_module_forward_pre_hook(self._enter))
        self.watching.enter_context(register_module_forward_hook(self._leave, always_call=True))
        super().__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        with self.watching:
            super().__exit__(*error)

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        return self.function(func, args, kwargs or {})

    def hook_before(self, module: nn.Module, hook: Any) -> RemovableHandle:
        """Have a hook run on a module itself, because only such a hook sees keywords."""
        handle = module.register_forward_pre_hook(hook, with_kwargs=True)
        return self.watching.enter_context(handle)

    def _enter(self, module: nn.Module, args: tuple[Any, ...]) -> None:
        if module in self.paths and threading.get_ident() == self._thread:
            with torch._C.DisableTorchFunction():  # what this reads of tensors is not the model's
                self.enter(self.paths[module], module, args)

    def _leave(self, module: nn.Module, args: tuple[Any, ...], output: Any) -> Any:
        if module in self.paths and threading.get_ident() == self._thread:
            with torch._C.DisableTorchFunction():
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


class Place(NamedTuple):
    """One addition or product of a pass."""

    module: str
    kind: str
    number: int


class Numbered(ModuleStack):
    """Numbers the additions, products and calls of modules of every pass that runs inside it.

    A pass begins and ends with `root`, the network itself if not given. Where that is a part of the
    network, `counts` says what was counted before it.
    """

    def __init__(
        self,
        model: nn.Module,
        root: nn.Module | None = None,
        counts: Mapping[tuple[str, str], int] | None = None,
    ) -> None:
        super().__init__(model)
        self.root = model if root is None else root
        self.running: list[nn.Module] = []  # the modules whose code runs, the outermost first
        self.counts: Counter[tuple[str, str]] = Counter()
        self._before = dict(counts or {})

    def enter(self, path: str, module: nn.Module, args: tuple[Any, ...]) -> None:
        """Follow which module's code runs; the root's beginning starts a pass."""
        if module is self.root:  # also after a pass that an interrupt cut short
            self.running.clear()
            self.counts = Counter(self._before)
            self.begin()
        if self.running or module is self.root:
            self.running.append(module)
            self.counts[path, "call"] += 1

    def leave(self, module: nn.Module, output: Any) -> Any:
        """Follow which module's code runs; the root's end ends a pass."""
        if self.running and self.running.pop() is self.root and output is not None:
            self.end()

    def function(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run one tensor function, and number it if it adds or multiplies."""
        kind = KINDS.get(name_of(func)) if self.running else None
        if kind is None:
            return func(*args, **kwargs)
        path = self.paths[self.running[-1]]
        place = Place(path, kind, self.counts[path, kind])
        self.counts[path, kind] += 1
        return self.meet(place, func, args, kwargs)

    def begin(self) -> None:
        """Start a pass."""

    def end(self) -> None:
        """End a pass that nothing interrupted."""

    def meet(self, place: Place, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run an addition or product."""
        return func(*args, **kwargs)


def scale_of(addition: Any, kwargs: Mapping[str, Any]) -> float:
    """By what an addition multiplies its second operand: a difference is a sum too.

    >>> import torch
    >>> scale_of(torch.add, {"alpha": 0.5}), scale_of(torch.sub, {})
    (0.5, -1.0)
    """
    sign = -1.0 if name_of(addition).startswith("sub") else 1.0
    return sign * float(kwargs.get("alpha", 1))


OTHER_CODE = (
    "The code of {!r} did not add and multiply as it did when its step was found, in evaluation "
    "mode. Call `.eval()` on the model first."
)


class Recorder(Numbered):
    """Hands over the operands at the sites of some steps, as they come up."""

    def __init__(self, model: nn.Module, steps: Sequence[Step] = ()) -> None:
        super().__init__(model)
        self.look_for(steps)

    def look_for(self, steps: Sequence[Step]) -> None:
        """Say which steps' sites to meet."""
        self.steps = tuple(steps)
        self.sites: defaultdict[Place, dict[Site, None]] = defaultdict(dict)
        for step in steps:
            for site in (step.state_at, step.increment_at, step.rate_at):
                self.sites[Place(site.module, site.kind, site.number)][site] = None

    def meet(self, place: Place, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Hand over the operands that are due here, then the result."""
        due = self.sites.get(place, ())
        for site in due:
            scale = scale_of(func, kwargs) if site.kind == "add" and site.operand == 1 else 1.0
            self.hand_over(site, operands_of(args, kwargs)[site.operand], scale)
        result = func(*args, **kwargs)
        if due:
            self.made(place, result)
        return result

    def hand_over(self, site: Site, value: Any, scale: float = 1.0) -> None:
        """Give a value to who listens, if it is one such as was there when the steps were found."""
        if not isinstance(value, Tensor):
            raise StepError(OTHER_CODE.format(site.module))
        if value.ndim != site.dims:
            raise StepError(
                f"In {site.module!r} a state has {value.ndim} axes, and had {site.dims} when the "
                "steps were found. If the code squeezes a batch of one, give it larger batches."
            )
        self.take(site, value, scale)

    def take(self, site: Site, value: Tensor, scale: float) -> None:
        """Do something with an operand, which is `scale` times as large when it is added."""

    def made(self, place: Place, result: Tensor) -> None:
        """Do something with what an addition or product of a step made."""

    def check(self, step: Step, met: Mapping[Site, Any]) -> None:
        """Refuse a pass whose code was not that in which the steps were found."""
        for site in (step.state_at, step.rate_at):
            if site not in met:
                raise StepError(
                    f"Step {step.name!r} did not run in this pass, though it did when the steps "
                    "were found. Find the steps again with `stiffnet.steps` on such a batch."
                )
            if site.kind != "block" and self.counts[site.module, site.kind] != site.of:
                raise StepError(OTHER_CODE.format(site.module))


class Kept(Recorder):
    """What is to be kept of every operand in one pass, by its site."""

    def __init__(
        self, model: nn.Module, steps: Sequence[Step], keep: Callable[[Tensor], Any]
    ) -> None:
        super().__init__(model, steps)
        self.values: dict[Site, Any] = {}
        self._keep = keep

    def take(self, site: Site, value: Tensor, scale: float) -> None:
        """Keep it."""
        self.values[site] = self._keep(value)
