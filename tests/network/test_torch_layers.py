"""Torch's own attention layers: padding changes nothing, nor do later tokens in causal networks."""

import copy
import math

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import stiffnet
from stiffnet.attention import Attention
from stiffnet.errors import StepError
from stiffnet.network.attach import attach, detach
from stiffnet.trajectory.record import record
from tolerances import RTOL

WIDTH = 16
LENGTHS = (4, 7, 6)
pytestmark = pytest.mark.filterwarnings(
    "ignore:Support for mismatched",  # a boolean and a float mask
    "ignore:The PyTorch API of nested tensors",
    "ignore:enable_nested_tensor is True",
)


class Encoder(nn.Module):
    """Embedded words in torch's own encoder, which is told of padding under another name."""

    def __init__(self, *, batch_first=True, norm_first=True, hides="", words=True):
        super().__init__()
        torch.manual_seed(0)
        self.embed = nn.Embedding(40, WIDTH) if words else nn.Linear(3, WIDTH)
        layer = nn.TransformerEncoderLayer(
            WIDTH, 2, 32, dropout=0.0, batch_first=batch_first, norm_first=norm_first
        )
        self.layers = nn.TransformerEncoder(layer, 2)
        self.batch_first, self.hides = batch_first, hides

    def forward(self, x, left_out=None):
        length, x = x.shape[1], self.embed(x)
        mask = nn.Transformer.generate_square_subsequent_mask(length, dtype=x.dtype)
        given = {"mask": mask, "is_causal": self.hides == "said"} if self.hides else {}
        x = x if self.batch_first else x.transpose(0, 1)
        x = self.layers(x, src_key_padding_mask=left_out, **given)
        return x if self.batch_first else x.transpose(0, 1)


class Block(nn.Module):
    """A user's, around torch's attention layer."""

    def __init__(self, *, batch_first=True, feed_first=False):
        super().__init__()
        self.attend = nn.MultiheadAttention(WIDTH, 2, batch_first=batch_first)
        self.feed = nn.Sequential(nn.LayerNorm(WIDTH), nn.Linear(WIDTH, WIDTH), nn.GELU())
        self.norm, self.feed_first = nn.LayerNorm(WIDTH), feed_first

    def forward(self, x, quiet):
        if self.feed_first:
            x = x + self.feed(x)
        h = self.norm(x)
        x = x + self.attend(h, h, h, key_padding_mask=quiet, need_weights=False)[0]
        return x if self.feed_first else x + self.feed(x)


class Added(nn.Module):
    """A user's: the sum is in the code of a part of its own."""

    def __init__(self, part):
        super().__init__()
        self.part = part

    def forward(self, x, **told):
        return x + self.part(x, **told)


class Attend(nn.Module):
    def __init__(self, **options):
        super().__init__()
        self.inner = nn.MultiheadAttention(WIDTH, 2, **options)

    def forward(self, x, silent):
        return self.inner(x, x, x, silent)[0]


class Users(nn.Module):
    """A user's: padding is what has the number 0."""

    def __init__(self, kind="blocks", *, batch_first=True):
        super().__init__()
        torch.manual_seed(0)
        self.embed, self.batch_first = nn.Embedding(40, WIDTH), batch_first
        self.kind, options = kind, {"batch_first": batch_first}
        if kind == "sums":
            self.attends = nn.ModuleList(Added(Attend(**options)) for _ in range(2))
            self.feeds = nn.ModuleList(Added(nn.Linear(WIDTH, WIDTH)) for _ in range(2))
        else:
            first = kind == "feed first"
            self.blocks = nn.ModuleList(Block(feed_first=first, **options) for _ in range(2))

    def forward(self, x, left_out=None):
        padding, x = x == 0, self.embed(x)
        x = x if self.batch_first else x.transpose(0, 1)
        if self.kind == "sums":
            for attend, feed in zip(self.attends, self.feeds, strict=True):
                x = feed(attend(x, silent=padding))
        else:
            for block in self.blocks:
                x = block(x, padding)
        return x if self.batch_first else x.transpose(0, 1)


NETWORKS = {
    "before": lambda **options: Encoder(**options),
    "after": lambda **options: Encoder(norm_first=False, **options),
    "causal": lambda **options: Encoder(hides="mask", **options),
    "causal after": lambda **options: Encoder(hides="said", norm_first=False, **options),
    "numbers": lambda **options: Encoder(words=False, **options),
    "numbers causal": lambda **options: Encoder(words=False, hides="mask", **options),
    "blocks": lambda **options: Users(**options),
    "sums": lambda **options: Users("sums", **options),
}
CAUSAL = [name for name in NETWORKS if "causal" in name]


def shaken(model):
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "step_size" in name:
                parameter.add_(torch.randn(parameter.shape, generator=generator, dtype=float))
    return model


def rows(name):
    generator = torch.Generator().manual_seed(2)
    if "numbers" in name:
        return [torch.randn(n, 3, generator=generator, dtype=float) for n in LENGTHS]
    return [torch.randint(1, 40, (n,), generator=generator) for n in LENGTHS]


def padded(given, kind=torch.bool):
    """Rows in one batch, and a mask of torch's kind: True, or -inf, for padding."""
    x = nn.utils.rnn.pad_sequence(given, batch_first=True)
    mask = torch.arange(x.shape[1]) >= torch.tensor([[len(row)] for row in given])
    if kind is not torch.bool:
        mask = torch.zeros(mask.shape, dtype=kind).masked_fill(mask, -math.inf)
    return {"x": x, "left_out": mask}


def gated(name, kind="se"):
    model = NETWORKS[name]().double()
    return shaken(attach(model, kind, example={"x": torch.stack([rows(name)[1]] * 2)}))


def differ(one, other):
    return float(((one - other).abs().max() / other.abs().max()).detach())


@pytest.mark.parametrize("gradients", [False, True], ids=["fast", "slow"])
@pytest.mark.parametrize("kind", [torch.bool, torch.float64], ids=str)
@pytest.mark.parametrize("training", [False, True], ids=["eval", "train"])
@pytest.mark.parametrize("name", NETWORKS)
def test_padding_changes_nothing_for_the_tokens(name, training, kind, gradients):
    model, given = gated(name).train(training), rows(name)
    batch = padded(given, kind)
    with torch.set_grad_enabled(gradients):
        whole = model(**batch)
        if "numbers" in name:
            batch["x"] = torch.where(batch["left_out"][..., None] != 0, 7.0, batch["x"])
            other = model(**batch)
        for i, row in enumerate(given):
            alone = model(row[None])[0]
            assert differ(whole[i, : len(row)], alone) <= RTOL["batch64"]
            if "numbers" in name:
                assert differ(other[i, : len(row)], alone) <= RTOL["batch64"]


@pytest.mark.parametrize("training", [False, True], ids=["eval", "train"])
@pytest.mark.parametrize("kind", ["se", "eca", "ie", "sem", "dia"])
@pytest.mark.parametrize("name", CAUSAL)
def test_later_tokens_change_nothing_before_them(name, kind, training):
    model, x = gated(name, kind).train(training), rows(name)[1][None]
    assert all(m.tokens.causal for m in model.modules() if isinstance(m, Attention))
    other = x.clone()
    other[:, 4:] = 41 - other[:, 4:] if "numbers" in name else 40 - other[:, 4:]
    with torch.no_grad():
        one, two = model(x), model(other)
    assert differ(one[:, 4:], two[:, 4:]) > RTOL["norm"]
    assert differ(one[:, :4], two[:, :4]) <= RTOL["batch64"]


def recorded(model, given):
    with record(model) as recording, torch.no_grad():
        model(**given)
    return recording.trajectory


@pytest.mark.parametrize("attached", [False, True], ids=["plain", "attached"])
@pytest.mark.parametrize("kind", [torch.bool, torch.float64], ids=str)
@pytest.mark.parametrize("batch_first", [True, False], ids=["samples first", "tokens first"])
@pytest.mark.parametrize("name", NETWORKS)
def test_norms_are_those_of_a_sample_alone(name, batch_first, kind, attached):
    if attached and not batch_first:
        pytest.skip("modules are put on rates whose first axis counts the samples")
    model = gated(name) if attached else NETWORKS[name](batch_first=batch_first).double()
    given = rows(name)
    whole = recorded(model.eval(), padded(given, kind))
    for i, row in enumerate(given):
        alone = recorded(model, {"x": row[None]})
        for norms in ("state_norms", "rate_norms", "increment_norms"):
            one, other = (getattr(each, norms) for each in (whole, alone))
            torch.testing.assert_close(one[i], other[0], rtol=RTOL["batch64"], atol=0)


class Both(nn.Module):
    """Torch's whole transformer, of words and words, with a mask for each."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.embed = nn.Embedding(40, WIDTH)
        self.inner = nn.Transformer(WIDTH, 2, 2, 2, 32, 0.0, batch_first=True)

    def forward(self, words, wanted, left_out=None, unwanted=None):
        hides = nn.Transformer.generate_square_subsequent_mask(wanted.shape[1])
        return self.inner(
            self.embed(words), self.embed(wanted), tgt_mask=hides.bool(),
            src_key_padding_mask=left_out, memory_key_padding_mask=left_out,
            tgt_key_padding_mask=unwanted,
        )  # fmt: skip


@pytest.mark.parametrize("masked", ["both", "encoder"])
@pytest.mark.parametrize("training", [False, True], ids=["eval", "train"])
@pytest.mark.parametrize("lengths", [LENGTHS, (3, 5, 4)], ids=["one length", "other lengths"])
def test_an_encoder_and_a_decoder_have_a_mask_and_a_direction_each(lengths, training, masked):
    model, given = Both().double(), rows("")
    generator = torch.Generator().manual_seed(3)
    wanted = [torch.randint(1, 40, (n,), generator=generator) for n in lengths]
    if masked == "encoder":
        wanted = [torch.randint(1, 40, (max(lengths),), generator=generator) for _ in lengths]
    one, two = padded(given), padded(wanted)
    call = {"words": one["x"], "wanted": two["x"], "left_out": one["left_out"]}
    call |= {"unwanted": two["left_out"]} if masked == "both" else {}
    plain = recorded(model.eval(), call)
    attach(model, "se", example={"words": given[1][None], "wanted": wanted[1][None]})
    shaken(model).train(training)
    causal = [m.tokens.causal for m in model.modules() if isinstance(m, Attention)]
    assert causal == [False] * 4 + [True] * 6
    with torch.no_grad():
        whole = model(**call)
        for i, (row, target) in enumerate(zip(given, wanted, strict=True)):
            alone = model(row[None], target[None])[0]
            assert differ(whole[i, : len(target)], alone) <= RTOL["batch64"]
    detach(model.eval())
    for i, (row, target) in enumerate(zip(given, wanted, strict=True)):
        alone = recorded(model, {"words": row[None], "wanted": target[None]})
        torch.testing.assert_close(plain.state_norms[i], alone.state_norms[0], rtol=1e-9, atol=0)


def test_steps_before_the_layer_that_is_told_of_padding_refuse_it():
    model, given = Users("feed first").double(), padded(rows(""))
    whole = {"x": rows("")[1][None]}
    said = "An attention layer is told of padding that the steps before it were not told of"
    assert recorded(model, whole).state_norms.shape == (1, 4)
    with pytest.raises(StepError, match=said):
        recorded(model, given)
    attach(model, "se", example=whole)
    model(**whole)
    with pytest.raises(StepError, match=said):
        model(**given)


class Masked(nn.Module):
    """Hands on what it is given to torch's encoder, in one case by a misleading name."""

    def __init__(self):
        super().__init__()
        self.layers = Encoder().layers

    def forward(self, x, attention_mask=None, left_out=None, **told):
        left_out = attention_mask if left_out is None else left_out
        return self.layers(x, src_key_padding_mask=left_out, **told)


def test_masks_that_cannot_be_read_are_refused():
    torch.manual_seed(0)
    model, x = Masked().eval(), torch.rand(2, 5, WIDTH)
    left_out = torch.tensor([[0, 0, 0, 0, 0], [0, 0, 0, 1, 1]]).bool()
    cases = {
        "says that other tokens are padding": {"attention_mask": left_out},
        "neither 0 nor -inf": {"left_out": -1.0 * left_out},
        "hides some token from all others": {
            "mask": left_out.repeat_interleave(2, 0)[:, None].expand(4, 5, 5)
        },
    }
    for network in (model, attach(copy.deepcopy(model), "se", example=x)):
        for reason, told in cases.items():
            with pytest.raises(StepError, match=reason):
                recorded(network, {"x": x, **told})
        if network is not model:
            for reason, told in cases.items():
                with pytest.raises(StepError, match=reason):
                    network(x, **told)


def test_later_tokens_that_are_hidden_after_all_are_refused():
    model, x = Masked(), torch.rand(2, 5, WIDTH)
    attach(model, "se", example=x)
    model(x)
    hides = torch.ones(5, 5).triu(1).bool()
    for told in ({"mask": hides}, {"mask": hides, "is_causal": True}, {"mask": -1e9 * hides}):
        with pytest.raises(StepError, match="attach on an `example` that hides them"):
            model(x, **told)
    attach(detach(model), "se", example={"x": x, "mask": hides})
    assert all(m.tokens.causal for m in model.modules() if isinstance(m, Attention))
    model(x, mask=hides)
    packed = torch.block_diag(torch.ones(2, 2), torch.ones(3, 3)) == 0
    apart = torch.stack([hides, hides, packed | hides, packed | hides])
    with pytest.raises(StepError, match="as in packed sequences"):
        model(x, mask=apart)


def test_padding_is_refused_where_all_entries_count():
    model, x = NETWORKS["blocks"]().double().eval(), padded(rows(""))["x"]
    said = r"told that there is padding, which .* would count"
    with pytest.raises(StepError, match=said):
        stiffnet.spectrum(model, "blocks.0", x[:1])
    with pytest.raises(StepError, match=said):
        stiffnet.growth(model, x)


def test_a_report_and_stripes_leave_padding_out():
    model, given = gated("before").eval(), rows("before")
    whole = stiffnet.measure(model, [padded(given)])
    single = stiffnet.measure(model, [{"x": row[None]} for row in given])
    assert whole.tns == pytest.approx(single.tns, rel=RTOL["batch64"])
    whole, single = (
        stiffnet.stripes(model, loader)
        for loader in ([padded(given)], [{"x": row[None]} for row in given])
    )
    for name, values in whole.values.items():
        assert values == pytest.approx(single.values[name], rel=RTOL["norm"])


def test_an_encoder_runs_as_ever_when_its_modules_are_gone():
    model, given = NETWORKS["after"]().eval(), padded(rows("after"))
    assert model.layers.use_nested_tensor
    before = [dict(vars(m)) for m in model.modules()]
    with torch.no_grad():
        expected = model(**given)
        for kind in ("se", "asr:se"):
            attach(model, kind, start="identity", example={"x": given["x"][1:2]})
            assert differ(model(**given)[~given["left_out"]], expected[~given["left_out"]]) <= 1e-5
            detach(model)
        assert torch.equal(model(**given), expected)
    assert [set(vars(m)) for m in model.modules()] == [set(names) for names in before]
    assert not any(m._forward_pre_hooks or m._forward_hooks for m in model.modules())
    attach(model, "asr:se", example={"x": given["x"][1:2]})
    folded = stiffnet.fold(model, example={"x": given["x"][1:2]}, passes=0).model
    assert folded.layers.use_nested_tensor
    with torch.no_grad():
        tokens = ~given["left_out"]
        assert differ(folded(**given)[tokens], model(**given)[tokens]) <= 1e-5


def test_copies_hear_their_own_layers():
    model, given = gated("blocks"), rows("blocks")
    for other in (copy.deepcopy(model), attach(model, "ie", example={"x": given[1][None]})):
        with torch.no_grad():
            whole, alone = other(padded(given)["x"]), other(given[0][None])[0]
        assert differ(whole[0, : len(given[0])], alone) <= RTOL["batch64"]


class Rows(nn.Module):
    """A language model in plain torch: nothing in it takes a mask."""

    def __init__(self, *, hides=True, zero=False):
        super().__init__()
        torch.manual_seed(0)
        self.embed, self.mix = nn.Embedding(40, WIDTH), nn.Linear(WIDTH, 3 * WIDTH)
        self.out, self.hides = nn.Linear(WIDTH, WIDTH), hides
        if zero:
            nn.init.zeros_(self.out.weight)
            nn.init.zeros_(self.out.bias)

    def forward(self, x):
        x = self.embed(x)
        q, k, v = self.mix(x)[:, None].chunk(3, dim=-1)
        return x + self.out(F.scaled_dot_product_attention(q, k, v, is_causal=self.hides)[:, 0])


class Waves(nn.Module):
    """A causal convolution, samples × channels × time."""

    def __init__(self, *, hides=True):
        super().__init__()
        torch.manual_seed(0)
        self.conv, self.hides = nn.Conv1d(WIDTH, WIDTH, 3), hides

    def forward(self, x):
        return x + self.conv(F.pad(x, (2, 0) if self.hides else (1, 1))).relu()


@pytest.mark.parametrize("zero", [False, True], ids=["", "zero"])
@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16], ids=str)
def test_networks_that_take_no_mask_stay_causal(dtype, zero):
    x = torch.randint(0, 40, (2, 9))
    for hides in (True, False):
        model = attach(Rows(hides=hides, zero=zero).to(dtype), "se", example=x)
        [gate] = [m for m in model.modules() if isinstance(m, Attention)]
        assert (gate.tokens is not None) == hides
        assert bool(model.out.weight.any()) != zero
    with torch.no_grad():
        model = shaken(attach(Rows(), "se", example=x))
        other = torch.cat([x[:, :5], 39 - x[:, 5:]], dim=1)
        assert torch.equal(model(x)[:, :5], model(other)[:, :5])
    with pytest.raises(StepError, match="SRM reads the positions of step '' together"):
        attach(Rows(), "srm", example=x)


def test_causal_convolutions_stay_causal():
    x = torch.randn(2, WIDTH, 12)
    model = shaken(attach(Waves(), "se", example=x))
    other = torch.cat([x[..., :6], -x[..., 6:]], dim=-1)
    with torch.no_grad():
        assert differ(model(x)[..., :6], model(other)[..., :6]) <= RTOL["norm"]
    plain = attach(Waves(hides=False), "se", example=x)
    assert all(m.tokens is None for m in plain.modules() if isinstance(m, Attention))
    assert not any(m._forward_pre_hooks for m in plain.modules())


class Shifted(nn.Module):
    """Reads the token before; the first one reads the last."""

    def __init__(self):
        super().__init__()
        self.mix = nn.Linear(6, 6)

    def forward(self, x):
        return x + self.mix(x.roll(1, 1))


def test_a_shift_around_the_end_is_not_causal():
    model = attach(nn.Sequential(Shifted(), Shifted()), "se", example=torch.rand(2, 8, 6))
    assert [m.tokens for m in model.modules() if isinstance(m, Attention)] == [None, None]
