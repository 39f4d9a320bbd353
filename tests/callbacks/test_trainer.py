"""The Trainer of transformers: its history gets the numbers, and training does not notice."""

import pytest
import torch
from torch import nn
from torch.utils.data import Dataset

import stiffnet
from callbacks.scripts import STEPS, Varied, network, same
from stiffnet.callbacks import TrainerStiffness

pytest.importorskip("accelerate")  # without which there is no Trainer
transformers = pytest.importorskip("transformers")


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = network()

    def forward(self, pixel_values, labels=None):
        logits = self.net(pixel_values)
        loss = None if labels is None else nn.functional.cross_entropy(logits, labels)
        return {"loss": loss, "logits": logits}


class Named(Dataset):
    """As datasets of transformers are: dictionaries, with a column that no model takes."""

    def __init__(self, count):
        self.inner = Varied(count)

    def __len__(self):
        return len(self.inner)

    def __getitem__(self, index):
        image, label = self.inner[index]
        return {"pixel_values": image, "labels": label, "name": index}


def train(folder, *, watched=True, tested=10, steps=-1, start=None, save="no", **options):
    transformers.set_seed(0)
    arguments = transformers.TrainingArguments(
        folder, per_device_train_batch_size=8, num_train_epochs=2, report_to="none", seed=0,
        use_cpu=True, disable_tqdm=True, save_strategy=save, save_steps=1, max_steps=steps,
        learning_rate=0.1, dataloader_pin_memory=False, logging_strategy="epoch",
        optim="adamw_torch",
    )  # fmt: skip
    trainer = transformers.Trainer(
        Model(), arguments, train_dataset=Named(24), eval_dataset=Named(tested) if tested else None
    )
    trainer.remove_callback(transformers.PrinterCallback)
    callback = TrainerStiffness(trainer, samples=8, **options)
    if watched:
        trainer.add_callback(callback)
    trainer.train(resume_from_checkpoint=start)
    return trainer, callback


def test_numbers_come_to_the_history_before_training_and_after_each_epoch(tmp_path):
    trainer, callback = train(tmp_path)
    rows = [row for row in trainer.state.log_history if "stiffness/tns" in row]
    assert [(row["epoch"], row["step"]) for row in rows] == [(0, 0), (1, 3), (2, 6)]
    sample = torch.cat([batch["pixel_values"] for batch in callback.monitor._sample])
    assert len(sample) == 8
    report = stiffnet.measure(trainer.model, [{"pixel_values": sample}])
    assert rows[-1]["stiffness/tns"] == report.tns
    assert {f"stiffness/nsi/net.{step}" for step in STEPS} < rows[-1].keys()


def test_the_trainers_own_log_is_not_lost(tmp_path):
    losses = [
        [row["loss"] for row in train(tmp_path, watched=watched)[0].state.log_history
         if "loss" in row]
        for watched in (True, False)
    ]  # fmt: skip
    assert losses[0] == losses[1]
    assert len(losses[0]) == 2


def test_training_goes_on_bit_by_bit_as_without(tmp_path):
    assert same(train(tmp_path)[0].model, train(tmp_path, watched=False)[0].model)


def test_without_evaluation_the_training_images_are_measured(tmp_path):
    _, callback = train(tmp_path, tested=0, every=2)
    assert sum(len(batch["pixel_values"]) for batch in callback.monitor._sample) == 8
    assert list(callback.monitor.to_frame()["epoch"]) == [0, 2]


def test_the_epoch_of_a_run_that_ends_or_goes_on_in_the_middle_of_one_is_a_fraction(tmp_path):
    trainer, callback = train(tmp_path, steps=5, save="steps")  # of three an epoch
    history = callback.monitor.to_frame()
    assert list(history["epoch"]) == pytest.approx([0, 1, 1 + 2 / 3])
    rows = [row for row in trainer.state.log_history if "stiffness/tns" in row]
    assert [row["epoch"] for row in rows] == list(history["epoch"])
    for steps, expected in ((2, [2 / 3, 1, 2]), (3, [1, 2]), (5, [1 + 2 / 3, 2])):
        _, again = train(tmp_path, start=str(tmp_path / f"checkpoint-{steps}"))
        assert list(again.monitor.to_frame()["epoch"]) == pytest.approx(expected)
