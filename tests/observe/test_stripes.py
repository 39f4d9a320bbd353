"""Score, cost and spreads are what their definitions say, however the images come."""

import numpy as np
import pytest
import torch
from torch import nn

import stiffnet
from observe.gated_networks import Copy, Fixed, blocks, gated, images, seen
from stiffnet.errors import DataError, NonFiniteError, StepError
from stiffnet.observe.stripes import KeptImages, stripes
from tolerances import RTOL


def test_values_that_never_change_are_perfect_stripes_and_cost_nothing():
    report = stripes(gated(Fixed), [images()])
    assert len(report.modules) == 2
    for module in report.modules:
        assert module.score == 1
        assert module.cost == 0
        assert (module.value_std == 0).all()
        assert (module.values == [0.5, 2.0, 0.25, 1.0]).all()


def test_values_that_are_alike_in_every_channel_too():
    report = stripes(gated(Fixed, sizes=(0.5,) * 4), [images()])
    assert [(module.score, module.cost) for module in report.modules] == [(1, 0), (1, 0)]


def test_a_module_that_copies_its_input_has_its_spread():
    for module in stripes(gated(Copy), [images()]).modules:
        np.testing.assert_allclose(module.values, module.inputs, rtol=RTOL["sum64"])
        np.testing.assert_allclose(module.value_std, module.input_std, rtol=RTOL["sum64"])
        np.testing.assert_allclose(module.value_mean, module.input_mean, rtol=RTOL["sum64"])


def reference(rate, scaled):
    """Straight from the definitions, with everything in memory."""
    values = (rate * scaled).sum((2, 3)) / (rate * rate).sum((2, 3))
    means = values.mean(axis=0)
    frozen = rate * means[None, :, None, None]
    pooled = rate.mean((2, 3))
    return {
        "score": means.var() / values.var(),
        "cost": np.linalg.norm(scaled - frozen) / np.linalg.norm(scaled),
        "value_mean": means,
        "value_std": values.std(axis=0, ddof=1),
        "input_mean": pooled.mean(axis=0),
        "input_std": pooled.std(axis=0, ddof=1),
        "values": values,
        "inputs": pooled,
    }


@pytest.mark.parametrize("name", ["se", "eca", "srm", "dia", "stepnet", "cbam", "sge"])
@pytest.mark.parametrize("size", [1, 5])
def test_one_pass_in_any_batches_is_the_definition(name, size):
    options = {"sge": {"groups": 2}, "se": {"reduction": 1}}
    model = gated(name, **options.get(name, {}))
    with torch.no_grad():
        for parameter in model.parameters():  # away from a start that does not look at the input
            noise = torch.Generator().manual_seed(parameter.numel())
            parameter += 0.5 * torch.randn(parameter.shape, generator=noise, dtype=torch.float64)
    report = stripes(model, images().split(size))
    expected = seen(model, images())
    assert [module.step for module in report.modules] == list(expected)
    for module in report.modules:
        for key, value in reference(*expected[module.step]).items():
            np.testing.assert_allclose(getattr(module, key), value, rtol=RTOL["batch64"])
        assert module.spatial == (name in ("cbam", "sge"))


def test_the_cost_is_what_constant_attention_changes():
    """Freeze the module of a step, and look at what the step adds."""
    model = gated("eca", model=blocks(1))
    (module,) = stripes(model, [images()]).modules
    gate = model.get_submodule("0.step_size")
    means = torch.from_numpy(module.value_mean).reshape(1, -1, 1, 1)
    with torch.no_grad():
        added = model(images()) - images()
        handle = gate.register_forward_hook(lambda _, inputs, output: inputs[0] * means)
        frozen = model(images()) - images()
        handle.remove()
    np.testing.assert_allclose(
        (frozen - added).norm() / added.norm(), module.cost, rtol=RTOL["batch64"]
    )


def test_a_channel_without_a_rate_has_no_value_and_spoils_nothing():
    model = blocks(1)
    with torch.no_grad():
        model[0].conv.weight[2], model[0].conv.bias[2] = 0, 0
    (module,) = stripes(gated(Fixed, model=model), [images(6)]).modules
    assert module.silent == 6
    assert np.isnan(module.values[:, 2]).all()
    assert np.isnan(module.value_mean[2])
    assert (module.score, module.cost) == (1, 0)


def test_a_module_without_any_rate_has_no_score():
    model = blocks(1)
    nn.init.zeros_(model[0].conv.weight)
    nn.init.zeros_(model[0].conv.bias)
    report = stripes(gated(Fixed, model=model), [images(3)])
    assert np.isnan(report.to_frame()[["score", "cost", "value_mean"]]).all(axis=None)
    assert "NaN" not in report.to_json()


def test_labels_dictionaries_and_limits():
    model = gated("eca")
    pairs = [(images()[:7], torch.zeros(7)), (images()[7:], torch.zeros(5))]
    whole = stripes(model, pairs, limit=9)
    alone = stripes(model, [{"input": images()[:9], "labels": torch.zeros(9)}])
    assert whole.samples == alone.samples == 9
    for one, other in zip(whole.modules, alone.modules, strict=True):
        np.testing.assert_allclose(one.value_std, other.value_std, rtol=RTOL["merge"])


class Backwards(nn.Module):
    """Runs its blocks in another order than it names them."""

    def __init__(self):
        super().__init__()
        self.last, self.first = blocks()

    def forward(self, x):
        return self.last(self.first(x))


def test_modules_come_in_the_order_in_which_they_run():
    frame = stripes(gated("eca", model=Backwards()), [images()]).to_frame()
    assert list(frame["step"]) == ["first", "last"]
    assert set(frame["module"]) == {"eca"}


def test_the_network_is_left_as_it_was():
    model = gated("se").train()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    stripes(model, [images()])
    assert all(module.training for module in model.modules())
    assert not any(module._forward_hooks for module in model.modules())
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


@pytest.mark.parametrize("size", [1, 3, 100])
def test_kept_images_are_evenly_spread_in_any_batches(size):
    kept = KeptImages(10)
    for start in range(0, 100, size):
        kept.add(rows=np.arange(start, min(start + size, 100), dtype=float)[:, None])
    assert list(kept.number) == list(range(0, 100, 16))
    assert list(kept.rows["rows"][:, 0]) == list(kept.number)


def test_few_images_are_all_kept():
    report = stripes(gated("se"), [images()], keep=12)
    assert list(report.number) == list(range(12))
    assert report.values["0"].shape == (12, 4)


def test_a_network_without_modules_is_refused():
    with pytest.raises(StepError, match="Nothing is attached to Sequential"):
        stripes(blocks(), [images()])


def test_norms_that_look_at_the_input_are_refused():
    model = stiffnet.create_model("resnet20_cifar", num_classes=4, attention="iebn")
    with pytest.raises(StepError, match=r"\(iebn\) takes the place of norms"):
        stripes(model, [torch.rand(2, 3, 16, 16)])


def test_constant_attention_is_refused():
    with pytest.raises(StepError, match=r"\(asr:se\) gives every image the same values"):
        stripes(gated("asr:se"), [images()])


def test_constant_attention_beside_another_is_left_out():
    model = gated("se", model=gated("asr:se"))
    assert set(stripes(model, [images()]).to_frame()["module"]) == {"se"}


@pytest.mark.parametrize("loader", [[], [images(1)]], ids=["none", "one"])
def test_fewer_than_two_images_are_refused(loader):
    with pytest.raises(DataError, match=r"needs two or more\. Give it more"):
        stripes(gated("se"), loader)


@pytest.mark.parametrize("options", [{"limit": 1}, {"keep": 0}])
def test_senseless_numbers_are_refused(options):
    with pytest.raises(DataError, match=r"`(limit|keep)` is"):
        stripes(gated("se"), [images()], **options)


def test_a_batch_of_something_else_is_refused():
    with pytest.raises(DataError, match="A batch is a str"):
        stripes(gated("se"), ["images"])


def test_what_is_not_a_number_is_named():
    bad = images()
    bad[7] = torch.nan
    with pytest.raises(NonFiniteError, match=r"step '0' is NaN or infinite for image 7"):
        stripes(gated("se"), bad.split(5))


def test_a_step_that_runs_twice_is_refused():
    model = gated("se", model=blocks(1))
    with pytest.raises(StepError, match="gave 24 rows of values for 12 images"):
        stripes(nn.Sequential(model[0], model[0]), [images()])


@pytest.mark.parametrize("name", ["Bert", "GPT2"])
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
def test_padding_of_a_text_has_no_part_in_its_values(name):
    from network.test_token_gates import gated
    from network.transformers_cases import EVERY
    from trajectory.test_tokens import batch, sentences

    model = gated(next(case for case in EVERY if case.name == name))
    rows = sentences(lengths=(6, 16, 9, 4))
    together, single = stripes(model, [batch(rows)]), stripes(model, [batch([r]) for r in rows])
    for one, other in zip(together.modules, single.modules, strict=True):
        np.testing.assert_allclose(one.values, other.values, rtol=RTOL["batch64"])
        np.testing.assert_allclose(one.inputs, other.inputs, rtol=RTOL["sum64"])
        assert one.cost == pytest.approx(other.cost, rel=RTOL["batch64"])
        assert one.score == pytest.approx(other.score, rel=RTOL["batch64"])
        assert one.spatial == (name == "GPT2")
