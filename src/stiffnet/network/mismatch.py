"""Why weights do not fit a network: what their names and shapes say, and never more than that."""

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from torch import Tensor, nn

from stiffnet.network.state_dicts import StateDict

STATISTICS = ".running_var"  # of a norm
GATE = ".step_size"  # in the names of everything that `attach` puts into a network
AUTHORS_GATE = ".attention_module."  # in the names of the ASR authors' modules
POSITIONS = re.compile(r"pos(ition)?_emb|relative_position|rel_pos|attn_mask")
SAME, FEW = 0.7, 0.1  # share of names in common: of a variant at least, of a stranger at most


@dataclass(frozen=True)
class Fit:
    """One way of reading a state dict's names as a network's, and how the two differ then."""

    state: StateDict
    given: Mapping[str, object]
    """The file's, under the network's names as far as that goes."""
    wanted: Mapping[str, Tensor]
    missing: tuple[str, ...]
    unexpected: tuple[str, ...]
    unfit: tuple[str, ...]
    """Names of tensors that have another shape or kind."""
    prefix: str = ""
    left_out: tuple[str, ...] = ()
    renamed: bool = False

    @property
    def named(self) -> bool:
        """Whether all names are the network's, whatever the shapes."""
        return not self.missing and not self.unexpected

    @property
    def exact(self) -> bool:
        """Whether nothing differs."""
        return self.named and not self.unfit


def likely_cause(model: nn.Module, fit: Fit, *, folded: bool) -> str:
    """Say what a file is, and what to do, as a clause; where nothing tells, only the latter."""
    if any(AUTHORS_GATE in f".{name}" for name in fit.unexpected):
        return (
            "it looks like one of the ASR authors' networks with attention, whose modules are not "
            "read; of theirs, give the file of a network without attention"
        )
    causes = []
    if any(_is_gates(name) for name in fit.unexpected):
        causes.append("it looks like a network with attention, so give its `attention` too")
    elif any(_is_gates(name) for name in fit.missing):
        if folded:
            causes.append(
                "it is a folded network, with its attention in it, so leave `attention` out"
            )
        else:
            causes.append("it looks like the network without attention, so leave `attention` out")
    outputs, head = head_outputs(model, fit), _head(model)
    if outputs is not None:
        causes.append(
            f"its classifier has {outputs:,} outputs, so give `--num-classes {outputs}`, in "
            f"Python `num_classes={outputs}`"
        )
    rest = replace(
        fit,
        missing=tuple(n for n in fit.missing if not _is_gates(n)),
        unexpected=tuple(n for n in fit.unexpected if not _is_gates(n)),
        unfit=tuple(n for n in fit.unfit if outputs is None or _module(n) not in head),
    )
    if not rest.exact:
        causes.append(_other_network(rest, head, folded=folded))
    return "; ".join(filter(None, causes)) or "give the file of this very network"


def _is_gates(name: str) -> bool:
    return GATE in f".{name}"


def _other_network(fit: Fit, head: Collection[str], *, folded: bool) -> str:
    """Say what is behind differences in more than attention and number of classes."""
    given, wanted = _learnt(fit.given), _learnt(fit.wanted)
    lacks, adds, unfit = fit.missing, fit.unexpected, fit.unfit
    common = len(given.keys() & wanted.keys())
    if common <= FEW * min(len(given), len(wanted)):
        theirs, ours = next(iter(given), ""), next(iter(wanted), "")
        return (
            "hardly any of its names is one of this network's, so it is of another network, or of "
            f"another library's version of it (its first name is {theirs}, here it is {ours})"
        )
    if _merged(lacks, adds) or (folded and not unfit):
        kind = "is" if folded else "looks like"
        return f"it {kind} a folded network with merged layers, so open the folder that it is in"
    if _merged(adds, lacks):
        return "it looks like a network that is not folded, so load it into a fresh one"
    if unfit:
        return _other_shapes(fit, len(wanted), common / min(len(given), len(wanted)))
    if lacks and not adds and {_module(name) for name in lacks} <= set(head):
        return (
            "it has no classifier, so it holds a backbone alone: start a fine-tuning from it, or "
            "build the network without a classifier in Python"
        )
    if _pattern(lacks) <= _pattern(fit.given) and _pattern(adds) <= _pattern(fit.wanted):
        kind = "deeper" if not lacks else "shallower" if not adds else "differently deep"
        return f"it looks like a {kind} variant of this network{_blocks(given, wanted)}"
    return ""


def _other_shapes(fit: Fit, tensors: int, common: float) -> str:
    """Say what is behind other shapes, in a network of so many tensors with a share in common."""
    shapes = [(_shape(fit.given[n]), tuple(fit.wanted[n].shape)) for n in fit.unfit]
    if fit.named and all(POSITIONS.search(name) for name in fit.unfit):
        return "it looks like this network for images of another size"
    if fit.named and len(shapes) == 1 and len(shapes[0][1]) == 4:
        [(theirs, ours)] = shapes
        if theirs[:1] + theirs[2:] == ours[:1] + ours[2:] and ours[1] in (1, 3, 4):
            return f"its network takes images of {theirs[1]} channels, and this one of {ours[1]}"
    if fit.named and len(shapes) > tensors / 2 and all(a[2:] == b[2:] for a, b in shapes):
        return "all its names fit, so it looks like a variant of another width"
    if not fit.named and common >= SAME:
        return (
            "most of its names are this network's, so it looks like another variant of it, of "
            "another depth or width or with other parts"
        )
    return ""


def head_outputs(model: nn.Module, fit: Fit) -> int | None:
    """How many outputs a file's classifier has, if all that does not fit differs in that alone."""
    head = _head(model)
    unfit = [name for name in fit.unfit if _module(name) in head]
    pairs = [(_shape(fit.given[n]), tuple(fit.wanted[n].shape)) for n in unfit]
    numbers = {(theirs[0], ours[0]) for theirs, ours in pairs if theirs and ours}
    if len(numbers) != 1 or any(a[1:] != b[1:] or not a for a, b in pairs):
        return None
    [(theirs, ours)] = numbers
    return theirs if theirs != ours else None


def _head(model: nn.Module) -> set[str]:
    """Names of the modules that give a network's outputs."""
    config = getattr(model, "pretrained_cfg", None) or {}
    named = config.get("classifier") or ()
    names = {named} if isinstance(named, str) else set(named)
    modules = dict(model.named_modules())
    if names and all(name in modules for name in names):
        return names
    layers = [
        name
        for name, module in modules.items()
        if isinstance(module, nn.Linear | nn.modules.conv._ConvNd)
    ]
    return set(layers[-1:])


def _merged(lacks: Sequence[str], adds: Sequence[str]) -> bool:
    """Whether all that is lacking belongs to norms, and all that is there instead are biases."""
    norms = {_module(name) for name in lacks if f".{name}".endswith(STATISTICS)}
    return (
        bool(norms and adds)
        and all(_module(name) in norms for name in lacks)
        and all(name.endswith("bias") for name in adds)
    )


def _blocks(given: Collection[str], wanted: Collection[str]) -> str:
    """Name the first stack of blocks that has another number of them."""
    theirs, ours = _stacks(given), _stacks(wanted)
    for stack in theirs:
        if stack in ours and theirs[stack] != ours[stack]:
            return f" ({stack} has {theirs[stack]} blocks, and here it has {ours[stack]})"
    return ""


def _stacks(names: Collection[str]) -> dict[str, int]:
    """How many members each numbered series of modules has."""
    members: dict[str, set[str]] = {}
    for name in names:
        parts = name.split(".")
        for place, part in enumerate(parts):
            if part.isdigit() and place:
                members.setdefault(".".join(parts[:place]), set()).add(part)
    return {stack: len(numbers) for stack, numbers in members.items()}


def _learnt(values: Mapping[str, Any]) -> dict[str, Any]:
    """Leave out the counters of norms, which a file need not have."""
    return {name: v for name, v in values.items() if not name.endswith("num_batches_tracked")}


def _pattern(names: Collection[str]) -> set[str]:
    return {re.sub(r"(?<![^.])\d+(?![^.])", "#", name) for name in names}


def _module(name: str) -> str:
    return name.rpartition(".")[0]


def _shape(value: object) -> tuple[int, ...]:
    return tuple(value.shape) if isinstance(value, Tensor) else ()
