"""Short names: within their room, and as different as the names are."""

import random

import pytest

from stiffnet.report.short_names import short_names

PATHS = [
    [f"bert.encoder.layer.{i}.{part}.output" for i in range(24) for part in ("attention", "mlp")],
    [f"{side}_model.encoder.layers.{i}#{k}" for side in ("text", "vision") for i in range(12)
     for k in (0, 1)],
    [f"decoder.block.{i}.layer.{k}.DenseReluDense" for i in range(12) for k in range(3)],
    [f"features.{i}.{k}" for i in range(8) for k in range(4)],
    ["x" * 60 + str(i) + "y" * 60 for i in range(12)],
]  # fmt: skip


@pytest.mark.parametrize("longest", [12, 18, 28])
@pytest.mark.parametrize("names", PATHS, ids=lambda names: names[0][:12])
def test_layers_do_not_look_alike(names, longest):
    shown = short_names(names, longest)
    assert len(set(shown)) == len(names)
    assert max(map(len, shown)) <= longest


def test_names_that_fit_stay():
    assert short_names(["layer1.0", "layer1.1", "layer1.0"], 18) == [
        "layer1.0", "layer1.1", "layer1.0"
    ]  # fmt: skip


def test_random_names_stay_different():
    chance = random.Random(0)
    for _ in range(200):
        count, longest = chance.randrange(1, 40), chance.randrange(8, 30)
        names = ["".join(chance.choices("ab.1#", k=chance.randrange(1, 60))) for _ in range(count)]
        shown = short_names(names, longest)
        assert len(set(shown)) == len(set(names))
        assert max(map(len, shown)) <= longest
