"""Small networks whose steps, rates and step sizes are known in closed form."""

import torch
from torch import Tensor, nn


def rotation(width: int, rate: float, seed: int) -> nn.Linear:
    """A layer that multiplies every norm by `rate`: a scaled orthogonal matrix."""
    generator = torch.Generator().manual_seed(seed)
    square = torch.randn(width, width, generator=generator, dtype=torch.float64)
    layer = nn.Linear(width, width, bias=False, dtype=torch.float64)
    with torch.no_grad():
        layer.weight.copy_(rate * torch.linalg.qr(square).Q)
    return layer


class Step(nn.Module):
    """x + h · A x with A = rate · (an orthogonal matrix), so that the index is `rate`."""

    def __init__(self, width: int, rate: float, step_size: float | None = None, seed: int = 0):
        super().__init__()
        self.rate = rotation(width, rate, seed)
        self.step_size = step_size

    def forward(self, x: Tensor) -> Tensor:
        change = self.rate(x)
        if self.step_size is not None:
            change = change * self.step_size
        return x + change


def known_rates(*rates: float, width: int = 6, step_size: float | None = None) -> nn.Sequential:
    """A network whose indices are `rates`, for every input."""
    return nn.Sequential(*(Step(width, r, step_size, seed) for seed, r in enumerate(rates)))


class Attention(nn.Module):
    """A self-attention layer in the style of Hugging Face: the residual is added elsewhere."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.query, self.key, self.value = (nn.Linear(width, width) for _ in range(3))

    def forward(self, hidden_states: Tensor, attention_mask: Tensor | None = None):
        scores = self.query(hidden_states) @ self.key(hidden_states).transpose(-1, -2)
        if attention_mask is not None:
            scores = scores + attention_mask
        return (scores.softmax(-1) @ self.value(hidden_states), scores)


class Output(nn.Module):
    """Dense layer, then the residual that came in as a second argument, then a norm."""

    def __init__(self, inputs: int, width: int) -> None:
        super().__init__()
        self.dense = nn.Linear(inputs, width)
        self.LayerNorm = nn.LayerNorm(width)

    def forward(self, hidden_states: Tensor, input_tensor: Tensor) -> Tensor:
        return self.LayerNorm(self.dense(hidden_states) + input_tensor)


class EncoderLayer(nn.Module):
    """One layer of a BERT-like encoder, with data-dependent code that no symbolic tracer takes."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.attention = Attention(width)
        self.attention_output = Output(width, width)
        self.intermediate = nn.Linear(width, 2 * width)
        self.output = Output(2 * width, width)

    def forward(self, hidden_states: Tensor, **options):
        if bool(torch.isnan(hidden_states).any()):  # needs values, not symbols
            raise ValueError("nan")
        attended = self.attention(hidden_states, **options)
        hidden_states = self.attention_output(attended[0], hidden_states)
        return (self.output(nn.functional.gelu(self.intermediate(hidden_states)), hidden_states),)


class Encoder(nn.Module):
    """Keyword arguments in, a dictionary out."""

    def __init__(self, width: int = 8, layers: int = 3) -> None:
        super().__init__()
        self.embed = nn.Linear(4, width)
        self.layer = nn.ModuleList(EncoderLayer(width) for _ in range(layers))

    def forward(self, *, pixel_values: Tensor, attention_mask: Tensor | None = None):
        hidden_states = self.embed(pixel_values)
        for layer in self.layer:
            hidden_states = layer(hidden_states, attention_mask=attention_mask)[0]
        return {"last_hidden_state": hidden_states, "logits": hidden_states.mean(1)}
