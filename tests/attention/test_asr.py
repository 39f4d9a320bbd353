"""Modules that are fed a constant: one factor per channel, whatever the rate is."""

import copy
import pickle

import numpy as np
import pytest
import torch
from timm.layers import BatchNormAct2d
from torch import nn
from torch.testing import assert_close

from attention.cases import WIDTH, made, random, shaken
from reference import attention as reference
from reference.attention import affine, along_channels, sigmoid, two_layers
from stiffnet.attention import ATTENTION, Attention, register_attention
from stiffnet.attention.adaptors import ADAPTORS
from stiffnet.attention.asr import Asr, ConstantGate, asr
from stiffnet.attention.iebn import IEBN
from stiffnet.errors import StepError, UnknownNameError
from tolerances import RTOL

ON_STEPS = [entry.name for entry in ATTENTION if entry.name not in ("sge", "iebn")]
EVERY = [*ON_STEPS, "vector"]
LAYOUTS = {
    "maps": (1, (3, WIDTH, 5, 4)),
    "volumes": (1, (3, WIDTH, 2, 3, 4)),
    "tokens": (-1, (3, 7, WIDTH)),
    "channels last": (-1, (3, 5, 4, WIDTH)),
}


def gate(module, *, seed=0, channel_axis=1, **options):
    torch.manual_seed(seed)
    return asr(module, **options)(WIDTH, channel_axis=channel_axis)


def numbers(module):
    return {name: tensor.detach().numpy() for name, tensor in module.state_dict().items()}


def srm(p, y, act):
    return act(p["norm.weight"] * (p["weight"] * y).sum(-1) + p["norm.bias"])


def stepnet(p, y, act):
    mixed = (p["adaptor.weight"] * y).sum(-1)
    normed = p["adaptor.norm.weight"] * mixed + p["adaptor.norm.bias"]
    return act(affine(p, "adaptor.affine", normed))


def sem(p, y, act):
    v = sigmoid(y @ p["switch.weight"].T + p["switch.bias"])
    return (
        act(v[:, [0]] * two_layers(p, "mlp", y))
        * act(v[:, [1]] * along_channels(p["conv.weight"].ravel(), y))
        * act(v[:, [2]] * affine(p, "affine", y))
    )


def dia(p, y, act, h=0.0, c=0.0):
    total = two_layers(p, "cell.from_rate", y)
    total = total + two_layers(p, "cell.from_memory", np.broadcast_to(h, y.shape))
    i, f, g, o = np.split(total, 4, axis=1)
    c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
    return sigmoid(o) * act(c), c


GATES = {
    "se": lambda p, y, act: act(two_layers(p, "mlp", y)),
    "fca": lambda p, y, act: act(two_layers(p, "mlp", y)),
    "spa": lambda p, y, act: act(two_layers(p, "mlp", y.reshape(1, -1))),
    "cbam": lambda p, y, act: act(
        two_layers(p, "mlp", y[..., 0]) + two_layers(p, "mlp", y[..., 1])
    ),
    "eca": lambda p, y, act: act(along_channels(p["conv.weight"].ravel(), y)),
    "ie": lambda p, y, act: act(affine(p, "affine", y)),
    "srm": srm,
    "stepnet": stepnet,
    "sem": sem,
    "dia": lambda p, y, act: dia(p, y, act)[0],
    "vector": lambda p, y, act: y,
}


def expected(name, module, act):
    """The product of the inner gates of their constants, in NumPy."""
    parts = zip(module.inner, module.psi.detach().numpy(), strict=True)
    gates = [
        GATES[name](numbers(part), psi[None], act)[0] * numbers(part)["unit"] for part, psi in parts
    ]
    p = numbers(module)
    return torch.from_numpy(np.prod(gates, axis=0) * p["unit"] / p["first"])


@pytest.mark.parametrize("activation", ["sigmoid", "tanh"])
@pytest.mark.parametrize("name", ON_STEPS)
def test_the_factor_is_what_the_definition_makes_of_the_constants(name, activation):
    module = shaken(gate(name, depth=2, activation=activation))
    act = {"sigmoid": sigmoid, "tanh": np.tanh}[activation]
    assert_close(module.constant(), expected(name, module, act), rtol=RTOL["batch64"], atol=0.0)


def test_without_a_module_the_constants_are_the_factor():
    module = shaken(gate("vector", depth=3))
    assert_close(module.constant(), expected("vector", module, None), rtol=1e-12, atol=0.0)
    assert [name for name, _ in module.named_parameters()] == ["psi"]


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", EVERY)
def test_every_image_and_position_gets_the_same_factor(name, layout):
    axis, shape = LAYOUTS[layout]
    module = shaken(gate(name, channel_axis=axis)).train()
    for rate in (random(*shape), torch.zeros(shape, dtype=torch.float64), random(*shape, seed=1)):
        broadcast = module.constant().view(-1, *(1,) * (len(shape) - 2 if axis == 1 else 0))
        assert torch.equal(module(rate), rate * broadcast)
        assert module.step_size(rate).numel() == WIDTH
    assert not module.needs_state
    assert not module.spatial


@pytest.mark.parametrize("adaptor", ADAPTORS)
def test_no_statistics_are_left_in_a_module(adaptor):
    for module in (gate("stepnet", adaptor=adaptor), gate("srm"), gate("cbam")):
        assert not any(isinstance(m, nn.modules.batchnorm._BatchNorm) for m in module.modules())
        assert not any("running" in key or "batches" in key for key in module.state_dict())
        assert torch.equal(module.train().constant(), module.eval().constant())


PARAMETERS = {"cbam": ATTENTION["se"].value.parameter_count(WIDTH)}


@pytest.mark.parametrize("name", ON_STEPS)
def test_it_has_the_parameters_of_the_module_and_of_what_that_reads(name):
    module = gate(name)
    own = PARAMETERS.get(name, ATTENTION[name].value.parameter_count(WIDTH))
    assert module.psi.shape == (1, *made(ATTENTION[name]).descriptor_shape)
    assert sum(p.numel() for p in module.parameters()) == own + module.psi.numel()
    twice = gate(name, depth=2)
    assert sum(p.numel() for p in twice.parameters()) == 2 * (own + module.psi.numel())


@pytest.mark.parametrize("name", EVERY)
def test_depth_is_a_product(name):
    deep = shaken(gate(name, depth=3))
    deep.first.fill_(1.0)
    product = deep.unit.clone()
    for number in range(3):
        single = gate(name).double()
        single.inner[0].load_state_dict(deep.inner[number].state_dict())
        with torch.no_grad():
            single.psi.copy_(deep.psi[number : number + 1])
        product = product * single.constant()
    assert_close(deep.constant(), product, rtol=RTOL["float64"], atol=0.0)


@pytest.mark.parametrize("start", ["paper", "identity"])
@pytest.mark.parametrize("axis", [1, -1], ids=["maps", "tokens"])
@pytest.mark.parametrize("name", EVERY)
def test_every_parameter_learns_from_the_second_update_at_the_latest(name, axis, start):
    torch.manual_seed(0)
    stage = asr(name, depth=2).for_stage(WIDTH, 2, channel_axis=axis)
    modules = nn.ModuleList(stage).double()
    for key, parameter in modules.named_parameters():
        if key.endswith("fc1.weight"):  # what is below zero stays there: the input is constant
            nn.init.constant_(parameter, parameter.abs().mean())
    if start == "identity":
        for module in modules:
            module.start_at_identity()
    towards = random(2, WIDTH, seed=5)
    optimiser = torch.optim.SGD(modules.parameters(), lr=1e-9)
    for _ in range(2):
        optimiser.zero_grad()
        sum((m.constant() * t).sum() for m, t in zip(modules, towards, strict=True)).backward()
        assert [n for n, p in modules.named_parameters() if p.grad is None] == []
        optimiser.step()
    assert [n for n, p in modules.named_parameters() if not p.grad.any()] == []


@pytest.mark.parametrize("name", EVERY)
def test_a_constant_that_is_not_learnt_is_no_parameter_and_in_the_checkpoint(name):
    fixed = gate(name, learnable=False, init="normal:0.1")
    assert "psi" not in dict(fixed.named_parameters())
    assert "psi" in fixed.state_dict()
    other = gate(name, learnable=False, seed=1)
    other.load_state_dict(fixed.state_dict())
    assert torch.equal(other.constant(), fixed.constant())
    assert "fixed" in repr(fixed)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("axis", [1, -1], ids=["maps", "tokens"])
@pytest.mark.parametrize("name", EVERY)
def test_an_identity_start_changes_no_bit(name, axis, dtype):
    torch.manual_seed(0)
    rate = random(2, WIDTH, 3, WIDTH, dtype=dtype)
    stage = [m.to(dtype) for m in asr(name, depth=2).for_stage(WIDTH, 3, channel_axis=axis)]
    for module in stage:
        module.start_at_identity()
    for module in stage:
        assert torch.equal(module(rate), rate)


@pytest.mark.parametrize(
    "options", [{"module": "vector", "init": 0}, {"module": "srm", "activation": "tanh"}]
)
def test_a_step_size_of_zero_cannot_start_as_the_identity(options):
    message = r"starts with step sizes of 0, which no factor makes 1; give it another `init`"
    with pytest.raises(StepError, match=message):
        gate(**options).start_at_identity()


@pytest.mark.parametrize("name", EVERY)
def test_a_copy_a_pickle_and_a_checkpoint_are_the_same_gate(name):
    module = gate(name, depth=2, init="normal:1").start_at_identity()
    with torch.no_grad():
        module.psi.add_(0.25)
    value = module.constant()
    loaded = gate(name, depth=2, seed=1)
    loaded.load_state_dict(module.state_dict(), strict=True)
    twins = [copy.deepcopy(module), pickle.loads(pickle.dumps(module)), loaded]
    with torch.no_grad():
        module.psi.zero_()
    for twin in twins:
        assert torch.equal(twin.constant(), value)
        assert twin.label == f"asr:{name}"


def test_autocast_keeps_the_dtype():
    rate = random(2, WIDTH, 4, 4, dtype=torch.bfloat16)
    with torch.autocast("cpu", torch.bfloat16):
        assert gate("se", depth=2)(rate).dtype == torch.bfloat16


@pytest.mark.parametrize("name", EVERY)
def test_where_nothing_is_said_it_starts_as_in_the_paper(name):
    on_maps, on_tokens = gate(name), gate(name, channel_axis=-1)
    first = 0.1 if name == "vector" else 1e-3
    assert_close(on_maps.psi, torch.full_like(on_maps.psi, 0.1), rtol=0.0, atol=0.0)
    assert_close(on_tokens.psi, torch.full_like(on_tokens.psi, first), rtol=0.0, atol=0.0)
    if name != "vector":
        assert (on_maps.inner[0].activation, on_tokens.inner[0].activation) == ("sigmoid", "tanh")
        assert all((p == 1e-3).all() for p in on_tokens.inner.parameters())
        torch.manual_seed(0)
        published = dict(ATTENTION[name].value(WIDTH).named_parameters())
        for key, value in on_maps.inner[0].named_parameters():
            assert torch.equal(value, published[key])


def test_each_part_of_the_start_can_be_chosen():
    module = gate("se", channel_axis=-1, init=2, activation="sigmoid", weights="authors")
    assert (module.psi == 2.0).all()
    assert module.inner[0].activation == "sigmoid"
    assert torch.equal(module.inner[0].mlp.fc1.weight, gate("se").inner[0].mlp.fc1.weight)
    module = gate("se", weights=0.5)
    assert all((p == 0.5).all() for p in module.inner.parameters())


def test_normal_values_have_the_deviation_that_was_asked_for():
    torch.manual_seed(0)
    psi = asr("vector", init="normal:0.3")(40_000).psi
    assert psi.std().item() == pytest.approx(0.3, rel=0.02)  # 6 standard errors
    assert abs(psi.mean().item()) < 0.3 * 5 / 200
    one, other = gate("se", depth=2, init="normal:1e-2").psi
    assert not torch.equal(one, other)


def test_what_is_exempt_from_weight_decay_stays_so_and_psi_is_not():
    module = gate("srm", depth=2)
    names = {name for name, _ in module.named_parameters()}
    assert module.no_weight_decay() == names - {"psi"}
    assert gate("se").no_weight_decay() == set()


def test_the_gates_of_a_stage_are_one_recurrence():
    torch.manual_seed(0)
    stage = nn.ModuleList(asr("dia", depth=2).for_stage(WIDTH, 3))
    shaken(stage)
    memory = [(0.0, 0.0), (0.0, 0.0)]
    for module in stage:
        product = 1.0
        for level, (part, psi) in enumerate(zip(module.inner, module.psi, strict=True)):
            p = numbers(part)
            memory[level] = dia(p, psi.detach().numpy()[None], sigmoid, *memory[level])
            product = product * memory[level][0][0] * p["unit"]
        theirs = torch.from_numpy(product) * module.unit / module.first
        assert_close(module.constant(), theirs, rtol=RTOL["batch64"], atol=0.0)
    assert stage[0].inner[0].cell is stage[2].inner[0].cell
    assert stage[0].inner[0].cell is not stage[0].inner[1].cell


def test_the_steps_of_a_stage_are_asked_in_order():
    _, second = asr("dia").for_stage(WIDTH, 2)
    with pytest.raises(StepError, match="Step 2 of 2 of a DIA stage ran without the step before"):
        second.constant()


NORMS = {
    "1d": (lambda: nn.BatchNorm1d(6, eps=1e-3), (4, 6, 9)),
    "2d": (lambda: nn.BatchNorm2d(6, momentum=0.3), (4, 6, 3, 3)),
    "with activation": (lambda: BatchNormAct2d(6, inplace=False), (4, 6, 3, 3)),
}


@pytest.fixture(params=NORMS)
def norm_and_batch(request):
    build, shape = NORMS[request.param]
    norm = shaken(build())
    return norm, random(*shape, seed=4)


@pytest.mark.parametrize("training", [False, True], ids=["evaluating", "training"])
def test_a_norm_gets_a_weight_that_is_scaled_and_keeps_its_shift(norm_and_batch, training):
    norm, batch = norm_and_batch
    plain = copy.deepcopy(norm).train(training)
    gated = asr("iebn", depth=2).from_norm(norm.train(training))
    for name, tensor in gated.named_parameters():
        if name.startswith(("psi", "inner")):
            nn.init.normal_(tensor)
    p = [
        (numbers(part), psi.detach().numpy())
        for part, psi in zip(gated.inner, gated.psi, strict=True)
    ]
    factor = np.prod([sigmoid(affine(part, "affine", psi)) for part, psi in p], axis=0)
    assert_close(gated.constant(), torch.from_numpy(factor), rtol=RTOL["float64"], atol=0.0)
    with torch.no_grad():  # what folding does
        plain.weight.mul_(torch.from_numpy(factor))
    assert_close(gated(batch), plain(batch), rtol=RTOL["batch64"], atol=RTOL["batch64"])
    assert torch.equal(gated.running_mean, plain.running_mean)
    assert gated.to_norm() is norm
    assert norm.weight is gated.weight


def test_a_gated_norm_is_a_constant_gate_and_copies_like_one(norm_and_batch):
    norm, batch = norm_and_batch
    before = norm.eval()(batch)
    gated = asr("iebn").from_norm(norm).start_at_identity()
    assert isinstance(gated, ConstantGate)
    assert gated.replaces_norm
    assert torch.equal(gated(batch), before)
    for twin in (copy.deepcopy(gated), pickle.loads(pickle.dumps(gated))):
        assert torch.equal(twin(batch), before)
        assert twin.to_norm() is not norm
        assert torch.equal(twin.to_norm()(batch), before)
        assert type(twin.to_norm()) is type(norm)


def test_the_keys_of_the_norm_stay():
    gated = asr("iebn").from_norm(nn.BatchNorm2d(6))
    new = {"psi", "first", "unit", "inner.0.unit", "inner.0.affine.weight", "inner.0.affine.bias"}
    assert set(gated.state_dict()) == set(nn.BatchNorm2d(6).state_dict()) | new
    assert len(list(gated.parameters())) == len(list(IEBN(6).parameters())) + 1


def test_another_norm_is_refused():
    with pytest.raises(StepError, match="place of a BatchNorm, and this is a GroupNorm; leave it"):
        asr("iebn").from_norm(nn.GroupNorm(2, 6))


class Mine(Attention):
    """A norm, whose gate has no activation."""

    def __init__(self, channels):
        super().__init__(channels)
        self.norms = nn.Sequential(nn.BatchNorm1d(channels), nn.BatchNorm1d(channels, affine=False))

    @property
    def descriptor_shape(self):
        return (self.channels, 3)

    def describe(self, rate, state=None):
        raise AssertionError

    def excite(self, descriptor):
        return self.norms(descriptor).sum(-1)


class Everywhere(Mine):
    spatial = True


class Normed(Mine):
    replaces_norm = True


@pytest.fixture
def table(monkeypatch):
    monkeypatch.setattr(ATTENTION, "_entries", dict(ATTENTION._entries))
    for name, module in {"mine": Mine, "everywhere": Everywhere, "normed": Normed}.items():
        register_attention(name, module)


def test_a_module_of_the_users_is_taken_too(table):
    module = gate("mine", channel_axis=-1)
    with torch.no_grad():
        module.psi.copy_(random(1, WIDTH, 3))
        module.inner[0].norms[0].weight.copy_(random(WIDTH, seed=1))
        module.inner[0].norms[0].bias.copy_(random(WIDTH, seed=2))
        weight, bias = module.inner[0].norms[0].parameters()
        factor = (module.psi[0] * weight[:, None] + bias[:, None]).sum(-1)
    assert_close(module.constant(), factor, rtol=RTOL["batch32"], atol=RTOL["batch32"])
    assert module(torch.ones(2, 5, WIDTH)).shape == (2, 5, WIDTH)


REFUSED = [
    (("see",), {}, UnknownNameError, r"no attention module called 'see'\. Did you mean 'se'"),
    (("vectr",), {}, UnknownNameError, r"called 'vectr'\. Did you mean 'vector'"),
    (("",), {}, StepError, r"feeds a constant to a module; say which, as in 'asr:se'"),
    ((Mine,), {}, StepError, r"takes the name of a module, and was given Mine; register it"),
    (("sge",), {}, StepError, r"SGE's step size differs between positions, .* such as 'se'"),
    (("everywhere",), {}, StepError, r"Everywhere's step size differs between positions"),
    (("normed",), {}, StepError, r"Normed takes the place of a norm .* such as 'iebn' or 'ie'"),
    (("se",), {"reductoin": 8}, UnknownNameError, r"option of asr:se .*Did you mean 'reduction'"),
    (("se",), {"dept": 2}, UnknownNameError, r"option of asr:se called 'dept'\. .* 'depth'"),
    (("se",), {"channel_axis": 1}, UnknownNameError, r"option of asr:se called 'channel_axis'"),
    (("iebn",), {"eps": 1}, UnknownNameError, r"option of asr:iebn called 'eps'\. Known: depth"),
    (("vector",), {"bias": 1}, UnknownNameError, r"option of asr:vector called 'bias'"),
    (("se",), {"depth": 0}, StepError, r"depth=0; `depth` counts .* give 1 or more"),
    (("se",), {"depth": 1.5}, StepError, r"depth=1\.5; `depth` counts"),
    (("se",), {"depth": True}, StepError, r"depth=True; `depth` counts"),
    (("se",), {"learnable": "no"}, StepError, r"learnable='no'; give true or false"),
    (("se",), {"init": "normal"}, StepError, r"init='normal'; give a finite .*'normal:0\.1'"),
    (("se",), {"init": "normal:0"}, StepError, r"init='normal:0'; give"),
    (("se",), {"init": "normal:-1"}, StepError, r"init='normal:-1'; give"),
    (("se",), {"init": "normal:1.2.3"}, StepError, r"init='normal:1\.2\.3'; give"),
    (("se",), {"init": float("nan")}, StepError, r"init=nan; give a finite number"),
    (("se",), {"init": True}, StepError, r"init=True; give a finite number"),
    (("se",), {"weights": "author"}, StepError, r"weights='author'; .* or 'authors'"),
    (("se",), {"weights": float("inf")}, StepError, r"weights=inf; give a finite number"),
    (("vector",), {"weights": 1.0}, StepError, r"asr:vector has no weights but ψ; leave"),
    (("se",), {"activation": "tan"}, UnknownNameError, r"activation called 'tan'\. .*'tanh'"),
    (("mine",), {"activation": "tanh"}, StepError, r"Mine has no activation .*set `squashes`"),
    (("vector",), {"activation": "tanh"}, StepError, r"Vector has no activation"),
]  # fmt: skip


@pytest.mark.parametrize(("args", "options", "error", "message"), REFUSED, ids=str)
def test_what_cannot_be_is_refused_at_once(table, args, options, error, message):
    with pytest.raises(error, match=message):
        asr(*args, **options)


def test_no_module_of_the_users_is_called_vector(table):
    with pytest.raises(StepError, match="already an attention module called 'vector'; choose"):
        register_attention("vector", Mine)


def test_a_maker_is_a_value():
    assert asr("se", depth=2, reduction=8) == asr("se", reduction=8, depth=2)
    assert len({asr("se"), asr("se"), asr("ie")}) == 2
    assert asr("se").__name__ == "asr:se"
    assert Asr.__name__ == "Asr"
    assert (asr("dia").shares_cell, asr("se").shares_cell) == (True, False)
    assert (asr("iebn").replaces_norm, asr("ie").replaces_norm) == (True, False)


def test_the_reference_of_a_step_is_the_one_of_the_module_itself():
    module = shaken(made(ATTENTION["se"]))
    rate = random(1, WIDTH, 1, 1)
    theirs = reference.se(numbers(module), rate.numpy(), None, False)
    factor = GATES["se"](numbers(module), rate.numpy()[:, :, 0, 0], sigmoid)
    factor = factor * numbers(module)["unit"]
    assert np.allclose(theirs[..., 0, 0], rate.numpy()[..., 0, 0] * factor, rtol=1e-12)
