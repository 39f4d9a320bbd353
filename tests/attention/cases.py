"""What the tests over the table share: modules with nothing at its start, rates, states."""

import torch

from stiffnet.attention import ATTENTION

ENTRIES = list(ATTENTION)
IMAGES_ONLY = {"cbam", "sge", "iebn"}
MAPS_ONLY = {"fca", "spa"}
WIDTH = 64  # the narrowest that every module takes


def named(entry):
    return entry.name


def random(*shape, dtype=torch.float64, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype)


def pair(*shape, dtype=torch.float64, seed=0):
    """A rate and the state that it belongs to."""
    return random(*shape, dtype=dtype, seed=seed), random(*shape, dtype=dtype, seed=seed + 1)


def made(entry, channels=WIDTH, *, seed=0, **options):
    torch.manual_seed(seed)
    return entry.value(channels, **options)


@torch.no_grad()
def shaken(module, *, seed=0):
    """Put numbers that no start has into everything, the unit included; float64, evaluating."""
    module.double().eval()
    for place, tensor in enumerate(module.state_dict().values()):
        if not tensor.is_floating_point():
            continue
        values = random(*tensor.shape, seed=seed + place) / 2
        tensor.copy_(values)
    for name, tensor in module.named_buffers():
        if name.endswith(("running_var", "unit")):
            tensor.abs_().add_(0.5)
    return module
