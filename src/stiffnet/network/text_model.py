"""Networks of the transformers library with their tokenizers, for text: ``hf:NAME`` or a folder."""

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from stiffnet.errors import CheckpointError
from stiffnet.network.described_folder import quiet_transformers
from stiffnet.words import first_line

PREFIX = "hf:"
_FAR = 1_000_000  # tokenizers write a number like 1e30 where they know no limit


def is_text_model(spec: object) -> bool:
    """Whether a network is named by ``hf:``."""
    return isinstance(spec, str) and spec.startswith(PREFIX)


@dataclass(frozen=True)
class TextModel:
    """A network that reads text, and its tokenizer."""

    name: str
    model: nn.Module
    tokenizer: Any

    @property
    def longest(self) -> int | None:
        """How many tokens it takes at most; None where nothing says so."""
        config: Any = self.model.config
        told = (self.tokenizer.model_max_length, getattr(config, "max_position_embeddings", None))
        known = [length for length in told if length and length < _FAR]
        return min(known) if known else None

    def batch(self, sentences: Sequence[str]) -> dict[str, Tensor]:
        """Tokens of sentences, padded on the right, with their mask; cut where they are too long.

        The decoder of an encoder-decoder network is given the same sentences.
        """
        made = self.tokenizer(
            list(sentences),
            padding=True,
            truncation=self.longest is not None,
            max_length=self.longest,
            return_tensors="pt",
        )
        tokens = {name: made[name] for name in ("input_ids", "attention_mask")}
        if getattr(self.model.config, "is_encoder_decoder", False):
            tokens |= {f"decoder_{name}": value for name, value in tokens.items()}
        return tokens

    def batches(self, sentences: Sequence[str], size: int) -> Iterator[dict[str, Tensor]]:
        """Padded batches of sentences, in their order."""
        for start in range(0, len(sentences), size):
            yield self.batch(sentences[start : start + size])

    def too_long(self, sentences: Sequence[str]) -> int:
        """How many sentences have more tokens than the network takes."""
        if self.longest is None:
            return 0
        made = self.tokenizer(list(sentences), verbose=False)["input_ids"]
        return sum(len(tokens) > self.longest for tokens in made)


def open_text_model(spec: str) -> TextModel:
    """Open ``hf:FOLDER``, or ``hf:NAME`` of the Hugging Face hub, in evaluation mode.

    Weights are read from safetensors only, and no code of the folder is run.

    Raises:
        CheckpointError: If transformers is missing, or the network or its tokenizer is.
    """
    try:
        import transformers
    except ImportError as error:
        raise CheckpointError(
            f"{spec} needs the transformers library. Install it with `pip install transformers`."
        ) from error
    name = spec.removeprefix(PREFIX)
    options = {"trust_remote_code": False, "local_files_only": Path(name).is_dir()}
    try:
        with quiet_transformers():
            tokenizer = transformers.AutoTokenizer.from_pretrained(name, **options)
            model = transformers.AutoModel.from_pretrained(name, use_safetensors=True, **options)
    except (OSError, ValueError, KeyError, ImportError, RuntimeError) as error:
        raise CheckpointError(
            f"{name or spec} cannot be opened as a transformers network with its tokenizer: "
            f"{first_line(error)}. Give a folder that `save_pretrained` wrote for both, or a name "
            "on the hub."
        ) from error
    if tokenizer.pad_token is None:
        if tokenizer.eos_token is None:
            raise CheckpointError(
                f"The tokenizer of {name} has no token for padding, and none for the end of a "
                "text. Set `tokenizer.pad_token` and save it again."
            )
        tokenizer.pad_token = tokenizer.eos_token
    tokenizer.padding_side = "right"
    return TextModel(os.path.basename(os.path.normpath(name)), model.eval(), tokenizer)
