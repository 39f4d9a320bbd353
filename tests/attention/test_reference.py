"""Every module against its formulas in NumPy, against timm's, and its published first gate."""

import math

import pytest
import torch
from timm.layers.cbam import CbamModule
from timm.layers.eca import EcaModule
from timm.layers.squeeze_excite import SEModule
from torch.testing import assert_close

from attention.cases import ENTRIES, WIDTH, made, named, pair, random, shaken
from reference import attention as reference
from stiffnet.attention import ATTENTION
from stiffnet.attention.fca import FCA, FREQUENCIES, chosen, cosines
from tolerances import RTOL


def numbers(module):
    return {name: tensor.numpy().copy() for name, tensor in module.state_dict().items()}


def agrees(out, expected):
    expected = torch.from_numpy(expected)
    scale = expected.abs().max().item()
    assert_close(out.detach(), expected, rtol=0.0, atol=RTOL["float64"] * scale)


@pytest.mark.parametrize("training", [False, True], ids=["evaluating", "training"])
@pytest.mark.parametrize("size", [(8, 15), (7, 7)], ids=str)
@pytest.mark.parametrize("entry", ENTRIES, ids=named)
def test_agrees_with_the_definition(entry, size, training):
    module = shaken(made(entry, 128)).train(training)
    rate, state = pair(3, 128, *size)
    gated = reference.GATED[entry.name]
    expected = gated(numbers(module), rate.numpy(), state.numpy(), training)
    agrees(module(rate, state), expected)


@pytest.mark.parametrize("entry", [ATTENTION["srm"], ATTENTION["sge"]], ids=named)
def test_a_single_position_has_no_deviation(entry):
    module = shaken(made(entry))
    rate, state = pair(3, WIDTH, 1, 1)
    expected = reference.GATED[entry.name](numbers(module), rate.numpy(), state.numpy(), False)
    agrees(module(rate, state), expected)


@pytest.mark.parametrize("reads", ["x_t", "x_t+1", "difference", "both"])
@pytest.mark.parametrize("adaptor", ["paper", "separate", "shared", "narrow", "bare"])
@pytest.mark.parametrize("training", [False, True], ids=["evaluating", "training"])
def test_every_form_of_stepnet_agrees_with_its_definition(reads, adaptor, training):
    module = shaken(made(ATTENTION["stepnet"], input=reads, adaptor=adaptor)).train(training)
    rate, state = pair(4, WIDTH, 3, 4)
    expected = reference.stepnet(
        numbers(module), rate.numpy(), state.numpy(), training, reads=reads, adaptor=adaptor
    )
    agrees(module(rate, state), expected)


SIGMOID_OF_MINUS_ONE = 1 / (1 + math.e)
FIRST = {
    "srm": 0.5, "ie": SIGMOID_OF_MINUS_ONE, "iebn": SIGMOID_OF_MINUS_ONE,
    "sge": 1 / (1 + math.exp(-1)), "stepnet": SIGMOID_OF_MINUS_ONE,
}  # fmt: skip
OF_NOTHING = {"eca": 0.5, "fca": 0.5, "spa": 0.5, "cbam": 0.25}


@pytest.mark.parametrize("training", [False, True], ids=["evaluating", "training"])
@pytest.mark.parametrize("name", FIRST)
def test_the_first_gate_is_the_published_one_for_every_input(name, training):
    module = made(ATTENTION[name]).double().train(training)
    factor = module.step_size(*pair(3, WIDTH, 8, 8))
    assert_close(factor, torch.full_like(factor, FIRST[name]), rtol=RTOL["float64"], atol=0.0)


@pytest.mark.parametrize("name", OF_NOTHING)
def test_the_first_gate_of_a_rate_of_zero_is_the_sigmoid_of_zero(name):
    factor = made(ATTENTION[name]).step_size(torch.zeros(2, WIDTH, 8, 8))
    assert torch.equal(factor, torch.full_like(factor, OF_NOTHING[name]))


def test_cbam_looks_at_every_position_alike_at_first():
    module = made(ATTENTION["cbam"]).double()
    rate = random(2, WIDTH, 8, 8)
    assert torch.equal(module.locate(rate), torch.full((2, 1, 8, 8), 0.5, dtype=torch.float64))


def test_cbams_spatial_half_follows_its_statistics_slowly_and_starts_wide():
    module = made(ATTENTION["cbam"]).double()
    rate = random(4, WIDTH, 8, 8)
    gated = rate * module.spread(module.gate(module.describe(rate)), rate)
    maps = torch.stack([gated.amax(1), gated.mean(1)], dim=1)
    mean = module.conv(maps).mean()
    module(rate)
    assert_close(module.norm.running_mean, mean[None] / 100, rtol=RTOL["batch64"], atol=0.0)
    assert module.conv.weight.std().item() == pytest.approx(math.sqrt(2 / 49), rel=0.2)


def test_se_is_timms_at_equal_width():
    module = shaken(made(ATTENTION["se"]))
    theirs = SEModule(WIDTH, rd_channels=WIDTH // 16).double()
    with torch.no_grad():
        for ours, layer in ((module.mlp.fc1, theirs.fc1), (module.mlp.fc2, theirs.fc2)):
            layer.weight.copy_(ours.weight[:, :, None, None])
            layer.bias.copy_(ours.bias)
    rate = random(2, WIDTH, 8, 8)
    assert_close(module(rate), theirs(rate) * module.unit, rtol=RTOL["float64"], atol=0.0)


@pytest.mark.parametrize("channels", [8, 64, 100, 512, 2048])
def test_eca_is_timms(channels):
    module = shaken(made(ATTENTION["eca"], channels))
    theirs = EcaModule(channels).double()
    theirs.load_state_dict({"conv.weight": module.conv.weight})
    rate = random(2, channels, 3, 3)
    assert_close(module(rate), theirs(rate) * module.unit, rtol=RTOL["float64"], atol=0.0)


def test_cbam_is_timms_with_its_two_maps_exchanged():
    module = shaken(made(ATTENTION["cbam"]))
    module.unit.fill_(1.0)
    theirs = CbamModule(WIDTH, mlp_bias=True).double().eval()
    with torch.no_grad():
        for ours, layer in (
            (module.mlp.fc1, theirs.channel.fc1),
            (module.mlp.fc2, theirs.channel.fc2),
        ):
            layer.weight.copy_(ours.weight[:, :, None, None])
            layer.bias.copy_(ours.bias)
        theirs.spatial.conv.conv.weight.copy_(module.conv.weight.flip(1))
    theirs.spatial.conv.bn.load_state_dict(module.norm.state_dict())
    rate = random(2, WIDTH, 8, 8)
    assert_close(module(rate), theirs(rate), rtol=RTOL["batch64"], atol=0.0)


@pytest.mark.parametrize("length", [7, 8, 14, 32])
def test_the_cosines_of_one_line_are_orthonormal(length):
    basis = cosines(torch.arange(7), length, torch.float64)
    identity = torch.eye(7, dtype=torch.float64)
    assert_close(basis @ basis.T, identity, rtol=0.0, atol=RTOL["float64"])


@pytest.mark.parametrize("name", [f"{r}{n}" for r in FREQUENCIES for n in (1, 2, 4, 8, 16, 32)])
def test_every_choice_of_frequencies_is_a_set_on_the_grid(name):
    rows, columns = chosen(name)
    assert len(set(zip(rows, columns, strict=True))) == len(rows) == int(name[3:])
    assert set(rows) | set(columns) <= set(range(7))


def test_a_map_of_another_size_is_pooled_to_the_one_that_was_asked_for():
    fixed = shaken(made(ATTENTION["fca"], size=14))
    free = shaken(made(ATTENTION["fca"]))
    large = random(2, WIDTH, 28, 28)
    small = torch.nn.functional.avg_pool2d(large, 2)
    assert_close(fixed.describe(large), free.describe(small), rtol=RTOL["batch64"], atol=1e-12)


def test_a_checkpoint_knows_its_frequencies():
    low = shaken(made(ATTENTION["fca"], frequencies="low16"))
    other = made(ATTENTION["fca"]).double()
    other.load_state_dict(low.state_dict())
    rate = random(2, WIDTH, 8, 8)
    assert torch.equal(other(rate), low(rate))


def test_a_small_map_is_repeated_up_to_seven():
    module = shaken(made(ATTENTION["fca"]))
    rate = random(2, WIDTH, 1, 1)
    repeated = rate.expand(-1, -1, 7, 7)
    assert_close(module.describe(rate), module.describe(repeated), rtol=0.0, atol=1e-12)


def test_the_sum_over_the_root_of_the_positions_is_the_lowest_frequency():
    module = FCA(4, frequencies="low1").double()
    rate = random(2, 4, 9, 16)
    expected = rate.sum((2, 3)) / 12
    assert_close(module.describe(rate), expected, rtol=RTOL["batch64"], atol=0.0)
