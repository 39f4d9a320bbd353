"""Average Grad-CAM: closed forms, an independent reference, invariances, nothing left behind."""

import sys

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

from reference.gradcam import grad_cam, integral
from stiffnet.errors import DataError, FeatureMapError, NonFiniteError
from stiffnet.observe.gradcam import gradcam
from tolerances import RTOL


class Net(nn.Module):
    """Convolutions, a mean over positions, and two layers on top, so that gradients differ."""

    def __init__(self, stride=1, padding="zeros", classes=5, inplace=False):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(3, 6, 3, padding=1, stride=stride, padding_mode=padding),
            nn.BatchNorm2d(6),
            nn.ReLU(),
            nn.Conv2d(6, 7, 3, padding=1, stride=stride, padding_mode=padding),
        )
        self.hidden = nn.Linear(7, 9)
        self.head = nn.Linear(9, classes)
        self.inplace = inplace

    def forward(self, images):
        return self.top(self.features(images))

    def top(self, maps):
        if self.inplace:
            maps = F.relu(maps, inplace=not maps.is_leaf)
        return self.head(torch.tanh(self.hidden(maps.mean(dim=(2, 3)))))


def net(seed=0, **options):
    torch.manual_seed(seed)
    made = Net(**options).double()
    made.features[1].running_mean.uniform_(-0.2, 0.2)
    return made


def pictures(many=12, size=16, seed=1):
    generator = torch.Generator().manual_seed(seed)
    return torch.rand(many, 3, size, size, generator=generator, dtype=torch.float64)


def in_batches(images, labels=None, size=4):
    parts = images.split(size)
    return list(parts) if labels is None else list(zip(parts, labels.split(size), strict=True))


def by_definition(model, images, numbers=None):
    model.eval()
    numbers = [None] * len(images) if numbers is None else numbers
    found = [
        grad_cam(model.features, model.top, *pair) for pair in zip(images, numbers, strict=True)
    ]
    return np.stack([cam for cam, _ in found]), [number for _, number in found]


def scaled(maps):
    return np.stack([cam / cam.max() for cam in maps if cam.max() > 0])


@pytest.mark.parametrize("options", [{}, {"stride": 2}, {"inplace": True}], ids=str)
def test_agrees_with_the_definition(options):
    model, images = net(**options), pictures()
    report = gradcam(model, in_batches(images))
    maps, numbers = by_definition(model, images)
    assert report.layer == "features"
    assert report.images.explained.tolist() == numbers
    assert report.images.zero == sum(cam.max() == 0 for cam in maps)
    np.testing.assert_allclose(report.images.mean, scaled(maps).mean(axis=0), rtol=RTOL["float64"])
    moved, _ = by_definition(model, images.roll(4, dims=3), numbers)
    np.testing.assert_allclose(
        report.shifted.mean, scaled(moved).mean(axis=0), rtol=RTOL["float64"]
    )
    assert report.shifted.explained.tolist() == numbers
    for i, cam in enumerate(maps):
        share = integral(cam, lambda x, y: (abs(x - 0.5) < 0.25) & (abs(y - 0.5) < 0.25))
        assert report.images.centre[i] * cam.max() == pytest.approx(share, abs=1e-12)
        assert report.images.centre[i] <= report.images.total[i] <= 1


def test_the_evidence_of_a_linear_network_is_its_weights_times_its_maps():
    """Class k of a mean and a linear layer: the map is ReLU(Σ wₖ A) up to a factor."""
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(3, 4, 1), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 3)
    )
    model = model.double()
    nn.init.zeros_(model[0].bias)  # so that every class has some evidence
    images, labels = pictures(9) - 0.5, torch.arange(9) % 3
    report = gradcam(model, in_batches(images, labels), target="label", classes="abc")
    with torch.no_grad():
        planes = torch.einsum("nk,nkyx->nyx", model[3].weight[labels], model[0](images))
    maps = planes.clamp(min=0).numpy()
    assert report.layer == "0"
    np.testing.assert_allclose(report.images.mean, scaled(maps).mean(axis=0), rtol=RTOL["float64"])
    for label in range(3):
        np.testing.assert_allclose(
            report.class_mean[label], scaled(maps[labels == label]).mean(axis=0),
            rtol=RTOL["float64"],
        )  # fmt: skip
    assert report.images.explained.tolist() == labels.tolist()


@pytest.mark.parametrize("size", [1, 5, 12])
def test_batches_do_not_matter(size):
    model, images, labels = net(), pictures(), torch.arange(12) % 4
    one = gradcam(model, in_batches(images, labels, 12))
    other = gradcam(model, in_batches(images, labels, size))
    assert_alike(one, other)


def test_the_order_of_images_does_not_matter():
    model, images, labels = net(), pictures(), torch.arange(12) % 4
    order = torch.randperm(12, generator=torch.Generator().manual_seed(3))
    one = gradcam(model, in_batches(images, labels))
    other = gradcam(model, in_batches(images[order], labels[order]))
    assert_alike(one, other)
    np.testing.assert_allclose(one.images.x[order], other.images.x, rtol=RTOL["batch64"])


def assert_alike(one, other):
    for mine, yours in zip(one.views, other.views, strict=True):
        np.testing.assert_allclose(mine.mean, yours.mean, rtol=RTOL["batch64"])
        for of in ("centre", "moved", "x", "y"):
            for part in ("value", "error"):
                found, wanted = (getattr(each.mass(of), part) for each in (mine, yours))
                assert found == pytest.approx(wanted, rel=RTOL["batch64"], abs=1e-12)
    np.testing.assert_allclose(one.class_mean, other.class_mean, rtol=RTOL["batch64"])
    for name in ("followed", "above_noise", "travel", "full_travel", "lead"):
        found, wanted = (getattr(each, name).value for each in (one, other))
        assert found == pytest.approx(wanted, rel=1e-6, abs=1e-12, nan_ok=True)


def test_a_network_that_does_not_know_where_it_is_follows_the_shift():
    """Convolutions around the edge, with strides that divide the shift: maps move as images do."""
    model = net(1, padding="circular", stride=2)
    report = gradcam(model, in_batches(centred(pictures())))
    np.testing.assert_allclose(
        report.shifted.mean, np.roll(report.images.mean, 1, axis=1), rtol=RTOL["batch64"]
    )
    assert report.followed.value == pytest.approx(1.0, abs=1e-9)
    assert report.followed.error == pytest.approx(0.0, abs=1e-9)
    assert report.shifted.mass("moved").value == pytest.approx(report.images.mass("centre").value)
    assert report.travel.value == pytest.approx(report.full_travel.value)
    assert report.travel.error == pytest.approx(report.full_travel.error)


def centred(images):
    """Images whose middle is brighter than the rest, so that maps are not even."""
    images = images.clone()
    images[:, :, 4:12, 4:12] += 2.0
    return images


class Placed(nn.Module):
    """Looks at fixed places only: its maps are learnt, whatever the image."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 2, 1, bias=False)
        nn.init.zeros_(self.conv.weight)
        self.maps = nn.Parameter(
            torch.rand(1, 2, 16, 16, generator=torch.Generator().manual_seed(0))
        )
        self.sum = nn.BatchNorm2d(2, affine=False)
        self.head = nn.Linear(2, 3)

    def forward(self, images):
        return self.head(self.sum(self.conv(images) + self.maps).mean(dim=(2, 3)))


def test_a_network_that_looks_at_fixed_places_stays_and_needs_no_data():
    torch.manual_seed(0)
    report = gradcam(Placed().double(), in_batches(centred(pictures())))
    assert report.followed.value == pytest.approx(0.0, abs=1e-9)
    assert report.above_noise.value == pytest.approx(0.0, abs=1e-12)
    assert report.shifted.mass("centre").value == report.images.mass("centre").value


def test_noise_has_the_mean_and_deviation_of_the_data():
    seen = []

    class Watching(Net):
        def forward(self, images):
            if not torch.is_grad_enabled() or images.requires_grad:
                seen.append(images.detach().clone())
            return super().forward(images)

    images = pictures(40) * torch.tensor([1.0, 2.0, 0.5])[:, None, None] + 0.3
    gradcam(Watching().double(), [images])
    noise = seen[-1]
    assert noise.shape == images.shape
    for channel in range(3):
        ours, theirs = noise[:, channel], images[:, channel]
        assert float(ours.mean()) == pytest.approx(float(theirs.mean()), abs=0.02)
        assert float(ours.std()) == pytest.approx(float(theirs.std()), rel=0.03)
    assert abs(np.corrcoef(noise[0, 0].flatten(), noise[1, 0].flatten())[0, 1]) < 0.15


def test_maps_without_evidence_are_counted_and_have_no_part_in_the_mean():
    """With positive maps and a class whose weights are negative, nothing speaks for it."""
    model = nn.Sequential(nn.Conv2d(3, 2, 1), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
                          nn.Linear(2, 2)).double()  # fmt: skip
    with torch.no_grad():
        model[0].weight.fill_(1.0)
        model[0].bias.fill_(0.1)
        model[4].weight.copy_(torch.tensor([[1.0, 1.0], [-1.0, -1.0]]))
    images, labels = pictures(6), torch.tensor([0, 1, 0, 1, 1, 0])
    report = gradcam(model, in_batches(images, labels), target="label")
    assert report.images.zero == 3
    alone = gradcam(model, in_batches(images[labels == 0], labels[labels == 0]), target="label")
    np.testing.assert_allclose(report.images.mean, alone.images.mean, rtol=RTOL["float64"])
    assert report.images.mass("centre").value == pytest.approx(alone.images.mass("centre").value)
    assert np.isnan(report.class_mean[1]).all()
    frame = report.to_frame().set_index("of")
    assert frame.loc["1", "zero"] == 3
    assert np.isnan(frame.loc["1", "centre"])


def test_a_label_without_a_name_is_shown_by_its_number():
    images, labels = pictures(6), torch.tensor([-1, 0, 1, 7, -1, 0])
    report = gradcam(net(), [(images, labels)], classes=("cat", "dog"))
    named = report.to_frame().set_index("of").loc[["-1", "cat", "dog", "7"]]
    assert named["images"].tolist() == [2, 2, 1, 1]


def test_a_network_without_any_evidence_gives_a_report_that_says_so():
    model = net()
    nn.init.zeros_(model.head.weight)
    report = gradcam(model, [pictures()])
    assert report.images.zero == report.samples == 12
    assert np.isnan(report.images.mean).all()


def test_everything_borrowed_is_given_back():
    model, images = net(), pictures()
    model.train()
    model.features[2].eval()
    model.head.weight.requires_grad_(False)
    model(images).sum().backward()
    gradients = {name: each.grad for name, each in model.named_parameters()}
    copies = {name: None if each is None else each.clone() for name, each in gradients.items()}
    before = {name: value.clone() for name, value in model.state_dict().items()}
    modes = [module.training for module in model.modules()]
    state = torch.get_rng_state()
    with torch.no_grad():
        gradcam(model, [images])
        assert not torch.is_grad_enabled()
    assert torch.equal(state, torch.get_rng_state())
    assert [module.training for module in model.modules()] == modes
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    for name, parameter in model.named_parameters():
        assert parameter.grad is gradients[name]
        assert copies[name] is None or torch.equal(parameter.grad, copies[name])
        assert parameter.requires_grad is (name != "head.weight")
    for module in model.modules():
        assert not module._forward_hooks
        assert not module._forward_pre_hooks
        assert not module._backward_hooks


def test_it_is_given_back_after_a_fault_too():
    model = net()
    bad = pictures()
    bad[7, 0, 3, 3] = np.nan
    with pytest.raises(NonFiniteError, match="output of Net for image 7 is NaN") as caught:
        gradcam(model, in_batches(bad))
    assert caught.tb is not None  # which keeps the run alive
    assert all(parameter.requires_grad for parameter in model.parameters())
    assert not any(module._forward_hooks for module in model.modules())


def test_it_works_inside_inference_mode_and_on_a_frozen_network():
    model, images = net(), pictures(4)
    wanted = gradcam(model, [images]).images.mean
    with torch.inference_mode():
        np.testing.assert_array_equal(gradcam(model, [images]).images.mean, wanted)
    model.requires_grad_(False)
    np.testing.assert_array_equal(gradcam(model, [images]).images.mean, wanted)


@pytest.mark.parametrize("size", [(16, 32), (15, 15)], ids=str)
def test_images_may_have_any_proportions_and_precision(size):
    images = torch.rand(4, 3, *size, generator=torch.Generator().manual_seed(0))
    report = gradcam(net().bfloat16(), [images.bfloat16()])
    assert report.images.mean.shape == size
    assert report.shift == round(size[1] / 4) / size[1]
    exact = gradcam(net().bfloat16().double(), [images.bfloat16().double()])
    np.testing.assert_allclose(report.images.mean, exact.images.mean, atol=0.1)


@pytest.mark.parametrize(
    ("loader", "options", "error", "words"),
    [
        ([], {}, DataError, "The loader gave no image. Give it some images"),
        ([pictures(2)], {"limit": 0}, DataError, "which leaves no image"),
        ([pictures(2)], {"target": "truth"}, DataError, "Give 'predicted' or 'label'"),
        ([pictures(2)], {"target": "label"}, DataError, "the images have none"),
        ([(pictures(2), torch.tensor([0, 9]))], {"target": "label"}, DataError,
         "Image 1 has label 9, and the network knows classes 0 to 4"),
        ([(pictures(2), torch.tensor([0, 2]))], {"target": "label", "outputs": [1, 2]}, DataError,
         "Image 1 has label 2, and 2 labels have an output"),
        ([pictures(2), pictures(2, size=8)], {}, DataError, "Give images of one size"),
        ([pictures(2), pictures(2)[:, :1]], {}, DataError, "Give images of one size"),
        ([pictures(2, size=1)], {}, FeatureMapError, "has no feature maps"),
        ([pictures(2).long()], {}, DataError, "Grad-CAM is of images"),
        ([(pictures(2), torch.tensor([0, 1])), pictures(2)], {}, DataError, "labels, or none"),
    ],
)  # fmt: skip
def test_a_mistake_is_a_sentence(loader, options, error, words):
    with pytest.raises(error, match=words):
        gradcam(net(), loader, **options)


def test_without_the_library_there_is_one_sentence(monkeypatch):
    monkeypatch.setitem(sys.modules, "pytorch_grad_cam", None)
    with pytest.raises(FeatureMapError, match=r"needs pytorch-grad-cam.*stiffnet\[gradcam\]"):
        gradcam(net(), [pictures(2)])
