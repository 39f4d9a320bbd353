"""Lightning: every logger gets the numbers, and training does not notice."""

import pytest
import torch
from lightning import pytorch as pl
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.loggers import CSVLogger
from torch import nn
from torch.utils.data import DataLoader, IterableDataset

import stiffnet
from callbacks.scripts import STEPS, Varied, network, same
from stiffnet.callbacks import LightningStiffness
from stiffnet.errors import StepError

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*LeafSpec"),  # Lightning on a newer torch
    pytest.mark.filterwarnings("ignore:.*does not have many workers"),
    pytest.mark.filterwarnings("ignore:You defined a `validation_step` but"),
    pytest.mark.filterwarnings("ignore:You're resuming from a checkpoint that ended before"),
    pytest.mark.filterwarnings("ignore:Checkpoint directory .* exists"),
]


class Module(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = network()

    def forward(self, images):
        return self.net(images)

    def training_step(self, batch, number):
        return nn.functional.cross_entropy(self(batch[0]), batch[1])

    def validation_step(self, batch, number):
        self.log("val", nn.functional.cross_entropy(self(batch[0]), batch[1]))

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


def fit(folder, *callbacks, epochs=2, module=None, valid=True, steps=-1, data=None, **options):
    pl.seed_everything(0, verbose=False)
    module = module or Module()
    trainer = pl.Trainer(
        accelerator="cpu", max_epochs=epochs, max_steps=steps, logger=CSVLogger(folder),
        callbacks=[*callbacks],
        enable_progress_bar=False, enable_model_summary=False, log_every_n_steps=1,
    )  # fmt: skip
    loaders = [DataLoader(Varied(), 8, shuffle=True) if data is None else data]
    loaders += [DataLoader(Varied(10), 8)] if valid else []
    trainer.fit(module, *loaders, **options)
    return trainer, module


def logged(trainer):
    """The rows of the logger that have stiffness in them."""
    import pandas as pd

    rows = pd.read_csv(f"{trainer.logger.log_dir}/metrics.csv")
    return rows.dropna(subset="stiffness/tns").reset_index()


def test_numbers_come_to_the_logger_before_training_and_after_each_epoch(tmp_path):
    callback = LightningStiffness(network="net", samples=8)
    trainer, module = fit(tmp_path, callback)
    rows = logged(trainer)
    assert list(rows["step"]) == [0, 2, 5]  # steps of the optimizer, from 0, three an epoch
    history = callback.monitor.to_frame()
    assert list(history["epoch"]) == [0, 1, 2]
    for column in ("stiffness/tns", *(f"stiffness/nsi/{step}" for step in STEPS)):
        assert rows[column].to_numpy() == pytest.approx(history[column].to_numpy(), rel=1e-6)
    sample = torch.cat(callback.monitor._sample)
    assert trainer.callback_metrics["stiffness/tns"] == pytest.approx(
        stiffnet.measure(module.net, [sample]).tns, rel=1e-6
    )


def test_training_goes_on_bit_by_bit_as_without(tmp_path):
    watched = fit(tmp_path, LightningStiffness(samples=8))[1]
    assert same(watched, fit(tmp_path)[1])
    assert all(part.training for part in watched.modules())


def test_two_networks_of_a_module_are_logged_under_two_names(tmp_path):
    class Two(Module):
        def __init__(self):
            super().__init__()
            self.other = network()
            with torch.no_grad():
                for value in self.other.parameters():
                    value.mul_(2.0)

    callbacks = [
        LightningStiffness(network="net"),
        LightningStiffness(network="other", prefix="b/"),
    ]
    trainer, module = fit(tmp_path, *callbacks, epochs=1, module=Two())
    for callback, name in zip(callbacks, ("stiffness/tns", "b/tns"), strict=True):
        expected = stiffnet.measure(callback._network(module), callback.monitor._sample).tns
        assert float(trainer.callback_metrics[name]) == pytest.approx(expected, rel=1e-6)
    first, second = (float(trainer.callback_metrics[name]) for name in ("stiffness/tns", "b/tns"))
    assert first != pytest.approx(second, rel=0.01)
    states = torch.load(trainer.checkpoint_callback.best_model_path, weights_only=False)[
        "callbacks"
    ]
    assert sum("LightningStiffness" in key for key in states) == 2


def test_a_part_that_is_not_there_is_named(tmp_path):
    with pytest.raises(StepError, match="`network` is 'nett', and Module has no such part; it has"):
        fit(tmp_path, LightningStiffness(network="nett"))


def test_without_validation_the_training_images_are_measured(tmp_path):
    callback = LightningStiffness(samples=24)
    fit(tmp_path, callback, epochs=1, valid=False)
    assert len(torch.cat(callback.monitor._sample)) == 24


def test_a_checkpoint_may_be_chosen_by_it_and_keeps_its_history(tmp_path):
    best = ModelCheckpoint(tmp_path / "best", monitor="stiffness/tns", save_last=True)
    callback = LightningStiffness(samples=8)
    fit(tmp_path, callback, best)
    assert float(best.best_model_score) == pytest.approx(
        callback.monitor.to_frame()["stiffness/tns"][1:].min(), rel=1e-6
    )
    again = LightningStiffness(samples=8)
    fit(tmp_path, again, best, epochs=3, ckpt_path=tmp_path / "best" / "last.ckpt")
    assert list(again.monitor.to_frame()["epoch"]) == [0, 1, 2, 3]


def test_the_epoch_of_a_run_that_ends_or_goes_on_in_the_middle_of_one_is_a_fraction(tmp_path):
    saved = tmp_path / "saved"
    each = ModelCheckpoint(saved, filename="{step}", save_top_k=-1, every_n_train_steps=1)
    callback = LightningStiffness(samples=8)
    _, module = fit(tmp_path, callback, each, steps=5)  # of three an epoch
    history = callback.monitor.to_frame()
    assert list(history["epoch"]) == [0, 1, 1 + 2 / 3]
    broken_off = stiffnet.measure(module, callback.monitor._sample).tns
    assert list(history["stiffness/tns"])[-1] == broken_off
    for steps, expected in ((2, [0, 2 / 3, 1, 2]), (3, [0, 1, 2]), (5, [0, 1, 1 + 2 / 3, 2])):
        again = LightningStiffness(samples=8)
        fit(tmp_path, again, each, ckpt_path=saved / f"step={steps}.ckpt")
        assert list(again.monitor.to_frame()["epoch"]) == expected


def test_an_epoch_that_is_broken_off_is_not_measured_if_nobody_knows_its_length(tmp_path):
    class Stream(IterableDataset):
        def __iter__(self):
            return (Varied()[i] for i in range(24))

    callback = LightningStiffness(samples=8)
    fit(tmp_path, callback, steps=5, data=DataLoader(Stream(), 8))
    assert list(callback.monitor.to_frame()["epoch"]) == [0, 1]
