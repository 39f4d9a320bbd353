"""The whole story on embedded digits: train a small network, measure it, fold it, write a page."""

from dataclasses import dataclass, replace
from pathlib import Path

from torch import nn

from stiffnet.data.digits import digits
from stiffnet.data.images import ImageSet
from stiffnet.fold.cost import costs
from stiffnet.fold.fold import fold
from stiffnet.jobs.places import check_places, refuse_strangers, write
from stiffnet.jobs.subject import Spec
from stiffnet.jobs.train import followed
from stiffnet.jobs.watching import SILENT, Watcher
from stiffnet.network.folded_folder import write_folded
from stiffnet.network.loaded import LoadedModel
from stiffnet.network.model_folder import Fact
from stiffnet.network.open import open_model
from stiffnet.observe.measure import measure
from stiffnet.report.page import page
from stiffnet.results.fold import Form, Forms
from stiffnet.results.stiffness import StiffnessReport
from stiffnet.train.recipe import Recipe
from stiffnet.train.recipe_file import RECIPE, build_recipe
from stiffnet.train.run import run

COMMAND = "stiffnet demo"
MODEL, ATTENTION = "resnet20_cifar", "asr:se"
SETTINGS = {
    "epochs": 8,
    "batch_size": 32,
    "image_size": 16,  # pixels; the digits have 8
    "learning_rate": 0.1,
    "crop": "none",
    "flip": False,  # a mirrored digit is another one
}
FILES = ("before.json", "after.json", "report.html")
TIMED = 64  # images in a pass that is timed
PASSES = 15  # of each form of the network


@dataclass(frozen=True)
class Demo:
    """What the demo found, and where it was written."""

    before: StiffnessReport
    after: StiffnessReport
    forms: Forms
    final: Path
    """The trained network."""
    folded: Path
    """The folded one."""
    files: tuple[Path, ...]
    """`FILES`."""


def demo(out: Spec = "demo", *, seed: int = 0, watcher: Watcher = SILENT) -> Demo:
    """Train a small network with attention on digits, measure it, fold it, and write a page.

    Args:
        out: Folder for the run, the folded network and the reports.
        seed: Random seed for the weights and the order of the images.
        watcher: Whoever follows the job.

    Raises:
        StiffnetError: One of its kinds, if something else is in the way; nothing is written then.
    """
    folder = Path(out)
    recipe = build_recipe(
        "quick", SETTINGS, model=MODEL, attention=ATTENTION, data="digits", seed=seed
    )
    refuse_strangers(folder / "folded")
    check_places(folder, *FILES)
    with followed(watcher, recipe, folder / "run") as audience:
        # A demo that was there gives way; somebody's own run does not.
        again = _is_demo(folder / "run" / RECIPE, recipe)
        result = run(recipe, folder / "run", command=COMMAND, again=again, audience=audience)
    final = result.folder.final
    trained = open_model(final)
    untrained = open_model(MODEL, num_classes=len(trained.classes), attention=ATTENTION, seed=seed)
    test = digits("test")
    before = _look(untrained.model, trained, test, f"random, seed {seed}", watcher)
    after = _look(trained.model, trained, test, f"trained for {recipe.epochs} epochs", watcher)
    forms = _fold(trained, after, test, folder / "folded", source=final, watcher=watcher)
    shown = page(
        [forms, before, after],
        titles=["", "before training", "after training"],
        heading=f"{MODEL} with {ATTENTION} on digits: trained, measured, folded",
    )
    texts = (before.to_json(), after.to_json(), shown)
    files = write(folder, dict(zip(FILES, texts, strict=True)))
    return Demo(before, after, forms, final, folder / "folded", files)


def _look(
    model: nn.Module,
    trained: LoadedModel,
    test: ImageSet,
    weights: str,
    watcher: Watcher,
    form: str = "train",
) -> StiffnessReport:
    """Measure a form of the network on the test images."""
    facts = {"model": MODEL, "attention": ATTENTION, "data": test.name, "command": COMMAND}
    with watcher.progress(f"measuring, {weights}", len(test)) as advance:
        return measure(
            model,
            test.batches(trained.preparation, batch_size=120),
            classes=test.classes,
            facts={**facts, "form": form, "weights": weights},
            on_batch=advance,
        )


def _fold(
    trained: LoadedModel,
    after: StiffnessReport,
    test: ImageSet,
    out: Path,
    *,
    source: Path,
    watcher: Watcher = SILENT,
) -> Forms:
    """Write the folded network, and run it as it was written, beside the trained and the fused."""
    [(images, _)] = test.batches(trained.preparation, batch_size=TIMED, limit=TIMED)
    folded, fused = (fold(trained.model, images, fuse=fuse, passes=0) for fuse in (False, True))
    made_by: dict[str, Fact] = {"folded_by": COMMAND, "source": str(source), "fuse": False}
    write_folded(out, folded.model, folded.report.changes, source=trained, made_by=made_by)
    models = {"folded": open_model(out).model, "fused": fused.model}
    with watcher.progress("timing the forms of the network", 1) as advance:
        taken = costs([trained.model, *models.values()], ((images,), {}), passes=PASSES)
        advance(1)
    looks = (_look(model, trained, test, name, watcher, "folded") for name, model in models.items())
    accuracies = [after.accuracy, *(report.accuracy for report in looks)]
    errors = [None, folded.report.scaled_error, fused.report.scaled_error]
    forms = (
        Form(
            name,
            accuracy,
            cost.parameters,
            cost.macs,
            cost.seconds and len(images) / cost.seconds,
            error,
        )
        for name, accuracy, cost, error in zip(
            ("as trained", *models), accuracies, taken, errors, strict=True
        )
    )
    return Forms(tuple(forms), tested=len(test), batch=len(images), passes=PASSES)


def _is_demo(path: Path, recipe: Recipe) -> bool:
    return path.exists() and replace(build_recipe(path), seed=recipe.seed) == recipe
