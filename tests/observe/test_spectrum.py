"""A step's spectrum, through real networks: every method against the plain one, and mistakes."""

import numpy as np
import pytest
import timm
import torch
from torch import nn

import stiffnet
from stiffnet.errors import (
    DataError,
    NonFiniteError,
    ShapeChangesError,
    StepError,
    UnknownNameError,
)
from stiffnet.observe.spectrum import exact_copy, function_of, spectra

CLOSE = 1e-8  # of the largest |λ|: eigenvalues of other matrices, in float64


class Bottleneck(nn.Module):
    """Post-activation, with dropout: in evaluation it is not there."""

    def __init__(self, channels=8):
        super().__init__()
        self.inside = nn.Sequential(
            nn.Conv2d(channels, 2, 1), nn.BatchNorm2d(2), nn.ReLU(), nn.Dropout(0.5),
            nn.Conv2d(2, channels, 3, padding=1), nn.BatchNorm2d(channels),
        )  # fmt: skip

    def forward(self, x):
        return torch.relu(x + self.inside(x))


def small(seed=0):
    torch.manual_seed(seed)
    stem = nn.Conv2d(3, 8, 3, padding=1)
    return nn.Sequential(stem, Bottleneck(), Bottleneck(), nn.Flatten(), nn.Linear(8 * 16, 3))


def shaken(model):
    """Norms that do something, so that a step is not near zero."""
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            nn.init.uniform_(module.weight, 0.5, 1.5)
            nn.init.normal_(module.bias, std=0.3)
            nn.init.normal_(module.running_mean, std=0.2)
    return model


def resnet20(attention=None):
    return shaken(stiffnet.create_model("resnet20_cifar", seed=0, attention=attention))


def timm_vit():
    torch.manual_seed(0)
    return timm.create_model(
        "vit_tiny_patch16_224", img_size=16, patch_size=8, embed_dim=24, depth=2, num_heads=2,
        num_classes=3,
    )  # fmt: skip


def timm_resnet(attention=None):
    torch.manual_seed(0)
    made = timm.create_model("resnet18", num_classes=3)
    if attention:
        stiffnet.attach(made, attention, example=torch.rand(2, 3, 32, 32))
    return shaken(made)


NETWORKS = {
    "ours": (resnet20, "layer3.1", 8),
    "ours, se": (lambda: resnet20("se"), "layer3.2", 8),
    "ours, constant": (lambda: resnet20("asr:se"), "layer3.2", 8),
    "small bottleneck": (small, "1", 4),
    "timm's resnet": (timm_resnet, "layer4.1", 32),
    "timm's resnet, se": pytest.param(
        lambda: timm_resnet("se"), "layer4.1", 32, marks=pytest.mark.slow
    ),
    "timm's vit, attention": (timm_vit, "blocks.1", 16),
    "timm's vit, mlp": (timm_vit, "blocks.1#1", 16),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("of", ["branch", "block"])
@pytest.mark.parametrize(("build", "step", "size"), NETWORKS.values(), ids=NETWORKS)
def test_reduced_is_dense(build, step, size, of, dtype):
    model = build().to(dtype).eval()
    x = torch.rand(1, 3, size, size, dtype=dtype)
    dense, reduced = (
        stiffnet.spectrum(model, step, x, of=of, method=m) for m in ("dense", "reduced")
    )
    assert dense.count == reduced.count == len(reduced.eigenvalues) == np.prod(dense.shape)
    near = CLOSE * dense.radius
    for key in ("max_real", "min_real", "radius", "real_extent", "norm"):
        assert getattr(reduced, key) == pytest.approx(getattr(dense, key), abs=near), key
    nonzero = [(np.abs(found.eigenvalues) > near).sum() for found in (reduced, dense)]
    assert nonzero[0] == nonzero[1]
    if "blocks" not in step:  # where a flat part cuts, the zeros are exact
        assert (reduced.eigenvalues != 0).sum() == nonzero[1]
    assert reduced.negative_share == dense.negative_share
    assert next(model.parameters()).dtype is dtype


def test_eigenvalues_are_those_of_autograds_jacobian():
    """The oracle is independent: the network's own block, differentiated by `torch.autograd`."""
    model = small().eval()
    x = torch.rand(1, 3, 4, 4)
    found = stiffnet.spectrum(model, "1", x, of="block")
    inside = model.double()
    state = inside[0](x.double()).detach()
    jacobian = torch.autograd.functional.jacobian(inside[1], state).reshape(128, 128)
    wanted = np.linalg.eigvals(jacobian.numpy())
    assert found.radius == pytest.approx(np.abs(wanted).max(), rel=1e-9)
    assert found.min_real == pytest.approx(wanted.real.min(), abs=1e-9)
    assert found.eigenvalues.sum().real == pytest.approx(np.trace(jacobian), rel=1e-9)
    assert found.norm == pytest.approx(np.linalg.norm(jacobian, 2), rel=1e-6)


def test_the_block_is_one_and_the_branch_where_nothing_follows():
    model = timm_vit().eval()
    x = torch.rand(1, 3, 16, 16)
    branch, block = (stiffnet.spectrum(model, "blocks.1#1", x, of=of) for of in ("branch", "block"))
    ends = (branch.max_real, branch.min_real)
    assert (block.max_real - 1, block.min_real - 1) == pytest.approx(ends, abs=1e-9)


class Turned(nn.Module):
    """Adds with its channels last, and returns them first: x + f(x)."""

    def __init__(self):
        super().__init__()
        self.inside = nn.Sequential(nn.Conv2d(4, 4, 3, padding=1), nn.ReLU(), nn.Conv2d(4, 4, 1))

    def forward(self, x):
        turned = x.permute(0, 2, 3, 1) + self.inside(x).permute(0, 2, 3, 1)
        return turned.permute(0, 3, 1, 2)


class Writing(Turned):
    """Writes into what it is given."""

    def forward(self, x):
        x += self.inside(x)
        return x


@pytest.mark.parametrize("method", ["dense", "reduced", "krylov"])
@pytest.mark.parametrize("size", [(4, 4), (4, 6)])
@pytest.mark.parametrize("block", [Turned, Writing])
def test_layouts_and_writes_of_a_block_do_not_matter(block, size, method):
    torch.manual_seed(0)
    model, x = nn.Sequential(block()).double(), torch.randn(1, 4, *size).double()
    before, numbers = x.clone(), x.numel()
    for of in ("branch", "block"):
        found = stiffnet.spectrum(model, "0", x, of=of, method=method)
        assert torch.equal(x, before)
        jacobian = torch.autograd.functional.jacobian(model[0].inside, x).reshape(numbers, numbers)
        wanted = np.linalg.eigvals(jacobian.numpy()) + (of == "block")
        assert found.max_real == pytest.approx(wanted.real.max(), abs=1e-9)
        assert found.min_real == pytest.approx(wanted.real.min(), abs=1e-9)


def test_a_network_that_cannot_be_copied_is_refused():
    model = small()
    model[1].last = model[0](torch.rand(1, 3, 4, 4))
    with pytest.raises(StepError, match="Sequential cannot be copied"):
        stiffnet.spectrum(model, "1", torch.rand(1, 3, 4, 4))


def test_dropout_is_out_and_the_network_stays_in_training():
    model = small()
    x = torch.rand(1, 3, 4, 4)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    wanted = stiffnet.spectrum(model.eval(), "1", x)
    model.train()
    model[2].eval()
    found = stiffnet.spectrum(model, "1", x)
    np.testing.assert_array_equal(found.eigenvalues, wanted.eigenvalues)
    assert model.training
    assert model[1].inside[3].training
    assert not model[2].training
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())
    assert all(p.requires_grad and p.grad is None for p in model.parameters())


def test_random_numbers_are_given_back():
    torch.manual_seed(3)
    wanted = torch.rand(1)
    model, x = small(), torch.rand(1, 3, 4, 4)
    torch.manual_seed(3)
    stiffnet.spectrum(model, "1", x)
    assert torch.equal(torch.rand(1), wanted)


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        ({"step": "4"}, UnknownNameError, r"no step of Sequential called '4'"),
        ({"step": "2.insid"}, UnknownNameError, r"no step of Sequential called '2\.insid'"),
        ({"x": torch.rand(2, 3, 4, 4)}, DataError, r"of shape \(2, 3, 4, 4\). Give a batch of one"),
        ({"x": [1]}, DataError, "`x` is a list"),
        ({"x": torch.rand(1, 3, 5, 5)}, StepError, "cannot be run"),
        ({"of": "rate"}, StepError, "`of` is 'rate'. Give 'branch' or 'block'"),
        ({"method": "exact"}, StepError, "`method` is 'exact'. Give one of auto"),
        ({"cap": 10, "method": "dense"}, StepError, "above the cap"),
        ({"cap": 0}, StepError, "`cap` is 0 bytes"),
    ],
)
def test_a_mistake_is_a_sentence(change, error, words):
    given = {"step": "1", "x": torch.rand(1, 3, 4, 4)} | change
    with pytest.raises(error, match=words):
        stiffnet.spectrum(small(), given.pop("step"), given.pop("x"), **given)


def test_the_nearest_steps_are_named():
    with pytest.raises(UnknownNameError, match=r"Did you mean 'layer3\.\d'"):
        stiffnet.spectrum(resnet20(), "layer3.9", torch.rand(1, 3, 8, 8))


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_weights_that_are_no_numbers_are_named(value):
    model = small()
    with torch.no_grad():
        model[1].inside[0].weight[0] = value
    with pytest.raises(NonFiniteError, match="NaN or infinite"):
        stiffnet.spectrum(model, "1", torch.rand(1, 3, 4, 4))


def test_a_change_of_shape_has_singular_values():
    model, x = resnet20(), torch.rand(1, 3, 8, 8)
    with pytest.raises(ShapeChangesError, match="from 32×4×4 to 64×2×2"):
        stiffnet.spectrum(model, "layer3.0", x)
    found = stiffnet.spectrum(model, "layer3.0", x, method="krylov")
    function = function_of(exact_copy(model), "layer3.0", x.double(), of="branch")
    jacobian = torch.autograd.functional.jacobian(function, function.input).reshape(256, 512)
    wanted = np.linalg.svd(jacobian.numpy(), compute_uv=False)
    np.testing.assert_allclose(found.singular_values, wanted[: len(found.singular_values)], 1e-6)
    assert found.norm == found.singular_values[0]
    assert (found.count, len(found.eigenvalues), found.stiffness_index) == (0, 0, None)
    planes = stiffnet.spectrum(model, "layer3.0", x, method="planes")
    assert (planes.elements, planes.count) == (256 * 512, 256 * 512 // 4)


def test_several_steps_and_images_in_one_report():
    model, images = small().eval(), torch.rand(3, 3, 4, 4)
    steps = stiffnet.steps(model, images[:1])
    labels = torch.tensor([0, 2, 1])
    given = [(10 * i, images[i : i + 1], labels[i : i + 1]) for i in range(3)]
    report = spectra(model, given, steps, classes=("a", "b", "c"))
    for i in range(3):
        one = stiffnet.spectrum(model, "2", images[i : i + 1])
        np.testing.assert_array_equal(report.spectra["2"][i].eigenvalues, one.eigenvalues)
    logits = model.double()(images.double()).detach()
    losses = nn.functional.cross_entropy(logits, labels, reduction="none")
    assert [seen.number for seen in report.images] == [0, 10, 20]
    np.testing.assert_allclose([seen.loss for seen in report.images], losses, rtol=1e-12)
    assert [seen.correct for seen in report.images] == (logits.argmax(1) == labels).tolist()
    model.float()
    with pytest.raises(DataError, match="has label 2, and the network has 2 outputs"):
        spectra(nn.Sequential(*model[:4], nn.Linear(128, 2)), given, steps)
    with pytest.raises(StepError, match="no image"):
        spectra(model, [], steps)
    with pytest.raises(StepError, match="No step"):
        spectra(model, given, [])
