"""The networks of a demo, trained in its folder; after a killed demo only those that are left."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from stiffnet.errors import CheckpointError, RecipeError
from stiffnet.jobs.train import followed
from stiffnet.jobs.watching import Watcher
from stiffnet.train.recipe import Recipe
from stiffnet.train.recipe_file import build_recipe
from stiffnet.train.run import run
from stiffnet.train.run_folder import RunFolder
from stiffnet.train.stopping import Stopped
from stiffnet.words import few


def check_runs(recipes: Mapping[Path, Recipe]) -> None:
    """See, before any network is trained, that every folder is free or holds a run of a demo."""
    for path, recipe in recipes.items():
        folder = RunFolder(path)
        if folder.recipe.exists():
            if replace(build_recipe(folder.recipe), seed=recipe.seed) != recipe:
                raise RecipeError(
                    f"{path} holds a run with other data or settings; nothing was overwritten. "
                    "Choose another folder with `--out`."
                )
        elif path.exists() and not folder.owner and folder.taken:
            raise RecipeError(
                f"{path} contains {few(folder.taken)}, which no run of this version wrote; nothing "
                "was overwritten. Choose another folder with `--out`."
            )


def train_runs(
    recipes: Mapping[Path, Recipe], shown: Sequence[str], *, command: str, watcher: Watcher
) -> list[RunFolder]:
    """Train the networks one after the other, and go on with what a killed demo left.

    Runs that a finished demo has `shown`, given by their names, start over.
    """
    made = []
    for number, (path, recipe) in enumerate(recipes.items(), start=1):
        watcher.note(f"Network {number} of {len(recipes)}, attention {recipe.attention}: {path}.")
        folder = RunFolder(path)
        there = folder.recipe.exists()
        left = there and folder.owner not in shown and build_recipe(folder.recipe) == recipe
        with followed(watcher, recipe, path) as audience:
            try:
                try:
                    run(
                        recipe, path, resume=left, again=there and not left,
                        command=command, audience=audience,
                    )  # fmt: skip
                except CheckpointError as error:
                    if not left:
                        raise
                    watcher.note(f"{path} cannot be continued and starts over: {error}")
                    run(recipe, path, again=True, command=command, audience=audience)
            except Stopped as stopped:
                raise Stopped(
                    f"The demo was stopped. What was trained is kept in {path.parent}; the same "
                    "command continues there.",
                    stopped.exit_code - 128,
                ) from stopped
        made.append(folder)
    return made
