"""Whatever a file or a command line holds: a recipe, or one of our errors, and nothing is run."""

from collections import Counter
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from stiffnet.errors import RecipeError, StorageError, UnknownNameError
from stiffnet.train.recipe import KINDS, Recipe
from stiffnet.train.recipe_file import build_recipe, to_toml
from stiffnet.train.recipes import RECIPES

CANARY = "touch pwned"
KINDS_OF_INPUT = ("file", "words")
HOSTILE = (
    f"!!python/object/apply:os.system ['{CANARY}']",
    f"!!python/object/new:os.system [{CANARY}]",
    "!!python/name:os.system",
    "!!python/module:os",
    f"__import__('os').system('{CANARY}')",
    f"{{{{ ''.__class__.__mro__ }}}} ${{{CANARY}}} $({CANARY})",
    "&a [*a, *a]",
    "*a",
    "{a: {b: c}}",
    "{_target_: os.system}",
    "[[[[]]]]",
    "[" * 100,
    "a." * 900,
    "9" * 2_500,
    "0x" + "f" * 2_500,
    "1e999",
    "-1e-999",
    "nan",
    ".inf",
    "NO",
    "on",
    "~",
    "017",
    "1:30",
    "2001-01-01T00:00:00Z",
    "'''",
    '"""',
    '"\\ud800"',
    '"\\UFFFFFFFF"',
    "|\n  text",
    "# no value",
    "'",
    '"',
    "x" * 1_001,
    "\u2028\x85\ufeff",
)
PLAUSIBLE = (
    "quick", "smoke", "none", "multistep", "cosine", "onecycle", "sgd", "adamw", "resized", "pad",
    "weights", "random", "constant", "64-true", "true", "false", "0", "1", "2", "30", "0.5", "1e-3",
    "-1", "0o17", "1_000", "[81, 122]", "[1]", "[]", "[0.1, 1]", "''", "'digits'", '"pretrained"',
    "cifar10:/a",
)  # fmt: skip

SIGNS = "aon01.-+:=,/[]{}()<>#!&*|%@?~'\"\\ \t\n\r\0\x1b\x85é\u2028\ud800\U0001f600"

names = st.sampled_from([*KINDS, "base"]) | st.sampled_from(
    ["_target_", "_instantiator", "__class__", "epoch", "NO", "<<", "a.b", "'epochs'", "&a"]
)
values = (
    st.sampled_from(PLAUSIBLE)
    | st.sampled_from(HOSTILE)
    | st.integers().map(str)
    | st.floats().map(repr)
    | st.lists(st.integers(-2, 200), max_size=4).map(str)
    | st.text(SIGNS, max_size=12)
)
fitting = sorted({row for entry in RECIPES for row in to_toml(entry.value).splitlines()})
pairs = st.sampled_from([tuple(row.split(" = ")) for row in fitting])
lines = st.lists(pairs | pairs | st.tuples(names, values), max_size=5)
endings = st.sampled_from(["\n", "\n", "\r\n", "\r", "\n\n# why\n"])
marks = st.sampled_from([*[b""] * 9, b"\xef\xbb\xbf", b"\xff\xfe", b"---\n", b"\x00", b"- "])


@st.composite
def files(draw):
    """Bytes of a file: lines made up, or those of a recipe with one of them spoilt."""
    if draw(st.booleans()):
        text = draw(endings).join(f"{name} = {value}" for name, value in draw(lines))
    else:
        rows = to_toml(draw(st.sampled_from(list(RECIPES))).value).splitlines()
        for name, value in draw(lines)[:1]:
            place = draw(st.integers(0, len(rows) - 1))
            rows[place : place + draw(st.integers(0, 1))] = [f"{name} = {value}"]
        text = draw(endings).join(rows)
    content = draw(marks) + text.encode("utf-8", "surrogatepass")
    return content[: draw(st.sampled_from([*[None] * 9, -1, -9, 99]))]


settled = pairs.map(lambda pair: {pair[0]: pair[1].strip('"')}) | st.dictionaries(
    names, values | st.integers() | st.floats() | st.none() | st.lists(st.integers()), max_size=2
)
starts = st.sampled_from([entry.name for entry in RECIPES]) | st.text(SIGNS, max_size=8)


def outcome(start, changes):
    """Build a recipe; anything but a recipe or one sentence of ours is a failure."""
    try:
        recipe = build_recipe(start, changes)
    except (RecipeError, UnknownNameError, StorageError) as error:
        _check_sentence(str(error), named=start)
        return type(error).__name__
    assert type(recipe) is Recipe
    assert Path("again.toml").write_text(to_toml(recipe), encoding="utf-8")
    assert build_recipe("again.toml") == recipe
    return "Recipe"


def _check_sentence(text, named):
    assert 20 < len(text) < 700
    assert text.isprintable() or not named.isprintable()


def fuzz(kind, examples):
    """Count the outcomes of that many generated files, or command lines."""
    seen = Counter()
    suppressed = [HealthCheck.too_slow, HealthCheck.data_too_large]

    @settings(max_examples=examples, suppress_health_check=suppressed)
    @given(starts if kind == "words" else files(), settled)
    def one(start, changes):
        if kind != "words":
            Path("recipe.toml").write_bytes(start)
            start = "recipe.toml"
        seen[outcome(start, changes)] += 1

    one()
    assert not Path("pwned").exists()
    assert seen.total() >= examples
    assert min(seen["Recipe"], seen["RecipeError"]) > examples // 20


@pytest.mark.parametrize("kind", KINDS_OF_INPUT)
def test_some_hundred_inputs(kind):
    fuzz(kind, 170)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS_OF_INPUT)
def test_ten_thousand_inputs(kind):
    fuzz(kind, 3_400)


@pytest.mark.parametrize("field", ["model", "epochs", "milestones", "schedule", "base"])
def test_no_hostile_value_does_anything(field):
    for value in HOSTILE:
        Path("hostile.toml").write_text(f"{field} = {value}\n", encoding="utf-8")
        seen = outcome("hostile.toml", {})
        assert seen != "Recipe" or field == "model"
        assert outcome("quick", {field: value}) != "Recipe" or field == "model"
    assert not Path("pwned").exists()
