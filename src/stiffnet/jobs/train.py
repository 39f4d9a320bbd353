"""Train a network by a recipe, in the folder of a run."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from stiffnet.errors import CheckpointError, RecipeError
from stiffnet.jobs.places import file_name
from stiffnet.jobs.subject import Spec, subject_of
from stiffnet.jobs.watching import SILENT, Watcher
from stiffnet.network.model_names import is_model_name
from stiffnet.network.pretrained import PRETRAINED
from stiffnet.train.recipe import Recipe
from stiffnet.train.recipe_file import build_recipe, usual_recipe, written_out
from stiffnet.train.run import HERE, Audience, Machinery, Result, run
from stiffnet.train.run_folder import RunFolder
from stiffnet.train.tally import Tally
from stiffnet.train.trackers import Tracker, check_tracker, open_tracker


@dataclass(frozen=True)
class Trained:
    """A finished run, and the recipe that it was trained by."""

    result: Result
    recipe: Recipe


def train(
    model: Spec | None = None,
    data: Spec | None = None,
    *,
    recipe: Spec | None = None,
    settings: Mapping[str, object] | None = None,
    weights: Spec | None = None,
    weights_key: str | None = None,
    attention: str | None = None,
    seed: int | None = None,
    skip_bad_images: bool = False,
    style: Spec | None = None,
    loss_weights: Spec | None = None,
    out: Spec | None = None,
    resume: bool = False,
    again: bool = False,
    machinery: Machinery = HERE,
    trackers: Sequence[str] = (),
    command: str = "",
    watcher: Watcher = SILENT,
) -> Trained:
    """Train a network, or continue a run that was stopped.

    Args:
        model: A timm name, ``torchvision:NAME``, a run or a model folder, or ``hf-hub:ORG/NAME`` of
            timm; None for the recipe's own. ``style:in``, ``style:bn`` and ``style:bn+asr`` restyle
            photographs.
        data: ``digits``, ``cifar10:DIR``, or a folder with ``train`` and ``val``; for networks that
            restyle, a folder of photographs.
        recipe: A name from `stiffnet list recipes`, or a file; None for ``quick``, for ``style``
            where photographs are restyled, or for the run's own when it is resumed.
        settings: Fields of the recipe to change; text is read as the field's type.
        weights: To start from: ``pretrained``, a weights file, a folder or ``hf-hub:ORG/NAME`` with
            one; None for the recipe's own, or for those of a model folder.
        weights_key: Which state dict of a checkpoint, such as ``"state_dict_ema"``.
        attention: A module for every step.
        seed: Random seed for the weights, the order of the images and their augmentation.
        skip_bad_images: Leave out image files that cannot be read.
        style: The picture whose style is learnt, where photographs are restyled.
        loss_weights: A file of VGG16's weights, in torchvision's names, that judges them.
        out: Folder of the run; None for ``runs/MODEL-FINGERPRINT``.
        resume: Continue the run that is there.
        again: Delete the run that is there, and start over.
        machinery: Where and how to compute.
        trackers: Also log to these: ``tensorboard``, ``trackio``.
        command: What the user typed, for the record.
        watcher: Whoever follows the run.

    Raises:
        Stopped: If a signal ended it; a checkpoint of the last step is there.
        StiffnetError: One of its other kinds, if anything given cannot be used.
    """
    for name in trackers:
        check_tracker(name)
    if resume and not again:
        _check_resumable(out, named=bool(model or recipe))
    model = None if model is None else _network(model)
    known = {
        "data": _text(data),
        "weights": _text(weights),
        "weights_key": weights_key or None,
        "attention": attention,
        "seed": seed,
        "skip_bad_images": skip_bad_images or None,
        "style": _text(style),
        "loss_weights": _text(loss_weights),
    }
    named = written_out(model) if isinstance(model, str) else {"model": _text(model)}
    sources = (settings or {}, known, named)
    told = [field for each in sources for field, value in each.items() if value is not None]
    for field in told:
        if told.count(field) > 1:
            raise RecipeError(f"`{field}` is given twice. Keep one of the two.")
    known.update(named)
    if recipe is None and resume and out is not None:
        recipe = RunFolder(Path(out)).recipe
    if recipe is None and model is None:
        raise RecipeError(
            "No network was given. Write its name, as in `stiffnet train resnet20_cifar`."
        )
    wanted = build_recipe(recipe or usual_recipe(_text(model)), settings, **known)
    if wanted.weights == PRETRAINED and weights is None and not is_model_name(wanted.model):
        wanted = replace(wanted, weights="")  # a model folder has its own, whatever a recipe says
    name = f"{file_name(wanted.model)}-{wanted.fingerprint}"
    folder = Path("runs", name) if out is None else Path(out)
    with followed(watcher, wanted, folder, trackers) as audience:
        result = run(
            wanted,
            folder,
            resume=resume,
            again=again,
            command=command,
            machinery=machinery,
            audience=audience,
        )
    return Trained(result, wanted)


@contextmanager
def followed(
    watcher: Watcher, recipe: Recipe, folder: Path, trackers: Sequence[str] = ()
) -> Iterator[Audience]:
    """Yield an audience that tells the watcher of a run, and logs its rows to the trackers."""
    with ExitStack() as stack:
        shown = stack.enter_context(watcher.training(recipe))

        def opened() -> list[Tracker]:
            found = (open_tracker(name, folder, asdict(recipe)) for name in trackers)
            return [stack.enter_context(closing(tracker)) for tracker in found]

        yield _Following(watcher, shown, opened)


class _Following(Audience):
    """Hands on what it hears; trackers are opened when the run begins, on the first rank alone."""

    def __init__(
        self, watcher: Watcher, shown: Audience, open_trackers: Callable[[], list[Tracker]]
    ) -> None:
        self.watcher, self.shown, self.open_trackers = watcher, shown, open_trackers
        self.trackers: list[Tracker] = []

    def begin(self, images: int, done: int) -> None:
        self.trackers = self.open_trackers()
        self.shown.begin(images, done)

    def step(self, images: int, tally: Tally) -> None:
        self.shown.step(images, tally)

    def epoch(self, row: dict[str, Any]) -> None:
        self.shown.epoch(row)
        for tracker in self.trackers:
            tracker.log({key: value for key, value in row.items() if value is not None})

    def note(self, text: str) -> None:
        self.watcher.note(text)


def _check_resumable(out: Spec | None, *, named: bool) -> None:
    """Say what is wrong with a run to resume before anything else is looked at."""
    if out is None and not named:
        raise RecipeError("`--resume` needs the folder of the run. Give it with `--out DIR`.")
    if out is not None and not RunFolder(Path(out)).recipe.exists():
        raise CheckpointError(
            f"{out} holds no run to resume. Give the folder of a run with `--out`, or leave out "
            "`--resume` to start one there."
        )


def _network(model: Spec) -> str:
    """Return a network's name or folder; of a run, the folder of its final network."""
    subject = subject_of(model)
    return str(model if subject.run is None else subject.folder)


def _text(spec: Spec | None) -> str | None:
    return None if spec is None else str(spec)
