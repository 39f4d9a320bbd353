"""Spectra in a folder, one file each as it is found, so that a job which was stopped can go on."""

import hashlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from stiffnet.errors import CorruptFileError, StorageError
from stiffnet.files import atomic_write, sweep_temporaries
from stiffnet.jobs.places import file_name
from stiffnet.results.spectrum import Spectrum
from stiffnet.words import listed

IMAGE = "image"  # the fact that says which image of the data a part is of
PIXELS = "digest of the image"  # as the network was given it: large data are compared in part


class Parts:
    """Spectra by step and image, each in a file that says which work it belongs to.

    Args:
        folder: Where the files are.
        key: What the spectra depend on, in words; it is written into the facts of each.
    """

    def __init__(self, folder: Path, key: Mapping[str, str]) -> None:
        self.folder, self.key = folder, dict(key)
        self._known: dict[tuple[str, int], Spectrum] = {}

    def files(self) -> list[Path]:
        """Those that are there, sorted by name."""
        return sorted(self.folder.glob("image-*.json"))

    def refuse_any(self) -> None:
        """Raise a StorageError if there are parts of earlier work."""
        if found := self.files():
            raise StorageError(
                f"{self.folder} holds {len(found):,} spectra of earlier work. Go on with them with "
                "`--resume`, or choose another folder with `--out`."
            )

    def read(self, *, on_damage: Callable[[str], object]) -> None:
        """Read what is there; what is damaged is told, and will be computed again.

        Raises:
            StorageError: If a part belongs to other work.
        """
        for path in self.files():
            try:
                found = Spectrum.load(path)
                place = found.step, int(found.facts[IMAGE])
            except (CorruptFileError, KeyError, ValueError):
                on_damage(f"{path} is damaged, and is computed again.")
                continue
            other = [name for name in self.key if found.facts.get(name) != self.key[name]]
            if other:
                raise StorageError(
                    f"{path} belongs to other work: its {listed(other)} "
                    f"{'is' if len(other) == 1 else 'are'} not the same. Choose another folder "
                    "with `--out`, or delete this one."
                )
            self._known[place] = found

    def sweep(self, steps: Iterable[str], images: Iterable[int]) -> None:
        """Remove what a process that was killed left half written."""
        numbers = list(images)
        names = [self.path(step, number).name for step in steps for number in numbers]
        sweep_temporaries(self.folder, names)

    def get(self, step: str, number: int, image: Tensor) -> Spectrum | None:
        """Return what was kept of a step and image; None where the image was another one."""
        found = self._known.get((step, number))
        if found is None or found.facts.get(PIXELS) != tensors_digest({"": image}):
            return None
        mine = {IMAGE, PIXELS, *self.key}
        return replace(found, facts={k: v for k, v in found.facts.items() if k not in mine})

    def put(self, step: str, number: int, image: Tensor, found: Spectrum) -> None:
        """Keep it, in a file of its own."""
        own = {IMAGE: str(number), PIXELS: tensors_digest({"": image})}
        facts = {**found.facts, **self.key, **own}
        atomic_write(self.path(step, number), replace(found, facts=facts).to_json())

    def path(self, step: str, image: int) -> Path:
        """Return where the part of a step and image is."""
        digest = hashlib.sha256(step.encode(errors="surrogatepass")).hexdigest()[:8]
        return self.folder / f"image-{image}-{digest}-{file_name(step)[:60]}.json"


def weights_digest(model: nn.Module) -> str:
    """Return a short text that changes with any name, type, shape or byte of the weights."""
    return tensors_digest(model.state_dict())


def tensors_digest(values: Mapping[str, Any]) -> str:
    """Return a short text that changes with any name, type, shape or byte of these tensors."""
    total = hashlib.sha256()
    for name, value in sorted(values.items()):
        if not isinstance(value, Tensor):  # what a module keeps beside its tensors
            total.update(f"{name} {value!r}\n".encode())
            continue
        total.update(f"{name} {value.dtype} {tuple(value.shape)}\n".encode())
        flat = value.detach().cpu().contiguous().reshape(-1)
        total.update(flat.view(torch.uint8).numpy().tobytes())
    return total.hexdigest()[:32]
