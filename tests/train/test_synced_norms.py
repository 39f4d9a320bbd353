"""Batch norms over ranks: two ranks, however they share a batch, do what one process does."""

import copy
import inspect
import os
import subprocess
import sys
from dataclasses import dataclass
from datetime import timedelta

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F
from torch.nn.modules._functions import SyncBatchNorm as TorchKernels
from torch.nn.parallel import DistributedDataParallel

from stiffnet.errors import RecipeError
from stiffnet.train.noise import add_noise, set_step
from stiffnet.train.synced_norms import plain, synchronise
from tolerances import RTOL

TOLERANCE = {"float32": RTOL["batch32"], "float64": RTOL["float64"]}
SAMPLES = 9
STEPS = 4


@dataclass(frozen=True)
class Case:
    """A batch, how two ranks share it, and what else is on."""

    share: int = SAMPLES // 2  # samples of the first rank
    dtype: str = "float64"
    noise: bool = False
    channels_last: bool = False


CASES = {
    f"{name}-{dtype}": Case(dtype=dtype, **options)
    for dtype in TOLERANCE
    for name, options in {
        "uneven": {},
        "far from even": {"share": 1},
        "one rank empty": {"share": SAMPLES},
        "noise": {"noise": True},
        "channels last": {"channels_last": True},
    }.items()
}


def network(case):
    """Norms of every sort: in a subclass, cumulative, without affine part, without memory."""
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(2, 4, 3, padding=1, bias=False),
        Activated(4),
        nn.Conv2d(4, 4, 3, bias=False),
        nn.BatchNorm2d(4, momentum=None, eps=1e-3),
        nn.SiLU(),
        nn.Conv2d(4, 3, 1, bias=False),
        nn.BatchNorm2d(3, affine=False, momentum=0.3),
        nn.Flatten(),
        nn.Linear(27, 5, bias=False),
        nn.BatchNorm1d(5, track_running_stats=False),
        nn.Linear(5, 2),
    ).to(getattr(torch, case.dtype))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    if case.channels_last:
        model = model.to(memory_format=torch.channels_last)
    return add_noise(model, "random", 0.2, 0.1, seed=5) if case.noise else model


def batch(case, seed=0):
    random = torch.Generator().manual_seed(seed)
    x = torch.randn(SAMPLES, 2, 5, 5, generator=random, dtype=torch.float64) + 2
    y = torch.randn(SAMPLES, 2, generator=random, dtype=torch.float64)
    x, y = x.to(getattr(torch, case.dtype)), y.to(getattr(torch, case.dtype))
    return x.contiguous(memory_format=torch.channels_last) if case.channels_last else x, y


def mine(case, rank):
    return slice(0, case.share) if rank == 0 else slice(case.share, None)


def gradients(model, x, y):
    """One pass forward and back: what came out, what came back, what is remembered."""
    x = x.clone().requires_grad_()
    output = model(x)
    ((output - y).square().sum() / SAMPLES).backward()
    return {
        "output": output.detach(),
        "input": x.grad,
        **{f"gradient {name}": p.grad for name, p in model.named_parameters()},
        **{f"buffer {name}": b for name, b in model.named_buffers()},
    }


def trained(model, case, part, ranks=1):
    """Weights after some steps, with each loss weighed as the training loop weighs it."""
    inner = model.module if ranks > 1 else model
    for step in range(STEPS):
        set_step(inner, step)
        x, y = batch(case, seed=step)
        loss = (model(x[part]) - y[part]).square().sum() * (ranks / SAMPLES)
        model.zero_grad()
        loss.backward()
        with torch.no_grad():
            for parameter in model.parameters():
                parameter -= 0.1 * parameter.grad
    return inner.state_dict()


def scaled_error(actual, expected):
    """Largest deviation, in units of the largest value."""
    assert actual.shape == expected.shape
    assert actual.dtype == expected.dtype
    if expected.numel() == 0:
        return 0.0
    scale = float(expected.abs().max()) or 1.0
    return float((actual - expected).abs().max()) / scale


class Activated(nn.BatchNorm2d):
    """A subclass that normalises and goes on, as timm's do (which take seconds to import)."""

    def forward(self, input):
        self.num_batches_tracked += 1
        running = self.running_mean, self.running_var
        y = F.batch_norm(input, *running, self.weight, self.bias, self.training, 0.1, self.eps)
        return F.silu(y, inplace=True)


class Nested(nn.BatchNorm2d):
    """A norm for the first half of a batch, and a norm in it for the second half."""

    def __init__(self, channels):
        super().__init__(channels)
        self.other = nn.BatchNorm2d(channels)

    def forward(self, input):
        first, second = input.chunk(2)
        return torch.cat([super().forward(first), self.other(second)])


class Doubled(nn.BatchNorm2d):
    """A subclass that does without torch's function."""

    def forward(self, input):
        return 2 * input


def message(norm, x):
    with pytest.raises(RecipeError) as caught:
        norm(x)
    return str(caught.value)


def work(folder, rank):
    """What one of two ranks does: this file is its program."""
    torch.set_num_threads(1)
    place = f"file://{folder}/meet"
    dist.init_process_group("gloo", place, timedelta(seconds=120), rank=rank, world_size=2)
    answers = {}
    for name, case in CASES.items():
        x, y = batch(case)
        part = mine(case, rank)
        answers[name] = gradients(copy.deepcopy(synchronise(network(case))), x[part], y[part])
        model = DistributedDataParallel(synchronise(network(case)))
        answers[f"{name} trained"] = trained(model, case, part, ranks=2)

    far = nn.BatchNorm1d(1, momentum=1.0)
    synchronise(far)(far_values()[mine(Case(share=1000), rank)])
    answers["far"] = dict(far.state_dict())

    nested = add_noise(synchronise(Nested(2)), "constant", 3.0, 0.0, seed=0)
    x = batch(Case())[0][:8]
    own = torch.cat([x[2 * rank :][:2], x[4 + 2 * rank :][:2]])
    answers["nested"] = {"output": nested.double()(own).detach()}

    half = synchronise(nn.BatchNorm2d(2))
    x = batch(Case(dtype="float32"))[0].bfloat16().requires_grad_()
    with torch.autocast("cpu", torch.bfloat16):
        output = half(x[mine(Case(), rank)])
    (output.float() ** 3).sum().backward()
    answers["half"] = {"output": output.detach(), "input": x.grad}

    answers["errors"] = {
        "one value": message(synchronise(nn.BatchNorm1d(2)), torch.ones(1 - rank, 2)),
        "no call": message(synchronise(Doubled(2)), torch.ones(2, 2, 3, 3)),
    }
    if rank == 0:  # alone: whoever waited for the other rank would wait in vain
        case = Case()
        answers["evaluated"] = {
            "output": synchronise(network(case)).eval()(batch(case)[0]).detach()
        }
    dist.barrier()
    torch.save(answers, f"{folder}/answers{rank}.pt")
    dist.destroy_process_group()


def far_values():
    """A thousand standard deviations from zero, and elsewhere on the two ranks."""
    random = torch.Generator().manual_seed(3)
    x = torch.randn(3000, 1, generator=random) + 1000
    x[1000:] += 3
    return x


@pytest.fixture(scope="module")
def ranks(tmp_path_factory):
    """What two ranks answered to everything: they start once."""
    folder = tmp_path_factory.mktemp("ranks")
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-W", "error::UserWarning", __file__, str(folder)]
    processes = [
        subprocess.Popen([*command, str(rank)], env=environment, stderr=subprocess.PIPE, text=True)
        for rank in range(2)
    ]
    try:
        errors = [process.communicate(timeout=240)[1] for process in processes]
    finally:
        for process in processes:
            process.kill()
            process.wait()
    assert [process.returncode for process in processes] == [0, 0], errors
    return [torch.load(folder / f"answers{rank}.pt", weights_only=True) for rank in range(2)]


@pytest.mark.parametrize("name", CASES)
def test_two_ranks_do_what_one_process_does(ranks, name):
    case = CASES[name]
    expected = gradients(network(case), *batch(case))
    first, second = (answers[name] for answers in ranks)
    assert list(first) == list(expected)
    for key, value in expected.items():
        if key in ("output", "input"):
            actual = torch.cat([first[key], second[key]])
        elif key.startswith("gradient"):
            actual = first[key] + second[key]
        else:
            assert torch.equal(first[key], second[key]), key
            actual = first[key]
        assert scaled_error(actual, value) <= TOLERANCE[case.dtype], key


@pytest.mark.parametrize("name", CASES)
def test_two_ranks_learn_what_one_process_learns(ranks, name):
    case = CASES[name]
    expected = trained(network(case), case, slice(None))
    first, second = (answers[f"{name} trained"] for answers in ranks)
    assert list(first) == list(expected)
    for key, value in expected.items():
        assert torch.equal(first[key], second[key]), key
        assert scaled_error(first[key], value) <= TOLERANCE[case.dtype], key


def test_the_variance_survives_a_mean_of_a_thousand_deviations(ranks):
    x = far_values().double()
    kept = ranks[0]["far"]
    assert float(kept["running_var"]) == pytest.approx(float(x.var()), rel=RTOL["norm"])
    assert float(kept["running_mean"]) == pytest.approx(float(x.mean()), rel=RTOL["norm"])
    assert int(kept["num_batches_tracked"]) == 1


def test_a_norm_inside_a_norm_is_answered_once(ranks):
    x = batch(Case())[0][:8]
    halves = [3 * nn.BatchNorm2d(2, affine=False).double()(half) for half in x.split(4)]
    for rank, answers in enumerate(ranks):
        own = torch.cat([half[2 * rank :][:2] for half in halves])
        assert scaled_error(answers["nested"]["output"], own) <= RTOL["float64"]


def test_a_norm_inside_a_norm_has_its_own_noise_only():
    x = batch(Case())[0][:8]
    halves = [3 * nn.BatchNorm2d(2, affine=False).double()(half) for half in x.split(4)]
    actual = add_noise(Nested(2).double(), "constant", 3.0, 0.0, seed=0)(x)
    assert scaled_error(actual.detach(), torch.cat(halves)) <= RTOL["float64"]


def test_half_precision_stays_half_and_is_computed_in_float32(ranks):
    x = batch(Case(dtype="float32"))[0].bfloat16().requires_grad_()
    norm = nn.BatchNorm2d(2)
    output = norm(x)
    (output.float() ** 3).sum().backward()
    actual = torch.cat([answers["half"]["output"] for answers in ranks])
    assert scaled_error(actual, output.detach()) <= RTOL["bfloat16"]
    # Each rank holds the whole input and used its own part of it.
    gradient = ranks[0]["half"]["input"] + ranks[1]["half"]["input"]
    assert scaled_error(gradient, x.grad) <= RTOL["bfloat16"]


def test_one_value_per_channel_is_refused_on_every_rank(ranks):
    for answers in ranks:
        assert "1 value(s) per channel over all ranks" in answers["errors"]["one value"]
        assert "raise `batch_size`" in answers["errors"]["one value"]


def test_a_norm_that_cannot_be_synchronised_is_named(ranks):
    for answers in ranks:
        assert "class Doubled never called torch's `batch_norm`" in answers["errors"]["no call"]
        assert "on one rank" in answers["errors"]["no call"]


def test_evaluation_waits_for_nobody_and_is_the_ordinary_one(ranks):
    case = Case()
    expected = network(case).eval()(batch(case)[0])
    assert torch.equal(ranks[0]["evaluated"]["output"], expected)


@pytest.mark.parametrize("training", [True, False])
def test_a_single_process_is_the_ordinary_one_to_the_bit(training):
    case = Case()
    model, other = (network(case).train(training) for _ in range(2))
    expected, actual = gradients(model, *batch(case)), gradients(synchronise(other), *batch(case))
    assert all(torch.equal(actual[key], value) for key, value in expected.items())
    assert isinstance(plain(synchronise(Doubled(2)))(torch.ones(1, 2, 1, 1)), torch.Tensor)
    assert synchronise(Doubled(2))(torch.ones(1, 2, 1, 1)).max() == 2


def test_timms_norms_keep_their_activation():
    """Where torch's own conversion drops it."""
    layers = pytest.importorskip("timm.layers")
    x = batch(Case())[0]
    norm = add_noise(layers.BatchNormAct2d(2).double(), "constant", 2.0, -0.5, seed=0)
    expected = F.relu(2 * F.batch_norm(x, None, None, training=True) - 0.5)
    assert scaled_error(synchronise(norm)(x).detach(), expected) <= RTOL["float64"]


def test_tensors_names_and_modes_stay():
    model = network(Case())
    model[3].eval()
    before = model.state_dict(keep_vars=True)
    modes = [module.training for module in model.modules()]
    assert synchronise(model) is model
    after = model.state_dict(keep_vars=True)
    assert list(after) == list(before)
    assert all(after[name] is before[name] for name in before)
    assert [module.training for module in model.modules()] == modes


@pytest.mark.parametrize("twice", [True, False])
@pytest.mark.parametrize("noise", ["before", "after", "none"])
def test_plain_gives_the_classes_back(noise, twice):
    model = network(Case())
    kinds = [type(module) for module in model.modules()]
    names = [set(vars(module)) for module in model]
    if noise == "before":
        add_noise(model, "constant", 0.5, 0.5, seed=0)
    synchronise(model)
    if twice:
        synchronise(model)
    if noise == "after":
        add_noise(model, "constant", 0.5, 0.5, seed=0)
    assert [type(module) for module in model.modules()] != kinds
    assert plain(model) is model
    assert [type(module) for module in model.modules()] == kinds
    assert [set(vars(module)) for module in model] == names


def test_the_order_of_noise_and_synchronisation_does_not_matter():
    case = Case()
    one = synchronise(add_noise(network(case), "random", 0.2, 0.1, seed=0))
    two = add_noise(synchronise(network(case)), "random", 0.2, 0.1, seed=0)
    assert [type(module) for module in one.modules()] == [type(module) for module in two.modules()]
    x = batch(case)[0]
    assert torch.equal(one(x), two(x))


def test_a_norm_with_two_names_is_altered_once_and_networks_without_norms_pass():
    norm = nn.BatchNorm1d(2)
    model = synchronise(nn.Sequential(norm, norm))
    assert model[0] is model[1]
    assert type(plain(model)[0]) is nn.BatchNorm1d
    layer = nn.Sequential(nn.Linear(2, 2), nn.LayerNorm(2))
    assert [type(module) for module in synchronise(layer)] == [nn.Linear, nn.LayerNorm]


def test_torch_takes_the_arguments_that_a_gpu_is_given():
    assert list(inspect.signature(TorchKernels.forward).parameters)[1:] == [
        "input", "weight", "bias", "running_mean", "running_var", "eps", "momentum",
        "process_group", "world_size",
    ]  # fmt: skip


if __name__ == "__main__":
    work(sys.argv[1], int(sys.argv[2]))
