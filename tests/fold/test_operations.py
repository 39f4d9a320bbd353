"""The pass that fold reads, and its operations run again."""

from dataclasses import replace

import torch
from torch import nn

from stiffnet.fold.operations import read, run_again
from stiffnet.trajectory.batch import as_arguments


class Moved(nn.Module):
    def forward(self, x):
        return x.to(x.device, torch.float64)


def test_an_operation_is_run_again_on_the_cpu_wherever_it_was_run():
    reading = read(Moved(), as_arguments(torch.ones(2, 3)))
    [op] = [op for op in reading.ops.values() if op.name == "to"]
    elsewhere = replace(op, args=(op.args[0], torch.device("meta"), torch.float64))
    value = torch.rand(2, 3, dtype=torch.float64)
    torch.testing.assert_close(run_again(elsewhere, {op.args[0]: value}), value, rtol=0, atol=0)
