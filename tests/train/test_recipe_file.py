"""Recipes come back from files as they went, and what is wrong in a file is told with its line."""

import os
from dataclasses import fields, replace
from pathlib import Path

import pytest
from hypothesis import given, settings

from naming import case
from stiffnet.errors import RecipeError, StorageError, UnknownNameError
from stiffnet.train.recipe import Recipe
from stiffnet.train.recipe_file import build_recipe, read_recipe, to_toml
from stiffnet.train.recipes import RECIPES
from train.made import recipes

LONGEST = Recipe(
    model='"' * 1000,
    attention="\\" * 1000,
    data="\U0001f600" * 1000,
    weights="'" * 1000,
    seed=2**63 - 1,
    epochs=1_000_000,
    schedule="multistep",
    milestones=tuple(range(999_800, 1_000_000, 2)),
    learning_rate=5e-324,
)
QUOTES = replace(LONGEST, **dict.fromkeys(("model", "attention", "data", "weights"), "'" * 1000))


def written(content, name="recipe.toml"):
    path = Path(name)
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


@settings(max_examples=100)
@given(recipes())
def test_a_recipe_comes_back_from_its_file(recipe):
    again = build_recipe(written(to_toml(recipe), "recipe.toml"))
    assert again == recipe
    assert again.fingerprint == recipe.fingerprint
    assert to_toml(again) == to_toml(recipe)


@pytest.mark.parametrize("recipe", [LONGEST, QUOTES, *(entry.value for entry in RECIPES)])
def test_the_named_and_the_longest_come_back_too(recipe):
    assert build_recipe(written(to_toml(recipe), "recipe.toml")) == recipe


def test_every_field_is_written_in_order_as_toml():
    lines = to_toml(RECIPES["asr-vgg19"].value).splitlines()
    assert [line.partition(" = ")[0] for line in lines] == [field.name for field in fields(Recipe)]
    for line in (
        'model = "vgg19_cifar"',
        'weights = ""',
        "epochs = 164",
        "weight_decay = 0.0005",
        "nesterov = false",
        "milestones = [60, 120, 160]",
        "crop_scale = [0.08, 1.0]",
    ):
        assert line in lines


@pytest.mark.parametrize(
    ("name", "content"),
    [
        (
            "a.toml",
            'learning_rate = 1e-3\nmilestones = [3, 5]\nschedule = "multistep"\nflip = false',
        ),
        (
            "a.TOML",
            'flip=false\r\nlearning_rate=0.001\r\nmilestones=[3,\r\n5]\r\nschedule="multistep"',
        ),
        (
            "a.toml",
            '\ufefflearning_rate = 1e-3\nmilestones = [3, 5]\nschedule = "multistep"\nflip = false',
        ),
    ],
)
def test_every_way_to_write_it_says_the_same(name, content):
    expected = {"learning_rate": 1e-3, "milestones": (3, 5), "schedule": "multistep", "flip": False}
    assert read_recipe(written(content, name)) == expected
    assert build_recipe(name) == replace(Recipe(), **expected)


def test_a_file_may_change_a_named_recipe():
    written("epochs = 3\nbase = 'quick'\n", "mine.toml")
    assert build_recipe("mine.toml") == replace(RECIPES["quick"].value, epochs=3)
    assert build_recipe("mine.toml", {"epochs": "4"}).epochs == 4


def test_later_words_win_and_only_the_result_must_be_consistent():
    recipe = build_recipe(
        "asr-resnet164",
        {"schedule": "cosine", "milestones": "", "seed": "1", "model": "resnet20_cifar"},
        model="resnet56_cifar",
        seed=None,
    )
    changes = {"schedule": "cosine", "milestones": (), "seed": 1, "model": "resnet56_cifar"}
    assert recipe == replace(RECIPES["asr-resnet164"].value, **changes)
    with pytest.raises(
        RecipeError, match=r"Recipe asr-resnet164: `milestones` is .* to 'multistep'"
    ):
        build_recipe("asr-resnet164", {"schedule": "cosine"})


@pytest.mark.parametrize(
    ("field", "text", "value"),
    [
        ("milestones", "81/122", (81, 122)),
        ("milestones", "81,122", (81, 122)),
        ("milestones", "[81, 122]", (81, 122)),
        ("milestones", " ( 81 , 122 ) ", (81, 122)),
        ("milestones", "81", (81,)),
        ("milestones", [81, 122], (81, 122)),
        ("epochs", "200", 200),
        ("learning_rate", "1e-3", 0.001),
        ("learning_rate", "1", 1.0),
        ("learning_rate", 1, 1.0),
        ("weight_decay", ".5", 0.5),
        ("flip", "false", False),
        ("flip", False, False),
        ("attention", "none", "none"),
        ("model", "1", "1"),
        ("weights", "", ""),
    ],
)
def test_text_is_read_as_the_type_of_its_field(field, text, value):
    recipe = build_recipe("asr-resnet164", {field: text})
    assert recipe == replace(RECIPES["asr-resnet164"].value, **{field: value})
    assert type(getattr(recipe, field)) is type(value)


def test_a_crop_scale_is_two_numbers():
    assert build_recipe("asr-resnet50", {"crop_scale": "0.2/1"}).crop_scale == (0.2, 1.0)


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ({"epoch": "3"}, "no recipe field called 'epoch'. Did you mean 'epochs'"),
        ({"base": "quick"}, "no recipe field called 'base'"),
        ({"__class__": "x"}, "no recipe field called '__class__'"),
        ({"_target_": "os.system"}, "no recipe field called '_target_'"),
        ({"x" * 9999: "1"}, "no recipe field called 'xxx"),
        ({"epochs": "ten"}, "`epochs` is 'ten'; it must be a whole number"),
        ({"epochs": ""}, "`epochs` is ''; it must be a whole number"),
        ({"epochs": "017"}, "`epochs` is '017'; it must be a whole number"),
        ({"epochs": "1_0"}, "`epochs` is '1_0'; it must be a whole number"),
        ({"epochs": "٣"}, "`epochs` is '٣'; it must be a whole number"),
        ({"epochs": "9" * 9999}, "`epochs` is inf; it must be a whole number"),
        ({"epochs": "3.0"}, "`epochs` is 3.0; it must be a whole number"),
        ({"learning_rate": "nan"}, "`learning_rate` is 'nan'; it must be a number"),
        ({"learning_rate": "1e999"}, "`learning_rate` is inf; it must be a number"),
        ({"flip": "yes"}, "`flip` is 'yes'; it must be true or false"),
        ({"flip": "1"}, "`flip` is 1; it must be true or false"),
        ({"milestones": "81,,122"}, r"`milestones` is \[81, '', 122\]; it must be a list"),
        ({"milestones": "81-122"}, r"`milestones` is \['81-122'\]; it must be a list"),
        ({"schedule": "cosin"}, "`schedule` is 'cosin'; .* Did you mean 'cosine'"),
        ({"precision": "__import__('os')"}, "`precision` is .*; it must be '32-true'"),
        ({"model": "a\x1b[31m"}, r"`model` is 'a\\x1b\[31m'; it must be text"),
    ],
)
def test_a_wrong_setting_is_refused_in_one_sentence(setting, message):
    with pytest.raises(RecipeError, match=message):
        build_recipe("quick", setting)


@pytest.mark.parametrize("name", ["quik", "", "__import__('os')", "base", "quick.json", "\x00"])
def test_an_unknown_recipe_is_told_with_the_nearest_names(name):
    with pytest.raises(UnknownNameError, match=r"There is no recipe called .*(quick|list recipes)"):
        build_recipe(name)


TOML = {
    "epochs = 3\nepochs = 4": "line 2: `epochs` is given twice. Keep one",
    "\n# x\nepoch = 3": "line 3: There is no recipe field called 'epoch'. Did you mean 'epochs'",
    "seed = 1\nepochs = 3.0": "line 2: `epochs` is 3.0; it must be a whole number",
    "seed = 1\n\n'epochs' = true": "line 3: `epochs` is True; it must be a whole number",
    "model = resnet": "line 1: TOML cannot read this: .*Write `key = value`, text in quotes",
    "model = 'a": "TOML cannot read this",
    "model": "TOML cannot read this",
    "seed = 1\n[recipe]\nepochs = 3": "line 2: 'recipe' is a table, and a recipe has none",
    "[[epochs]]": r"line 1: `epochs` is \[\{\}\]; it must be",
    "a.b.c = 3": "line 1: 'a' is a table",
    "model = {a = 1}": "line 1: 'model' is a table",
    "epochs = 2001-01-01": r"line 1: `epochs` is datetime.date\(2001, 1, 1\); it must be",
    "learning_rate = nan": "line 1: `learning_rate` is nan; it must be a number",
    "learning_rate = -inf": "line 1: `learning_rate` is -inf; it must be a number",
    "learning_rate = 1e999": "line 1: `learning_rate` is inf; it must be a number",
    "epochs = " + "9" * 2_000: "line 1: `epochs` is 999.*…; it must be",
    "epochs = 0x" + "f" * 2_000: "line 1: `epochs` is .*; it must be a whole number",
    "seed = 9223372036854775808": "line 1: `seed` is 9223372036854775808; it must be",
    "milestones = [1, '2']": r"line 1: `milestones` is \[1, '2'\]; it must be a list",
    "milestones = " + "[" * 2_000: "TOML cannot read this: lists within lists",
    "a." * 500_000 + "a = 1": "line 1: this is longer than any recipe",
    'seed = 1\nmodel = ["""\n#""", {' + "a." * 400_000 + "a = 1}]": "line 2: text over several",
    "model = '''x'''": "line 1: text over several lines is not read. Write it on one",
    "a." * 1_000 + "a = 1": "line 1: 'a' is a table",
    "'" + "a" * 2_000 + "' = {}": "line 1: 'aaaa.*… is a table",
    "base = 'quik'": "line 1: There is no recipe called 'quik'. Did you mean 'quick'",
    "base = 1": "line 1: `base` is 1; it must be the name of a recipe",
    "base = 'quick'\nbase = 'quick'": "line 2: `base` is given twice",
    "base = 'other.toml'": "line 1: There is no recipe called 'other.toml'",
    "epochs: 3": "line 1: TOML cannot read this: .*Write `key = value`",
    "model = 50": "line 1: `model` is 50; it must be text",
    "epochs = '3'": "line 1: `epochs` is '3'; it must be a whole number",
    "epochs = 010": "line 1: TOML cannot read this",
    "epochs =": "line 1: TOML cannot read this",
    "model = 2001-01-01": r"line 1: `model` is datetime.date\(2001, 1, 1\); it must be text",
    'model = "\\uD800"': "line 1: TOML cannot read this",
    "model = 'a\x00b'": "line 1: TOML cannot read this",
    "schedule = 'cosin'": "line 1: `schedule` is 'cosin'; .* Did you mean 'cosine'",
    "milestones = '81/122'": "line 1: `milestones` is '81/122'; it must be a list of whole",
    "milestones = [1, [2]]": r"line 1: `milestones` is \[1, \[2\]\]; it must be a list",
    "model = '" + "x" * 2**20 + "'": "larger than 1 MB",
    "epochs = 3\nmodel = '" + "x" * 10_000: "line 2: this is longer than any recipe. Remove",
    "\n" * 10_001 + "epochs = 3": "line 10001: this is longer than any recipe",
    "a = 1\n" * 150_000: "line 3277: this is longer than any recipe",
    "# epochs = 3\n": "sets nothing. Write a line",
    "'_target_' = 'os.system'": "line 1: There is no recipe field called '_target_'",
    "": "sets nothing. Write a line",
}


def test_what_is_wrong_in_a_file_is_told_with_its_line():
    for content, message in TOML.items():
        with case(content):
            told = f"(?s)^recipe.toml.*{message}"
            with pytest.raises((RecipeError, UnknownNameError), match=told) as caught:
                build_recipe(written(content))
            assert len(str(caught.value)) < 700
            assert not Path("pwned").exists()


def test_bytes_that_are_no_text_are_refused():
    with pytest.raises(RecipeError, match=r"recipe.toml is not UTF-8 text: its byte 8 cannot"):
        read_recipe(written(b"model = \xff\xfe"))
    with pytest.raises(RecipeError, match=r"recipe.toml is not UTF-8 text"):
        read_recipe(written("epochs = 3".encode("utf-16"), "recipe.toml"))


@pytest.mark.parametrize(
    "name", ["there/is/no.toml", "folder.toml", "a\x00.toml", "n" * 300 + ".toml"]
)
def test_what_is_no_file_is_a_matter_of_storage(name):
    Path("folder.toml").mkdir()
    with pytest.raises(StorageError, match=r"(?s)\.toml could not be read: .*Check the path"):
        build_recipe(name)


def test_a_pipe_is_not_waited_for():
    os.mkfifo("pipe.toml")
    with pytest.raises(StorageError, match=r"pipe.toml could not be read: it is not a file"):
        build_recipe("pipe.toml")


OTHERS = ["./recipe", "./recipe.json", "./quick", Path("recipe.py"), "a/b", "mine.yaml", "a.YML"]


@pytest.mark.parametrize("name", OTHERS)
def test_a_file_of_another_kind_is_refused(name):
    written("epochs: 3", "recipe.json")
    with pytest.raises(RecipeError, match=r"is not a TOML file, and recipes are. Write .* .toml"):
        build_recipe(name)


def test_a_contradiction_between_lines_names_the_file():
    with pytest.raises(RecipeError, match=r"Recipe recipe.toml: `gamma` is 0.5, but `schedule` is"):
        build_recipe(written("gamma = 0.5"))


def test_comments_may_be_longer_than_a_recipe():
    content = ("#" + 250 * " why" + "\n") * 1_000 + "epochs = 3\n"
    assert build_recipe(written(content)).epochs == 3
