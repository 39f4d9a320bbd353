"""What a run learns: a file for each task, with its loss, its columns and its best epoch."""

import re

from stiffnet.errors import RecipeError
from stiffnet.registry import check_known
from stiffnet.train.recipe import Recipe
from stiffnet.train.tasks.base import Task
from stiffnet.train.tasks.classify import Classify
from stiffnet.train.tasks.detect import Detect
from stiffnet.train.tasks.restyle import Restyle

TASKS: dict[str, type[Task]] = {"classify": Classify, "detect": Detect, "restyle": Restyle}
OURS = frozenset(TASKS)


def task_of(recipe: Recipe) -> Task:
    """Return the task that a recipe names; refuse fields that the task does not use."""
    check_known("task", recipe.task[:80], TASKS)
    return TASKS[recipe.task](recipe)


def register_task(name: str, task: type[Task]) -> None:
    """Give a task of your own a name, which recipes can then use.

    A name is of lower-case letters, digits and underscores. Registering it again replaces the task.

    Raises:
        RecipeError: If the name is taken by one of our tasks, or is not a name.
    """
    if name in OURS or not re.fullmatch(r"[a-z][a-z0-9_]*", name):
        raise RecipeError(
            f"A task cannot be called {name!r}. Choose a name of lower-case letters, digits and "
            f"underscores, other than {', '.join(sorted(OURS))}."
        )
    TASKS[name] = task
