"""Later tokens that a step hides in an unusual way: in a loop, after a prefix, in rows."""

import pytest
import torch
import transformers
from torch import nn
from torch.nn import functional as F

from network.test_token_gates import shaken
from stiffnet.errors import StepError
from stiffnet.network.attach import attach

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")

WIDTH, WORDS, TOKENS, CUT = 16, 40, 9, 6


class Loop(nn.Module):
    """A recurrence that goes through its tokens one by one, with one addition for each."""

    def __init__(self):
        super().__init__()
        self.keep, self.take = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)

    def forward(self, x):
        state, seen = torch.zeros_like(x[:, 0]), []
        for token in x.unbind(1):
            state = self.keep(token).sigmoid() * state + self.take(token)
            seen.append(state)
        return x + torch.stack(seen, 1)


class Prefix(nn.Module):
    """Attention that reads a prefix whole, and what comes after it from the left."""

    def __init__(self):
        super().__init__()
        self.read = nn.Linear(WIDTH, 3 * WIDTH)

    def forward(self, x):
        seen = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).tril()
        seen[:, :CUT] = True
        return x + F.scaled_dot_product_attention(*self.read(x).chunk(3, -1), attn_mask=seen)


class Ahead(nn.Module):
    """Every token reads the next one, so that it is not causal, though it reads no other."""

    def __init__(self):
        super().__init__()
        self.read = nn.Linear(WIDTH, WIDTH)

    def forward(self, x):
        return x + self.read(F.pad(x[:, 1:], (0, 0, 0, 1))).relu()


class Language(nn.Module):
    def __init__(self, block):
        super().__init__()
        self.words = nn.Embedding(WORDS, WIDTH)
        self.blocks = nn.Sequential(block(), block())

    def forward(self, ids):
        return self.blocks(self.words(ids))


def text():
    return torch.randint(3, WORDS, (2, TOKENS), generator=torch.Generator().manual_seed(0))


def language(block):
    torch.manual_seed(0)
    return Language(block).double().eval()


@pytest.mark.parametrize("kind", ["ie", "dia"])
@pytest.mark.parametrize("block", [Loop, Prefix])
def test_modules_read_nothing_that_the_step_hides(block, kind):
    model = shaken(attach(language(block), kind, example=text()).double())
    others = text()
    others[:, CUT:] = (others[:, CUT:] + 5) % WORDS
    with torch.no_grad():
        one, other = model(text()), model(others)
    assert not torch.allclose(one[:, CUT:], other[:, CUT:])
    torch.testing.assert_close(one[:, :CUT], other[:, :CUT], rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(("block", "causal"), [(Loop, True), (Prefix, True), (Ahead, False)])
def test_modules_with_a_batch_norm_are_refused_only_where_tokens_are_hidden(block, causal):
    if not causal:
        attach(language(block), "stepnet", example=text())
        return
    with pytest.raises(StepError, match="is causal"):
        attach(language(block), "stepnet", example=text())


def test_a_causal_step_with_several_positions_for_each_token_is_refused():
    config = transformers.ProphetNetConfig(
        vocab_size=WORDS,
        hidden_size=WIDTH,
        num_encoder_layers=1,
        num_decoder_layers=1,
        num_encoder_attention_heads=2,
        num_decoder_attention_heads=2,
        encoder_ffn_dim=24,
        decoder_ffn_dim=24,
    )
    model = transformers.ProphetNetModel(config).eval()
    given = {"input_ids": text(), "decoder_input_ids": text()[:, :7]}
    with pytest.raises(StepError, match="several for each token"):
        attach(model, "se", example=given)
    attach(model, "asr:se", example=given)
