"""What every module keeps, whoever wrote it: tested over the table."""

import copy
import pickle

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from attention.cases import (
    ENTRIES,
    IMAGES_ONLY,
    MAPS_ONLY,
    WIDTH,
    made,
    named,
    pair,
    random,
    shaken,
)
from stiffnet.trajectory.steps import steps
from tolerances import RTOL

SIZES = [(1, 1), (1, 7), (2, 3), (7, 7), (9, 16)]


@pytest.fixture(params=ENTRIES, ids=named)
def entry(request):
    return request.param


def stage(entry, count=2, **options):
    torch.manual_seed(0)
    return nn.ModuleList(entry.value.for_stage(WIDTH, count, **options))


def through(modules, rate, state):
    for module in modules:
        rate = module(rate, state)
    return rate


@pytest.mark.parametrize("size", SIZES, ids=str)
def test_any_map_down_to_one_position_keeps_its_shape(entry, size):
    module = made(entry)
    rate, state = pair(3, WIDTH, *size, dtype=torch.float32)
    for values in (rate, torch.zeros_like(rate), torch.full_like(rate, 1e4)):
        leaf = values.clone().requires_grad_()
        out = module(leaf, state)
        out.square().sum().backward()
        assert out.shape == rate.shape
        assert out.isfinite().all()
        assert leaf.grad.isfinite().all()
        assert all(p.grad.isfinite().all() for p in module.parameters())


def test_the_step_size_is_what_the_rate_is_multiplied_with(entry):
    module = shaken(made(entry, 2 * WIDTH))
    rate, state = pair(2, 2 * WIDTH, 8, 8)
    factor = module.step_size(rate, state)
    assert torch.broadcast_shapes(factor.shape, rate.shape) == rate.shape
    if not module.replaces_norm:
        assert_close(module(rate, state), rate * factor, rtol=RTOL["float64"], atol=0.0)
    assert module.spatial == (factor.shape[2:] != (1, 1))


def test_a_constant_can_stand_for_the_descriptor_of_a_gate_per_channel(entry):
    module = shaken(made(entry))
    rate, state = pair(3, WIDTH, 8, 8)
    descriptor = module.describe(rate, state)
    if entry.name == "sge":
        assert descriptor.shape == (3, 64, 8, 8)
        return
    assert descriptor.shape == (3, *module.descriptor_shape)
    constant = descriptor[1:2]
    assert_close(module.gate(constant), module.gate(descriptor)[1:2], rtol=RTOL["batch64"], atol=0)
    assert module.gate(constant).shape == (1, WIDTH)


def test_a_sample_does_not_see_its_batch(entry):
    module = shaken(made(entry))
    rate, state = pair(4, WIDTH, 7, 5)
    alone = torch.cat([
        module(r, s) for r, s in zip(rate.split(1), state.split(1), strict=True)
    ])  # fmt: skip
    assert_close(module(rate, state), alone, rtol=RTOL["batch64"], atol=RTOL["batch64"])


def test_the_same_pass_twice_gives_the_same_bits_and_leaves_nothing_behind(entry):
    modules = stage(entry).eval()
    rate, state = pair(2, WIDTH, 8, 8, dtype=torch.float32)
    first = through(modules, rate, state)
    before = pickle.dumps(modules)
    assert torch.equal(through(modules, rate, state), first)
    assert pickle.dumps(modules) == before
    assert torch.equal(through(stage(entry).eval(), rate, state), first)


@pytest.mark.parametrize("start", ["paper", "identity"])
def test_every_parameter_learns_from_the_second_update_at_the_latest(entry, start):
    modules = stage(entry).double().train()
    if start == "identity":
        for module in modules:
            module.start_at_identity()
    rate, state = pair(6, WIDTH, 8, 8)
    towards = random(6, WIDTH, 8, 8, seed=5)
    optimiser = torch.optim.SGD(modules.parameters(), lr=0.01)
    for _ in range(2):
        optimiser.zero_grad()
        (through(modules, rate, state) * towards).sum().backward()
        assert [n for n, p in modules.named_parameters() if p.grad is None] == []
        optimiser.step()
    assert [n for n, p in modules.named_parameters() if not p.grad.any()] == []


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16], ids=str)
def test_the_output_has_the_dtype_of_the_rate(entry, dtype):
    rate, state = pair(2, WIDTH, 8, 8, dtype=dtype)
    assert made(entry).to(dtype)(rate, state).dtype == dtype


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_autocast_keeps_the_dtype_and_about_the_numbers(entry, dtype):
    module = made(entry).eval()
    rate, state = pair(2, WIDTH, 8, 8, dtype=dtype)
    expected = module(rate.float(), state.float())
    with torch.autocast("cpu", torch.bfloat16):
        out = module(rate, state)
    assert out.dtype == dtype
    scale = expected.abs().max().item()
    assert_close(out.float(), expected, rtol=0.0, atol=RTOL["bfloat16"] * scale)


def test_channels_last_stays_so_and_changes_no_number(entry):
    module = shaken(made(entry))
    rate, state = pair(2, WIDTH, 6, 8)
    last = [x.to(memory_format=torch.channels_last) for x in (rate, state)]
    out = module(*last)
    assert out.is_contiguous(memory_format=torch.channels_last)
    assert_close(out, module(rate, state), rtol=RTOL["batch64"], atol=RTOL["batch64"])


def token_cases():
    for kind in ENTRIES:
        if kind.name not in IMAGES_ONLY:
            shapes = [(8, 8)] if kind.name in MAPS_ONLY else [(8, 8), (64,), (2, 4, 8)]
            yield from (pytest.param(kind, shape, id=f"{kind.name}-{shape}") for shape in shapes)


@pytest.mark.parametrize(("kind", "shape"), list(token_cases()))
def test_tokens_are_images_with_their_channels_last(kind, shape):
    module = shaken(made(kind))
    tokens = shaken(made(kind, channel_axis=-1))
    rate, state = pair(2, WIDTH, *shape)
    out = tokens(rate.movedim(1, -1), state.movedim(1, -1))
    assert_close(out.movedim(-1, 1), module(rate, state), rtol=RTOL["batch64"], atol=0.0)


def test_a_deep_copy_and_a_pickle_are_independent_and_the_same(entry):
    modules = stage(entry).eval()
    rate, state = pair(2, WIDTH, 8, 8, dtype=torch.float32)
    expected = through(modules, rate, state)
    twins = [copy.deepcopy(modules), pickle.loads(pickle.dumps(modules))]
    with torch.no_grad():
        for parameter in modules.parameters():
            parameter.add_(1.0)
    for twin in twins:
        assert torch.equal(through(twin, rate, state), expected)


def test_a_state_dict_says_everything(entry):
    module = shaken(made(entry), seed=3)
    other = made(entry, seed=1).double().eval()
    other.load_state_dict(module.state_dict(), strict=True)
    rate, state = pair(2, WIDTH, 8, 8)
    assert torch.equal(other(rate, state), module(rate, state))


@pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated")  # torch's own, in jvp
def test_forward_and_reverse_mode_agree(entry):
    module = shaken(made(entry))
    rate, state = pair(2, WIDTH, 4, 4)
    along, against = random(*rate.shape, seed=7), random(*rate.shape, seed=8)
    _, forward = torch.func.jvp(lambda r: module(r, state), (rate,), (along,))
    _, pull = torch.func.vjp(lambda r: module(r, state), rate)
    product = (pull(against)[0] * along).sum()
    assert_close((forward * against).sum(), product, rtol=RTOL["batch64"], atol=0.0)


@pytest.mark.slow
def test_it_compiles_forwards_and_backwards(entry):
    torch.compiler.reset()
    module = made(entry)
    twin = copy.deepcopy(module)
    rate, state = pair(3, WIDTH, 7, 7, dtype=torch.float32)
    compiled = torch.compile(module, backend="aot_eager", fullgraph=True)
    for run in (compiled, twin):
        run(rate, state).square().sum().backward()
    assert_close(compiled(rate, state), twin(rate, state), rtol=RTOL["batch32"], atol=0.0)
    for ours, theirs in zip(module.parameters(), twin.parameters(), strict=True):
        scale = theirs.grad.abs().max().item()
        assert_close(ours.grad, theirs.grad, rtol=0.0, atol=RTOL["batch32"] * scale)


def exported(module, given, free):
    return torch.export.export(module, given, dynamic_shapes=tuple(free for _ in given)).module()


@pytest.mark.slow
def test_it_exports_for_any_map(entry):
    module = made(entry).eval()
    inputs = 2 if module.needs_state else 1
    free = {axis: torch.export.Dim(name, min=7) for axis, name in ((2, "height"), (3, "width"))}
    program = exported(module, pair(2, WIDTH, 9, 10, dtype=torch.float32)[:inputs], free)
    larger = pair(2, WIDTH, 14, 8, dtype=torch.float32)[:inputs]
    assert_close(program(*larger), module(*larger), rtol=RTOL["batch32"], atol=1e-7)


class Step(nn.Module):
    def __init__(self, gate):
        super().__init__()
        self.conv = nn.Conv2d(WIDTH, WIDTH, 1)
        self.gate = gate

    def forward(self, x):
        return x + self.gate(torch.relu(self.conv(x)), x)


def test_what_a_gate_adds_up_inside_is_not_taken_for_a_step(entry):
    model = nn.Sequential(*(Step(gate) for gate in stage(entry, 3)))
    assert [step.name for step in steps(model, torch.randn(2, WIDTH, 8, 8))] == ["0", "1", "2"]


def test_it_says_what_it_is_with_its_reference_and_its_parameters(entry):
    module = entry.value
    assert entry.summary == f"{module.summary}; {module.reference}; parameters: {module.formula}"
    assert any(year in module.reference for year in map(str, range(2018, 2024)))
    assert str(WIDTH) in repr(made(entry))
