"""``stiffnet demo``: train a small network on embedded images, and see its stiffness change."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from stiffnet.cli.progress import progress

if TYPE_CHECKING:
    from stiffnet.train.recipe import Recipe

MODEL = "resnet20_cifar"
SETTINGS = {
    "epochs": 8,
    "batch_size": 32,
    "image_size": 16,  # pixels; the digits have 8
    "learning_rate": 0.1,
    "crop": "none",
    "flip": False,  # a mirrored digit is another one
}


def demo(
    out: Annotated[Path, typer.Option(metavar="DIR", help="For what it writes.")] = Path("demo"),
    seed: Annotated[
        int, typer.Option(min=0, max=2**63 - 1, help="Of the weights and the order.")
    ] = 0,
) -> None:
    """Train a small residual network on digits, measure it before and after, write a page."""
    from rich.console import Console

    from stiffnet.cli.following import Follower
    from stiffnet.data.digits import digits
    from stiffnet.files import atomic_write_all
    from stiffnet.measure import measure
    from stiffnet.network.load import LoadedModel, open_model
    from stiffnet.report.stiffness import StiffnessReport, page
    from stiffnet.train.reading import build_recipe
    from stiffnet.train.run import run

    recipe = build_recipe("quick", SETTINGS, model=MODEL, data="digits", seed=seed)
    folder = out / "run"
    with Follower(recipe, folder) as follower:
        # A demo that was there gives way; somebody's own run does not.
        again = _is_demo(folder / "recipe.toml", recipe)
        result = run(recipe, folder, command="stiffnet demo", again=again, audience=follower)
    trained = open_model(result.folder.final)
    untrained = open_model(MODEL, num_classes=len(trained.classes), seed=seed)
    test = digits("test")

    def look(loaded: LoadedModel, weights: str) -> StiffnessReport:
        facts = {"model": MODEL, "form": "train", "data": test.name, "command": "stiffnet demo"}
        batches = test.batches(trained.preparation, batch_size=120)
        with progress(f"measuring, {weights}", len(test)) as advance:
            return measure(
                loaded.model,
                batches,
                classes=test.classes,
                facts={**facts, "weights": weights},
                on_batch=advance,
            )

    before = look(untrained, f"random, seed {seed}")
    after = look(trained, f"trained for {recipe.epochs} epochs")
    shown = page(
        [before, after],
        titles=["before training", "after training"],
        heading=f"{MODEL} on digits, before and after training",
    )
    made = {"before.json": before.to_json(), "after.json": after.to_json(), "report.html": shown}
    atomic_write_all({out / name: content for name, content in made.items()})
    console = Console()
    console.print(after)
    console.print(
        f"TNS went from {before.tns:.3f} to {after.tns:.3f}, "
        f"accuracy from {before.accuracy:.1%} to {after.accuracy:.1%}.\n"
        f"Measure it again: stiffnet measure {result.folder.final} --data digits\n"
        f"The report: {out / 'report.html'}",
        markup=False,
        highlight=False,
        soft_wrap=True,
    )


def _is_demo(path: Path, recipe: "Recipe") -> bool:
    from dataclasses import replace

    from stiffnet.train.reading import build_recipe

    return path.exists() and replace(build_recipe(path), seed=recipe.seed) == recipe
