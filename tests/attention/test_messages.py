"""What bad input gets: one sentence that ends with what to do."""

import pytest
import torch
from torch import nn

from attention.cases import ENTRIES, IMAGES_ONLY, MAPS_ONLY, WIDTH, made, named
from stiffnet import create_model
from stiffnet.attention import ATTENTION, Attention, register_attention
from stiffnet.errors import StepError, UnknownNameError
from stiffnet.network.attention_text import attach_text

REFUSED = [
    ("se", 64, {"reduction": 0}, StepError, r"`reduction` was 0; .* give 1 or more"),
    ("se", 64, {"rounding": "near"}, UnknownNameError, r"rounding called 'near'\. .*'nearest'"),
    ("eca", 64, {"kernel": 4}, StepError, r"`kernel` was 4; give an odd number"),
    ("sge", 48, {}, StepError, r"48 channels into 64 groups; multiples of 64 work, .*groups=48`"),
    ("sge", 130, {}, StepError, r"130 channels into 64 groups; .*takes `groups=26`"),
    ("sge", 64, {"groups": 0}, StepError, r"into 0 groups; .*takes `groups=64`"),
    ("fca", 24, {}, StepError, r"24 .* 16 frequencies; multiples of 16 work, .*'top8'`"),
    ("fca", 7, {"frequencies": "low4"}, StepError, r"multiples of 4 work, .*'low1'`"),
    ("fca", 64, {"frequencies": "tpo16"}, UnknownNameError, r"'tpo16'\. Did you mean 'top16'"),
    ("fca", 64, {"size": 4}, StepError, r"maps of side 4; `size` must be 7 or more"),
    ("stepnet", 64, {"input": "x_t1"}, UnknownNameError, r"'x_t1'\. Did you mean 'x_t\+1'"),
    ("stepnet", 64, {"adaptor": "papr"}, UnknownNameError, r"adaptor of StepNet called 'papr'"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "channels", "options", "error", "message"), REFUSED, ids=str)
def test_an_option_that_cannot_be_is_refused(name, channels, options, error, message):
    with pytest.raises(error, match=message):
        ATTENTION[name].value(channels, **options)


def test_every_width_that_a_message_offers_works():
    assert ATTENTION["sge"].value(130, groups=26).groups == 26
    assert ATTENTION["fca"].value(24, frequencies="top8").channels == 24


@pytest.mark.parametrize("entry", ENTRIES, ids=named)
def test_an_unknown_option_is_refused_with_the_nearest_name(entry):
    message = r"There is no option of \w+ called 'chanel_axis'\. Did you mean 'channel_axis'\?"
    with pytest.raises(UnknownNameError, match=message):
        entry.value(WIDTH, chanel_axis=1)


@pytest.mark.parametrize(
    ("name", "option", "value", "wanted"),
    [
        ("se", "bias", "False", "true or false"),
        ("se", "bias", 0, "true or false"),
        ("fca", "bias", "no", "true or false"),
        ("se", "reduction", "x", "a whole number"),
        ("se", "reduction", 2.5, "a whole number"),
        ("dia", "reduction", True, "a whole number"),
        ("eca", "kernel", "x", "a whole number"),
        ("sge", "groups", "x", "a whole number"),
    ],
)
@pytest.mark.parametrize("prefix", ["", "asr:"])
def test_a_value_of_another_type_is_refused_in_one_sentence(name, option, value, wanted, prefix):
    """Python takes any text for true, so that `bias=False` in a text gave a bias."""
    if prefix and name in ("sge", "dia"):
        pytest.skip("they are fed no constant")
    message = rf"^\w+ was given {option}={value!r}; give {wanted}\.$"
    with pytest.raises(StepError, match=message):
        ATTENTION[name].value(WIDTH, **{option: value})
    text = f"{prefix}{name},{option}={str(value).lower() if value is True else value}"
    with pytest.raises(StepError, match=message):
        attach_text(create_model("resnet20_cifar"), text, start="paper")


def test_an_option_that_is_like_no_other_gets_the_list():
    message = r"option of SE called 'x'\. Known: reduction, rounding, bias, channel_axis"
    with pytest.raises(UnknownNameError, match=message):
        ATTENTION["se"].value(WIDTH, x=1)


def test_an_unknown_module_is_refused_with_the_nearest_name():
    message = r"There is no attention module called 'stepnt'\. Did you mean 'stepnet'"
    with pytest.raises(UnknownNameError, match=message):
        ATTENTION["stepnt"]


@pytest.mark.parametrize("entry", ENTRIES, ids=named)
def test_a_width_of_nothing_and_a_strange_layout_are_refused(entry):
    with pytest.raises((StepError, ValueError), match="give it one or more"):
        entry.value(0)
    with pytest.raises(StepError, match="axis 2; `channel_axis` is 1 for images and -1 for tokens"):
        entry.value(WIDTH, channel_axis=2)


@pytest.mark.parametrize("name", sorted(IMAGES_ONLY))
def test_what_needs_an_image_refuses_tokens(name):
    message = r"works on images of shape \(N, C, H, W\), not on tokens; choose .* such as 'se'"
    with pytest.raises(StepError, match=message):
        ATTENTION[name].value(WIDTH, channel_axis=-1)


@pytest.mark.parametrize("name", sorted(MAPS_ONLY))
def test_what_needs_a_map_refuses_a_row_of_tokens(name):
    module = ATTENTION[name].value(WIDTH, channel_axis=-1)
    message = r"shape \(N, H, W, C\), and this one has shape \(2, 50, 64\); choose a module"
    with pytest.raises(StepError, match=message):
        module(torch.randn(2, 50, WIDTH))


@pytest.mark.parametrize("entry", ENTRIES, ids=named)
def test_a_rate_of_another_width_is_refused(entry):
    rate = torch.randn(2, 32, 8, 8)
    message = r"made for 64 channels along axis 1, and the rate has shape \(2, 32, 8, 8\); make it"
    with pytest.raises(StepError, match=message):
        made(entry)(rate, rate)


@pytest.mark.parametrize("entry", ENTRIES, ids=named)
def test_a_rate_without_positions_is_refused(entry):
    rate = torch.randn(2, WIDTH)
    with pytest.raises(StepError, match=r"this one has shape \(2, 64\); choose a module"):
        made(entry)(rate, rate)


def test_stepnet_asks_for_the_state_that_belongs_to_the_rate():
    module = ATTENTION["stepnet"].value(WIDTH)
    with pytest.raises(StepError, match="reads the state too; call it with the rate and the state"):
        module(torch.randn(2, WIDTH, 8, 8))
    message = r"a state of shape \(2, 64, 4, 4\) and a rate .* the two operands of one addition"
    with pytest.raises(StepError, match=message):
        module(torch.randn(2, WIDTH, 8, 8), torch.randn(2, WIDTH, 4, 4))


def test_no_constant_stands_for_a_map():
    with pytest.raises(StepError, match="no constant stands for it; choose a module with one step"):
        _ = ATTENTION["sge"].value(WIDTH).descriptor_shape


@pytest.fixture
def table(monkeypatch):
    monkeypatch.setattr(ATTENTION, "_entries", dict(ATTENTION._entries))
    return ATTENTION


class Half(Attention):
    """Always one half."""

    def describe(self, rate, state=None):
        return rate.mean(self.positions(rate))

    def excite(self, descriptor):
        return torch.full_like(descriptor, 0.5)


def test_users_enter_their_own_and_may_do_so_again(table):
    register_attention("half", Half)
    assert table["half"].summary == "Always one half."
    register_attention("half", Half, summary="a half")
    assert table["half"].summary == "a half"
    rate = torch.randn(2, 5, 3)
    assert torch.equal(table["half"].value(5)(rate), rate / 2)
    assert Half.parameter_count(5) == 0
    assert len(table) == len(ENTRIES) + 1


class Unfinished(Attention):
    def describe(self, rate, state=None):
        return rate


@pytest.mark.parametrize(
    ("name", "module", "message"),
    [
        ("se", Half, r"already an attention module called 'se'; choose another name"),
        ("asr:half", Half, r"cannot be called 'asr:half'; use lower-case letters"),
        ("mine", nn.Identity, r"Identity is not an attention module; derive it from .*`excite`"),
        ("mine", Half(3), r"is not an attention module; derive it from"),
        ("mine", Unfinished, r"Unfinished is unfinished; write its `excite`"),
    ],
    ids=str,
)
def test_what_cannot_be_entered_is_refused(table, name, module, message):
    with pytest.raises(StepError, match=message):
        register_attention(name, module)


@pytest.mark.parametrize("entry", ENTRIES, ids=named)
def test_what_its_authors_do_not_decay_is_named(entry):
    module = made(entry)
    exempt = module.no_weight_decay()
    assert exempt <= {name for name, _ in module.named_parameters()}
    assert (exempt == {"weight", "norm.weight", "norm.bias"}) == (entry.name == "srm")


def test_an_activation_that_does_not_exist_is_refused():
    module = ATTENTION["se"].value(WIDTH)
    module.activation = "relu"
    with pytest.raises(StepError, match="no activation relu; set 'sigmoid' or 'tanh'"):
        module(torch.randn(2, WIDTH, 8, 8))
