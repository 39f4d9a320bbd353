"""A recipe cannot contradict itself, and its name depends on what it says and on nothing else."""

import itertools
from dataclasses import FrozenInstanceError, fields, replace

import pytest

from naming import case
from stiffnet.errors import RecipeError
from stiffnet.train.recipe import KINDS, Recipe, place_free

MULTISTEP = {"schedule": "multistep", "milestones": (81, 122)}
RESIZED = {"crop": "resized"}
RANDOM = {"noise": "random"}
ADAMW = {"optimizer": "adamw"}

OTHER = {  # of each field another value, and what it needs beside it
    "task": ("detect", {}),
    "model": ("resnet56_cifar", {}),
    "attention": ("se", {}),
    "data": ("cifar10", {}),
    "train_images": (100, {}),
    "weights": ("pretrained", {}),
    "weights_key": ("state_dict_ema", {}),
    "seed": (1, {}),
    "epochs": (165, {}),
    "batch_size": (129, {}),
    "image_size": (32, {}),
    "skip_bad_images": (True, {}),
    "optimizer": ("adamw", {}),
    "learning_rate": (0.2, {}),
    "backbone_rate": (0.1, {}),
    "momentum": (0.8, {}),
    "nesterov": (True, {}),
    "weight_decay": (5e-4, {}),
    "decay": ("weights", {}),
    "schedule": ("cosine", {}),
    "milestones": ((81, 123), MULTISTEP),
    "gamma": (0.2, MULTISTEP),
    "warmup_epochs": (1, {}),
    "warmup_share": (0.1, {}),
    "label_smoothing": (0.1, {}),
    "mixup": (0.2, {}),
    "cutmix": (1.0, {}),
    "clip_norm": (1.0, {}),
    "ema_decay": (0.9, {}),
    "precision": ("64-true", {}),
    "channels_last": (True, {}),
    "crop": ("none", {}),
    "padding": (5, {}),
    "flip": (False, {}),
    "crop_scale": ((0.1, 1.0), RESIZED),
    "noise": ("constant", {}),
    "noise_a": (0.5, RANDOM),
    "noise_b": (0.5, RANDOM),
    "batch_noise": (True, {}),
    "sync_norms": (False, {}),
    "frozen_stages": (1, {}),
    "frozen_norms": (True, {}),
    "style": ("waves.png", {}),
    "loss_weights": ("random", {}),
    "content_weight": (2.0, {}),
    "style_weight": (2.0, {}),
    "tv_weight": (2.0, {}),
}


def test_a_recipe_is_flat_frozen_and_named_throughout():
    with pytest.raises(FrozenInstanceError):
        Recipe().epochs = 2
    with pytest.raises(TypeError, match="positional"):
        Recipe("resnet56_cifar")
    assert len({Recipe(), Recipe(), Recipe(seed=1)}) == 2


def test_every_field_is_in_the_fingerprint():
    assert list(OTHER) == [field.name for field in fields(Recipe)]
    for name, (value, beside) in OTHER.items():
        plain = Recipe(**beside)
        assert replace(plain, **{name: value}).fingerprint != plain.fingerprint, name


def test_the_fingerprint_is_that_of_other_machines_and_sessions():
    assert Recipe().fingerprint == "566de2b9bee9"
    given = Recipe(data="folder:/data/kätzchen", **MULTISTEP, learning_rate=1e-5, seed=2**63 - 1)
    assert given.fingerprint == "879bbeda9a15"


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"learning_rate": 1}, {"learning_rate": 1.0}),
        ({"clip_norm": -0.0}, {"clip_norm": 0.0}),
        ({**MULTISTEP, "milestones": [3, 5]}, {**MULTISTEP, "milestones": (3, 5)}),
        ({**RESIZED, "crop_scale": [1, 1]}, {**RESIZED, "crop_scale": (1.0, 1.0)}),
    ],
)
def test_equal_recipes_are_the_same_recipe(one, other):
    assert Recipe(**one) == Recipe(**other)
    assert repr(Recipe(**one)) == repr(Recipe(**other))
    assert Recipe(**one).fingerprint == Recipe(**other).fingerprint


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ("digits", "digits"),
        ("cats", "cats"),
        ("cifar10", "cifar10"),
        ("cifar10:/a", "cifar10"),
        ("photos:/a/coast", "photos:coast"),
        ("cifar10:", "cifar10"),
        ("stl10:../b/c", "stl10"),
        ("/a/cats", "folder:cats"),
        ("../b/cats/", "folder:cats"),
        ("folder:/c/cats", "folder:cats"),
        ("folder:cats", "folder:cats"),
        ("coco:/c/trees", "coco:trees"),
        ("coco", "coco"),
        ("/a:b/cats", "folder:cats"),
        ("./digits", "folder:digits"),
        ("folder", "folder"),
        ("generated:100", "generated:100"),
        (":x", ":x"),
        ("/", "folder:"),
    ],
)
def test_where_the_data_lie_does_not_matter(given, kept):
    recipe = Recipe(data=given, seed=3)
    assert place_free(recipe) == Recipe(data=kept, seed=3)
    assert recipe.fingerprint == Recipe(data=kept, seed=3).fingerprint


def test_other_data_are_another_recipe():
    data = ("digits", "./digits", "generated:10", "generated:20", "/a/cats", "/a/dogs", "cifar10")
    assert len({Recipe(data=text).fingerprint for text in data}) == len(data)


@pytest.mark.parametrize(
    "fine",
    [
        {"seed": 2**63 - 1},
        {"epochs": 1},
        {"epochs": 2, "schedule": "multistep", "milestones": (1,)},
        {"epochs": 2, "warmup_epochs": 1},
        {**MULTISTEP, "warmup_epochs": 81},
        {"momentum": 0.0},
        {"weight_decay": 0.0},
        {"label_smoothing": 0.999},
        {"padding": 0},
        {**RESIZED, "crop_scale": (1.0, 1.0)},
        {"noise": "constant", "noise_a": -0.5, "noise_b": -1.0},
        {"noise": "constant", "noise_a": 1.0, "noise_b": 0.0},
        {"noise": "random", "noise_a": 0.0, "noise_b": 0.0},
        {**ADAMW, "schedule": "cosine", "warmup_epochs": 5},
        {"model": "x" * 1000, "weights": 'a "quoted" \\ path/名前.pt'},
    ],
)
def test_what_has_a_meaning_is_taken(fine):
    assert all(getattr(Recipe(**fine), name) == value for name, value in fine.items())


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"model": ""}, "`model` is ''; it must be text .*, and not empty"),
        ({"data": 3}, "`data` is 3; it must be text"),
        ({"weights": None}, "`weights` is nothing; it must be text of at most 1,000 printable"),
        ({"model": "a\nb"}, r"`model` is 'a\\nb'; it must be text of .* printable"),
        ({"model": "a\x7f"}, "`model` is .* printable"),
        ({"data": "\ud800"}, r"`data` is '\\ud800'; it must be text"),
        ({"data": "x" * 1001}, "`data` is 'xxx.*…; it must be text of at most 1,000"),
        ({"seed": -1}, "`seed` is -1; it must be a whole number from 0 to 9,223,372"),
        ({"seed": 2**63}, "`seed` is 9223372036854775808; it must be a whole number"),
        ({"epochs": 0}, "`epochs` is 0; it must be a whole number from 1 to 1,000,000"),
        ({"epochs": True}, "`epochs` is True; it must be a whole number"),
        ({"epochs": 2.0}, r"`epochs` is 2\.0; it must be a whole number"),
        ({"epochs": 10**5000}, "`epochs` is too large a value of type int; it must be"),
        ({"batch_size": 0}, "`batch_size` is 0; it must be a whole number from 1"),
        ({"image_size": -1}, "`image_size` is -1; it must be a whole number from 0 to 10,000"),
        ({"optimizer": "adam"}, "`optimizer` is 'adam'; .* 'sgd' or 'adamw'. Did you mean 'adamw'"),
        ({"learning_rate": 0.0}, r"`learning_rate` is 0\.0; it must be a number above 0"),
        ({"learning_rate": -0.1}, "`learning_rate` is -0.1; it must be a number above 0"),
        ({"learning_rate": float("nan")}, "`learning_rate` is nan; it must be a number above 0"),
        ({"learning_rate": float("inf")}, "`learning_rate` is inf; .* at most 1,000,000"),
        ({"learning_rate": 10**400}, "`learning_rate` is 1000.*…; it must be a number"),
        ({"learning_rate": True}, "`learning_rate` is True; it must be a number"),
        ({"learning_rate": "0.1"}, r"`learning_rate` is '0\.1'; it must be a number"),
        ({"momentum": 1.0}, r"`momentum` is 1\.0; it must be a number at least 0 and below 1"),
        ({"weight_decay": -1e-4}, "`weight_decay` is -0.0001; it must be a number from 0"),
        ({"nesterov": 1}, "`nesterov` is 1; it must be true or false"),
        ({"nesterov": True, "momentum": 0.0}, "`nesterov` is True, but `momentum` is 0.*Raise"),
        ({"nesterov": True, **ADAMW}, "`nesterov` is True, but `optimizer` is 'adamw'.*to false"),
        ({"momentum": 0.8, **ADAMW}, "`momentum` is 0.8, but `optimizer` is 'adamw'.*to 0.9"),
        ({"decay": "some"}, "`decay` is 'some'; it must be 'all' or 'weights'"),
        ({"schedule": "cosin"}, "`schedule` is 'cosin'; .* Did you mean 'cosine'"),
        ({"schedule": "multistep"}, "`milestones` is empty, but `schedule` is 'multistep'.*Name"),
        ({"milestones": (1,)}, r"`milestones` is \(1,\), but `schedule` is 'constant'.*to \[\]"),
        ({"gamma": 0.2}, "`gamma` is 0.2, but `schedule` is 'constant'.*Set `gamma` back to 0.1"),
        ({**MULTISTEP, "gamma": 0.0}, r"`gamma` is 0\.0; it must be .* above 0 and below 1"),
        ({**MULTISTEP, "gamma": 1}, "`gamma` is 1; it must be a number above 0 and below 1"),
        ({**MULTISTEP, "milestones": (122, 81)}, "`milestones` has 81 after 122.*in order"),
        ({**MULTISTEP, "milestones": (81, 81)}, "`milestones` has 81 after 81.*in order"),
        ({**MULTISTEP, "milestones": (0, 81)}, "`milestones` has 0 after 0.*in order"),
        (
            {**MULTISTEP, "milestones": (81, 164)},
            "`milestones` has 164, but `epochs` is 164.*raise",
        ),
        ({**MULTISTEP, "milestones": (81.0,)}, r"`milestones` is \(81\.0,\); .* list of whole"),
        ({**MULTISTEP, "milestones": (True,)}, r"`milestones` is \(True,\); .* list of whole"),
        ({**MULTISTEP, "milestones": "81"}, "`milestones` is '81'; .* list of whole numbers"),
        ({**MULTISTEP, "milestones": 81}, "`milestones` is 81; it must be a list of whole numbers"),
        (
            {**MULTISTEP, "epochs": 500, "milestones": range(1, 102)},
            r"`milestones` is range\(1, 102\); it must be a list",
        ),
        (
            {**MULTISTEP, "epochs": 500, "milestones": tuple(range(1, 102))},
            "`milestones` has 101 entries; at most 100 are read. Use the 'cosine'",
        ),
        ({"warmup_epochs": 164}, "`warmup_epochs` is 164, but `epochs` is 164.*Lower"),
        (
            {"warmup_epochs": 2, "warmup_share": 0.1},
            "`warmup_epochs` is 2 and `warmup_share` is 0.1, .* Set one of them to 0",
        ),
        (
            {"warmup_share": 0.1, "schedule": "onecycle"},
            "`warmup_share` is 0.1, but `schedule` is 'onecycle'.*to 0",
        ),
        (
            {**MULTISTEP, "warmup_share": 0.5},
            "`warmup_share` is 0.5, but the rate falls at epoch 81 already. Lower",
        ),
        ({"backbone_rate": 0}, "`backbone_rate` is 0; it must be a number above 0 and at most 1"),
        (
            {"warmup_epochs": 1, "schedule": "onecycle"},
            "`warmup_epochs` is 1, but `schedule` is 'onecycle'.*to 0",
        ),
        (
            {**MULTISTEP, "warmup_epochs": 82},
            "`warmup_epochs` is 82, but the rate falls at epoch 81 already. Lower",
        ),
        ({"label_smoothing": 1.0}, r"`label_smoothing` is 1\.0; it must be .* below 1"),
        ({"clip_norm": -1}, "`clip_norm` is -1; it must be a number from 0"),
        ({"ema_decay": 1}, "`ema_decay` is 1; it must be a number at least 0 and below 1"),
        ({"precision": "bf16"}, "`precision` is 'bf16'; .* '64-true', .* or '16-mixed'"),
        ({"crop": "random"}, "`crop` is 'random'; it must be 'none', 'pad' or 'resized'"),
        ({"padding": -1}, "`padding` is -1; it must be a whole number from 0"),
        (
            {"padding": 3, "crop": "none"},
            "`padding` is 3, but `crop` is 'none'.*back to 4, .*'pad'",
        ),
        ({"crop_scale": (0.5, 1.0)}, r"`crop_scale` is \(0.5, 1.0\), but `crop` is 'pad'"),
        ({**RESIZED, "crop_scale": (0.5,)}, r"`crop_scale` is \(0.5,\); .* list of two numbers"),
        ({**RESIZED, "crop_scale": (0.0, 1)}, r"`crop_scale` is \[0.0, 1.0\]; .* above 0"),
        ({**RESIZED, "crop_scale": (1, 0.5)}, r"`crop_scale` is \[1.0, 0.5\]; .* smaller first"),
        ({**RESIZED, "crop_scale": (0.5, 1.1)}, r"`crop_scale` is \[0.5, 1.1\]; .* at\s+most 1"),
        ({**RESIZED, "crop_scale": (float("nan"), 1)}, r"`crop_scale` is \[nan, 1.0\]; .* above 0"),
        (
            {**RESIZED, "crop_scale": (0.5, float("inf"))},
            r"`crop_scale` is \[0.5, inf\]; .* above 0",
        ),
        ({"noise_a": float("nan"), **RANDOM}, "`noise_a` is nan; it must be a number from"),
        ({"noise": "loud"}, "`noise` is 'loud'; it must be 'none', 'constant' or 'random'"),
        ({"noise_a": 0.5}, "`noise_a` is 0.5, but `noise` is 'none'.*back to 1.0, or `noise` to"),
        ({"noise_b": 0.5}, "`noise_b` is 0.5, but `noise` is 'none'.*'constant' or 'random'"),
        ({**RANDOM, "noise_a": -0.1}, "`noise_a` is -0.1, but `noise` is 'random'.*0 or more"),
        ({**RANDOM, "noise_b": -0.1}, "`noise_b` is -0.1, but `noise` is 'random'.*0 or more"),
        ({"sync_norms": "true"}, "`sync_norms` is 'true'; it must be true or false"),
    ],
)
def test_a_contradiction_is_refused_with_field_value_and_remedy(wrong, message):
    with pytest.raises(RecipeError, match=message) as caught:
        Recipe(**wrong)
    assert len(str(caught.value)) < 400


STRANGE = (None, b"x", {}, object(), [None], [[]], float("nan"), 1j, 10**400, "__import__('os')")


def test_no_field_takes_what_is_not_of_its_kind():
    for name, value in itertools.product(KINDS, STRANGE):
        with case(name, value if value != 10**400 else "10**400"):
            if KINDS[name] is str and isinstance(value, str):
                # only a text, which names nothing
                assert getattr(Recipe(**{name: value}), name) == value
            else:
                with pytest.raises(RecipeError, match=f"`{name}` is .*; it must be "):
                    Recipe(**{name: value})
