"""A step's branch as a function: the network's own code, at any input, with its derivatives."""

import pytest
import timm
import torch
import torchvision
from torch import nn
from torch.func import jacrev, jvp, vjp, vmap

import stiffnet
from naming import case
from stiffnet.errors import StepError
from stiffnet.trajectory.branch import branch
from stiffnet.trajectory.norms import sample_norms
from stiffnet.trajectory.record import record
from stiffnet.trajectory.steps import steps
from tolerances import RTOL
from trajectory.networks import Encoder, known_rates

# `torch.func.jvp` scripts some functions of its own when it is used for the first time.
pytestmark = pytest.mark.filterwarnings(
    "ignore:.*torch.jit.*:DeprecationWarning", "ignore:.*torch.jit.*:FutureWarning"
)

FAMILIES = {
    "resnet18": ((3, 32, 32), {}),
    "resnetv2_18": ((3, 32, 32), {}),
    "seresnet18": ((3, 32, 32), {}),
    "vit_tiny_patch16_224": ((3, 32, 32), {"img_size": 32, "depth": 2, "init_values": 0.1}),
    "convnext_atto": ((3, 32, 32), {}),
    "swin_tiny_patch4_window7_224": ((3, 32, 32), {"img_size": 32, "window_size": 4}),
    "mobilenetv2_035": ((3, 32, 32), {}),
}


def random_normal(model):
    """Weights from which no rate is zero, and statistics that are not 0 and 1."""
    generator = torch.Generator().manual_seed(0)
    for parameter in model.parameters():
        scale = 1.0 if parameter.ndim < 2 else 1.2 / parameter[0].numel() ** 0.5
        parameter.data = torch.randn(parameter.shape, generator=generator) * scale
    for name, buffer in model.named_buffers():
        if name.endswith("running_var"):
            buffer.data = 0.5 + torch.rand(buffer.shape, generator=generator)
    return model.double().eval()


def some(found):
    """The first steps, a projection, and the last one."""
    projected = [step for step in found if not step.identity]
    return list(dict.fromkeys([*found[:2], *projected[-1:], found[-1]]))


def randn_like(x, seed=3):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(x.shape, generator=generator, dtype=x.dtype)


def agree(one, other, rtol=RTOL["float64"]):
    one, other = one.detach(), other.detach()
    torch.testing.assert_close(one, other, rtol=0, atol=rtol * float(other.abs().max()))


def derivatives_agree(f):
    """The product with the Jacobian is a difference quotient, and that with its transpose fits."""
    v = randn_like(f.input)
    value, change = jvp(f, (f.input,), (v,))
    agree(value, f.output)
    h = 1e-6
    agree(change, (f(f.input + h * v) - f(f.input - h * v)) / (2 * h), rtol=RTOL["quotient64"])
    u = randn_like(f.output, seed=4)
    (pulled,) = vjp(f, f.input)[1](u)
    forth, back = (u * change).sum(), (pulled * v).sum()
    assert float(back.detach()) == pytest.approx(float(forth.detach()), rel=RTOL["sum64"])


@pytest.mark.parametrize("name", FAMILIES)
def test_at_its_own_input_it_gives_what_the_pass_gave(name):
    shape, options = FAMILIES[name]
    model = random_normal(timm.create_model(name, num_classes=2, **options))
    x = torch.rand(2, *shape, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    found = steps(model, x)
    with torch.no_grad(), record(model, found) as recording:
        model(x)
    trajectory = recording.trajectory
    for step in some(found):
        with case(step.name):
            at = found.index(step)
            rate, increment, total = (
                branch(model, step, x, of=of) for of in ("rate", "increment", "sum")
            )
            axis, entries = step.state_at.axis, step.state_at.entries
            for made, norms in ((rate, "rate_norms"), (increment, "increment_norms")):
                assert torch.equal(made(made.input), made.output)
                expected = getattr(trajectory, norms)[:, at]
                agree(sample_norms(made.output, axis=axis, entries=entries), expected)
            if step.identity:
                state = sample_norms(rate.input, axis=axis, entries=entries)
                agree(state, trajectory.state_norms[:, at])
                agree(rate.input + increment.output, total.output)
            derivatives_agree(total if step is found[-1] else rate)


def test_it_is_the_blocks_own_arithmetic_at_any_input():
    model = random_normal(torchvision.models.resnet18(num_classes=2))
    x = torch.rand(1, 3, 32, 32, dtype=torch.float64)
    found = {step.name: step for step in steps(model, x)}

    def written_out(block, x):
        return block.bn2(block.conv2(torch.relu(block.bn1(block.conv1(x)))))

    for name in ("layer1.1", "layer2.0"):
        block = model.get_submodule(name)
        f, whole = (branch(model, found[name], x, of=of) for of in ("rate", "block"))
        other = randn_like(f.input)
        agree(f(other), written_out(block, other).detach())
        agree(whole(other), block(other).detach())
    projected = branch(model, found["layer2.0"], x, of="sum")
    agree(projected(other), (written_out(block, other) + block.downsample(other)).detach())


def test_jacobians_come_out_whole():
    """Of a block whose activations write in place, in every way that `torch.func` has."""
    model = random_normal(torchvision.models.resnet18(num_classes=2))
    x = torch.rand(1, 3, 32, 32, dtype=torch.float64)
    step = next(step for step in steps(model, x) if step.name == "layer4.1")
    f = branch(model, step, x, of="block")
    size = f.input.numel()
    dense = jacrev(f)(f.input).reshape(size, size)
    pushed = vmap(lambda v: jvp(f, (f.input,), (v,))[1])(
        torch.eye(size, dtype=torch.float64).reshape(size, *f.input.shape)
    )
    agree(pushed.reshape(size, size).T, dense)
    sums = torch.autograd.functional.jacobian(lambda v: model.layer4[1](v), f.input)
    agree(dense, sums.reshape(size, size))


X = torch.rand(4, 6, dtype=torch.float64)


@pytest.mark.parametrize("step_size", [None, 0.25])
def test_a_linear_step_has_its_matrix(step_size):
    model = known_rates(0.5, 3.0, step_size=step_size)
    step = steps(model, X)[1]
    weight = model[1].rate.weight.detach()
    one = X[:1]
    scale = step_size or 1.0
    for of, expected in (
        ("rate", weight),
        ("increment", scale * weight),
        ("sum", torch.eye(6).double() + scale * weight),
    ):
        f = branch(model, step, one, of=of)
        agree(jacrev(f)(f.input).reshape(6, 6), expected)
        agree(f.input, model[0](one).detach())


class Written(nn.Module):
    """One linear map W, added in a way of its own."""

    def __init__(self, way):
        super().__init__()
        self.inner = nn.Linear(6, 6, bias=False).double()
        self.way, self.other = way, nn.Linear(6, 6).double()

    def forward(self, x):
        return self.way(self, x)


def in_place(block, x):
    out = block.inner(x)
    out *= 0.5
    out += x
    return out.relu_()


def behind_a_module(block, x):
    y = block.other(x)
    return y + 0.5 * block.inner(y)


def behind_a_function(block, x):
    y = torch.tanh(block.other(x))
    return 0.5 * block.inner(y) + y


def of_a_part(block, x):
    y = torch.stack([x, 2 * x]).unbind()[1]
    return y + 0.5 * block.inner(y)


def minus(block, x):
    return x - block.inner(x) * -0.5


def alpha(block, x):
    return torch.add(x, block.inner(x), alpha=0.5)


def turned(block, x):
    """The state is laid out otherwise than what the rate was made of."""
    state = x.reshape(-1, 2, 3).transpose(1, 2)
    return (state + 0.5 * block.inner(x).reshape(-1, 2, 3).transpose(1, 2)).flatten(1)


WAYS = [in_place, behind_a_module, behind_a_function, of_a_part, minus, alpha, turned]


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_however_the_code_is_written(way):
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = nn.Sequential(Written(way), nn.Flatten())
    [step] = steps(model, X)
    weight = model[0].inner.weight.detach()
    if way is turned:  # entries of x in the order of the state, so that rows and columns move alike
        order = torch.arange(6).reshape(2, 3).T.flatten()
        weight = weight[order][:, order]
    increment, total = (branch(model, step, X[:1], of=of) for of in ("increment", "sum"))
    agree(jacrev(increment)(increment.input).reshape(6, 6), 0.5 * weight)
    agree(jacrev(total)(total.input).reshape(6, 6), torch.eye(6).double() + 0.5 * weight)
    rate = branch(model, step, X[:1])
    sign = -1 if way is minus else 1  # what is subtracted counts with its sign
    agree(jacrev(rate)(rate.input).reshape(6, 6), sign * weight)


class Tokens(nn.Module):
    """Turns an image into tokens, and adds to these."""

    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(4, 4, dtype=torch.float64)

    def forward(self, x):
        tokens = x.flatten(2).transpose(1, 2)
        return tokens + self.inner(tokens)


def test_a_step_that_begins_at_a_transposed_value():
    """Its input is that value, entry by entry."""
    image = torch.arange(48, dtype=torch.float64).reshape(2, 4, 2, 3)
    model = nn.Sequential(Tokens(), nn.Flatten())
    [step] = steps(model, image)
    f = branch(model, step, image)
    agree(f.input, image.flatten(2).transpose(1, 2))
    x = randn_like(f.input)
    agree(f(x), model[0].inner(x))


def test_an_addition_that_is_given_its_rate_by_other_modules():
    """As in BERT: the module that adds computes half of the rate, and not from the state."""
    model = random_normal(Encoder())
    batch = {"pixel_values": torch.rand(1, 5, 4, dtype=torch.float64)}
    for step in steps(model, batch)[2:4]:
        layer = model.layer[1]
        f = branch(model, step, batch)
        x = randn_like(f.input)
        if step.module.endswith("attention_output"):
            expected = layer.attention_output.dense(layer.attention(x)[0])
        else:
            expected = layer.output.dense(nn.functional.gelu(layer.intermediate(x)))
        agree(f(x), expected.detach())
        derivatives_agree(f)


def both(block, x):
    return x + block.other(x).tanh() + 0.5 * block.inner(x)


def test_rates_that_are_added_to_one_value_in_turn_are_functions_of_that_value():
    model = nn.Sequential(Written(both))
    block = model[0]
    first, second = steps(model, X)
    x = randn_like(X)
    for step, of, expected in (
        (first, "rate", block.other(x).tanh()),
        (second, "rate", block.inner(x)),
        (second, "sum", block(x)),
    ):
        f = branch(model, step, X, of=of)
        assert torch.equal(f.input, X)
        agree(f(x), expected)


class Counting(Written):
    """Counts its calls in a buffer, as norms do in training."""

    def __init__(self):
        super().__init__(alpha)
        self.register_buffer("calls", torch.zeros((), dtype=torch.int64))

    def forward(self, x):
        self.calls += 1
        return super().forward(x)


def test_a_block_may_write_into_its_buffers():
    model = nn.Sequential(Counting())
    [step] = steps(model, X)
    f = branch(model, step, X[:1])
    agree(jacrev(f)(f.input).reshape(6, 6), model[0].inner.weight)
    derivatives_agree(f)
    assert model[0].calls == 0


class Shared(nn.Module):
    """One block in three places."""

    def __init__(self):
        super().__init__()
        self.block = known_rates(0.5)[0]

    def forward(self, x):
        return self.block(self.block(torch.sin(self.block(x))))


def test_each_call_of_a_shared_block_is_a_step_of_its_own():
    model = Shared()
    inputs = [X]
    for after in (torch.sin, lambda x: x):
        inputs.append(after(model.block(inputs[-1])).detach())
    for step, expected in zip(steps(model, X), inputs, strict=True):
        f = branch(model, step, X)
        agree(f.input, expected)
        agree(f.output, model.block.rate(expected).detach())


@pytest.mark.parametrize("attention", ["se", "stepnet", "dia"])
def test_gates_are_left_out_of_the_rate_and_part_of_the_increment(attention):
    model = random_normal(stiffnet.create_model("resnet20_cifar", attention=attention))
    x = torch.rand(1, 3, 8, 8, dtype=torch.float64)
    found = steps(model, x)
    with torch.no_grad(), record(model, found) as recording:
        model(x)
    at = next(i for i, step in enumerate(found) if step.name == "layer2.1")
    for of in ("rate", "increment"):
        f = branch(model, found[at], x, of=of)
        expected = getattr(recording.trajectory, f"{of}_norms")[:, at]
        agree(f.output.flatten(1).norm(dim=1), expected)
        derivatives_agree(f)
    with torch.no_grad():
        model(x)  # which a memory of steps that was left behind would disturb


def test_the_network_is_left_as_it_was():
    model = stiffnet.create_model("resnet20_cifar", attention="dia").train()
    before = {key: value.clone() for key, value in model.state_dict().items()}
    x = torch.rand(2, 3, 8, 8)
    f = branch(model, steps(model, x)[1], x)
    given = f.input.clone()
    state = torch.get_rng_state()
    f(f.input)
    assert torch.equal(f.input, given)
    assert torch.equal(torch.get_rng_state(), state)
    assert all(module.training for module in model.modules())
    assert not any(module._forward_pre_hooks for module in model.modules())
    assert all(torch.equal(value, before[key]) for key, value in model.state_dict().items())
    assert all(m.memory.held is None for m in model.modules() if hasattr(m, "memory"))


def written_over(block, x):
    y = block.other(x)
    y.add_(1.0)  # and goes by its old name
    return y + block.inner(y)


KEPT = {}


def beside_its_argument(block, x):
    return x + block.inner(KEPT["x"])


class Keeps(nn.Module):
    def forward(self, x):
        KEPT["x"] = x.clone()
        return KEPT["x"]


@pytest.mark.parametrize("way", [written_over, beside_its_argument], ids=lambda way: way.__name__)
def test_an_input_that_goes_by_other_names_is_refused_and_not_held(way):
    model = nn.Sequential(Keeps(), Written(way))
    [step] = steps(model, X)
    with pytest.raises(StepError, match="reads the input of a step by another name"):
        branch(model, step, X)


CALLS = []


class Counts(nn.Module):
    """Adds something else every time."""

    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(6, 6).double()

    def forward(self, x):
        CALLS.append(x.shape)
        return x + self.inner(x) * len(CALLS)


def test_what_is_no_function_is_refused():
    model = nn.Sequential(Counts())
    [step] = steps(model, X)
    with pytest.raises(StepError, match="does not give the same values when it is run again"):
        branch(model, step, X, of="increment")


def test_a_block_that_cannot_be_followed_is_refused():
    from trajectory.test_steps import Residual

    model = nn.Sequential(*(torch.jit.script(Residual(6).double()) for _ in range(2)))
    step = steps(model, X)[0]
    with pytest.raises(StepError, match=r"Step '0' is inside a block whose code cannot be"):
        branch(model, step, X)


@pytest.mark.parametrize("wrong", [X[:1].float(), X[:2], X[:1, :5]])
def test_another_shape_or_dtype_is_refused(wrong):
    model = known_rates(0.5)
    f = branch(model, steps(model, X)[0], X[:1])
    with pytest.raises(StepError, match=r"torch.float64 of shape \(1, 6\), and this is"):
        f(wrong)


def test_an_unknown_part_of_a_step_is_refused():
    model = known_rates(0.5)
    with pytest.raises(StepError, match="`of` is 'gate'"):
        branch(model, steps(model, X)[0], X, of="gate")
