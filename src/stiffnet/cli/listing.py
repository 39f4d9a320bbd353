"""``stiffnet list``: the names that the other commands take."""

from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args

from stiffnet.cli.options import argument

if TYPE_CHECKING:
    from stiffnet.registry import Registry

Kind = Literal["models", "data", "recipes", "attention", "problems", "studies"]


def listing(
    kind: Annotated[Kind, argument("KIND", f"What to list: {', '.join(get_args(Kind))}.")],
    pattern: Annotated[str, argument("PATTERN", "List only matching names, e.g. 'resnet*'.")] = "*",
) -> None:
    """List models, data sets, recipes, attention, problems or studies."""
    from stiffnet.errors import UnknownNameError

    if kind == "models":
        from stiffnet.network.model_names import model_names

        rows = model_names(pattern)
    else:
        import fnmatch

        rows = [row for row in _entries(kind) if fnmatch.fnmatchcase(row[0], pattern)]
    if not rows:
        raise UnknownNameError(
            f"No {kind} match {pattern!r}. `stiffnet list {kind}` shows all of them."
        )
    width = max(len(name) for name, _ in rows)
    for name, about in rows:
        print(f"{name:{width}}  {about}")
    if kind == "attention" and pattern == "*":
        print(
            "\nASR: each of them except sge can be given a learnt constant, so that it can be "
            "folded: asr:se or asr:se,depth=2. asr:vector has no module."
        )


def _entries(kind: Kind) -> list[tuple[str, str]]:
    table: Registry[Any]
    if kind == "studies":
        from stiffnet.studies.registry import listed_studies

        return listed_studies()
    if kind == "data":
        from stiffnet.data import DATA as table
    elif kind == "attention":
        from stiffnet.attention import ATTENTION as table
    elif kind == "problems":
        from stiffnet.ode import PROBLEMS as table
    else:
        from stiffnet.train.recipes import RECIPES as table
    return [(entry.name, entry.summary) for entry in table]
