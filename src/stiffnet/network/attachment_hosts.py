"""An attachment kept where others keep networks: transformers folders, Lightning checkpoints."""

import json
import os
from pathlib import Path
from typing import Any

import safetensors
from torch import Tensor, nn

from stiffnet.batch_norms import REPLACEABLE
from stiffnet.errors import CheckpointError, StorageError
from stiffnet.network.attach import attached
from stiffnet.network.attachment import KEY, attachment, reattach
from stiffnet.network.gated_block import CHILD
from stiffnet.words import few

WHOLE, INDEX = "model.safetensors", "model.safetensors.index.json"  # as `save_pretrained` writes


def from_pretrained(
    kind: Any, folder: str | os.PathLike[str], *, example: Any = None, **options: Any
) -> Any:
    """Open a transformers network with what was attached to it.

    Before it is saved, write the attachment into its configuration: ``model.config.
    stiffnet_attachment = stiffnet.attachment(model)``. Every `save_pretrained` keeps it from then
    on, a Trainer's too; write it again if you attach something else. The class's own
    `from_pretrained` would open the network without the modules, and only log that. transformers
    does not save modules that share tensors, as DIA's do.

    Args:
        kind: The class, such as ``transformers.BertModel``, or one of its auto classes.
        folder: What `save_pretrained` wrote, on this machine.
        example: One batch, as for `attach`. Made up where it is not given.
        **options: For the class's own `from_pretrained`.

    Raises:
        CheckpointError: If the folder has no attachment, or it does not fit the network, or the
            weights of a module are missing, or are there for one that it does not list.
        CorruptFileError: If the attachment was changed.
        StorageError: If the weights cannot be read.
    """
    model, loading = kind.from_pretrained(folder, **options, output_loading_info=True)
    record = getattr(model.config, KEY, None)
    if record is None:
        raise CheckpointError(
            f"The configuration in {folder} has no `{KEY}`, so it is not known what was attached. "
            "Set it to `stiffnet.attachment(model)` before `save_pretrained`, or use the class's "
            "own `from_pretrained`."
        )
    before = set(model.state_dict())
    reattach(model, record, example=example)
    new = [name for name in model.state_dict() if name not in before]
    tensors = _tensors(Path(folder), new)
    if missing := [name for name in new if name not in tensors]:
        raise CheckpointError(
            f"{folder} lists attached modules and lacks {len(missing)} of their tensors: "
            f"{few(missing)}. Save the network with its modules."
        )
    unlisted = set(loading["unexpected_keys"]) - set(new)
    if others := sorted(name for name in unlisted if _is_attached(name, model)):
        raise CheckpointError(
            f"{folder} has {len(others)} tensors of modules that its `{KEY}` does not list: "
            f"{few(others)}. Set it to `stiffnet.attachment(model)` again before `save_pretrained`."
        )
    model.load_state_dict(tensors, strict=False)
    return model


class LightningAttachment:
    """Keeps what is attached to a LightningModule in its checkpoints; derive from it first.

    ``class Mine(stiffnet.LightningAttachment, LightningModule)``: `load_from_checkpoint` and
    `Trainer.fit(ckpt_path=...)` then attach the modules again before the weights are loaded. An
    `example_input_array` of the module serves as the example.
    """

    example_input_array: Any = None

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Add the attachment to a checkpoint."""
        super().on_save_checkpoint(checkpoint)  # type: ignore[misc]
        if attached(_network(self)):
            checkpoint[KEY] = attachment(_network(self))

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Attach what the checkpoint lists, before its weights are loaded.

        Raises:
            CheckpointError: If it lists nothing and there are modules in it or in the network, or
                what it lists does not fit.
            CorruptFileError: If the list was changed.
        """
        super().on_load_checkpoint(checkpoint)  # type: ignore[misc]
        network, record = _network(self), checkpoint.get(KEY)
        parts = {part for name in checkpoint.get("state_dict", {}) for part in name.split(".")}
        if record is not None:
            reattach(network, record, example=self.example_input_array)
        elif attached(network) or any(part.startswith(CHILD) for part in parts):
            raise CheckpointError(
                f"The checkpoint has no `{KEY}`, so it is not known what was attached. Derive the "
                "module that saves from `stiffnet.LightningAttachment`, and save it again."
            )


def _network(module: object) -> nn.Module:
    assert isinstance(module, nn.Module), "a mix-in of a LightningModule"
    return module


def _is_attached(name: str, model: nn.Module) -> bool:
    """Whether a tensor that a network lacks is one of a gate, or of what took a norm's place."""
    parts = name.split(".")
    above = {".".join(parts[:end]) for end in range(1, len(parts))}
    norms = (path for path, module in model.named_modules() if type(module) in REPLACEABLE)
    return any(part.startswith(CHILD) for part in parts) or not above.isdisjoint(norms)


def _tensors(folder: Path, names: list[str]) -> dict[str, Tensor]:
    """Read tensors from a folder of `save_pretrained`, in one file or more; some may lack."""
    try:
        files = dict.fromkeys(names, WHOLE)
        if (folder / INDEX).is_file():
            files = json.loads((folder / INDEX).read_bytes())["weight_map"]
        found: dict[str, Tensor] = {}
        for file in {files[name] for name in names if name in files}:
            with safetensors.safe_open(folder / Path(file).name, "pt") as stream:
                held = set(stream.keys()).intersection(names)
                found |= {name: stream.get_tensor(name) for name in held}
    except (OSError, ValueError, KeyError, TypeError, safetensors.SafetensorError) as error:
        raise StorageError(
            f"The weights in {folder} could not be read: {error}. Give a folder that "
            "`save_pretrained` wrote as safetensors."
        ) from error
    return found
