"""Spectra, growth and stripes of networks that read text: padding, and the words on their pages."""

import re

import numpy as np
import pytest
import torch

import stiffnet
from network.transformers_cases import DECODERS, ENCODERS, network
from stiffnet.errors import StepError
from stiffnet.observe.spectrum import spectra
from stiffnet.report.page import page
from stiffnet.trajectory.branch import branch

IDS = torch.randint(3, 40, (3, 6), generator=torch.Generator().manual_seed(0))
PADDED = torch.tensor([[1] * 6, [1] * 4 + [0] * 2, [1] * 6])
BERT, GPT2 = ENCODERS[0], DECODERS[0]


def square(mask, kind):
    """The same mask with four axes: which token reads which."""
    hidden = mask[:, None, None, :].expand(-1, 1, mask.shape[1], -1) == 0
    if kind is torch.bool:
        return ~hidden
    return torch.zeros(hidden.shape).masked_fill(hidden, torch.finfo(torch.float32).min)


@pytest.mark.parametrize("mask", [PADDED, square(PADDED, torch.bool)], ids=["2", "4"])
def test_padding_is_refused_where_it_would_be_counted(mask):
    model = network(BERT)
    words = "`attention_mask` says that there is padding, which .* Cut the padding off"
    with pytest.raises(StepError, match=words):
        stiffnet.growth(model, {"input_ids": IDS, "attention_mask": mask}, iterations=2)
    one = {"input_ids": IDS[1:2], "attention_mask": mask[1:2]}
    with pytest.raises(StepError, match=words):
        stiffnet.spectrum(model, "encoder.layer.0.attention.output", one)


def test_a_mask_without_padding_changes_nothing():
    model = network(GPT2)
    plain, masked = (
        stiffnet.growth(model, {"input_ids": IDS, **more}, iterations=3, draws=1)
        for more in ({}, {"attention_mask": torch.ones_like(IDS)})
    )
    assert plain.log_growth == pytest.approx(masked.log_growth, rel=1e-5)
    assert plain.facts["samples"] == "samples with text"


@pytest.mark.parametrize("kind", [torch.bool, torch.float32], ids=str)
def test_padding_in_a_mask_of_four_axes_is_refused_and_a_causal_one_is_not(kind):
    """Nothing of such a mask is read as padding, so none may be in it."""
    model = network(BERT)
    padded = {"input_ids": IDS, "attention_mask": square(PADDED, kind)}
    with pytest.raises(StepError, match="of BertModel has padding and does not say which tokens"):
        stiffnet.measure(model, [padded])
    causal = torch.ones(3, 1, 6, 6).tril().bool()
    if kind is not torch.bool:
        causal = torch.zeros(causal.shape).masked_fill(~causal, torch.finfo(torch.float32).min)
    assert stiffnet.measure(model, [padded | {"attention_mask": causal}]).samples == 3
    gated = stiffnet.attach(model, "se", example={"input_ids": IDS})
    with pytest.raises(StepError, match="an attached module would read it"):
        gated(**padded)
    with pytest.raises(StepError, match="hides tokens of a sequence from each other"):
        gated(**(padded | {"attention_mask": causal}))
    gated(input_ids=IDS, attention_mask=PADDED)


def _reading(real, *, causal, others):
    """Which token reads which, where padding reads itself, and the real tokens if `others`."""
    known = torch.as_tensor(real).bool()
    reads = torch.ones(len(known), len(known)).tril().bool() if causal else known.new_ones(1, 1)
    reads = reads & known & (others | known[:, None])
    return (reads | torch.eye(len(known)).bool())[None, None]


@pytest.mark.parametrize("others", [True, False], ids=["reads tokens", "reads itself alone"])
@pytest.mark.parametrize("causal", [True, False], ids=["causal", "both ways"])
@pytest.mark.parametrize("real", [[1, 1, 1, 1, 0, 0], [1, 0, 0, 0, 0, 0], [0, 1, 1, 1, 1, 1]])
def test_padding_that_reads_itself_is_refused(real, causal, others):
    mask = _reading(real, causal=causal, others=others)
    call = {"input_ids": IDS[:1], "attention_mask": mask}
    with pytest.raises(StepError, match="has padding and does not say which tokens"):
        stiffnet.measure(network(BERT), [call])


PART, BACK = torch.arange(6) // 3, torch.arange(6)[:, None] - torch.arange(6)


@pytest.mark.parametrize(
    "reads",
    [
        pytest.param(BACK >= 0, id="causal"),
        pytest.param((BACK >= 0) | (torch.arange(6) < 3), id="prefix"),
        pytest.param((BACK >= 0) & (BACK < 3), id="causal window"),
        pytest.param(BACK.abs() < 2, id="window"),
        pytest.param(PART[:, None] == PART, id="packed"),
        pytest.param((PART[:, None] == PART) & (BACK >= 0), id="packed, causal"),
    ],
)
def test_masks_that_hide_tokens_from_some_have_no_padding(reads):
    call = {"input_ids": IDS[:1], "attention_mask": reads[None, None]}
    assert stiffnet.measure(network(BERT), [call]).samples == 1


@pytest.mark.parametrize("step", ["h.1", "h.1#1"], ids=["attention", "mlp"])
def test_a_causal_step_has_the_eigenvalues_of_its_jacobian(step):
    """Its attention hides later tokens by scores of -inf."""
    model = network(GPT2).double()
    call = {"input_ids": IDS[:1]}
    found = stiffnet.spectrum(model, step, call)
    chosen = next(each for each in stiffnet.steps(model, call) if each.name == step)
    function = branch(model, chosen, call, of="increment")
    size = function.input.numel()
    whole = torch.autograd.functional.jacobian(function, function.input).reshape(size, size)
    expected = torch.linalg.eigvals(whole).numpy()
    assert found.count == size
    for part in (np.real, np.abs):
        one, other = (np.sort(part(values)) for values in (found.eigenvalues, expected))
        np.testing.assert_allclose(one, other, atol=1e-7 * np.abs(expected).max())


def test_nothing_on_the_pages_of_texts_says_images():
    model = stiffnet.attach(network(GPT2), "se", example={"input_ids": IDS})
    batch = {"input_ids": IDS, "attention_mask": PADDED}
    striped = stiffnet.stripes(model, [batch])
    grown = stiffnet.growth(model, {"input_ids": IDS}, iterations=2, draws=1)
    [first, *_] = stiffnet.steps(model, batch)
    found = spectra(model, [(i, {"input_ids": IDS[i : i + 1]}, None) for i in range(2)], [first])
    for result in (striped, grown, found, found.spectra[first.name][0]):
        text = page([result])
        body = re.sub(r"<(script|style)\b.*?</\1>", "", text[text.index("<main") :], flags=re.S)
        assert not re.search(r"\bimages?\b", re.sub(r"<[^>]*>", " ", body), flags=re.I)
        assert "samples" in body


def test_the_pages_of_images_say_images():
    model = stiffnet.create_model("resnet20_cifar", attention="se", seed=0)
    assert "images" in page([stiffnet.stripes(model, [torch.rand(4, 3, 8, 8)])])
