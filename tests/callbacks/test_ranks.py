"""Two processes that train together: the numbers of one, and nobody waits for ever."""

import datetime
import json
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
