"""A detector is torchvision's, on any backbone; its backbone has the weights of a classifier."""

import pytest
import timm
import torch
from safetensors.torch import save_file
from torchvision.models.detection import fasterrcnn_resnet50_fpn

from naming import case
from stiffnet.errors import CheckpointError, UnknownNameError
from stiffnet.network.attach import attached
from stiffnet.network.create import create_model
from stiffnet.network.detector import body_of, fill_body
from stiffnet.network.open import open_model
from stiffnet.trajectory.steps import steps

TINY = "fasterrcnn-small:test_resnet"


@pytest.fixture
def picture():
    return {"images": [torch.rand(3, 48, 64, generator=torch.Generator().manual_seed(0))]}


@pytest.mark.parametrize("backbone", ["resnet50", "torchvision:resnet50"])
def test_it_is_torchvisions_faster_rcnn(backbone):
    """The same tensors by the same names, the same anchors, strides and numbers of boxes."""
    ours = create_model(f"fasterrcnn:{backbone}", num_classes=90)
    theirs = fasterrcnn_resnet50_fpn(weights=None, weights_backbone=None)
    mine, expected = ours.state_dict(), theirs.state_dict()
    left = {name for name in mine.keys() - expected.keys() if "num_batches_tracked" not in name}
    assert not left
    assert not expected.keys() - mine.keys()
    assert all(mine[name].shape == tensor.shape for name, tensor in expected.items())
    assert ours.rpn.anchor_generator.sizes == theirs.rpn.anchor_generator.sizes
    assert ours.transform.min_size == theirs.transform.min_size
    assert ours.transform.max_size == theirs.transform.max_size == 1333


def test_its_steps_are_the_backbones_and_modules_go_there(picture):
    detector = open_model(TINY, num_classes=2, image_size=64, attention="se").model
    names = [step.name for step in steps(detector, picture)]
    assert names
    assert all(name.startswith("backbone.body.") for name in names)
    assert [sits.name.rpartition(".")[0] for sits in attached(detector)] == names
    plain = open_model(TINY, num_classes=2, image_size=64).model.state_dict()
    gated = detector.state_dict()
    assert all(torch.equal(gated[name], tensor) for name, tensor in plain.items())


@pytest.mark.parametrize(
    "name", ["test_resnet", "convnext_atto", "cspnext_tiny", "torchvision:resnet18"]
)
def test_a_backbone_computes_what_the_classifier_computes(name):
    classifier = create_model(name, seed=5).eval()
    detector = create_model(f"fasterrcnn-small:{name}", seed=0).eval()
    fill_body(detector, classifier.state_dict())
    kept = {}
    last = {"convnext_atto": "stages.3", "cspnext_tiny": "stages.3"}.get(name, "layer4")
    classifier.get_submodule(last).register_forward_hook(
        lambda module, args, output: kept.update(last=output)
    )
    x = torch.rand(1, 3, 64, 64, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        classifier(x)
        maps = body_of(detector)(x)
    maps = list(maps.values()) if isinstance(maps, dict) else maps
    assert len(maps) == 4
    assert torch.equal(maps[-1], kept["last"])


@pytest.mark.parametrize("name", ["test_resnet", "dla46_c", "cspnext_tiny", "torchvision:resnet18"])
def test_anchors_are_eight_cells_of_their_map_wide(name):
    """Of timm, some leave the finest map out (DLA), so that places in its list are no numbers."""
    detector = create_model(f"fasterrcnn-small:{name}").eval()
    with torch.no_grad():
        maps = body_of(detector)(torch.rand(1, 3, 64, 96))
    maps = list(maps.values()) if isinstance(maps, dict) else maps
    sizes = [size for (size,) in detector.rpn.anchor_generator.sizes]
    assert sizes[:-1] == [8 * 64 // each.shape[2] for each in maps]
    assert sizes[:-1] == [8 * 96 // each.shape[3] for each in maps] == [32, 64, 128, 256]


def test_normalisation_is_that_of_the_backbone():
    lite = create_model("fasterrcnn-small:tf_efficientnet_lite0")
    assert tuple(lite.transform.image_mean) == timm.data.IMAGENET_INCEPTION_MEAN
    assert (
        tuple(create_model("fasterrcnn-small:resnet10t").transform.image_std)
        == timm.data.IMAGENET_DEFAULT_STD
    )
    assert open_model(TINY).preparation.mean == (0.0, 0.0, 0.0)


def test_what_an_image_gives_does_not_depend_on_the_batch(picture):
    detector = open_model(TINY, num_classes=2, image_size=64).model  # few enough to be likely
    image = picture["images"][0]
    with torch.no_grad():
        alone, twice = detector([image]), detector([image, image.flip(-1)])
    assert len(alone[0]["boxes"])
    torch.testing.assert_close(alone[0]["boxes"], twice[0]["boxes"], rtol=1e-4, atol=1e-3)


def test_names_and_backbones_that_will_not_do():
    for name, kind, said in (
        ("fasterrcnn:resnet5", UnknownNameError, "no model called 'resnet5'. Did you mean"),
        ("fasterrcnn:", UnknownNameError, "no detector called 'fasterrcnn:'. After the colon"),
        ("fasterrcnn:fasterrcnn:resnet18", UnknownNameError, "After the colon comes a classifier"),
        ("fasterrcnn:torchvision:ssd300_vgg16", UnknownNameError, "After the colon comes"),
        ("fasterrcnn:vit_tiny_patch16_224", CheckpointError, "gives no feature maps .* one size"),
        ("fasterrcnn:resnet20_cifar", CheckpointError, "gives no feature maps .* timm has none"),
        ("fasterrcnn:mambaout_femto", CheckpointError, r"\(32, 48, 48\), where 48 channels come"),
        ("fasterrcnn:inception_v3", CheckpointError, "every cell has to stand for 4 × 4 pixels"),
        ("fasterrcnn:convmixer_768_32", CheckpointError, "gives no feature maps .* stride of 7"),
        ("fasterrcnn:torchvision:vgg11", CheckpointError, "vgg11 gives no feature maps .* ResNets"),
    ):
        with case(name), pytest.raises(kind, match=said):
            open_model(name)
    with pytest.raises(CheckpointError, match=r"has conv1\.0\.weight, .* the classifier does"):
        fill_body(open_model(TINY).model, {})
    with pytest.raises(CheckpointError, match="takes 3 channels, and `in_chans` is 1"):
        open_model(TINY, in_chans=1)


def test_a_file_of_the_whole_detector_goes_back_into_it(tmp_path):
    one = open_model(TINY, num_classes=3, image_size=64, seed=1)
    save_file(one.model.state_dict(), tmp_path / "w.safetensors")
    other = open_model(TINY, num_classes=3, image_size=64, weights=tmp_path / "w.safetensors")
    for name, tensor in one.model.state_dict().items():
        assert torch.equal(other.model.state_dict()[name], tensor)
