"""Modules on the tokens of a text: padding changes nothing, nor do later tokens in a decoder."""

import copy
import pickle
import re
from types import SimpleNamespace

import pytest
import torch
import transformers
from torch import nn

import stiffnet
from network.transformers_cases import DECODERS, ENCODERS, OTHERS, example, network
from stiffnet.attention import Attention
from stiffnet.attention.se import SE
from stiffnet.errors import StepError
from stiffnet.network import token_gates
from stiffnet.network.attach import attach, attached, detach
from tolerances import RTOL
from trajectory.test_tokens import batch, clip, sentences

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")

T5, BART = (case for case in OTHERS if case.reads == "both")
SOME_DECODERS = [DECODERS[0], DECODERS[1], DECODERS[3]]
MEANS = ["se", "eca", "ie", "sem", "dia"]


def label(case):
    return getattr(case, "name", str(case))


def gated(case, kind="se", **options):
    """A network whose steps are large and whose modules have learnt something, in float64."""
    model = network(case).double()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim > 1:
                parameter.mul_(10)
    attach(model, kind, example=example(case), **options)
    return shaken(model)


def shaken(model):
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "step_size" in name:
                parameter.add_(torch.randn(parameter.shape, generator=generator))
    return model


def without_dropout(model, training):
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0
        for name in ("dropout", "attention_dropout", "dropout_prob"):
            if isinstance(getattr(module, name, None), float):
                setattr(module, name, 0.0)
    return model.train(training)


def differ(one, other):
    return float((one - other).abs().max() / other.abs().max())


def last(model, given):
    with torch.no_grad():
        return model(**given).last_hidden_state


def worst_of_padding(model, side="right"):
    rows = sentences()
    whole, mask = last(model, given := batch(rows, side)), given["attention_mask"] == 1
    alone = [last(model, batch([row], side))[0] for row in rows]
    return max(differ(whole[i][mask[i]], single) for i, single in enumerate(alone))


def worst_of_later_tokens(model):
    ids = torch.stack(sentences(lengths=(9, 9)))
    other = ids.clone()
    other[:, 5:] = (other[:, 5:] + 7) % 37 + 3
    one, two = (last(model, {"input_ids": each}) for each in (ids, other))
    assert differ(one[:, 5:], two[:, 5:]) > RTOL["norm"]
    return differ(one[:, :5], two[:, :5])


@pytest.mark.parametrize("training", [False, True], ids=["eval", "train"])
@pytest.mark.parametrize("kind", MEANS)
@pytest.mark.parametrize("case", [*SOME_DECODERS[:2], ENCODERS[0]], ids=label)
def test_padding_changes_nothing(case, kind, training):
    model = without_dropout(gated(case, kind), training)
    assert worst_of_padding(model) <= RTOL["batch64"]
    assert worst_of_padding(model, "left") <= RTOL["batch64"]


@pytest.mark.parametrize("training", [False, True], ids=["eval", "train"])
@pytest.mark.parametrize("kind", MEANS)
@pytest.mark.parametrize("case", SOME_DECODERS, ids=label)
def test_later_tokens_change_nothing_before_them(case, kind, training):
    assert worst_of_later_tokens(without_dropout(gated(case, kind), training)) <= RTOL["batch64"]


def test_means_over_all_positions_would_break_both():
    decoder, encoder = gated(DECODERS[0]), gated(ENCODERS[0])
    for model in (decoder, encoder):
        for module in model.modules():
            if isinstance(module, Attention):
                module.tokens = None
    assert worst_of_padding(encoder) > 1e-3 < worst_of_later_tokens(decoder)


@pytest.mark.parametrize("kind", ["se", "stepnet"])
def test_an_encoder_reads_the_mean_of_its_tokens(kind):
    """Without padding it computes what a mean over all positions does."""
    model, (row, *_) = gated(ENCODERS[0], kind), sentences()
    assert worst_of_padding(model) <= RTOL["batch64"]
    found = last(model, batch([row]))
    for module in model.modules():
        if isinstance(module, Attention):
            assert not module.tokens.causal
            module.tokens = None
    assert torch.equal(found, last(model, batch([row])))


@pytest.mark.parametrize("kind", MEANS)
@pytest.mark.parametrize("case", [*SOME_DECODERS, ENCODERS[0]], ids=label)
def test_step_sizes_are_not_in_the_rate_also_where_each_token_has_its_own(case, kind):
    model, given = gated(case, kind), example(case)
    plain = detach(copy.deepcopy(model))
    trajectories = []
    for each in (plain, model):
        with stiffnet.record(each) as recording, torch.no_grad():
            each(**given)
        trajectories.append(recording.trajectory)
    before, after = trajectories
    assert all(step.gates for step in after.steps)
    assert differ(after.rate_norms[:, 0], before.rate_norms[:, 0]) <= RTOL["batch64"]
    assert differ(after.increment_norms[:, 0], before.increment_norms[:, 0]) > 1e-3


@pytest.mark.parametrize("case", [T5, BART], ids=label)
def test_two_sequences_have_a_mask_and_a_direction_each(case):
    model = gated(case)
    rows, targets = sentences(), sentences(1, (4, 16, 5))

    def both(some, others):
        return batch(some) | batch(others, prefix="decoder_")

    whole = last(model, given := both(rows, targets))
    for i, (row, target) in enumerate(zip(rows, targets, strict=True)):
        there = given["decoder_attention_mask"][i] == 1
        assert differ(whole[i][there], last(model, both([row], [target]))[0]) <= RTOL["batch64"]
    later = given["decoder_input_ids"].clone()
    later[:, 3:] = (later[:, 3:] + 7) % 37 + 3
    assert differ(last(model, given | {"decoder_input_ids": later})[:, :3], whole[:, :3]) <= 1e-12
    parts = [m.tokens.causal for m in model.modules() if isinstance(m, Attention)]
    assert parts == [False] * 4 + [True] * 6


def test_an_encoder_that_is_called_by_itself_reads_its_mask():
    model, rows = gated(T5), sentences()
    with torch.no_grad():
        encode = model.get_encoder()
        whole = encode(**batch(rows)).last_hidden_state
        alone = encode(**batch(rows[:1])).last_hidden_state
    assert differ(whole[:1, : len(rows[0])], alone) <= RTOL["batch64"]


def test_an_image_beside_a_text_is_read_whole():
    model, rows = clip(), sentences(lengths=(5, 17, 9))
    images = torch.rand(3, 3, 32, 32, dtype=torch.float64)
    attach(model, "se", example=batch(rows, pixel_values=images))
    shaken(model)
    tokens = {name: m.tokens for name, m in model.named_modules() if isinstance(m, Attention)}
    assert all((each is None) == name.startswith("vision") for name, each in tokens.items())
    with torch.no_grad():
        whole = model(**batch(rows, pixel_values=images))
        alone = model(**batch(rows[:1], pixel_values=images[:1]))
        features = model.get_text_features(**batch(rows))
        single = model.get_text_features(**batch(rows[:1]))
    assert differ(whole.logits_per_text[:1, :1], alone.logits_per_text) <= RTOL["batch64"]
    features, single = (getattr(each, "pooler_output", each) for each in (features, single))
    assert differ(features[:1], single) <= RTOL["batch64"]


@pytest.mark.parametrize("case", [c for c in OTHERS if c.reads == "images"][:6], ids=label)
def test_networks_of_images_are_attached_to_as_ever(case):
    model = network(case)
    attach(model, "se", example=example(case))
    gates = [m for m in model.modules() if isinstance(m, Attention)]
    assert gates
    assert all(gate.tokens is None for gate in gates)
    assert not any(m._forward_pre_hooks or m._forward_hooks for m in model.modules())


def language_model(**options):
    torch.manual_seed(0)
    config = transformers.GPT2Config(**DECODERS[0].config, bos_token_id=1, eos_token_id=None)
    model = transformers.GPT2LMHeadModel(config).eval().double()
    attach(model, "se", example={"input_ids": torch.stack(sentences(lengths=(6, 6)))}, **options)
    return shaken(model)


def test_what_is_generated_is_what_whole_passes_give_and_caches_are_refused():
    model, prompt = language_model(), torch.stack(sentences(lengths=(6, 6)))
    settings = {"max_new_tokens": 4, "do_sample": False, "pad_token_id": 0}
    made = model.generate(prompt, use_cache=False, **settings)
    tokens = prompt
    with torch.no_grad():
        for _ in range(4):
            tokens = torch.cat([tokens, model(tokens).logits[:, -1:].argmax(-1)], dim=1)
    assert torch.equal(made, tokens)
    with pytest.raises(StepError, match=r"beside a cache of keys and values.*`use_cache=False`"):
        model.generate(prompt, use_cache=True, **settings)


def test_copies_read_their_own_masks_and_hooks_go_when_modules_do():
    model = gated(ENCODERS[0])
    for other in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert worst_of_padding(other) <= RTOL["batch64"]
        assert differ(last(other, batch(sentences())), last(model, batch(sentences()))) <= 1e-12
        means = {id(m.tokens.calls) for m in other.modules() if isinstance(m, Attention)}
        assert len(means) == 1
        assert means.isdisjoint(id(m.tokens.calls) for m in model.modules() if hasattr(m, "tokens"))
    attach(model, "ie", example=example(ENCODERS[0]))
    assert len(attached(model)) == 8
    assert worst_of_padding(shaken(model)) <= RTOL["batch64"]
    detach(model)
    assert not any(m._forward_pre_hooks or m._forward_hooks for m in model.modules())


def test_a_pass_that_fails_leaves_no_call_open():
    model = gated(ENCODERS[0])
    with pytest.raises(IndexError):
        model(input_ids=torch.full((1, 4), 99), attention_mask=torch.tensor([[1, 1, 1, 0]]))
    assert all(m.tokens.calls.opened == [] for m in model.modules() if isinstance(m, Attention))


@pytest.mark.parametrize(
    ("case", "kind", "reason"),
    [
        (ENCODERS[0], "srm", "SRM reads the positions of step .* together, padding"),
        (DECODERS[0], "srm", "SRM reads the positions of step .* together, padding"),
        (DECODERS[0], "stepnet", r"batch norm, .* the network is causal.*`adaptor='narrow'`"),
        (ENCODERS[0], "iebn", r"reads all positions, and would read the padding.*'asr:iebn'"),
    ],
    ids=label,
)
def test_modules_that_would_read_padding_or_later_tokens_are_refused(case, kind, reason):
    model = network(case)
    kinds = [type(module) for module in model.modules()]
    with pytest.raises(StepError, match=reason):
        attach(model, kind, example=example(case))
    assert [type(module) for module in model.modules()] == kinds
    assert not any(m._forward_pre_hooks for m in model.modules())


def test_constants_and_narrow_adaptors_work_in_a_decoder():
    model = gated(DECODERS[0], "asr:se")
    assert worst_of_later_tokens(model) <= RTOL["batch64"]
    tokens = torch.stack(sentences(lengths=(6, 6)))
    with torch.no_grad():  # a constant reads no token, so that a cache is fine
        first = model(input_ids=tokens[:, :4], use_cache=True)
        later = model(input_ids=tokens[:, 4:], past_key_values=first.past_key_values)
    whole = last(model, {"input_ids": tokens})
    assert differ(later.last_hidden_state, whole[:, 4:]) <= RTOL["batch64"]
    assert worst_of_later_tokens(gated(DECODERS[0], "stepnet", adaptor="narrow")) <= 1e-9


class EachPosition(nn.Module):
    """A user's: scales every channel, and looks at nothing."""

    def __init__(self, channels, *, channel_axis=1):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(channels))

    def forward(self, rate):
        return rate * self.scale


class AllPositions(EachPosition):
    """A user's: nothing at first, and then the mean over positions."""

    def __init__(self, channels, *, channel_axis=1):
        super().__init__(channels)
        self.share = nn.Parameter(torch.zeros(()))

    def forward(self, rate):
        return rate + self.share * rate.mean(1, keepdim=True)


def test_modules_of_the_users_may_not_read_positions_together():
    attach(network(DECODERS[0]), EachPosition, example=example(DECODERS[0]))
    attach(network(OTHERS[2]), AllPositions, example=example(OTHERS[2]))  # of images
    with pytest.raises(StepError, match=r"AllPositions reads the positions of step 'h\.0' toget"):
        attach(network(DECODERS[0]), AllPositions, example=example(DECODERS[0]))


def test_sequences_too_short_to_tell_are_refused():
    with pytest.raises(StepError, match=r"sequences of 2 tokens, too few to see whether GPT2Model"):
        attach(network(DECODERS[0]), "se", example=example(DECODERS[0], length=2))


@pytest.mark.parametrize("case", [DECODERS[1], ENCODERS[0]], ids=label)
def test_checkpointing_with_padding_is_refused(case):
    model = without_dropout(gated(case), training=True)
    model.gradient_checkpointing_enable({"use_reentrant": False})
    whole = {k: v[1:2] for k, v in batch(sentences()).items()}
    model(**whole).last_hidden_state.sum().backward()  # all ones: no padding
    result = model(**batch(sentences())).last_hidden_state
    with pytest.raises(StepError, match=r"as gradient checkpointing runs it\. Turn checkpointing"):
        result.sum().backward()


def test_dia_says_that_checkpointing_runs_blocks_again():
    model = without_dropout(gated(DECODERS[1], "dia"), training=True)
    model.gradient_checkpointing_enable({"use_reentrant": False})
    result = model(**example(DECODERS[1])).last_hidden_state
    said = re.escape("Gradient checkpointing, which runs single blocks again, does this")
    with pytest.raises(StepError, match=said):
        result.sum().backward()


@pytest.mark.parametrize("case", [DECODERS[0], ENCODERS[0]], ids=label)
def test_half_precision_has_a_mean_of_many_tokens(case):
    model = gated(case).bfloat16()
    rows = sentences(lengths=(40, 64))
    found = last(model, batch(rows))
    expected = last(copy.deepcopy(model).double(), batch(rows))
    there = batch(rows)["attention_mask"] == 1
    assert differ(found[there].double(), expected[there]) <= 10 * RTOL["bfloat16"]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize(("case", "causal"), [(ENCODERS[0], False), (DECODERS[0], True)], ids=label)
def test_half_precision_tells_encoders_from_decoders(case, causal, dtype):
    """Weights that are fresh, and so small that other tokens change less than the largest digit."""
    model = attach(network(case).to(dtype), "se", example=example(case, length=40))
    assert {m.tokens.causal for m in model.modules() if isinstance(m, Attention)} == {causal}


def test_pairs_of_tokens_are_several_positions_for_each():
    pairs = SimpleNamespace(name="pairs", shape=(2, 5, 5, 8))
    with pytest.raises(StepError, match=r"has 25 positions .* several for each token"):
        token_gates._refuse_causal(pairs, SE(8, channel_axis=-1), (1, 2), [5])
