"""Attention held at its mean over data."""

import copy

import pytest
import torch
from torch import nn

from stiffnet.errors import DataError, NonFiniteError, StepError
from stiffnet.fold.fold import fold
from stiffnet.network.attach import attached
from stiffnet.network.create import create_model
from stiffnet.network.step_sizes import step_sizes
from stiffnet.train.freeze import freeze_attention


def network(attention="se"):
    model = create_model("resnet20_cifar", num_classes=10, attention=attention).eval()
    torch.manual_seed(3)
    for name, parameter in model.named_parameters():
        if "step_size" in name:
            nn.init.normal_(parameter)
    return model


def batches(count=3):
    random = torch.Generator().manual_seed(4)
    return [
        (torch.randn(8, 3, 16, 16, generator=random), torch.arange(8) % 10) for _ in range(count)
    ]


@pytest.mark.parametrize("module", ["se", "dia", "stepnet"])
def test_every_gate_becomes_its_mean_over_the_images(module):
    model = network(module)
    frozen = freeze_attention(model, batches())
    values = step_sizes(model, batches())
    for sits in attached(frozen):
        expected = values[sits.at].double().mean(0)
        assert torch.allclose(
            frozen.get_submodule(sits.name).constant().double(), expected, rtol=1e-5
        )
    assert [sits.at for sits in attached(frozen)] == [sits.at for sits in attached(model)]
    assert all(sits.module == "asr:vector" for sits in attached(frozen))


def test_the_network_itself_stays_and_the_result_folds():
    model = network()
    before = copy.deepcopy(model.state_dict())
    frozen = freeze_attention(model, batches())
    assert all(torch.equal(before[name], tensor) for name, tensor in model.state_dict().items())
    x = batches()[0][0]
    plain = fold(frozen, x, passes=0).model
    create_model("resnet20_cifar", num_classes=10).load_state_dict(plain.state_dict())
    with torch.no_grad():
        expected = frozen(x)
        assert torch.allclose(plain(x), expected, atol=1e-5 * float(expected.abs().max()))
        assert not torch.allclose(model(x), expected, rtol=1e-2)


def test_recalibration_gives_the_norms_statistics_of_the_frozen_network():
    model = network()
    frozen = freeze_attention(model, batches())
    new = freeze_attention(model, batches(), recalibrate=True)
    images = torch.cat([images for images, _ in batches()])
    mean = torch.nn.functional.conv2d(images, new.conv1.weight, padding=1).mean((0, 2, 3))
    assert torch.allclose(new.bn1.running_mean, mean, atol=1e-5)
    assert not torch.allclose(new.layer3[2].bn2.running_mean, frozen.layer3[2].bn2.running_mean)
    assert torch.equal(new.conv1.weight, frozen.conv1.weight)


def test_fine_tuning_learns_the_weights_and_holds_the_gates():
    model = network()
    frozen = freeze_attention(model, batches())
    tuned = freeze_attention(model, batches(), epochs=2, learning_rate=0.05)

    def loss(net):
        with torch.no_grad():
            pairs = [nn.functional.cross_entropy(net.train()(x), y) for x, y in batches()]
        return sum(pairs)

    for sits in attached(tuned):
        one, other = (net.get_submodule(sits.name).psi for net in (tuned, frozen))
        assert torch.equal(one, other)
    assert loss(tuned) < loss(frozen)


def test_a_channel_that_is_zero_on_all_images_gets_one():
    model = network()
    with torch.no_grad():
        model.layer1[0].bn2.weight[2] = 0
        model.layer1[0].bn2.bias[2] = 0
    assert freeze_attention(model, batches()).layer1[0].step_size.constant()[2] == 1


@pytest.mark.parametrize(
    ("attention", "reason"),
    [
        (None, "has no attention that depends on its input"),
        ("asr:se", "has no attention that depends on its input"),
        ("sge,groups=16", "differs between positions"),
        ("iebn", r"'bn1' is a norm \(IEBN\)"),
    ],
)
def test_what_has_no_mean_is_refused(attention, reason):
    with pytest.raises(StepError, match=reason):
        freeze_attention(create_model("resnet20_cifar", attention=attention), batches(1))


def test_no_images_are_refused():
    for empty in ([], [(torch.zeros(0, 3, 16, 16), torch.zeros(0, dtype=torch.long))]):
        with pytest.raises(DataError, match="gave no images to take the mean over"):
            freeze_attention(network(), empty)


class OnlyOnce:
    """A loader that is no iterator, and has nothing left the second time."""

    def __init__(self, batches):
        self.batches = batches

    def __iter__(self):
        batches, self.batches = self.batches, []
        return iter(batches)


@pytest.mark.parametrize("options", [{"recalibrate": True}, {"epochs": 2}], ids=str)
def test_a_loader_that_can_be_read_once_only_is_refused_where_it_is_read_again(options):
    model, left = network(), iter(batches())
    before = copy.deepcopy(model.state_dict())
    with pytest.raises(DataError, match=r"list_iterator, which can be read once only.*list of"):
        freeze_attention(model, left, **options)
    assert len(list(left)) == 3  # none was taken
    with pytest.raises(DataError, match="gave no images when it was read again"):
        freeze_attention(model, OnlyOnce(batches()), **options)
    assert all(torch.equal(before[name], tensor) for name, tensor in model.state_dict().items())


def test_a_generator_will_do_for_the_means_alone():
    model = network()
    one, other = freeze_attention(model, iter(batches())), freeze_attention(model, batches())
    assert all(torch.equal(t, other.state_dict()[name]) for name, t in one.state_dict().items())


@pytest.mark.parametrize("bad", [torch.nan, torch.inf])
def test_an_image_that_is_no_number_is_named_and_not_left_out(bad):
    given = batches()
    given[1][0][2, 0, 0, 0] = bad
    with pytest.raises(NonFiniteError, match=r"step 'layer1.0' is NaN or infinite for image 10\."):
        freeze_attention(network(), given)


def test_a_module_that_runs_twice_has_no_one_value_for_an_image():
    model = network()
    model.layer1[1] = model.layer1[0]
    with pytest.raises(StepError, match=r"'layer1.0' ran more than once for a batch"):
        step_sizes(model, batches(1))
