"""Where a command computes."""

from enum import StrEnum


class Device(StrEnum):
    """Where to compute."""

    auto = "auto"
    cpu = "cpu"
    cuda = "cuda"
    mps = "mps"


def check_device(device: Device) -> None:
    """See that the machine has such a device.

    Raises:
        StiffnetError: If it has none.
    """
    import torch

    from stiffnet.errors import StiffnetError

    there = {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
    if not there.get(device.value, True):
        raise StiffnetError(
            f"This machine has no {device.value} device that torch can use. "
            "Leave out `--device`, or give `--device cpu`."
        )
