"""How many parameters each module adds: its own formula, and the papers' totals."""

import pytest
import torch

from attention.cases import ENTRIES, named
from stiffnet.attention import ATTENTION
from stiffnet.attention.adaptors import ADAPTORS
from stiffnet.attention.asr import asr
from stiffnet.network.attach import attached
from stiffnet.network.create import create_model

WIDTHS = (64,) * 18 + (128,) * 18 + (256,) * 18  # the steps of a ResNet-164
NORMS = (16, *18 * (16, 16, 64), *18 * (32, 32, 128), *18 * (64, 64, 256))  # none of shortcuts
STAGES = (64, 128, 256)
PLAIN = {10: 1_704_154, 100: 1_727_284}  # post-activation, by number of classes
PREACT = {10: 1_703_258, 100: 1_726_388}


def count(module):
    return sum(parameter.numel() for parameter in module.parameters())


@pytest.mark.parametrize("channels", [64, 128, 192, 256, 2048])
@pytest.mark.parametrize("entry", ENTRIES, ids=named)
def test_the_formula_counts_what_is_there(entry, channels):
    with torch.device("meta"):
        module = entry.value(channels)
    norm = 2 * channels if module.replaces_norm else 0
    assert count(module) == entry.value.parameter_count(channels) + norm


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("se", {"reduction": 4}), ("se", {"bias": False}), ("se", {"reduction": 1000}),
        ("eca", {"kernel": 9}), ("cbam", {"bias": False, "reduction": 8}),
        ("fca", {"bias": True, "reduction": 2}), ("sem", {"reduction": 8}),
        ("sge", {"groups": 8}), ("spa", {"reduction": 32}), ("dia", {"reduction": 20}),
        *(("stepnet", {"input": reads, "adaptor": adaptor})
          for reads in ("x_t", "x_t+1", "difference", "both") for adaptor in ADAPTORS),
    ],
    ids=str,
)  # fmt: skip
def test_the_formula_follows_the_options(name, options):
    kind = ATTENTION[name].value
    assert kind.parameter_count(64, **options) == count(kind(64, **options))


@pytest.mark.parametrize("channels", [1, 3, 8, 24])
@pytest.mark.parametrize("name", ["se", "eca", "cbam", "srm", "ie", "sem", "spa", "dia", "stepnet"])
def test_narrow_and_odd_widths_have_a_formula_too(name, channels):
    kind = ATTENTION[name].value
    assert kind.parameter_count(channels) == count(kind(channels))
    rate = torch.randn(2, channels, 4, 4)
    assert kind(channels)(rate, rate).shape == rate.shape


@pytest.mark.parametrize("entry", ENTRIES, ids=named)
def test_the_steps_of_a_stage_share_a_cell_or_nothing(entry):
    kind = entry.value
    stage = torch.nn.ModuleList(kind.for_stage(64, 5))
    assert count(stage) == count(kind(64)) * (1 if kind.shares_cell else 5)
    assert len(set(stage)) == 5


def added(name, **options):
    kind = ATTENTION[name].value
    widths = NORMS if kind.replaces_norm else STAGES if kind.shares_cell else WIDTHS
    return sum(kind.parameter_count(width, **options) for width in widths)


ADDED = {  # modules.md, section 0: counted in the authors' code where there is some
    "ie": 16_128, "srm": 32_256, "se": 202_104, "cbam": 207_504, "eca": 234, "fca": 193_536,
    "spa": 2_128_896, "sge": 6_912, "sem": 242_820, "dia": 218_848, "iebn": 24_224,
    "stepnet": 48_384,
}  # fmt: skip


@pytest.mark.parametrize("name", ADDED)
def test_a_resnet164_grows_by_what_the_authors_code_adds(name):
    assert added(name) == ADDED[name]
    assert set(ADDED) == {entry.name for entry in ENTRIES}


# stepnet_table1.csv, column params_m: CIFAR10 (STL10 prints the same) and CIFAR100.
STEPNET = {
    "se": (1.91, 1.93), "cbam": (1.92, 1.94), "eca": (1.70, 1.73), "sem": (1.95, 1.97),
    "srm": (1.74, 1.76), "fca": (1.91, 1.93), "iebn": (1.73, 1.75), "stepnet": (1.75, 1.77),
}  # fmt: skip
# asr_table1.csv, column params_m: STL10 and CIFAR100.
ASR = {
    "ie": (1.72, 1.74), "srm": (1.74, 1.76), "cbam": (1.90, 1.93), "se": (1.91, 1.93),
    "dia": (1.92, 1.95), "spa": (3.83, 3.86),
}  # fmt: skip
# The two papers print different totals for one name; what brings ours to each.
LIKE_STEPNET = {"fca": {"bias": True}}  # prints SE's total, so its layers have SE's biases
LIKE_ASR = {"cbam": {"bias": False}}  # timm's form; the module's authors have biases
PRINTED = [
    pytest.param(name, printed, like.get(name, {}), id=f"{paper}-{name}")
    for paper, table, like in (("stepnet", STEPNET, LIKE_STEPNET), ("asr", ASR, LIKE_ASR))
    for name, printed in table.items()
]


def millions(name, backbone, **options):
    return [(backbone[classes] + added(name, **options)) / 1e6 for classes in (10, 100)]


@pytest.mark.parametrize("backbone", [PLAIN, PREACT], ids=["post", "pre"])
@pytest.mark.parametrize(("name", "printed", "options"), PRINTED)
def test_totals_on_a_resnet164_are_the_printed_ones(name, printed, options, backbone):
    assert millions(name, backbone, **options) == pytest.approx(printed, abs=0.01)


@pytest.mark.parametrize(
    ("name", "printed"), [("fca", STEPNET["fca"][0]), ("cbam", ASR["cbam"][0])]
)
def test_the_two_deviations_are_those_that_are_named(name, printed):
    assert abs(millions(name, PLAIN)[0] - printed) > 0.01


REDUCING = {"se": 16, "cbam": 16, "fca": 16, "sem": 16, "spa": 16, "dia": 4}


@pytest.mark.parametrize("channels", [8, 24, 40, 72, 120, 184])
@pytest.mark.parametrize("name", REDUCING)
def test_the_narrow_width_is_rounded_as_asked(name, channels):
    kind, reduction = ATTENTION[name].value, REDUCING[name]
    others = {"frequencies": "top8"} if name == "fca" else {}
    for rounding, hidden in (
        ("down", channels // reduction),
        ("nearest", round(channels / reduction)),  # as the ASR authors' code has it
    ):
        module = kind(channels, rounding=rounding, **others)
        widths = {m.fc1.out_features for m in module.modules() if hasattr(m, "fc1")}
        assert widths == {max(1, hidden)}
        assert kind.parameter_count(channels, rounding=rounding, **others) == count(module)


@pytest.mark.parametrize("name", REDUCING)
def test_the_printed_counts_are_those_of_both_roundings(name):
    assert added(name, rounding="nearest") == added(name, rounding="down")


def test_both_roundings_reach_a_network_and_a_constant():
    for given in ({}, {"rounding": "down"}, {"rounding": "nearest"}):
        inner = asr("se", **given)(24).inner[0]
        assert inner.mlp.fc1.out_features == (2 if given == {"rounding": "nearest"} else 1)
    text = "asr:se,rounding=nearest,where=layer1.0 + se,rounding=nearest,where=layer1.0"
    model = create_model("resnet20_cifar", num_classes=4, attention=text)
    assert {found.module for found in attached(model)} == {"asr:se", "se"}
