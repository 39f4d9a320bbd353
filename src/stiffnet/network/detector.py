"""torchvision's Faster R-CNN with a feature pyramid, on a backbone of timm's or torchvision's."""

import warnings
from collections import OrderedDict
from collections.abc import Mapping
from typing import Any

import timm
import timm.data
import torch
import torchvision
from timm.models._features import FeatureGetterNet
from torch import Tensor, nn
from torchvision.models._utils import IntermediateLayerGetter
from torchvision.models.detection.anchor_utils import AnchorGenerator
from torchvision.models.detection.faster_rcnn import FasterRCNN, FastRCNNPredictor, TwoMLPHead
from torchvision.ops import MultiScaleRoIAlign
from torchvision.ops.feature_pyramid_network import FeaturePyramidNetwork, LastLevelMaxPool

from stiffnet.errors import CheckpointError
from stiffnet.network.model_names import TORCHVISION, detector_parts
from stiffnet.network.own_models import OWN_MODELS
from stiffnet.network.pretrained import torchvision_weights
from stiffnet.words import few, first_line

CLASSES = 80  # COCO's
SHORTER = 800  # pixels to which the shorter side of an image is scaled,
LONGEST = 5 / 3  # times that, and the longer side is not longer: 1,333
FINEST = 4  # pixels of the image in one of a map; finer maps are not used
ANCHOR = 8  # side of an anchor, in pixels of the map that it is for
SHOWN = 4  # names of tensors in a sentence
RATIOS = (0.5, 1.0, 2.0)
PROBE = (128, 192)  # height and width of an image with which feature maps are looked at
STAGES = {"layer1": 4, "layer2": 8, "layer3": 16, "layer4": 32}  # of torchvision's ResNets
WIDTHS = {"fasterrcnn": (256, 1024), "fasterrcnn-small": (64, 256)}  # of the pyramid, of the head


class Pyramid(nn.Module):
    """A backbone that gives feature maps, and a feature pyramid on them."""

    def __init__(self, body: nn.Module, channels: list[int], width: int) -> None:
        super().__init__()
        self.body = body
        self.fpn = FeaturePyramidNetwork(channels, width, LastLevelMaxPool())
        self.out_channels = width

    def forward(self, images: Tensor) -> dict[str, Tensor]:
        """Return the pyramid's maps, the finest first."""
        maps = self.body(images)
        maps = list(maps.values()) if isinstance(maps, Mapping) else maps
        found: dict[str, Tensor] = self.fpn(
            OrderedDict((str(level), each) for level, each in enumerate(maps))
        )
        return found


def create_detector(
    name: str, *, num_classes: int | None, image_size: int | None, pretrained: bool
) -> nn.Module:
    """Build the detector of a name such as ``fasterrcnn:resnet50``.

    Args:
        name: ``fasterrcnn`` or, at a quarter of the width around the backbone,
            ``fasterrcnn-small``; then a colon and the name of the backbone.
        num_classes: Of things to be found, without the background; None for COCO's 80.
        image_size: To which the shorter side of an image is scaled; None for 800 pixels. The
            longer one is at most 5/3 as long then.
        pretrained: Whether the backbone has the weights that its publishers trained.

    Raises:
        CheckpointError: If the backbone gives no feature maps, or takes images of one size only.
    """
    kind, backbone = detector_parts(name)
    (width, hidden), side = WIDTHS[kind], image_size or SHORTER
    build = _torchvision_body if backbone.startswith(TORCHVISION) else _timm_body
    body, channels, strides, normalised = build(backbone, pretrained=pretrained)
    pyramid = Pyramid(body, channels, width)
    sizes = tuple((ANCHOR * stride,) for stride in (*strides, 2 * strides[-1]))
    levels = [str(level) for level in range(len(strides))]
    pool = MultiScaleRoIAlign(featmap_names=levels, output_size=7, sampling_ratio=2)
    detector: nn.Module = FasterRCNN(
        pyramid,
        min_size=side,
        max_size=int(side * LONGEST),
        rpn_anchor_generator=AnchorGenerator(sizes, (RATIOS,) * len(sizes)),
        box_roi_pool=pool,
        box_head=TwoMLPHead(width * 7 * 7, hidden),
        box_predictor=FastRCNNPredictor(hidden, 1 + (num_classes or CLASSES)),
        **normalised,
    )
    return detector


def body_of(detector: nn.Module) -> nn.Module:
    """Return the backbone of a detector, without its pyramid."""
    return detector.get_submodule("backbone.body")


Body = tuple[nn.Module, list[int], list[int], dict[str, Any]]


def _timm_body(name: str, *, pretrained: bool) -> Body:
    """Return timm's feature maps: the last one of each stride from `FINEST` on."""
    config = timm.get_pretrained_cfg(name)
    if config is not None and config.fixed_input_size:
        raise _no_maps(name, "it takes images of one size only")
    try:
        with torch.random.fork_rng(devices=[]):  # looked at, and thrown away
            looked = timm.create_model(name, features_only=True).eval()
            with torch.no_grad():
                maps = looked(torch.zeros(1, 3, *PROBE))
        told = looked.feature_info
        numbers = (told.reduction(), told.channels(), told.out_indices)
        strides, widths, places = (list(map(int, each)) for each in numbers)
    except Exception as error:  # timm's own, of many types
        why = "timm has none of it" if name in OWN_MODELS else first_line(error)
        raise _no_maps(name, why) from error
    last = {stride: level for level, stride in enumerate(strides) if stride >= FINEST}
    if not last or list(last) != sorted(last):
        raise _no_maps(name, f"its strides are {strides}")
    for stride, level in last.items():
        _check_map(name, maps[level], stride, widths[level])
    model = timm.create_model(
        name,
        features_only=True,
        out_indices=tuple(places[level] for level in last.values()),
        pretrained=pretrained,
    )
    channels = [widths[level] for level in last.values()]
    data = timm.data.resolve_data_config({}, pretrained_cfg=config.to_dict() if config else {})
    return model, channels, list(last), {"image_mean": data["mean"], "image_std": data["std"]}


def _check_map(name: str, found: Tensor, stride: int, channels: int) -> None:
    """Refuse a map that does not lie over the image as the pyramid and its anchors assume."""
    needed = (channels, *(side / stride for side in PROBE))
    if tuple(found.shape[1:]) != needed:
        raise _no_maps(
            name,
            f"of an image of {PROBE[0]} × {PROBE[1]} pixels its map with a stride of {stride} has "
            f"the shape {tuple(found.shape[1:])}, where {channels} channels come first and every "
            f"cell has to stand for {stride} × {stride} pixels",
        )


def _torchvision_body(name: str, *, pretrained: bool) -> Body:
    weights = torchvision_weights(name) if pretrained else None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        model = torchvision.models.get_model(name.removeprefix(TORCHVISION), weights=weights)
    if not isinstance(model, torchvision.models.ResNet):
        raise _no_maps(name, "of torchvision's networks, ResNets give some")
    channels = [int(model.inplanes) // narrower for narrower in (8, 4, 2, 1)]
    names = {layer: str(level) for level, layer in enumerate(STAGES)}
    return IntermediateLayerGetter(model, names), channels, list(STAGES.values()), {}


def _no_maps(name: str, why: str) -> CheckpointError:
    return CheckpointError(
        f"{name} gives no feature maps that a detector could look at: {why}. Choose another "
        "backbone, such as resnet50."
    )


def fill_body(detector: nn.Module, tensors: Mapping[str, Tensor]) -> None:
    """Copy a classifier's weights into the backbone of a detector, where the head has no place.

    timm may call a layer of feature maps ``stages_0`` or ``model.stages.0`` that the classifier
    calls ``stages.0``.

    Raises:
        CheckpointError: If the backbone has tensors that the classifier has not.
    """
    body = body_of(detector)
    inside = "model." if isinstance(body, FeatureGetterNet) else ""
    given = {name.replace(".", "_"): value for name, value in tensors.items()}
    names = {name: name.removeprefix(inside).replace(".", "_") for name in body.state_dict()}
    missing = [name for name, theirs in names.items() if theirs not in given]
    if missing:
        raise CheckpointError(
            f"The backbone has {few(missing, SHOWN)}, which the classifier does not have. Give "
            "the weights of a whole detector, or choose another backbone, such as resnet50."
        )
    body.load_state_dict({name: given[theirs] for name, theirs in names.items()})
