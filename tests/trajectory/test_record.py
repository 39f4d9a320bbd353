"""Recording: the right norms, and nothing left behind."""

import copy
import gc
import pickle
import threading
import weakref

import pytest
import timm
import torch
from torch import nn
from torch.nn.modules import module as torch_module

from stiffnet.errors import StepError
from stiffnet.trajectory.record import record
from stiffnet.trajectory.steps import steps
from stiffnet.trajectory.wrappers import unwrap
from tolerances import RTOL
from trajectory.networks import Encoder, known_rates

X = torch.rand(4, 6, dtype=torch.float64)


def indices(trajectory):
    return trajectory.rate_norms / trajectory.state_norms


@pytest.mark.parametrize("step_size", [None, 0.25])
def test_known_rates_come_out_whatever_the_step_size(step_size):
    rates = (0.5, 3.0, 0.125)
    model = known_rates(*rates, step_size=step_size)
    with record(model) as recording:
        model(X)
    expected = torch.tensor(rates, dtype=torch.float64).expand(4, -1)
    torch.testing.assert_close(
        indices(recording.trajectory), expected, rtol=RTOL["float64"], atol=0
    )
    sizes = recording.trajectory.step_sizes
    torch.testing.assert_close(
        sizes, torch.full_like(sizes, step_size or 1.0), rtol=RTOL["float64"], atol=0
    )


def test_alpha_of_torch_add_is_a_step_size():
    class Half(nn.Module):
        def __init__(self):
            super().__init__()
            self.f = known_rates(3.0)[0].rate

        def forward(self, x):
            return torch.add(x, self.f(x), alpha=0.5)

    model = Half()
    with record(model) as recording:
        model(X)
    expected = torch.full((4, 1), 3.0).double()
    trajectory = recording.trajectory
    torch.testing.assert_close(indices(trajectory), expected, rtol=RTOL["float64"], atol=0)
    torch.testing.assert_close(trajectory.step_sizes, expected / 6, rtol=RTOL["float64"], atol=0)


NETWORKS = {
    "resnet18": ((3, 32, 32), {}),
    "resnetv2_18": ((3, 64, 64), {}),
    "seresnet18": ((3, 32, 32), {}),
    "vit_tiny_patch16_224": ((3, 32, 32), {"img_size": 32, "depth": 2}),
    "swin_tiny_patch4_window7_224": ((3, 64, 64), {"img_size": 64, "window_size": 4}),
    "mobilevit_xxs": ((3, 64, 64), {}),
    "tnt_s_legacy_patch16_224": ((3, 32, 32), {"img_size": 32, "depth": 2}),
    "convnext_atto": ((3, 64, 64), {}),
}


@pytest.mark.parametrize("name", NETWORKS)
def test_a_sample_does_not_see_its_batch(name):
    shape, options = NETWORKS[name]
    torch.manual_seed(0)
    model = timm.create_model(name, num_classes=2, **options).double().eval()
    for parameter in model.parameters():  # zero-initialised norms would hide the rates
        nn.init.normal_(parameter, std=0.1)
    x = torch.rand(3, *shape, dtype=torch.float64)
    found = steps(model, x)
    with torch.no_grad(), record(model, found) as recording:
        model(x)
        together = recording.trajectory
        alone = []
        for sample in x.split(1):
            model(sample)
            alone.append(recording.trajectory)
    for norms in ("state_norms", "rate_norms", "increment_norms"):
        parts = torch.cat([getattr(t, norms) for t in alone])
        torch.testing.assert_close(getattr(together, norms), parts, rtol=RTOL["batch64"], atol=0)


@pytest.mark.parametrize("name", ["resnet18", "seresnet18", "convnext_atto"])
def test_state_and_increment_are_the_operands_of_the_addition(name):
    """For blocks that end with the addition, increment = output − input, from plain hooks."""
    shape, options = NETWORKS[name]
    torch.manual_seed(0)
    model = timm.create_model(name, num_classes=2, **options).double().eval()
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.1)
    x = torch.rand(2, *shape, dtype=torch.float64)
    met = {}
    for step in steps(model, x):
        if step.identity:
            block = model.get_submodule(step.module)
            block.act2 = block.act3 = nn.Identity() if hasattr(block, "act2") else None
            block.register_forward_hook(
                lambda _, args, out, name=step.name: met.__setitem__(name, (args[0], out))
            )
    with torch.no_grad(), record(model) as recording:
        model(x)
    assert met
    for number, step in enumerate(recording.trajectory.steps):
        if step.name in met:
            before, after = met[step.name]
            for norms, value in (("state_norms", before), ("increment_norms", after - before)):
                torch.testing.assert_close(
                    getattr(recording.trajectory, norms)[:, number],
                    value.flatten(1).norm(dim=1),
                    rtol=RTOL["batch64"], atol=0,
                )  # fmt: skip


def test_keyword_networks_are_recorded():
    model = Encoder().double().eval()
    with record(model) as recording:
        model(pixel_values=torch.rand(2, 5, 4, dtype=torch.float64))
    assert recording.trajectory.rate_norms.shape == (2, 6)


@pytest.mark.filterwarnings(
    "ignore:.*torch.jit.*:DeprecationWarning", "ignore:.*torch.jit.*:FutureWarning"
)
def test_blocks_that_cannot_be_watched_are_recorded_by_their_change():
    from trajectory.test_steps import Residual

    blocks = [torch.jit.script(Residual(6).double()) for _ in range(2)]
    model = nn.Sequential(*blocks)
    with torch.no_grad(), record(model) as recording:
        model(X)
        first = blocks[0](X)
    expected = torch.stack([(first - X).norm(dim=1), (blocks[1](first) - first).norm(dim=1)], 1)
    torch.testing.assert_close(
        recording.trajectory.rate_norms, expected.detach(), rtol=RTOL["float64"], atol=0
    )


class Fails(nn.Module):
    def forward(self, x):
        raise RuntimeError("on purpose")


def untouched(model):
    return {
        "modes": [m.training for m in model.modules()],
        "hooks": [(len(m._forward_hooks), len(m._forward_pre_hooks)) for m in model.modules()],
        "own": [set(vars(m)) for m in model.modules()],
        "process": (
            len(torch_module._global_forward_hooks), len(torch_module._global_forward_pre_hooks)
        ),
        "random": torch.get_rng_state().tolist(),
        "buffers": [b.clone().tolist() for b in model.buffers()],
        "grads": [p.grad for p in model.parameters()],
    }  # fmt: skip


@pytest.mark.parametrize("training", [True, False])
def test_everything_is_left_as_it_was(training):
    model = nn.Sequential(timm.create_model("resnet18", num_classes=2), nn.Dropout(0.0))
    model.train(training)
    before = untouched(model)
    with record(model):
        pass
    assert untouched(model) == before
    model.eval()
    before = untouched(model)
    with torch.no_grad(), record(model):
        model(torch.rand(2, 3, 32, 32, generator=torch.Generator().manual_seed(0)))
    assert untouched(model) == before


def test_everything_is_left_as_it_was_when_the_forward_pass_raises():
    model = nn.Sequential(*known_rates(1.0), Fails())
    found = steps(known_rates(1.0), X)
    before = untouched(model)
    with pytest.raises(RuntimeError, match="on purpose"), record(model, found):
        model(X)
    assert untouched(model) == before
    torch.rand(2) + torch.rand(2)  # no function mode is left that would see this


def test_a_recording_goes_on_after_a_pass_that_raised():
    model = known_rates(2.0)
    with record(model, steps(model, X)) as recording:
        with pytest.raises(RuntimeError, match="cannot be multiplied"):
            model(torch.rand(2, 5, dtype=torch.float64))
        model(X)
    assert len(recording.trajectory) == 4


def test_gradients_are_those_of_a_plain_pass():
    plain, recorded = known_rates(0.5, 2.0), known_rates(0.5, 2.0)
    plain(X).sum().backward()
    with record(recorded):
        recorded(X).sum().backward()
    for a, b in zip(plain.parameters(), recorded.parameters(), strict=True):
        assert torch.equal(a.grad, b.grad)


def test_no_state_outlives_its_step():
    model = known_rates(*[0.1] * 5)
    alive = []
    handles = [m.register_forward_hook(lambda _, a, o: alive.append(weakref.ref(o))) for m in model]
    found = steps(model, X)
    alive.clear()
    with torch.no_grad(), record(model, found):
        model(X)
        gc.collect()
        assert [ref for ref in alive if ref() is not None] == []
    for handle in handles:
        handle.remove()


def test_a_deep_copy_made_meanwhile_is_clean():
    model = known_rates(1.0)
    with record(model, steps(model, X)) as recording:
        twin = copy.deepcopy(model)
        pickle.loads(pickle.dumps(twin))
        twin(X)
        with pytest.raises(StepError, match="No forward pass has finished"):
            _ = recording.trajectory


def test_wrapped_models_are_recorded():
    plain = known_rates(0.5, 2.0)
    for wrapped in (torch.compile(plain), nn.DataParallel(plain)):
        with record(wrapped) as recording:
            wrapped(X)
        assert recording.trajectory.rate_norms.shape == (4, 2)


def test_a_model_compiled_and_run_before_is_still_seen():
    plain = known_rates(0.5, 2.0)
    compiled = torch.compile(plain, backend="eager")
    compiled(X)
    with record(compiled) as recording:
        compiled(X)
    assert recording.trajectory.rate_norms.shape == (4, 2)


def test_a_fabric_model_is_recorded_whichever_package_it_is_from():
    from lightning.fabric import Fabric as OtherFabric
    from lightning_fabric import Fabric

    for made in (Fabric, OtherFabric):
        wrapped = made(accelerator="cpu", devices=1).setup(known_rates(0.5, 2.0))
        assert type(unwrap(wrapped)) is nn.Sequential
    wrapped = Fabric(accelerator="cpu", devices=1).setup(known_rates(0.5, 2.0))
    with record(wrapped) as recording:
        wrapped(X)
    assert recording.trajectory.rate_norms.shape == (4, 2)


class Noisy(nn.Module):
    """A block whose own code adds once more in training."""

    def __init__(self):
        super().__init__()
        self.f = known_rates(3.0)[0].rate

    def forward(self, x):
        if self.training:
            x = x + 1e-3
        return x + self.f(x)


def test_code_that_adds_more_often_in_training_is_not_misread():
    model = Noisy().train()
    with record(model), pytest.raises(StepError, match=r"Call `\.eval\(\)`"):
        model(X)


def test_a_squeezed_batch_of_one_is_not_taken_for_many_samples():
    class Squeezing(nn.Module):
        def __init__(self):
            super().__init__()
            self.block = known_rates(1.0)[0]

        def forward(self, x):
            return self.block(x.squeeze())

    model = Squeezing()
    with record(model, steps(model, X)), pytest.raises(StepError, match="squeezes a batch of one"):
        model(X[:1])


def test_positional_and_keyword_arguments_come_together():
    class Scaled(nn.Module):
        def __init__(self):
            super().__init__()
            self.f = known_rates(3.0)[0].rate

        def forward(self, x, *, scale):
            return x + self.f(x) * scale

    model = Scaled()
    with record(model) as recording:
        model(X, scale=0.5)
    assert recording.trajectory.rate_norms.shape == (4, 1)


def test_an_interrupted_pass_leaves_no_old_trajectory():
    class Interrupts(nn.Module):
        on = False

        def forward(self, x):
            if self.on:
                raise KeyboardInterrupt
            return x

    model = nn.Sequential(*known_rates(1.0), Interrupts())
    with record(model, steps(model, X)) as recording:
        model(X)
        model[1].on = True
        with pytest.raises(KeyboardInterrupt):
            model(X)
        with pytest.raises(StepError, match="No forward pass has finished"):
            _ = recording.trajectory
        model[1].on = False
        model(X[:2])
        assert len(recording.trajectory) == 2


def test_other_threads_may_run_the_same_model():
    model = known_rates(1.0, 2.0)
    found = steps(model, X)
    problems = []

    def serve():
        try:
            for _ in range(50):
                model(X)
        except Exception as error:
            problems.append(error)

    thread = threading.Thread(target=serve)
    with record(model, found) as recording:
        thread.start()
        for _ in range(50):
            model(X)
        thread.join()
        assert len(recording.trajectory) == 4
    assert problems == []


def test_nothing_of_the_process_is_touched_where_nothing_is_compiled():
    model = known_rates(1.0)
    with record(model):
        assert torch._dynamo.eval_frame._stance.stance == "default"


def test_before_any_pass_there_is_no_trajectory():
    with record(known_rates(1.0)) as recording, pytest.raises(StepError, match="Call the model"):
        _ = recording.trajectory


def test_a_step_that_is_not_taken_is_named():
    class Sometimes(nn.Module):
        def __init__(self):
            super().__init__()
            self.block = known_rates(1.0)[0]
            self.on = True

        def forward(self, x):
            return self.block(x) if self.on else x

    model = Sometimes()
    found = steps(model, X)
    model.on = False
    with record(model, found), pytest.raises(StepError, match="Step 'block' did not run"):
        model(X)


def test_a_block_that_runs_in_later_passes_only_is_refused():
    class Deeper(nn.Module):
        def __init__(self):
            super().__init__()
            self.blocks = known_rates(0.5, 3.0, 0.125)

        def forward(self, x):
            return self.blocks(x) if x.max() > 10 else self.blocks[:-1](x)

    model = Deeper()
    for known in (None, steps(model, X)):
        with record(model, known) as recording:
            model(X)
            assert len(recording.trajectory.steps) == 2
            with pytest.raises(StepError, match=r"Block 'blocks\.2' .* \(0 and 1 times\)"):
                model(100 * X)
            with pytest.raises(StepError, match="No forward pass has finished"):
                _ = recording.trajectory
            model(X)
            assert len(recording.trajectory.steps) == 2
