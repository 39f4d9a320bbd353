"""Rows reach TensorBoard and trackio; a missing package is one sentence."""

import sys
from types import SimpleNamespace

import pytest

from stiffnet.errors import StiffnetError, UnknownNameError
from stiffnet.train.trackers import open_tracker

ROW = {"epoch": 3, "test_top1": 0.5}


def test_tensorboard_gets_every_number(tmp_path):
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    tracker = open_tracker("tensorboard", tmp_path, {"epochs": 4})
    tracker.log(ROW)
    tracker.close()
    found = EventAccumulator(str(tmp_path / "tensorboard")).Reload()
    [event] = found.Scalars("test_top1")
    assert (event.step, event.value) == (3, 0.5)


def test_trackio_gets_the_row(tmp_path, monkeypatch):
    heard = []
    fake = SimpleNamespace(log=heard.append, finish=lambda: heard.append("finished"))
    module = SimpleNamespace(init=lambda **given: heard.append(given) or fake)
    monkeypatch.setitem(sys.modules, "trackio", module)
    monkeypatch.setattr("stiffnet.train.trackers.find_spec", lambda name: name)
    tracker = open_tracker("trackio", tmp_path / "mine", {"epochs": 4})
    tracker.log(ROW)
    tracker.close()
    assert heard == [
        {"project": "stiffnet", "name": "mine", "config": {"epochs": 4}}, ROW, "finished",
    ]  # fmt: skip


def test_a_missing_package_is_named_with_the_remedy(tmp_path, monkeypatch):
    monkeypatch.setattr("stiffnet.train.trackers.find_spec", lambda name: None)
    with pytest.raises(StiffnetError, match=r"needs the package trackio.*pip install 'stiffnet\["):
        open_tracker("trackio", tmp_path, {})


def test_the_nearest_tracker_is_suggested(tmp_path):
    with pytest.raises(UnknownNameError, match="Did you mean 'tensorboard'"):
        open_tracker("tensorbord", tmp_path, {})
