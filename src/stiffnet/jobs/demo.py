"""The whole story from one seed: train four networks, measure, fold and time them, write a page."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from stiffnet.data.folder import ImageFolder
from stiffnet.data.images import ImageSet
from stiffnet.errors import CheckpointError, CorruptFileError, DataError, RecipeError
from stiffnet.fold.cost import costs
from stiffnet.fold.fold import fold
from stiffnet.jobs.demo_speed import rates, training_seconds
from stiffnet.jobs.places import check_places, refuse_strangers
from stiffnet.jobs.report import log_of
from stiffnet.jobs.result_files import write_result
from stiffnet.jobs.subject import Spec
from stiffnet.jobs.train import followed
from stiffnet.jobs.watching import SILENT, Watcher
from stiffnet.network.folded_folder import write_folded
from stiffnet.network.loaded import LoadedModel
from stiffnet.network.model_folder import Fact
from stiffnet.network.open import open_model
from stiffnet.observe.compare import compare
from stiffnet.observe.measure import measure
from stiffnet.observe.spectrum import spectra
from stiffnet.ode import euler
from stiffnet.provenance import provenance
from stiffnet.report.demo import HEADING
from stiffnet.results.demo import DemoNetwork, DemoReport, TimedForm
from stiffnet.results.ranking import stiffest
from stiffnet.results.spectra import SpectrumReport
from stiffnet.results.stiffness import StiffnessReport
from stiffnet.train.build import open_subject
from stiffnet.train.recipe import CLASSIFY, Recipe
from stiffnet.train.recipe_file import build_recipe
from stiffnet.train.run import run as train
from stiffnet.train.run_folder import RunFolder
from stiffnet.train.stopping import Stopped
from stiffnet.train.tasks import task_of
from stiffnet.trajectory.step import Step
from stiffnet.words import duration, few

MODEL = "resnet32_cifar"
NETWORKS = {"plain": "none", "SE": "se", "StepNet": "stepnet", "ASR(SE)": "asr:se"}
"""The attention of each network; the last one is folded."""
SETTINGS: dict[str, dict[str, object]] = {
    "digits": {
        "epochs": 8,
        "batch_size": 32,
        "image_size": 16,  # pixels; the digits have 8
        "learning_rate": 0.1,
        "crop": "none",
        "flip": False,  # a mirrored digit is another one
    }
}
"""Fields of the recipe `quick` that differ, by data set; `OTHERS` for all that are not here."""
OTHERS: dict[str, object] = {"epochs": 2}
FILES = ("demo.json", "report.html")
TESTED = 2_000  # test images at most, evenly chosen
TIMED = 64  # images in a pass that is timed
ROUNDS = 40  # in which each network is timed
SEEN = 4  # images whose eigenvalues are found
STATE = 2_048  # numbers in the state of a step whose eigenvalues are found within seconds
OTHER_WORK = 30  # seconds for eigenvalues, folding, timing and the page, or so
ATTENTION = 1.3  # times as long as the plain network a network with attention trains, or so


@dataclass(frozen=True)
class Demo:
    """What the demo found, and where it was written."""

    report: DemoReport
    runs: Mapping[str, RunFolder]
    """By the networks' names; the network of each is in its folder ``final``."""
    folded: Path
    """The folded network."""
    files: tuple[Path, ...]
    """`FILES`."""


@dataclass(frozen=True)
class _Scene:
    """What all networks of a demo have in common."""

    test: ImageSet | ImageFolder
    facts: Mapping[str, str]
    watcher: Watcher

    def look(self, name: str, when: str, loaded: LoadedModel) -> StiffnessReport:
        """Measure a network on the test images."""
        attention = NETWORKS.get(name)
        about = {"weights": when, "form": loaded.form, "network": name}
        about |= {"attention": attention} if attention else {}
        batches = self.test.batches(loaded.preparation, batch_size=120, limit=TESTED)
        tested, facts = min(TESTED, len(self.test)), {**self.facts, **about}
        with self.watcher.progress(f"measuring {name}, {when}", tested) as advance:
            return measure(
                loaded.model, batches, classes=self.test.classes, facts=facts, on_batch=advance
            )


def demo(
    out: Spec = "demo",
    *,
    data: Spec = "digits",
    settings: Mapping[str, object] | None = None,
    seed: int = 0,
    command: str = "stiffnet demo",
    watcher: Watcher = SILENT,
) -> Demo:
    """Train a plain network and three with attention, look at all of them, and write a page.

    They are measured before and after training. The eigenvalues of a stiff step are found, the
    network with constant attention is folded and compared with what it was, and passes of all
    of them are timed in turns. A demo that was killed goes on where it was; one that was finished
    gives way to a new one of the same data and settings.

    Args:
        out: Folder for the runs, the folded network, ``demo.json`` and ``report.html``.
        data: As for `stiffnet.jobs.train.train`.
        settings: Fields of the recipe to change, such as ``{"epochs": 1}``.
        seed: Random seed for the weights, the order of the images and their augmentation.
        command: What the user typed, for the record.
        watcher: Whoever follows the job.

    Raises:
        Stopped: If a signal ended the training; the same call continues it.
        StiffnetError: One of its other kinds, if something given cannot be used, or something else
            is in the way; nothing is written then.
    """
    folder, folded = Path(out), Path(out) / "folded"
    recipes = {
        name: _recipe(attention, data, settings, seed) for name, attention in NETWORKS.items()
    }
    places = {folder / _file_name(name): recipe for name, recipe in recipes.items()}
    refuse_strangers(folded)
    check_places(folder, *FILES)
    _check_runs(places)
    starts, test = _starts(recipes, watcher)
    facts = _facts(recipes["plain"], test.name, command)
    scene = _Scene(test, facts, watcher)
    runs = _train_runs(places, _shown(folder / FILES[0]), command=command, watcher=watcher)
    trained = {name: open_model(run.final) for name, run in zip(NETWORKS, runs, strict=True)}
    networks = tuple(
        DemoNetwork(
            name=name,
            attention=NETWORKS[name],
            before=scene.look(name, "before training", starts.pop(name)),
            after=scene.look(name, "after training", trained[name]),
            log=log_of(run.path),
        )
        for name, run in zip(NETWORKS, runs, strict=True)
    )
    proof, forms = _forms(networks, trained, scene, folded, source=runs[-1].final, command=command)
    plain = networks[0]
    report = DemoReport(
        networks=networks,
        comparison=compare({each.name: each.after for each in networks}, facts=facts),
        spectrum=_spectrum(trained[plain.name], plain.after, scene),
        fold=proof,
        forms=forms,
        batch=min(TIMED, len(test)),
        euler=euler.run(),
        facts=facts | {"runs": " ".join(run.owner for run in runs)} | _machine(trained["plain"]),
    )
    files = write_result(folder, FILES, report, watcher, heading=HEADING)
    return Demo(report, dict(zip(NETWORKS, runs, strict=True)), folded, files)


def _recipe(attention: str, data: Spec, settings: Mapping[str, object] | None, seed: int) -> Recipe:
    for field in sorted({"attention", "data", "seed", "task"} & set(settings or {})):
        option = field in ("data", "seed")
        how = f"Use `--{field}`" if option else "The demo has its own; leave it out"
        raise RecipeError(f"`{field}` cannot be set like this. {how}.")
    own = SETTINGS.get(str(data).partition(":")[0], OTHERS)
    changed = {**own, **(settings or {})}
    made = build_recipe(
        "quick", changed, model=changed.pop("model", MODEL), attention=attention, data=str(data),
        seed=seed,
    )  # fmt: skip
    if made.task != CLASSIFY:
        raise DataError(
            f"The demo classifies images, and {data} has no label for each of them. Give other "
            "data."
        )
    return made


def _file_name(name: str) -> str:
    """Return a network's name as that of a folder.

    >>> _file_name("ASR(SE)")
    'asr-se'
    """
    return name.lower().replace("(", "-").rstrip(")")


def _starts(
    recipes: Mapping[str, Recipe], watcher: Watcher
) -> tuple[dict[str, LoadedModel], ImageSet | ImageFolder]:
    """Return the networks as training will begin with them; and say how long it will take."""
    starts, lessons = {}, []
    for name, recipe in recipes.items():
        lesson, starts[name], _, _ = open_subject(recipe, task_of(recipe))
        lessons.append(lesson)
    train, test = lessons[0].train, lessons[0].test
    assert isinstance(train, ImageSet | ImageFolder), "classified images"
    assert isinstance(test, ImageSet | ImageFolder)
    plain, recipe = next(iter(starts.values())), next(iter(recipes.values()))
    batch, tested = min(recipe.batch_size, len(train)), min(TESTED, len(test))
    [(images, labels)] = train.batches(plain.preparation, batch_size=batch, limit=batch)
    one = training_seconds(plain.model, images, labels)
    work = len(train) * recipe.epochs * (1 + (len(recipes) - 1) * ATTENTION)
    work += 2 * len(recipes) * tested / 3  # passes forward alone
    watcher.note(
        f"{len(recipes)} networks are trained on {len(train):,} images ({recipe.epochs} epochs) "
        f"and measured on {tested:,}: about {duration(one * work + OTHER_WORK)} on this machine."
    )
    return starts, test


def _shown(file: Path) -> list[str]:
    """Return the names of the runs that a finished demo in this file has shown."""
    try:
        return DemoReport.load(file).facts.get("runs", "").split() if file.exists() else []
    except CorruptFileError:
        return []


def _check_runs(recipes: Mapping[Path, Recipe]) -> None:
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


def _train_runs(
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
                    train(
                        recipe, path, resume=left, again=there and not left,
                        command=command, audience=audience,
                    )  # fmt: skip
                except CheckpointError as error:
                    if not left:
                        raise
                    watcher.note(f"{path} cannot be continued and starts over: {error}")
                    train(recipe, path, again=True, command=command, audience=audience)
            except Stopped as stopped:
                raise Stopped(
                    f"The demo was stopped. What was trained is kept in {path.parent}; the same "
                    "command continues there.",
                    stopped.exit_code - 128,
                ) from stopped
        made.append(folder)
    return made


def _data_name(spec: str) -> str:
    """Return what a data set is called, without the place where it lies.

    >>> _data_name("digits"), _data_name("cifar10:there/is"), _data_name("my/photos")
    ('digits', 'cifar10', 'photos')
    """
    name, _, place = spec.partition(":")
    return Path(place or name).name if name == "folder" or not place else name


def _facts(recipe: Recipe, tests: str, command: str) -> dict[str, str]:
    return {
        "model": recipe.model,
        "data": _data_name(recipe.data),
        "test images": tests,
        "seed": str(recipe.seed),
        "epochs": str(recipe.epochs),
        "image size": str(recipe.image_size or "as the data"),
        "command": command,
    }


def _machine(plain: LoadedModel) -> dict[str, str]:
    made = provenance(plain.model)
    return {key: made[key] for key in ("versions", "python", "device", "precision")} | {
        "threads": str(torch.get_num_threads())
    }


def _spectrum(plain: LoadedModel, after: StiffnessReport, scene: _Scene) -> SpectrumReport:
    """Find all eigenvalues of a stiff step of the trained network."""
    step = _stiff_step(after)
    batches = scene.test.batches(plain.preparation, batch_size=1, limit=SEEN)
    numbers = [int(few[0]) for few in batches.indices]
    images = [(number, *pair) for number, pair in zip(numbers, batches, strict=True)]
    with scene.watcher.progress(f"eigenvalues of {step.name}", len(images)) as advance:
        return spectra(
            plain.model,
            images,
            [step],
            method="reduced",
            classes=scene.test.classes,
            facts=scene.facts,
            on_spectrum=lambda: advance(1),
        )


def _stiff_step(report: StiffnessReport) -> Step:
    """Return the stiffest counted step whose state is small, or that of the smallest state."""
    counted = [step.counted and step.identity for step in report.steps]
    order = stiffest(report.summary.nsi_mean.tolist(), counted)
    steps = [report.steps[i] for i in order]

    def numbers(step: Step) -> int:
        return int(torch.Size(step.shape).numel())

    return next((s for s in steps if numbers(s) <= STATE), None) or min(steps, key=numbers)


def _forms(
    networks: tuple[DemoNetwork, ...],
    trained: Mapping[str, LoadedModel],
    scene: _Scene,
    out: Path,
    *,
    source: Path,
    command: str,
) -> tuple[Any, tuple[TimedForm, ...]]:
    """Fold the last network, write it, and count and time all forms; the folded one as written."""
    constant = trained[networks[-1].name]
    [(images, _)] = scene.test.batches(constant.preparation, batch_size=TIMED, limit=TIMED)
    folded, fused = (fold(constant.model, images, fuse=fuse, passes=0) for fuse in (False, True))
    made_by: dict[str, Fact] = {"folded_by": command, "source": str(source), "fuse": False}
    write_folded(out, folded.model, folded.report.changes, source=constant, made_by=made_by)
    written = open_model(out)
    every = {**trained, "folded": written, "fused": replace(written, model=fused.model)}
    accuracies = {network.name: network.after.accuracy for network in networks}
    for name in ("folded", "fused"):
        accuracies[name] = scene.look(name, "after training", every[name]).accuracy
    errors = {"folded": folded.report.scaled_error, "fused": fused.report.scaled_error}
    plain, *others = every
    with scene.watcher.progress("timing all networks in turns", ROUNDS) as advance:
        rate, ratios = rates(
            every[plain].model, {name: every[name].model for name in others}, images,
            rounds=ROUNDS, on_round=lambda: advance(1),
        )  # fmt: skip
    taken = costs([loaded.model for loaded in every.values()], ((images,), {}), passes=0)
    forms = []
    for name, cost in zip(every, taken, strict=True):
        own = ratios.get(name, ())
        form = TimedForm(
            name, accuracies[name], cost.parameters, cost.macs, None, errors.get(name), own
        )
        forms.append(replace(form, rate=rate * form.ratio))
    facts = {**scene.facts, "data": f"{len(images)} images of {scene.test.name}"}
    return replace(folded.report, facts=facts | provenance(constant.model)), tuple(forms)
