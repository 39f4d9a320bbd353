"""A network's head: the part whose size is the number of classes, and a new one in its place."""

from collections.abc import Iterator, Mapping
from dataclasses import replace

import torch
from torch import Tensor

from stiffnet.errors import CheckpointError
from stiffnet.network.create import create_model
from stiffnet.network.loaded import LoadedModel
from stiffnet.network.model_folder import Fact

SPREAD = 0.01  # standard deviation of the weights of a new head
TRIED = (2, 3)  # numbers of classes that networks are built with, to see what follows the number


def head_shapes(name: str, options: Mapping[str, Fact]) -> dict[str, tuple[torch.Size, torch.Size]]:
    """Return the tensors whose shapes follow the number of classes, with their shapes for `TRIED`.

    That is the head, whatever a network calls it, and its auxiliary heads if it has some. `options`
    are those that `create_model` builds the network with. A CheckpointError if there are none.
    """
    few, more = (_built(name, {**options, "attention": None}, number) for number in TRIED)
    shapes = {key: (value.shape, more[key].shape) for key, value in few.items()}
    found = {key: both for key, both in shapes.items() if both[0] != both[1]}
    if not found:
        raise CheckpointError(
            f"{name} has no head whose size is the number of classes, so it cannot be fine-tuned "
            "for other classes. Choose another network."
        )
    return found


def outputs_in(
    content: Mapping[str, object], head: Mapping[str, tuple[torch.Size, torch.Size]]
) -> int | None:
    """Return the number of classes of a weights file's network; None if it has no head.

    Names of `content`, as `read_weights` returned it, may have prefixes, and dicts may lie in
    dicts.
    """
    for key, value in sorted(named_tensors(content), key=lambda pair: pair[0].count(".")):
        for name, (few, more) in head.items():
            if is_called(key, name) and value.ndim == len(few):
                axis = next(n for n, (a, b) in enumerate(zip(few, more, strict=True)) if a != b)
                by_class = (more[axis] - few[axis]) // (TRIED[1] - TRIED[0])
                common = few[axis] - by_class * TRIED[0]
                return (value.shape[axis] - common) // by_class
    return None


def named_tensors(content: Mapping[str, object], depth: int = 4) -> Iterator[tuple[str, Tensor]]:
    """Yield the tensors of a weights file, those of dicts in it too, as checkpoints have them."""
    for key, value in content.items():
        if isinstance(value, Tensor):
            yield str(key), value
        elif isinstance(value, dict) and depth:
            yield from named_tensors(value, depth - 1)


def is_called(key: str, name: str) -> bool:
    """Whether a file's key is a tensor's name, with or without a prefix.

    >>> is_called("module.fc.weight", "fc.weight"), is_called("afc.weight", "fc.weight")
    (True, False)
    """
    return f".{key}".endswith(f".{name}")


def with_new_head(source: LoadedModel, num_classes: int, *, seed: int) -> LoadedModel:
    """Return a network with the same weights, but for the head, which is new and random.

    Its weights are small, so that at first all classes are about equally likely: the heads that
    networks are built with may begin with a loss far above that, which would disturb what the
    others have learnt. The network is one that `create_model` can build, attached modules among
    its options.
    """
    head = head_shapes(source.name, source.options)
    options = {**source.options, "num_classes": num_classes}
    model = create_model(source.name, **options, seed=seed)  # type: ignore[arg-type]
    kept = {key: value for key, value in source.model.state_dict().items() if key not in head}
    told = model.load_state_dict(kept, strict=False)
    assert set(told.missing_keys) <= head.keys(), "the same network, but for its head"
    assert not told.unexpected_keys
    chance = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for key, parameter in model.named_parameters():
            if key in head and parameter.ndim > 1:
                parameter.normal_(0.0, SPREAD, generator=chance)
            elif key in head and key.endswith("bias"):
                parameter.zero_()
    return replace(source, model=model.eval(), classes=(), options=options)


def _built(name: str, options: Mapping[str, Fact], num_classes: int) -> dict[str, Tensor]:
    model = create_model(name, **{**options, "num_classes": num_classes})  # type: ignore[arg-type]
    return model.state_dict()
