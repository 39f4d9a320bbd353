"""An exponential moving average of a network's parameters and buffers."""

import copy
from collections.abc import Iterator, Mapping

import torch
from torch import Tensor, nn

from stiffnet.errors import CheckpointError, RecipeError


def decay_at(step: int, decay: float) -> float:
    r"""Weight of the old average at a step: $\min(d, \frac{1 + t}{10 + t})$.

    It begins low, so that little is left of the random start after few steps.

    Example:
        >>> [round(decay_at(step, 0.99), 3) for step in (1, 2, 100, 10_000)]
        [0.182, 0.25, 0.918, 0.99]
    """
    return min(decay, (1 + step) / (10 + step))


class Average:
    """The running average of a network in training, as a network of its own.

    Parameters and floating-point buffers are averaged, half-precision ones in float32; whatever
    counts (such as a norm's number of batches) is copied, and so are buffers that no state dict
    holds. A tensor with several names is averaged once. The averaged network, `model`, is in
    evaluation mode and without gradients.
    """

    def __init__(self, model: nn.Module, decay: float) -> None:
        if not 0 <= decay < 1:
            raise RecipeError(
                f"An average with decay {decay} never forgets or never settles; "
                "set `ema_decay` to a number from 0 up to, but not including, 1."
            )
        self.decay = decay
        self.model = copy.deepcopy(model).eval().requires_grad_(False)
        self._named = set(self.model.state_dict())
        self._wide = {
            name: tensor.float()
            for name, tensor in _tensors(self.model)
            if tensor.is_floating_point() and tensor.dtype.itemsize < 4
        }

    @torch.no_grad()
    def update(self, model: nn.Module, step: int) -> None:
        """Take in the network as it is after `step` optimizer steps, of which the first is 1."""
        share = 1 - decay_at(step, self.decay)
        for (name, own), (other, new) in zip(_tensors(self.model), _tensors(model), strict=True):
            assert name == other
            if name not in self._named or not (own.is_floating_point() or own.is_complex()):
                own.copy_(new)
                continue
            average = self._wide.get(name, own)
            average.lerp_(new.to(average.device, average.dtype), share)
            if average is not own:
                own.copy_(average)

    def state_dict(self) -> dict[str, Tensor]:
        """Return the averages under the names of the network's own state dict."""
        wide = {
            id(own): self._wide[name] for name, own in _tensors(self.model) if name in self._wide
        }
        entries = self.model.state_dict(keep_vars=True)
        return {name: wide.get(id(tensor), tensor.detach()) for name, tensor in entries.items()}

    @torch.no_grad()
    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Take back what `state_dict` gave; nothing changes unless all of it belongs here."""
        own = self.state_dict()
        for name in [*own, *state]:
            if name not in own or name not in state or own[name].shape != state[name].shape:
                raise CheckpointError(
                    f"The averaged weights do not belong to this network: {name!r} is missing on "
                    "one side or has another shape; give the recipe that they were trained by."
                )
        for name, tensor in own.items():
            tensor.copy_(state[name])
        for name, tensor in _tensors(self.model):
            if name in self._wide:
                tensor.copy_(self._wide[name])


def _tensors(model: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """Every parameter and buffer, once each."""
    yield from model.named_parameters()
    yield from model.named_buffers()
