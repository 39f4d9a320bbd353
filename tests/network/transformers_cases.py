"""Small networks of the transformers library, with random weights, and what to call them with."""

from typing import Any, NamedTuple

import torch
import transformers
from torch import nn

DECODER = {"vocab_size": 40, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2}
LLAMA = DECODER | {
    "intermediate_size": 24, "num_key_value_heads": 2, "max_position_embeddings": 64,
    "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
}  # fmt: skip
ENCODER = DECODER | {"intermediate_size": 24, "max_position_embeddings": 64, "pad_token_id": 0}
SEQ2SEQ = {
    "vocab_size": 40, "d_model": 16, "encoder_layers": 2, "decoder_layers": 2,
    "encoder_attention_heads": 2, "decoder_attention_heads": 2, "encoder_ffn_dim": 24,
    "decoder_ffn_dim": 24, "max_position_embeddings": 64,
}  # fmt: skip
IMAGE = {
    "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 24,
    "image_size": 32, "patch_size": 8,
}  # fmt: skip
QWEN = LLAMA | {"head_dim": 8}


class Hugging(NamedTuple):
    """A network of the library: its name there, its settings, what it reads, and its steps."""

    name: str
    config: dict[str, Any]
    reads: str
    """``"text"``, ``"both"`` (an encoder's and a decoder's text) or ``"images"``."""
    steps: int


DECODERS = [
    Hugging("GPT2", {"vocab_size": 40, "n_embd": 16, "n_layer": 2, "n_head": 2}, "text", 4),
    Hugging("Llama", LLAMA, "text", 4),
    Hugging("Mistral", LLAMA, "text", 4),
    Hugging("Qwen2", LLAMA, "text", 4),
    Hugging("Qwen3", QWEN, "text", 4),
    Hugging("Gemma", QWEN, "text", 4),
    Hugging("GPTNeoX", LLAMA | {"use_parallel_residual": False}, "text", 4),
    Hugging("Phi3", LLAMA, "text", 4),
]
ENCODERS = [
    Hugging("Bert", ENCODER, "text", 4),
    Hugging("Roberta", ENCODER, "text", 4),
    Hugging("Electra", ENCODER | {"embedding_size": 16}, "text", 4),
    Hugging(
        "DistilBert",
        {"vocab_size": 40, "dim": 16, "n_layers": 2, "n_heads": 2, "hidden_dim": 24},
        "text",
        4,
    ),
]
OTHERS = [
    Hugging(
        "T5",
        {"vocab_size": 40, "d_model": 16, "d_kv": 8, "d_ff": 24, "num_layers": 2, "num_heads": 2},
        "both",
        10,
    ),
    Hugging("Bart", SEQ2SEQ, "both", 10),
    Hugging("ViT", IMAGE, "images", 4),
    Hugging("DeiT", IMAGE, "images", 4),
    Hugging("Dinov2", {k: v for k, v in IMAGE.items() if k != "intermediate_size"}, "images", 4),
    Hugging("CLIPVision", IMAGE, "images", 4),
    Hugging(
        "Swin",
        {"image_size": 32, "patch_size": 4, "embed_dim": 8, "depths": [1, 1], "num_heads": [1, 2],
         "window_size": 4},
        "images",
        4,
    ),
    Hugging(
        "ConvNext",
        {"num_stages": 2, "hidden_sizes": [8, 16], "depths": [1, 1], "image_size": 32},
        "images",
        2,
    ),
    Hugging(
        "ResNet",
        {"embedding_size": 8, "hidden_sizes": [8, 16], "depths": [1, 1], "layer_type": "basic"},
        "images",
        2,
    ),
    Hugging("Beit", IMAGE, "images", 4),
]  # fmt: skip
EVERY = [*DECODERS, *ENCODERS, *OTHERS]


def network(case: Hugging) -> nn.Module:
    torch.manual_seed(0)
    config = getattr(transformers, f"{case.name}Config")(**case.config)
    model: nn.Module = getattr(transformers, f"{case.name}Model")(config)
    return model.eval()


def example(case: Hugging, samples: int = 2, length: int = 6) -> dict[str, torch.Tensor]:
    size = case.config.get("image_size", 32)
    if case.reads == "images":
        return {"pixel_values": torch.rand(samples, 3, size, size)}
    tokens = torch.randint(3, 40, (samples, length))
    if case.reads == "both":
        return {"input_ids": tokens, "decoder_input_ids": torch.randint(3, 40, (samples, 4))}
    return {"input_ids": tokens}


def result(model: nn.Module, **inputs: torch.Tensor) -> torch.Tensor:
    found: torch.Tensor = model(**inputs).last_hidden_state
    return found
