"""Laws of exports: another runtime gives the same numbers for any number of images, or no file."""

import json
import warnings
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch
from torch import nn

from stiffnet.errors import ExportError, StiffnetError, StorageError
from stiffnet.network import export
from stiffnet.network.export import ABOUT, MARK, export_onnx, export_program, refuse_replacing
from tolerances import RTOL

needs_onnx = pytest.mark.skipif(
    any(find_spec(name) is None for name in export.PACKAGES), reason="the optional group onnx"
)
EXAMPLE = torch.zeros(1, 3, 8, 8)


def small():
    """A convolution, a norm with statistics of its own, and a linear layer."""
    torch.manual_seed(0)
    norm = nn.BatchNorm2d(4)
    norm.running_mean.normal_()
    norm.running_var.uniform_(0.5, 2)
    layers = nn.Conv2d(3, 4, 3), norm, nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten()
    return nn.Sequential(*layers, nn.Linear(4, 3)).eval()


class Fixed(nn.Module):
    def forward(self, images):
        return images.reshape(2, -1)


def scaled_error(expected, result):
    expected, result = expected.detach(), result.detach()
    return float((expected - result).abs().max() / expected.abs().max())


def real_images():
    chance = torch.Generator().manual_seed(1)
    return [torch.rand(size, 3, 8, 8, generator=chance) for size in (4, 3)]


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    """One ONNX file, its report and its network: making it takes seconds."""
    path, model = tmp_path_factory.mktemp("onnx") / "new" / "net.onnx", small()
    facts = {"form": "folded", "model": "small"}
    report = export_onnx(model, path, EXAMPLE, inputs=real_images(), facts=facts)
    return path, report, model


@needs_onnx
@pytest.mark.parametrize("size", [1, 2, 5])
def test_onnx_gives_what_torch_gives_for_any_number_of_images(exported, size):
    import onnxruntime

    path, _, model = exported
    batch = torch.rand(size, 3, 8, 8, generator=torch.Generator().manual_seed(2))
    session = onnxruntime.InferenceSession(path)
    (result,) = session.run(None, {"images": batch.numpy()})
    assert scaled_error(model(batch), torch.from_numpy(result)) <= RTOL["batch32"]


class Named(nn.Module):
    """Returns outputs by name, two of which torch uses for other values."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Conv2d(3, 2, 1)

    def forward(self, images):
        maps = self.layer(images)
        low, high = maps.amin((2, 3)), maps.amax((2, 3))
        return {"conv2d": low, "layer.weight": high, "loss": None, "again": low, "given": images}


@needs_onnx
def test_onnx_names_outputs_as_the_network_does(tmp_path):
    import onnxruntime

    model = Named().eval()
    export_onnx(model, tmp_path / "net.onnx", EXAMPLE)
    session = onnxruntime.InferenceSession(tmp_path / "net.onnx")
    images = torch.rand(3, 3, 8, 8)
    names = ["again", "given", "layer.weight", "conv2d"]
    for name, result in zip(names, session.run(names, {"images": images.numpy()}), strict=True):
        assert scaled_error(model(images)[name], torch.from_numpy(result)) <= RTOL["batch32"]


@needs_onnx
def test_the_onnx_file_says_what_it_is(exported):
    import onnx

    path, report, _ = exported
    made = onnx.load(path)
    onnx.checker.check_model(made)
    assert {entry.key: entry.value for entry in made.metadata_props}["form"] == "folded"
    (first,) = made.graph.input
    assert first.name == "images"
    assert first.type.tensor_type.shape.dim[0].dim_param == "batch"
    assert (report.path, report.kind, report.images) == (path, "onnx", 7)
    assert report.opset == made.opset_import[0].version
    assert 0 <= report.random_error <= export.TOLERANCES[torch.float32]
    assert 0 <= report.real_error <= export.TOLERANCES[torch.float32]
    assert [found.name for found in path.parent.iterdir()] == ["net.onnx"]


@needs_onnx
def test_an_onnx_file_that_differs_is_not_written(exported, tmp_path, monkeypatch):
    runner = export._onnx_runner
    off = 1 + 2 * export.TOLERANCES[torch.float32]
    monkeypatch.setattr(
        export, "_onnx_runner", lambda c: lambda batch: [off * t for t in runner(c)(batch)]
    )
    before = exported[0].read_bytes()
    (tmp_path / "net.onnx").write_bytes(before)  # an earlier one
    with pytest.raises(ExportError, match=r"ONNX file of Sequential differs from it by 2\.0e-04"):
        export_onnx(small(), tmp_path / "net.onnx", EXAMPLE)
    assert (tmp_path / "net.onnx").read_bytes() == before
    assert len(list(tmp_path.iterdir())) == 1


@needs_onnx
@pytest.mark.slow
def test_an_opset_that_torch_did_not_write_is_refused(tmp_path):
    with pytest.raises(ExportError, match="with opset 18, and not with 7"):
        export_onnx(small(), tmp_path / "net.onnx", EXAMPLE, opset=7)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("dtype", "rounding"), [(torch.float32, "batch32"), (torch.float64, "batch64")], ids=str
)
def test_a_program_gives_what_torch_gives_for_any_number_of_images(tmp_path, dtype, rounding):
    model = small().to(dtype)
    report = export_program(model, "net.pt2", EXAMPLE, inputs=real_images(), facts={"form": "x"})
    assert (report.kind, report.opset, report.images) == ("program", None, 7)
    kept = {ABOUT: ""}
    program = torch.export.load("net.pt2", extra_files=kept).module()
    assert json.loads(kept[ABOUT]) == {"form": "x", **MARK}
    for size in (1, 2, 5):
        batch = torch.rand(size, 3, 8, 8, dtype=dtype)
        assert scaled_error(model(batch), program(batch)) <= RTOL[rounding]
    assert [path.name for path in tmp_path.iterdir()] == ["net.pt2"]


class Doubling(nn.Module):
    """Writes into the images that it is given."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Conv2d(3, 2, 1)

    def forward(self, images):
        return self.layer(images.mul_(2))


@pytest.mark.parametrize("export", [export_program, pytest.param(export_onnx, marks=needs_onnx)])
def test_a_network_that_writes_into_its_input_is_compared_on_what_was_given(tmp_path, export):
    given = real_images()
    report = export(Doubling().eval(), tmp_path / "net", EXAMPLE, inputs=given)
    assert report.images == 7
    assert all(map(torch.equal, given, real_images()))


class Drifting(nn.Module):
    """Subtracts a mean that every pass moves."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Conv2d(3, 2, 1)
        self.register_buffer("mean", torch.zeros(3, 1, 1))

    def forward(self, images):
        self.mean.lerp_(images.mean((0, 2, 3))[:, None, None], 0.5)
        return self.layer(images - self.mean)


class Noisy(nn.Sequential):
    def forward(self, images):
        outputs = super().forward(images)
        return outputs + 1e-6 * torch.randn_like(outputs)


@pytest.mark.parametrize("model", [Drifting(), Noisy(nn.Conv2d(3, 2, 1))], ids=["kept", "random"])
@pytest.mark.parametrize("export", [export_program, pytest.param(export_onnx, marks=needs_onnx)])
def test_a_network_that_gives_other_outputs_the_second_time_is_refused(tmp_path, export, model):
    with pytest.raises(ExportError, match="gives other outputs when it runs on the same images"):
        export(model.eval(), tmp_path / "net", EXAMPLE)
    assert not list(tmp_path.iterdir())


def test_an_earlier_program_is_replaced_and_nothing_else_is(tmp_path):
    model, path = small(), tmp_path / "net.pt2"
    export_program(model, path, EXAMPLE)
    first = path.read_bytes()
    with torch.no_grad():
        model[0].weight.add_(1)
    export_program(model, path, EXAMPLE)
    assert path.read_bytes() != first
    torch.save(model.state_dict(), tmp_path / "weights.pt")  # a zip file, too
    for name in ("weights.pt", "a folder", "gone"):
        if name == "a folder":
            (tmp_path / name).mkdir()
        elif name == "gone":
            (tmp_path / name).symlink_to(tmp_path / "nowhere")
        with pytest.raises(ExportError, match=f"{name} exists already and is not a program"):
            export_program(model, tmp_path / name, EXAMPLE)
    assert torch.load(tmp_path / "weights.pt").keys() == model.state_dict().keys()


@needs_onnx
def test_an_earlier_onnx_file_is_known(exported, tmp_path):
    path, _, _ = exported
    refuse_replacing(path, "onnx")
    (tmp_path / "cut.onnx").write_bytes(path.read_bytes()[:-100])
    for strange in (tmp_path / "cut.onnx", path):
        with pytest.raises(ExportError, match="exists already and is not a"):
            refuse_replacing(strange, "program" if strange == path else "onnx")


def test_images_do_not_get_into_a_program(tmp_path):
    export_program(small(), tmp_path / "net.pt2", torch.full((3, 3, 8, 8), 7.0))
    given, _ = torch.export.load(tmp_path / "net.pt2").example_inputs
    assert not torch.any(given[0] == 7)


class Inside(nn.Module):
    """Code of a file, which would be named in what torch writes."""

    def __init__(self):
        super().__init__()
        self.inner = small()

    def forward(self, images):
        return self.inner(images).softmax(1)


@pytest.mark.parametrize("write", [pytest.param(export_onnx, marks=needs_onnx), export_program])
def test_files_do_not_say_where_code_lies_on_this_machine(tmp_path, write):
    write(Inside().eval(), tmp_path / "net", EXAMPLE)
    content = (tmp_path / "net").read_bytes()
    for place in (Path(__file__), Path(torch.__file__).parent):
        assert str(place).encode() not in content
    assert b"softmax(1)" not in content, "nor what it says"


def test_a_network_is_borrowed_only(tmp_path):
    model = small()
    before = {key: value.clone() for key, value in model.state_dict().items()}
    state = torch.random.get_rng_state()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        export_program(model, tmp_path / "net.pt2", EXAMPLE)
    assert torch.equal(state, torch.random.get_rng_state())
    assert all(torch.equal(before[key], value) for key, value in model.state_dict().items())


WRITERS = [pytest.param(export_onnx, marks=needs_onnx), export_program]


@pytest.mark.parametrize("write", WRITERS)
def test_training_mode_is_refused_with_the_module_in_it(tmp_path, write):
    model = small()
    model[1].train()
    with pytest.raises(ExportError, match=r"its '1' is in training mode. Call `model.eval\(\)`"):
        write(model, tmp_path / "net", EXAMPLE)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("write", WRITERS)
def test_half_precision_is_refused(tmp_path, write):
    with pytest.raises(ExportError, match=r"weights in bfloat16.*Call `model.float\(\)`"):
        write(small().bfloat16(), tmp_path / "net", EXAMPLE)


@pytest.mark.parametrize("write", WRITERS)
def test_code_for_one_number_of_images_is_refused(tmp_path, capfd, write):
    with pytest.raises(ExportError, match="Fixed cannot be exported for any number of images: "):
        write(Fixed().eval(), tmp_path / "net", EXAMPLE)
    assert not list(tmp_path.iterdir())
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("write", WRITERS)
def test_a_place_that_cannot_be_written_is_named_first(tmp_path, write):
    (tmp_path / "file").touch()
    with pytest.raises(StorageError, match="could not be written"):
        write(small(), tmp_path / "file" / "net", EXAMPLE)


def test_missing_packages_are_one_sentence(tmp_path, monkeypatch):
    monkeypatch.setattr(export, "find_spec", lambda name: None if "x" in name[-2:] else name)
    with pytest.raises(StiffnetError, match=r"need onnx, which is not .* 'stiffnet\[onnx\]'"):
        export_onnx(small(), tmp_path / "net.onnx", EXAMPLE)
