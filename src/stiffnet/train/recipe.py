"""What determines a training run: one flat record, of which equal copies give equal results."""

import difflib
import hashlib
import json
from collections.abc import Iterator, Set
from dataclasses import asdict, dataclass, fields, replace
from pathlib import PurePosixPath
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

import msgspec
from msgspec import Meta

from stiffnet.errors import RecipeError
from stiffnet.train.flat import written

Optimizer = Literal["sgd", "adamw"]
Decay = Literal["all", "weights"]
Schedule = Literal["constant", "multistep", "cosine", "onecycle"]
Precision = Literal["32-true", "64-true", "bf16-true", "bf16-mixed", "16-mixed"]
Crop = Literal["none", "pad", "resized"]
Noise = Literal["none", "constant", "random"]

Value = str | int | float | bool | tuple[int, ...] | tuple[float, ...]

CLASSIFY = "classify"
MILLION = 1_000_000
LONGEST_TEXT = 1_000  # characters
MOST_MILESTONES = 100
PRINTABLE = "^[^\x00-\x1f\x7f-\x9f\ud800-\udfff]*\\Z"  # neither controls nor surrogates
SIZED_DATA = ("generated",)  # after their colon comes how much there is, not where it lies

Text = Annotated[str, Meta(max_length=LONGEST_TEXT, pattern=PRINTABLE)]
Name = Annotated[str, Meta(min_length=1, max_length=LONGEST_TEXT, pattern=PRINTABLE)]
Pixels = Annotated[int, Meta(ge=0, le=10_000)]
Amount = Annotated[float, Meta(ge=0, le=MILLION)]
Share = Annotated[float, Meta(ge=0, lt=1)]
Disturbance = Annotated[float, Meta(ge=-MILLION, le=MILLION)]


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """Everything that determines a run, and nothing about the machine that it runs on.

    A recipe that contradicts itself cannot be made. Whole numbers are taken where a field is a
    float, and lists where it is a tuple.

    Attributes:
        task: What is learnt, such as ``classify``.
        model: Name of the network, or a model folder of ours.
        attention: Module that chooses the step sizes, or ``none``.
        data: What `stiffnet.data.open_data` opens.
        train_images: How many of the training images are used, evenly chosen; 0 for all.
        weights: To start from: nothing for random ones, ``pretrained``, a file, a folder, or
            ``hf-hub:ORG/NAME``.
        weights_key: Which state dict of a weights file with several.
        seed: Of the weights, the order, the crops and the noise.
        epochs: Passes over the training images.
        batch_size: Images per optimizer step, over all ranks together.
        image_size: Side of the images in pixels; 0 for the model's own.
        skip_bad_images: Whether image files that cannot be read are left out, after a look at every
            one, instead of ending the run.
        optimizer: What turns gradients into steps.
        learning_rate: The largest of the schedule.
        backbone_rate: What share of it trained weights get that are trained on; the head and
            attached modules get all of it.
        momentum: Of ``sgd``.
        nesterov: Whether ``sgd`` looks ahead.
        weight_decay: How strongly parameters are drawn to zero.
        decay: What is drawn: every parameter, or only ``weights``, which have two axes or more.
            Parameters that a module exempts are left alone in both cases.
        schedule: How the learning rate changes.
        milestones: Of ``multistep``: epochs after which the rate is multiplied by `gamma`.
        gamma: Of ``multistep``.
        warmup_epochs: Epochs over which the rate rises to `learning_rate`.
        warmup_share: The same as a share of the whole run, in place of `warmup_epochs`.
        label_smoothing: Share of the target that is spread over all classes.
        mixup: α of the beta distribution by which images are mixed in pairs, and their labels with
            them; 0 for none.
        cutmix: The same for boxes of images; where both are above 0, each batch is mixed in one of
            the two ways.
        clip_norm: Largest norm of the gradient; 0 for any.
        ema_decay: Of the running average of the weights; 0 for none.
        precision: Of the arithmetic, in Lightning Fabric's words.
        channels_last: Whether images lie in memory with their channels last.
        crop: ``pad`` shifts an image, ``resized`` enlarges a random part of it.
        padding: Of ``pad``: black pixels on each side.
        flip: Whether half of the images are mirrored.
        crop_scale: Of ``resized``: smallest and largest share of the image's area.
        noise: What disturbs each BatchNorm in training.
        noise_a: Factor of ``constant`` noise; standard deviation of a ``random`` one around 1.
        noise_b: Term of ``constant`` noise; standard deviation of a ``random`` one around 0.
        batch_noise: Whether every InstanceNorm becomes a BatchNorm.
        sync_norms: Whether batch statistics are taken over all ranks.
        frozen_stages: How many of the first stages of a detector's backbone do not learn.
        frozen_norms: Whether the batch norms of a detector's backbone use the statistics that they
            came with.
        style: Of ``restyle``: the picture whose style is learnt, a file or a name.
        loss_weights: Of ``restyle``: VGG16's weights, which judge pictures; or ``random``.
        content_weight: Of ``restyle``: how much it counts that the content stays.
        style_weight: Of ``restyle``: how much the style counts.
        tv_weight: Of ``restyle``: how much it counts that neighbouring pixels are alike.
    """

    task: Name = CLASSIFY
    model: Name = "resnet20_cifar"
    attention: Name = "none"
    data: Name = "digits"
    train_images: Annotated[int, Meta(ge=0, le=2**63 - 1)] = 0
    weights: Text = ""
    weights_key: Text = ""
    seed: Annotated[int, Meta(ge=0, le=2**63 - 1)] = 0
    epochs: Annotated[int, Meta(ge=1, le=MILLION)] = 164
    batch_size: Annotated[int, Meta(ge=1, le=MILLION)] = 128
    image_size: Pixels = 0
    skip_bad_images: bool = False
    optimizer: Optimizer = "sgd"
    learning_rate: Annotated[float, Meta(gt=0, le=MILLION)] = 0.1
    backbone_rate: Annotated[float, Meta(gt=0, le=1)] = 1.0
    momentum: Share = 0.9
    nesterov: bool = False
    weight_decay: Amount = 1e-4
    decay: Decay = "all"
    schedule: Schedule = "constant"
    milestones: tuple[int, ...] = ()
    gamma: Annotated[float, Meta(gt=0, lt=1)] = 0.1
    warmup_epochs: Annotated[int, Meta(ge=0, le=MILLION)] = 0
    warmup_share: Share = 0.0
    label_smoothing: Share = 0.0
    mixup: Amount = 0.0
    cutmix: Amount = 0.0
    clip_norm: Amount = 0.0
    ema_decay: Share = 0.0
    precision: Precision = "32-true"
    channels_last: bool = False
    crop: Crop = "pad"
    padding: Pixels = 4
    flip: bool = True
    crop_scale: tuple[float, float] = (0.08, 1.0)
    noise: Noise = "none"
    noise_a: Disturbance = 1.0
    noise_b: Disturbance = 0.0
    batch_noise: bool = False
    sync_norms: bool = True
    frozen_stages: Annotated[int, Meta(ge=0, le=100)] = 0
    frozen_norms: bool = False
    style: Text = ""
    loss_weights: Text = ""
    content_weight: Amount = 1.0
    style_weight: Amount = 1e5
    tv_weight: Amount = 1.0

    def __post_init__(self) -> None:
        for name in KINDS:
            object.__setattr__(self, name, checked(name, getattr(self, name)))
        for sentence in _contradictions(self):
            raise RecipeError(sentence)

    @property
    def facts(self) -> dict[str, Any]:
        """What tells it from other recipes: its fields, without the place of the data.

        Fields that came later are left out at their defaults, which do what was done before.
        """
        found = asdict(place_free(self))
        return {k: v for k, v in found.items() if k not in LATER or v != DEFAULTS[k]}

    @property
    def fingerprint(self) -> str:
        """Short name of this recipe, the same on every machine and wherever the data lie."""
        canonical = json.dumps(self.facts, sort_keys=True)
        return hashlib.sha256(canonical.encode()).hexdigest()[:12]


KINDS: dict[str, Any] = get_type_hints(Recipe)
LIMITED: dict[str, Any] = get_type_hints(Recipe, include_extras=True)  # with their ranges
DEFAULTS: dict[str, Any] = {field.name: field.default for field in fields(Recipe)}
OF_RESTYLE = ("style", "loss_weights", "content_weight", "style_weight", "tv_weight")
LATER = (  # fields that the first recipes did not have
    "task", "train_images", "weights_key", "backbone_rate", "warmup_share", "mixup", "cutmix",
    "frozen_stages", "frozen_norms", *OF_RESTYLE,
)  # fmt: skip
USED_BY: dict[str, tuple[str, tuple[str, ...]]] = {
    "momentum": ("optimizer", ("sgd",)),
    "nesterov": ("optimizer", ("sgd",)),
    "milestones": ("schedule", ("multistep",)),
    "gamma": ("schedule", ("multistep",)),
    "padding": ("crop", ("pad",)),
    "crop_scale": ("crop", ("resized",)),
    "noise_a": ("noise", ("constant", "random")),
    "noise_b": ("noise", ("constant", "random")),
}


def place_free(recipe: Recipe) -> Recipe:
    """Return the recipe without the place of its data: ``cifar10:DIR`` becomes ``cifar10``.

    Of folders of images the last name remains, as in ``folder:cats`` and ``coco:trees``, and so of
    a style picture and of the weights that judge it, whose content a run remembers. A weights file
    and a model folder keep their paths, since nothing else tells two of them apart.
    """
    name, colon, place = recipe.data.partition(":")
    if "/" in name:
        kept = f"folder:{PurePosixPath(recipe.data).name}"
    elif name in ("folder", "coco", "photos") and colon:
        kept = f"{name}:{PurePosixPath(place).name}"
    else:
        kept = recipe.data if not name or name in SIZED_DATA else name
    style, judge = (PurePosixPath(each).name for each in (recipe.style, recipe.loss_weights))
    return replace(recipe, data=kept, style=style, loss_weights=judge)


def checked(name: str, value: object) -> Value:
    """Return the value of one field in the field's own type.

    Raises:
        RecipeError: If it is of another type, out of range, or not one of its words.
    """
    try:
        typed: Value = msgspec.convert(_plain(value), LIMITED[name])
    except msgspec.ValidationError as error:
        raise RecipeError(
            f"`{name}` is {shown(value)}; it must be {wanted(name)}.{_nearest(name, value)}"
        ) from error
    return typed + 0.0 if isinstance(typed, float) else typed  # which takes the sign off a zero


def wanted(name: str) -> str:
    """Say what values a field takes, as in ``a whole number from 1 to 1,000,000``."""
    kind, span = KINDS[name], _span(LIMITED[name])
    if get_origin(kind) is Literal:
        *most, last = (repr(word) for word in get_args(kind))
        return f"{', '.join(most)} or {last}"
    words = {
        bool: "true or false",
        int: f"a whole number{span}",
        float: f"a number{span}",
        str: f"text of at most {LONGEST_TEXT:,} printable characters",
        tuple[int, ...]: "a list of whole numbers, such as [81, 122]",
        tuple[float, float]: "a list of two numbers, such as [0.08, 1.0]",
    }
    empty = ", and not empty" if kind is str and DEFAULTS[name] else ""
    return words[kind] + empty


def shown(value: object) -> str:
    """Write a value so that it fits into a sentence, whatever it is."""
    try:
        text = "nothing" if value is None else repr(value)
    except (ValueError, RecursionError):  # too many digits, or lists in lists in lists
        return f"too large a value of type {type(value).__name__}"
    return text if len(text) <= 80 else f"{text[:79]}…"


def _plain(value: object) -> object:
    """Return floats and texts of subclasses, such as NumPy's, as Python's own; sets as nothing."""
    if isinstance(value, float):
        return float(value)
    if isinstance(value, str):
        return str.__str__(value)
    return None if isinstance(value, Set) else value


def _span(kind: Any) -> str:
    """Say the range of a number, as in ``at least 0 and below 1``."""
    if get_origin(kind) is not Annotated or (limit := get_args(kind)[1]).max_length:
        return ""
    if limit.gt is None and limit.lt is None:
        return f" from {limit.ge:,} to {limit.le:,}"
    low = f"at least {limit.ge:,}" if limit.gt is None else f"above {limit.gt:,}"
    high = f"at most {limit.le:,}" if limit.lt is None else f"below {limit.lt:,}"
    return f" {low} and {high}"


def _nearest(name: str, value: object) -> str:
    if get_origin(KINDS[name]) is not Literal or not isinstance(value, str):
        return ""
    close = difflib.get_close_matches(value[:LONGEST_TEXT], get_args(KINDS[name]), n=1)
    return f" Did you mean {close[0]!r}?" if close else ""


def _contradictions(recipe: Recipe) -> Iterator[str]:
    if recipe.weights_key and recipe.weights == "pretrained":
        yield (
            f"`weights_key` is {recipe.weights_key!r}, but `weights` is 'pretrained', which has "
            "one state dict. Set `weights_key` back to '', or `weights` to a file."
        )
    for name, (by, words) in USED_BY.items():
        value, word = getattr(recipe, name), getattr(recipe, by)
        if word not in words and value != DEFAULTS[name]:
            yield (
                f"`{name}` is {shown(value)}, but `{by}` is {word!r}, which makes no use of it. "
                f"Set `{name}` back to {written(DEFAULTS[name])}, or `{by}` to "
                f"{' or '.join(repr(word) for word in words)}."
            )
    if recipe.nesterov and not recipe.momentum:
        yield (
            "`nesterov` is True, but `momentum` is 0, so there is nothing to look ahead along. "
            "Raise `momentum`, or set `nesterov` to false."
        )
    yield from _schedule(recipe)
    low, high = recipe.crop_scale
    if not 0 < low <= high <= 1:
        yield (
            f"`crop_scale` is {written(recipe.crop_scale)}; it must be two shares above 0 and at "
            "most 1, the smaller first, such as [0.08, 1.0]."
        )
    for name in ("noise_a", "noise_b"):
        if recipe.noise == "random" and getattr(recipe, name) < 0:
            yield (
                f"`{name}` is {getattr(recipe, name)}, but `noise` is 'random', where it is a "
                "standard deviation. Make it 0 or more, or set `noise` to 'constant'."
            )


def _schedule(recipe: Recipe) -> Iterator[str]:
    epochs, milestones = recipe.epochs, recipe.milestones
    warmup, share = recipe.warmup_epochs, recipe.warmup_share
    if recipe.schedule == "multistep" and not milestones:
        yield (
            "`milestones` is empty, but `schedule` is 'multistep', which needs them. Name the "
            "epochs, such as [81, 122], or set `schedule` to 'constant'."
        )
    if len(milestones) > MOST_MILESTONES:
        yield (
            f"`milestones` has {len(milestones):,} entries; at most {MOST_MILESTONES} are read. "
            "Use the 'cosine' schedule for a rate that falls all the time."
        )
    for before, after in zip((0, *milestones), milestones, strict=False):
        if after <= before:
            yield (
                f"`milestones` has {shown(after)} after {before}; they must be whole numbers from "
                "1, each larger than the one before. Put them in order."
            )
        if after >= epochs:
            yield (
                f"`milestones` has {shown(after)}, but `epochs` is {epochs}, so training ends "
                "before. Shorten `milestones`, or raise `epochs`."
            )
    if warmup >= epochs:
        yield (
            f"`warmup_epochs` is {warmup}, but `epochs` is {epochs}, so the learning rate would "
            "never reach its value. Lower `warmup_epochs`, or raise `epochs`."
        )
    if warmup and share:
        yield (
            f"`warmup_epochs` is {warmup} and `warmup_share` is {share}, which say the same in two "
            "ways. Set one of them to 0."
        )
    for name, epoch in (("warmup_epochs", warmup), ("warmup_share", share * epochs)):
        value = getattr(recipe, name)
        if value and recipe.schedule == "onecycle":
            yield (
                f"`{name}` is {value}, but `schedule` is 'onecycle', which rises by itself. "
                f"Set `{name}` to 0, or `schedule` to 'cosine'."
            )
        if milestones and epoch > milestones[0]:
            yield (
                f"`{name}` is {value}, but the rate falls at epoch {milestones[0]} already. "
                f"Lower `{name}`, or move `milestones`."
            )
