"""Two processes that train together: the numbers of one, and nobody waits for ever."""

import datetime
import json
import os
import warnings
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from torch import nn

from callbacks.scripts import Varied, network
from stiffnet.callbacks import StiffnessMonitor
from tolerances import RTOL

IMAGES = Varied(9).images


def _rank(rank, folder):
    dist.init_process_group(
        "gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=2,
        timeout=datetime.timedelta(seconds=60),
    )  # fmt: skip
    told = []
    model = nn.parallel.DistributedDataParallel(network())
    monitor = StiffnessMonitor(IMAGES, samples=9, log=lambda row, epoch: told.append(epoch))
    monitor(model, 0)
    model(IMAGES[:4]).sum().backward()  # gradients still come together
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        bad = IMAGES.clone()
        bad[5] = torch.nan  # in the part of rank 1, which has the odd ones
        StiffnessMonitor(bad, samples=9)(model, 2)
    row = monitor.history[0]
    said = [str(warning.message) for warning in heard]
    Path(folder, f"{rank}.json").write_text(json.dumps([row, told, said]))
    dist.destroy_process_group()


def _text():
    """Sentences of several lengths, thirteen of them: not the same number for each rank."""
    lengths = [4 + 3 * i % 7 for i in range(13)]
    return [{"input_ids": [3 + i * k % 37 for k in range(n)]} for i, n in enumerate(lengths)]


def _padded(rows):
    longest = max(len(row["input_ids"]) for row in rows)
    ids = [row["input_ids"] + [0] * (longest - len(row["input_ids"])) for row in rows]
    ids = torch.tensor(ids)
    return {"input_ids": ids, "attention_mask": (ids > 0).long(), "labels": ids[:, 0] % 2}


def _train(rank, ranks, folder):
    """Train without learning, so that the network stays what one process would have."""
    import transformers

    from stiffnet.callbacks import TrainerStiffness

    if ranks > 1:
        own = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": ranks, "LOCAL_WORLD_SIZE": ranks}
        os.environ |= {name: str(value) for name, value in own.items()}
        os.environ["MASTER_ADDR"] = "127.0.0.1"
        dist.init_process_group(
            "gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=ranks,
            timeout=datetime.timedelta(seconds=60),
        )  # fmt: skip
    transformers.set_seed(0)
    config = transformers.BertConfig(
        vocab_size=40, hidden_size=16, num_hidden_layers=1, num_attention_heads=2,
        intermediate_size=24,
    )  # fmt: skip
    arguments = transformers.TrainingArguments(
        f"{folder}/out", num_train_epochs=2, learning_rate=0.0, use_cpu=True, report_to="none",
        per_device_train_batch_size=4 // ranks, save_strategy="no", disable_tqdm=True,
        ddp_backend="gloo" if ranks > 1 else None,
    )  # fmt: skip
    told = []

    class Listens(transformers.TrainerCallback):
        def on_log(self, args, state, control, logs=None, **kwargs):
            told.append(state.is_world_process_zero and "stiffness/tns" in logs)

    model = transformers.BertForSequenceClassification(config)
    trainer = transformers.Trainer(
        model, arguments, train_dataset=_text(), data_collator=_padded, callbacks=[Listens()]
    )
    watch = TrainerStiffness(trainer, samples=11)
    trainer.add_callback(watch)
    trainer.train()
    written = json.dumps([watch.monitor.history, sum(told)])
    Path(folder, f"trainer-{ranks}-{rank}.json").write_text(written)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
def test_the_trainer_on_two_ranks_logs_once_the_numbers_of_one(tmp_path):
    pytest.importorskip("accelerate")
    pytest.importorskip("transformers")
    _train(0, 1, str(tmp_path))
    torch.multiprocessing.spawn(_train, (2, str(tmp_path)), nprocs=2)
    alone, first, second = (
        json.loads((tmp_path / f"trainer-{name}.json").read_text())
        for name in ("1-0", "2-0", "2-1")
    )
    assert [told for _, told in (alone, first, second)] == [3, 3, 0]
    for one, two, other in zip(alone[0], first[0], second[0], strict=True):
        for key in one.keys() - {"stiffness/seconds"}:
            assert two[key] == other[key] == pytest.approx(one[key], rel=RTOL["merge"])


@pytest.mark.slow
def test_two_ranks_have_the_numbers_of_one(tmp_path):
    alone = StiffnessMonitor(IMAGES, samples=9)(network(), 0)
    torch.multiprocessing.spawn(_rank, (str(tmp_path),), nprocs=2)
    (first, told, said), (second, untold, unsaid) = (
        json.loads((tmp_path / f"{rank}.json").read_text()) for rank in (0, 1)
    )
    for key in alone.keys() - {"stiffness/seconds"}:
        assert first[key] == second[key] == pytest.approx(alone[key], rel=RTOL["merge"])
    assert told == [0]  # by the first rank alone
    assert untold == unsaid == []
    assert len(said) == 1
    assert "epoch 2 is not known" in said[0]
