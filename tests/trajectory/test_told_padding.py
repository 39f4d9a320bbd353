"""Padding that a network is told of in an unusual way is left out too, or refused."""

import copy
import pickle

import pytest
import torch
import transformers
from torch import nn
from torch.nn import functional as F

import stiffnet
from network.test_token_gates import shaken
from stiffnet.errors import StepError
from stiffnet.trajectory.record import record
from stiffnet.trajectory.steps import steps
from tolerances import RTOL

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")

WIDTH, WORDS, TOKENS, REAL = 16, 40, 9, 5
SIZES = {"hidden_size": WIDTH, "num_hidden_layers": 2, "intermediate_size": 24}


def text(length=TOKENS, seed=0):
    return torch.randint(3, WORDS, (2, length), generator=torch.Generator().manual_seed(seed))


def mask(length=TOKENS, real=REAL):
    return torch.tensor([[1] * length, [1] * real + [0] * (length - real)])


def bert():
    torch.manual_seed(0)
    config = transformers.BertConfig(vocab_size=WORDS, num_attention_heads=2, **SIZES)
    return transformers.BertModel(config).eval()


def recorded(model, **given):
    with torch.no_grad(), record(model) as recording:
        model(**given)
    found = recording.trajectory
    return torch.stack([found.state_norms, found.rate_norms, found.increment_norms])


def agree(whole, alone):
    torch.testing.assert_close(whole[:, 1], alone[:, 0], rtol=RTOL["batch32"], atol=0)


def test_a_mask_that_a_network_does_not_hand_on_to_its_parts_counts():
    config = transformers.RwkvConfig(vocab_size=WORDS, attention_hidden_size=WIDTH, **SIZES)
    torch.manual_seed(0)
    model = transformers.RwkvForCausalLM(config).eval()
    whole = recorded(model, input_ids=text(), attention_mask=mask(), use_cache=False)
    agree(whole, recorded(model, input_ids=text()[1:, :REAL], use_cache=False))


class Twins(nn.Module):
    """Calls one encoder twice, each time with the arguments in a dictionary."""

    def __init__(self):
        super().__init__()
        self.encoder = bert()

    def forward(self, one, two):
        return self.encoder(**one)[0], self.encoder(**two)[0]


def test_two_sequences_by_the_same_names_have_a_length_each():
    model = Twins().eval()
    one = {"input_ids": text(), "attention_mask": mask()}
    two = {"input_ids": text(7, seed=1), "attention_mask": mask(7, 3)}
    alone = {"input_ids": text()[1:, :REAL]}, {"input_ids": text(7, seed=1)[1:, :3]}
    agree(recorded(model, one=one, two=two), recorded(model, one=alone[0], two=alone[1]))


class Own(nn.Module):
    """Knows by an argument of its own which tokens are there."""

    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(WORDS, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(2))

    def forward(self, ids, mask=None, lengths=None):
        if lengths is not None:
            mask = torch.arange(ids.shape[1]) < lengths[:, None]
        x = self.words(ids)
        for block in self.blocks:
            x = block(x, mask)
        return x


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.read = nn.Linear(WIDTH, 3 * WIDTH)

    def forward(self, x, there):
        there = None if there is None else there[:, None].bool()
        return x + F.scaled_dot_product_attention(*self.read(x).chunk(3, -1), attn_mask=there)


def own():
    torch.manual_seed(0)
    return Own().eval()


TOLD = {"mask": mask().bool(), "lengths": torch.tensor([TOKENS, REAL])}


@pytest.mark.parametrize("name", TOLD)
def test_padding_that_only_the_network_can_read_is_refused(name):
    given = {"ids": text(), name: TOLD[name]}
    with pytest.raises(StepError, match=f"`{name}` seems to say"):
        recorded(own(), **given)
    with pytest.raises(StepError, match=f"`{name}` seems to say"):
        stiffnet.growth(own(), given)
    model = shaken(stiffnet.attach(own(), "se", example=text()))
    with pytest.raises(StepError, match=f"`{name}` seems to say"):
        model(**given)
    assert not stiffnet.detach(model)._forward_pre_hooks


def test_a_mask_of_its_own_without_padding_is_taken():
    whole = {"mask": torch.ones(2, TOKENS, dtype=torch.bool), "lengths": torch.tensor([TOKENS] * 2)}
    plain = recorded(own(), ids=text())
    for name, value in whole.items():
        torch.testing.assert_close(recorded(own(), ids=text(), **{name: value}), plain)


def longformer():
    torch.manual_seed(0)
    config = transformers.LongformerConfig(
        vocab_size=WORDS, num_attention_heads=2, attention_window=4, pad_token_id=1, **SIZES
    )
    return transformers.LongformerModel(config).eval()


def test_padding_that_a_network_adds_by_itself_is_refused():
    alone = {"input_ids": text()[1:], "attention_mask": torch.ones(1, TOKENS, dtype=torch.long)}
    with pytest.raises(StepError, match=r"^The network lengthens its sequences"):
        recorded(longformer(), **alone)
    model = stiffnet.attach(longformer(), "se", example={"input_ids": text(8)})
    with pytest.raises(StepError, match="lengthens its sequences"):
        model(**alone)
    whole = F.pad(text(), (0, 3), value=1)
    longer = F.pad(whole, (0, 4), value=1)
    rows = [
        recorded(longformer(), input_ids=ids, attention_mask=(ids != 1).long())
        for ids in (whole, longer)
    ]
    torch.testing.assert_close(*rows, rtol=RTOL["batch32"], atol=0)


def test_a_copy_of_a_text_network_made_meanwhile_is_clean():
    model = bert()
    given = {"input_ids": text(), "attention_mask": mask()}
    with record(model, steps(model, given)) as recording:
        twin = pickle.loads(pickle.dumps(copy.deepcopy(model)))
        twin(**given)
        with pytest.raises(StepError, match="No forward pass has finished"):
            _ = recording.trajectory
