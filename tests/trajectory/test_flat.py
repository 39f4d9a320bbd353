"""A network in one piece of code has the steps of the same network in blocks."""

import numpy as np
import pytest
import timm
import torch
import torchvision
from torch import fx, nn
from torchvision.models.feature_extraction import create_feature_extractor, get_graph_node_names

from stiffnet import measure
from stiffnet.errors import StepError
from stiffnet.trajectory.steps import steps
from tolerances import RTOL

pytestmark = pytest.mark.filterwarnings("ignore:.*:UserWarning", "ignore:.*:FutureWarning")


def several_outputs(model):
    """Features from a quarter, a half and all of the way through."""
    names = get_graph_node_names(model)[1]
    chosen = sorted({names[len(names) * i // 4 - 1] for i in (1, 2, 3, 4)})
    return create_feature_extractor(model, chosen, suppress_diff_warning=True)


NETWORKS = {
    "resnet50": (lambda: torchvision.models.resnet50(num_classes=2), 32),
    "mobilenet_v2": (lambda: torchvision.models.mobilenet_v2(num_classes=2), 32),
    "mobilenet_v3": (lambda: torchvision.models.mobilenet_v3_small(num_classes=2), 32),
    "efficientnet": (lambda: torchvision.models.efficientnet_b0(num_classes=2), 32),
    "regnet": (lambda: torchvision.models.regnet_y_400mf(num_classes=2), 32),
    "convnext": (lambda: timm.create_model("convnext_atto", num_classes=2), 32),
    "vit": (
        lambda: torchvision.models.VisionTransformer(
            image_size=32, patch_size=16, num_layers=3, num_heads=2, hidden_dim=16, mlp_dim=32
        ),
        32,
    ),
    "swin": (lambda: torchvision.models.swin_t(num_classes=2), 32),
    "seresnet18": (lambda: timm.create_model("seresnet18", num_classes=2), 32),
    "res2net": (lambda: timm.create_model("res2next50", num_classes=2), 32),
    "hrnet": (lambda: timm.create_model("hrnet_w18_small", num_classes=2), 64),
    "repvit": (lambda: timm.create_model("repvit_m1", num_classes=2), 32),
}
QUICK = {"resnet50", "mobilenet_v3", "vit"}


@pytest.mark.parametrize("flat", [fx.symbolic_trace, several_outputs])
@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=[] if n in QUICK else pytest.mark.slow) for n in NETWORKS]
)
def test_a_traced_network_has_the_steps_and_numbers_of_its_blocks(name, flat):
    build, side = NETWORKS[name]
    torch.manual_seed(0)
    model = build().eval()
    images = torch.rand(2, 3, side, side)
    plain, traced = measure(model, [images]), measure(flat(model), [images])
    for what in ("stage", "shape", "identity", "counted"):
        assert [getattr(s, what) for s in traced.steps] == [getattr(s, what) for s in plain.steps]
    for column in ("nsi_mean", "increment_mean"):
        np.testing.assert_allclose(
            traced.to_frame()[column], plain.to_frame()[column], rtol=RTOL["batch32"]
        )
    assert traced.tns == pytest.approx(plain.tns, rel=RTOL["batch32"])


class Pyramid(nn.Module):
    """Steps with projections, whose states a decoder takes as well, all in one `forward`."""

    def __init__(self, blocks=2):
        super().__init__()
        self.blocks = blocks
        self.stem = nn.Conv2d(3, 4, 3, padding=1)
        self.down = nn.ModuleList(nn.Conv2d(4, 4, 1, stride=2) for _ in range(3))
        self.first = nn.ModuleList(nn.Conv2d(4, 4, 3, stride=2, padding=1) for _ in range(3))
        self.body = nn.ModuleList(nn.Conv2d(4, 4, 3, padding=1) for _ in range(3 * blocks))
        self.lateral = nn.ModuleList(nn.Conv2d(4, 4, 1) for _ in range(4))

    def forward(self, x):
        x = self.stem(x).relu()
        features = [x]
        for level in range(3):
            x = (self.down[level](x) + self.first[level](x).relu()).relu()
            for block in range(self.blocks):
                x = (x + self.body[level * self.blocks + block](x).relu()).relu()
            features.append(x)
        top = self.lateral[3](features[3])
        outputs = [top]
        for level in (2, 1, 0):
            top = self.lateral[level](features[level]) + nn.functional.interpolate(
                top, scale_factor=2
            )
            outputs.append(top)
        return outputs


def test_a_state_that_a_decoder_takes_too_is_still_a_state():
    found = steps(Pyramid(), torch.rand(1, 3, 16, 16))
    assert [s.identity for s in found] == [False, True, True] * 3
    assert [s.stage for s in found] == [0] * 3 + [1] * 3 + [2] * 3
    assert found[0].branch == ("first.0",)


def test_a_layer_of_two_ways_inside_a_branch_is_no_step_in_one_piece_of_code_either():
    class Network(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b, self.c, self.d = (nn.Linear(8, 8) for _ in range(4))

        def forward(self, x):
            x = self.d(x)
            for _ in range(2):
                inside = self.a(x).relu()
                inside = self.b(inside) + self.c(inside).relu()
                x = x + inside.relu()
            return x

    assert [s.branch for s in steps(Network(), torch.rand(2, 8))] == [("a", "b", "c")] * 2


def test_a_linear_sum_behind_a_step_is_no_step():
    """x + (A x + B x) is one linear map, also where x is a sum itself."""

    class Network(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b, self.c = (nn.Linear(8, 8) for _ in range(3))

        def forward(self, x):
            x = x + self.a(x).relu()
            return x + (self.b(x) + self.c(x))

    assert [s.branch for s in steps(Network(), torch.rand(2, 8))] == [("a",)]


def test_sums_of_which_nobody_can_say_whether_they_are_steps_are_refused():
    """DLA concatenates the states before and after a block, in code that holds both."""

    class Aggregated(nn.Module):
        def __init__(self):
            super().__init__()
            self.stem, self.a, self.b = (nn.Linear(8, 8) for _ in range(3))
            self.root = nn.Linear(16, 8)

        def forward(self, x):
            x = self.stem(x).relu()
            x = self.root(torch.cat([x, x + self.a(x).relu()], 1)).relu()
            return x + self.b(x).relu()

    with pytest.raises(StepError, match=r"In the code of Aggregated.*1 sums.*in the blocks"):
        steps(Aggregated(), torch.rand(2, 8))


def exported(model, example, **options):
    return torch.export.export(model, (example,), **options).module()


@pytest.mark.slow
def test_an_exported_network_has_the_steps_and_numbers_of_the_one_it_came_from():
    model, images = timm.create_model("resnet18", num_classes=2).eval(), torch.rand(2, 3, 32, 32)
    batch = torch.export.Dim("batch", min=1, max=64)
    plain = measure(model, [images])
    graph = measure(exported(model, images, dynamic_shapes=({0: batch},)), [images])
    assert [s.stage for s in graph.steps] == [s.stage for s in plain.steps]
    assert [s.identity for s in graph.steps] == [s.identity for s in plain.steps]
    np.testing.assert_allclose(
        graph.to_frame()["nsi_mean"], plain.to_frame()["nsi_mean"], rtol=RTOL["batch32"]
    )


class Residual(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(8, 8)

    def forward(self, x):
        return x + self.layer(x).relu()


def test_a_small_exported_network_has_its_steps_and_keeps_its_mode():
    batch = torch.export.Dim("batch", min=1, max=64)
    graph = exported(
        nn.Sequential(Residual(), Residual()).eval(), torch.rand(2, 8), dynamic_shapes=({0: batch},)
    )
    modes = [m.training for m in graph.modules()]
    assert len(steps(graph, torch.rand(2, 8))) == 2
    assert [m.training for m in graph.modules()] == modes


def test_a_network_exported_for_one_batch_size_is_refused_with_what_to_do():
    graph = exported(Residual().eval(), torch.rand(2, 8))
    with pytest.raises(StepError, match=r"cannot be run on inputs of shape.*`dynamic_shapes`"):
        steps(graph, torch.rand(2, 8))
