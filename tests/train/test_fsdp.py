"""Ranks that hold shares of the network come to the weights of one process that holds it all."""

from dataclasses import replace

import pytest
from safetensors.torch import load_file

from stiffnet.devices import make_fabric
from stiffnet.errors import RecipeError
from stiffnet.train.run import Machinery, run
from tolerances import RTOL
from train import faults
from train.faults import EVERYTHING, finish, kept
from train.test_ranks import begin_ranks, end_all, finish_ranks

# Without mixing, for which each rank takes the images of its own share.
TAME = replace(EVERYTHING, learning_rate=0.005, ema_decay=0.0, mixup=0.0, cutmix=0.0)
SHARES = ("--strategy", "fsdp")


def test_shares_give_the_weights_of_one_process(tmp_path):
    finish(TAME, tmp_path / "one")
    finish_ranks(TAME, tmp_path / "two", *SHARES)
    one, two = (load_file(tmp_path / n / "final/weights.safetensors") for n in ("one", "two"))
    assert one.keys() == two.keys()
    for name, value in one.items():
        difference = float((two[name] - value).abs().max())
        assert difference <= RTOL["batch32"] * float(value.abs().max()), name


def test_killed_shares_resume_to_the_same_bits(tmp_path):
    adam = replace(TAME, optimizer="adamw", nesterov=False, momentum=0.9)
    finish_ranks(adam, tmp_path / "calm", *SHARES)
    out = tmp_path / "run"
    more = (*SHARES, "--save-every", 1)
    lives = begin_ranks(adam, out, *more, faulty={1: {"at": {5: faults.die}}})
    assert lives[1].end() == -9
    assert lives[0].end(faults.PATIENCE) != 0
    assert kept(out)
    assert end_all(begin_ranks(adam, out, *SHARES, restarts=1)) == [0, 0]
    assert faults.outcome(out) == faults.outcome(tmp_path / "calm")


@pytest.mark.parametrize(
    ("recipe", "machinery", "words"),
    [
        (EVERYTHING, {}, "`ema_decay` keeps a second whole network"),
        (TAME, {"tns": 10}, "`--tns` and `--attention-values` look at whole networks"),
    ],
)
def test_what_needs_the_whole_network_is_refused(tmp_path, monkeypatch, recipe, machinery, words):
    monkeypatch.setattr("stiffnet.train.run.is_sharded", lambda fabric: True)
    monkeypatch.setattr("stiffnet.train.build.is_sharded", lambda fabric: True)
    with pytest.raises(RecipeError, match=words):
        run(recipe, tmp_path / "run", machinery=Machinery(**machinery))


def test_a_device_that_is_not_there_is_a_sentence():
    with pytest.raises(RecipeError, match="This machine has no cuda device that torch can use"):
        make_fabric(device="cuda", devices=1)
