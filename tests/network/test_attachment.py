"""What is attached survives on paper: the same modules, the same outputs, or an error."""

import copy
import json

import pytest
import timm
import torch
from torch import nn

import stiffnet
from stiffnet.attention import Attention
from stiffnet.attention.se import SE
from stiffnet.errors import CheckpointError, CorruptFileError, StepError
from stiffnet.network.attach import attach, attached, detach
from stiffnet.network.attachment import attachment, reattach
from stiffnet.network.create import create_model
from stiffnet.sealed import sealed

IMAGES = torch.randn(2, 3, 32, 32, generator=torch.Generator().manual_seed(0))
SMALL = "resnet20_cifar"

CALLS = {
    "se": [("se", {})],
    "options and steps": [("se", {"reduction": 4, "where": "layer3.*"})],
    "names": [("eca", {"where": ["layer1.2", "layer3.0"]})],
    "predicate": [("srm", {"where": lambda step: step.stage == 1})],
    "identity": [("stepnet", {"start": "identity"})],
    "constant": [("asr:se", {"depth": 2, "init": "normal:0.1"})],
    "constant, not by text": [(stiffnet.asr("ie", learnable=False, weights=0.5), {})],
    "class": [(SE, {"reduction": 8})],
    "shared": [("dia", {})],
    "norms": [("iebn", {"where": "layer2.*"})],
    "constant norms": [("asr:iebn", {})],
    "one behind the other": [("asr:se", {}), ("se", {"where": "layer1.*"}), ("iebn", {})],
}


def scrambled(model):
    """Give every tensor a value that no fresh network has."""
    chance = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for tensor in model.state_dict().values():
            if tensor.is_floating_point():
                tensor.copy_(tensor + 0.05 * torch.rand(tensor.shape, generator=chance))
    return model.eval()


def gated(calls, name=SMALL):
    model = create_model(name, num_classes=3).eval()
    for module, options in calls:
        attach(model, module, **options)
    return scrambled(model)


@pytest.mark.parametrize("calls", CALLS.values(), ids=list(CALLS))
def test_a_round_trip_gives_the_same_bits(calls):
    model = gated(calls)
    record = json.loads(json.dumps(attachment(model), sort_keys=True))
    fresh = create_model(SMALL, num_classes=3, seed=1).eval()
    torch.manual_seed(3)
    random = torch.get_rng_state()
    assert reattach(fresh, record) is fresh
    assert torch.equal(torch.get_rng_state(), random)
    fresh.load_state_dict(model.state_dict(), strict=True)
    assert attached(fresh) == attached(model)
    assert attachment(fresh) == attachment(model)
    with torch.no_grad():
        assert torch.equal(fresh(IMAGES), model(IMAGES))


@pytest.mark.parametrize("name", ["vgg19_cifar", "test_vit"])
def test_positions_and_tokens_too(name):
    model = gated([("asr:se", {})], name)
    fresh = reattach(create_model(name, num_classes=3).eval(), attachment(model))
    fresh.load_state_dict(model.state_dict(), strict=True)
    size = 32 if name == "vgg19_cifar" else 160
    images = torch.nn.functional.interpolate(IMAGES, size)
    with torch.no_grad():
        assert torch.equal(fresh(images), model(images))


class Twice(nn.Module):
    """Runs its first block again at the end."""

    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(3, 4, 1)
        self.blocks = nn.ModuleList([Residual(), Residual()])

    def forward(self, images):
        first, second = self.blocks
        return first(second(first(self.stem(images))))


class Residual(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Conv2d(4, 4, 3, padding=1)

    def forward(self, state):
        return state + self.layer(state).relu()


@pytest.mark.parametrize("module", ["se", "asr:se"])
def test_blocks_that_run_again_too(module):
    model = scrambled(attach(Twice(), module, example=IMAGES))
    record = attachment(model)
    assert record["modules"][0]["at"] == ["blocks.0", "blocks.0#1", "blocks.1"]
    fresh = reattach(Twice().eval(), record, example=IMAGES)
    fresh.load_state_dict(model.state_dict(), strict=True)
    with torch.no_grad():
        assert torch.equal(fresh(IMAGES), model(IMAGES))


class Wrapper(nn.Module):
    def __init__(self, model):
        super().__init__()
        self.inner = nn.ModuleDict({"net": model, "other": nn.Linear(2, 2)})


def test_a_network_in_another_is_found_there():
    model = gated(CALLS["one behind the other"])
    wrapped = Wrapper(model)
    record = attachment(wrapped)
    assert {entry["inside"] for entry in record["modules"]} == {"inner.net"}
    fresh = Wrapper(create_model(SMALL, num_classes=3).eval())
    reattach(fresh, record).load_state_dict(wrapped.state_dict(), strict=True)
    with torch.no_grad():
        assert torch.equal(fresh.inner["net"](IMAGES), model(IMAGES))


def test_copies_and_pickles_remember(tmp_path):
    model = gated(CALLS["options and steps"])
    assert attachment(copy.deepcopy(model)) == attachment(model)
    torch.save(model, tmp_path / "model.pt")
    assert attachment(torch.load(tmp_path / "model.pt", weights_only=False)) == attachment(model)


def test_what_stays_after_folding_is_written_down():
    model = gated([("asr:se", {}), ("se", {})])
    left = stiffnet.fold(model, IMAGES, passes=0).model
    [entry] = attachment(left)["modules"]
    assert entry["module"] == "se"
    fresh = reattach(create_model(SMALL, num_classes=3).eval(), attachment(left))
    fresh.load_state_dict(left.state_dict(), strict=True)
    with torch.no_grad():
        assert torch.equal(fresh(IMAGES), left(IMAGES))


def test_frozen_attention_is_written_down_as_the_constant_that_it_is():
    labels = torch.zeros(2, dtype=torch.long)
    frozen = stiffnet.freeze_attention(gated(CALLS["se"]), [(IMAGES, labels)])
    record = attachment(frozen)
    assert record["modules"][0]["module"] == "asr:vector"
    fresh = reattach(create_model(SMALL, num_classes=3).eval(), record)
    fresh.load_state_dict(frozen.state_dict(), strict=True)
    with torch.no_grad():
        assert torch.equal(fresh(IMAGES), frozen(IMAGES))


def test_modules_that_are_there_already_are_left():
    model = gated(CALLS["se"])
    before = copy.deepcopy(model.state_dict())
    reattach(model, attachment(model))
    assert all(torch.equal(before[key], value) for key, value in model.state_dict().items())
    other = attachment(gated(CALLS["names"]))
    with pytest.raises(CheckpointError, match="has other modules attached than the attachment"):
        reattach(model, other)


def test_nothing_cannot_be_written_down():
    with pytest.raises(StepError, match=r"Nothing is attached to .*nothing to write down"):
        attachment(create_model(SMALL))


class Mine(SE):
    """A module that nobody registered."""


def test_a_module_without_a_name_cannot_be_written_down():
    model = attach(create_model(SMALL), Mine)
    with pytest.raises(StepError, match=r"\(Mine\) has no name .*register_attention"):
        attachment(model)


class Odd(SE):
    def __init__(self, channels, *, channel_axis=1, how=None):
        super().__init__(channels, channel_axis=channel_axis)


def test_an_option_that_is_not_plain_cannot_be_written_down(monkeypatch):
    monkeypatch.setattr(
        "stiffnet.attention.ATTENTION._entries", dict(stiffnet.attention.ATTENTION._entries)
    )
    stiffnet.register_attention("odd", Odd)
    for how in (object(), {16: 2.0}, {"sizes": (1, 2)}):  # JSON has words for keys, and no tuples
        model = attach(create_model(SMALL), "odd", how=how)
        with pytest.raises(StepError, match="The options of 'odd' cannot be written down"):
            attachment(model)
    for how in ({"16": 2.0}, [1, [2.5, None]], "word", True):
        model = attach(create_model(SMALL), "odd", how=how)
        assert attachment(model)["modules"][0]["options"] == {"how": how}


def changed(record, **facts):
    other = copy.deepcopy(record)
    other["modules"][0] |= facts
    return other


@pytest.mark.parametrize(
    "harm",
    [
        lambda record: changed(record, module="eca"),
        lambda record: changed(record, options={"reduction": 2}),
        lambda record: changed(record, at=record["modules"][0]["at"][:-1]),
        lambda record: {**record, "modules": []},
        lambda record: {key: value for key, value in record.items() if key != "sha256"},
        lambda record: {**record, "format": "stiffnet attachment, version 2"},
        lambda record: {},
        lambda record: None,
        lambda record: [record],
        lambda record: {**record, "more": object()},
    ],
)
def test_an_altered_attachment_is_an_error_and_changes_nothing(harm):
    record = attachment(gated(CALLS["se"]))
    fresh = create_model(SMALL, num_classes=3)
    with pytest.raises(CorruptFileError, match="is not an attachment as it was written down"):
        reattach(fresh, harm(record))
    assert not attached(fresh)


def resealed(record):
    return json.loads(sealed({key: value for key, value in record.items() if key != "sha256"}))


@pytest.mark.parametrize(
    "harm",
    [
        lambda record: changed(record, module="nobody"),
        lambda record: changed(record, at=["layer9.0"]),
        lambda record: changed(record, inside="net"),
        lambda record: changed(record, options={"width": 3}),
        lambda record: changed(record, parameters=1),
        lambda record: changed(record, options={"where": "all"}),
    ],
)
def test_what_does_not_fit_the_network_is_an_error_and_changes_nothing(harm):
    calls = [("se", {}), ("eca", {})]
    record = attachment(gated(calls))
    swapped = {**record, "modules": record["modules"][::-1]}  # so that one is attached already
    fresh = create_model(SMALL, num_classes=3)
    own = {type(module) for module in fresh.modules()}
    for told in (harm(record), harm(swapped)):
        with pytest.raises(CheckpointError, match=r"cannot be attached to this .* again: "):
            reattach(fresh, resealed(told))
        assert not attached(fresh)
        assert {type(module) for module in fresh.modules()} == own


def test_a_smaller_network_is_refused():
    record = attachment(gated(CALLS["se"]))
    with pytest.raises(CheckpointError, match="No step of ResNet is called"):
        reattach(timm.create_model("test_resnet"), record)


def test_after_detaching_there_is_nothing_left_to_remember():
    model = detach(gated(CALLS["one behind the other"]))
    assert not any(hasattr(module, "attached_as") for module in model.modules())
    assert not any(isinstance(module, Attention) for module in model.modules())
