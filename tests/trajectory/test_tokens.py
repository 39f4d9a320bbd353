"""Padding is no part of a sentence: alone, or padded in a batch, it has the same norms."""

import pytest
import torch
import transformers
from torch import nn

from network.transformers_cases import DECODERS, ENCODER, ENCODERS, IMAGE, OTHERS, network
from stiffnet.errors import NonFiniteError, StepError
from stiffnet.observe.measure import measure
from stiffnet.results.stiffness import StiffnessReport
from stiffnet.trajectory.record import record
from stiffnet.trajectory.steps import steps
from tolerances import RTOL

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")

WIDTH = 16  # of all these networks
TEXT = [DECODERS[0], DECODERS[1], DECODERS[3], ENCODERS[0], ENCODERS[3]]
TWO = [case for case in OTHERS if case.reads == "both"]
LENGTHS = (6, WIDTH, 9)


def label(case):
    return case.name


def sentences(seed=0, lengths=LENGTHS):
    generator = torch.Generator().manual_seed(seed)
    return [torch.randint(3, 40, (length,), generator=generator) for length in lengths]


def padded(rows, side="right"):
    """Tokens, their mask and their positions."""
    longest = max(map(len, rows))
    ids = torch.zeros(len(rows), longest, dtype=torch.long)
    mask = torch.zeros_like(ids)
    for i, row in enumerate(rows):
        where = slice(0, len(row)) if side == "right" else slice(longest - len(row), longest)
        ids[i, where], mask[i, where] = row, 1
    return ids, mask, (mask.cumsum(1) - 1).clamp(min=0)


def batch(rows, side="right", prefix="", **more):
    ids, mask, places = padded(rows, side)
    made = {f"{prefix}input_ids": ids, f"{prefix}attention_mask": mask}
    return made | ({"position_ids": places} if side == "left" else {}) | more


def recorded(model, given, found=None):
    with record(model, found) as recording, torch.no_grad():
        model(**given)
    return recording.trajectory


def agree(whole, alone, rows):
    for name in ("state_norms", "rate_norms", "increment_norms"):
        together, singly = getattr(whole, name), [getattr(each, name) for each in alone]
        expected = torch.cat(singly)
        assert together.shape == expected.shape == (len(rows), len(whole.steps))
        torch.testing.assert_close(together, expected, rtol=RTOL["batch64"], atol=0)


@pytest.mark.parametrize("side", ["right", "left"])
@pytest.mark.parametrize("case", TEXT, ids=label)
def test_a_sentence_has_the_norms_that_it_has_alone(case, side):
    if side == "left" and case.name == "DistilBert":
        pytest.skip("takes no positions, so that padding on the left changes the network itself")
    model, rows = network(case).double(), sentences()
    whole = recorded(model, batch(rows, side))
    agree(whole, [recorded(model, batch([row], side)) for row in rows], rows)
    found = steps(model, batch(rows[:1]))  # of no padding, and another length
    agree(recorded(model, batch(rows, side), found), [whole], rows)


@pytest.mark.parametrize("case", TWO, ids=label)
@pytest.mark.parametrize("lengths", [(4, 11, 5), (WIDTH, 2, 3)])
def test_each_of_two_sequences_has_its_own_padding(case, lengths):
    """In the second case both are as long as the states are wide."""
    model, rows, targets = network(case).double(), sentences(), sentences(1, lengths)

    def both(some, others):
        return batch(some) | batch(others, prefix="decoder_")

    whole = recorded(model, both(rows, targets))
    alone = [recorded(model, both([a], [b])) for a, b in zip(rows, targets, strict=True)]
    agree(whole, alone, rows)


def test_a_decoder_without_a_mask_is_not_given_the_encoders():
    model, rows = network(TWO[0]).double(), sentences()
    targets = torch.stack(sentences(1, (WIDTH,) * 3))
    whole = recorded(model, batch(rows, decoder_input_ids=targets))
    alone = [
        recorded(model, batch([row], decoder_input_ids=target[None]))
        for row, target in zip(rows, targets, strict=True)
    ]
    agree(whole, alone, rows)


def clip():
    torch.manual_seed(0)
    text = ENCODER | {"eos_token_id": 2, "bos_token_id": 1}
    config = transformers.CLIPConfig(text_config=text, vision_config=IMAGE, projection_dim=8)
    return transformers.CLIPModel(config).eval().double()


def test_padding_of_a_text_is_none_of_the_image_beside_it():
    """The image has as many patches as the text has tokens, 4 × 4 and one more."""
    model, rows = clip(), sentences(lengths=(5, 17, 9))
    images = torch.rand(3, 3, 32, 32, dtype=torch.float64)
    whole = recorded(model, batch(rows, pixel_values=images))
    assert {step.shape for step in whole.steps} == {(17, WIDTH)}
    alone = [
        recorded(model, batch([row], pixel_values=image[None]))
        for row, image in zip(rows, images, strict=True)
    ]
    agree(whole, alone, rows)


def test_a_report_on_padded_sentences_is_that_on_single_ones():
    model, rows = network(ENCODERS[0]), sentences(lengths=(6, 16, 9, 3, 11))
    padded_report = measure(model.double(), [batch(rows[:3]), batch(rows[3:])])
    single = measure(model, [batch([row]) for row in rows])
    columns = ["nsi_mean", "nsi_std", "nsi_median", "increment_mean"]
    for column in columns:
        one, other = padded_report.to_frame()[column], single.to_frame()[column]
        assert one.to_numpy() == pytest.approx(other.to_numpy(), rel=RTOL["batch64"])
    assert padded_report.tns == pytest.approx(single.tns, rel=RTOL["batch64"])
    assert padded_report.increment_total == pytest.approx(
        single.increment_total, rel=RTOL["batch64"]
    )
    again = StiffnessReport.from_row(padded_report.to_row())
    assert [step.state_at for step in again.steps] == [s.state_at for s in padded_report.steps]
    agree(recorded(model, batch(rows), again.steps), [recorded(model, batch(rows))], rows)


def test_without_a_mask_every_token_counts():
    model, (ids, *_) = network(ENCODERS[0]).double(), padded(sentences())
    whole = recorded(model, {"input_ids": ids})
    ones = recorded(model, {"input_ids": ids, "attention_mask": torch.ones_like(ids)})
    assert torch.equal(whole.state_norms, ones.state_norms)
    masked = recorded(model, batch(sentences()))
    assert not torch.allclose(whole.state_norms, masked.state_norms)


def test_a_pass_that_goes_on_from_a_cache_leaves_out_the_padding_of_its_own_tokens():
    model = network(DECODERS[1]).double()
    ids, mask, places = padded(sentences(lengths=(6, 9)), "left")
    found = steps(model, {"input_ids": ids, "attention_mask": mask})
    with torch.no_grad():
        first = model(input_ids=ids, attention_mask=mask, position_ids=places, use_cache=True)
        later = {
            "input_ids": torch.tensor([[7, 0], [8, 9]]),
            "attention_mask": torch.cat([mask, torch.tensor([[1, 0], [1, 1]])], dim=1),
            "position_ids": torch.tensor([[6, 6], [9, 10]]),
        }
        whole = recorded(model, later | {"past_key_values": first.past_key_values}, found)
        alone = model(input_ids=ids[:1, 3:], use_cache=True)
        single = recorded(
            model, {"input_ids": ids[:1, :1] * 0 + 7, "past_key_values": alone.past_key_values},
            found,
        )  # fmt: skip
    for name in ("state_norms", "rate_norms"):
        one, other = getattr(whole, name)[:1], getattr(single, name)
        torch.testing.assert_close(one, other, rtol=RTOL["batch64"], atol=0)


class Text(nn.Module):
    """One step on embedded tokens, and what goes wrong in it."""

    def __init__(self, *, length=None, every=1, spoilt=False):
        super().__init__()
        torch.manual_seed(0)
        self.embedding, self.layer = nn.Embedding(40, WIDTH), nn.Linear(WIDTH, WIDTH)
        self.length, self.every, self.spoilt = length, every, spoilt

    def forward(self, input_ids, attention_mask=None):
        if self.length is not None and input_ids.shape[1] != self.length:
            raise ValueError(f"not {self.length} tokens")
        x = self.embedding(input_ids)[:, :: self.every]
        if self.spoilt:
            x = torch.where(attention_mask[..., None] == 0, torch.nan, x)
        return x + self.layer(x)


def test_what_stands_at_padding_does_not_matter_at_all():
    found = recorded(Text(spoilt=True), batch(sentences()))
    torch.testing.assert_close(found.state_norms, recorded(Text(), batch(sentences())).state_norms)


@pytest.mark.parametrize(
    ("model", "reason"),
    [
        (Text(length=WIDTH), "runs on no other length, so that it is not proved which axis"),
        (Text(every=2), "there are 8 positions where the call has 16 tokens"),
    ],
)
def test_padding_that_cannot_be_told_is_refused(model, reason):
    whole = {key: value[1:2] for key, value in batch(sentences()).items()}
    assert recorded(model, whole).state_norms.shape == (1, 1)  # no padding in it
    with pytest.raises(StepError, match=rf"The batch has padding, .* {reason}.* without padding"):
        recorded(model, batch(sentences()))


def test_a_sentence_of_nothing_but_padding_is_named():
    given = batch(sentences())
    given["attention_mask"][1] = 0
    with pytest.raises(NonFiniteError, match=r"norm zero for sample 1\b"):
        measure(Text(), [given])
