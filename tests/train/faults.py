"""Ways to hurt a training run, and to see what is left of it.

Commands that are to be killed run in children of a fork server, which has imported everything
already: one starts in milliseconds, is a process of its own, and can be sent any signal.
"""

import errno
import hashlib
import json
import multiprocessing
import os
import re
import signal
import socket
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import numpy as np
import torch
from PIL import Image

from stiffnet.cli.main import main
from stiffnet.data.images import ImageSet, Preparation
from stiffnet.files import MARK
from stiffnet.network.model_folder import MANIFEST
from stiffnet.train import build, run
from stiffnet.train.checkpoint import About
from stiffnet.train.recipe import Recipe
from stiffnet.train.recipe_file import to_toml

SERVER = multiprocessing.get_context("forkserver")
SERVER.set_forkserver_preload(
    [
        "pytest",
        "stiffnet.cli.following",
        "stiffnet.cli.main",
        "stiffnet.results.stiffness",
        "stiffnet.train.run",
        "torch._dynamo",  # which the first optimizer would import
        "torch.distributed.checkpoint.state_dict",
        "torch.nn.parallel",
        "typer._adapters",
    ]
)
PATIENCE = 300  # seconds after which a child hangs, on a busy machine too

SAMPLES, BATCH = 35, 12  # three steps an epoch, and one of them smaller than the others
STEPS = 3
EVERYTHING = Recipe(  # that a checkpoint has to remember
    model="resnet20_cifar",
    data="generated",
    epochs=2,
    batch_size=BATCH,
    image_size=8,
    learning_rate=0.05,
    nesterov=True,
    schedule="cosine",
    label_smoothing=0.1,
    mixup=0.4,
    cutmix=1.0,
    clip_norm=1.0,
    ema_decay=0.9,
    padding=1,
    noise="random",
    noise_a=0.1,
    noise_b=0.1,
)

ABOUT = About(  # small checkpoints that no network made
    name="resnet20_cifar",
    options={"num_classes": 2},
    classes=("cat", "dog"),
    preparation=Preparation((3, 8, 8), (0.5,) * 3, (0.5,) * 3),
    recipe="epochs = 2\n",
    made_by={"seed": 0},
)

Fault = Callable[[], None]  # done to a child before its command begins


def pictures(count: int, seed: int) -> ImageSet:
    """Three classes of grey images that differ in brightness."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 3, count)
    noise = rng.integers(0, 100, (count, 1, 8, 8))
    images = (noise + 70 * labels[:, None, None, None]).astype(np.uint8)
    return ImageSet("pictures", images, labels.astype(np.int64), ("dark", "grey", "light"))


def photographs(folder: Path) -> Path:
    """Write small files of two classes, so that worker processes have something to read."""
    rng = np.random.default_rng(0)
    for split, count in (("train", 40), ("val", 4)):
        for name in ("cat", "dog"):
            place = folder / split / name
            place.mkdir(parents=True)
            for number in range(count):
                picture = rng.integers(0, 256, (12, 12, 3), dtype=np.uint8)
                Image.fromarray(picture).save(place / f"{number}.png")
    return folder


@dataclass(frozen=True)
class Diary(ImageSet):
    """Images that write down which of them were drawn: a line for each batch."""

    path: str = ""
    at: dict[int, Callable[[], object]] = field(default_factory=dict)  # to do at the n-th draw

    def training_batches(self, preparation, augmentation, indices, **options):
        batches = super().training_batches(preparation, augmentation, indices, **options)
        for chosen, batch in zip(indices, batches, strict=True):
            with open(self.path, "a") as stream:
                stream.write(json.dumps([options["epoch"], chosen.tolist()]) + "\n")
            self.at.get(len(drawn(self.path)), bool)()
            yield batch


def drawn(path: str | os.PathLike[str]) -> list[list]:
    """Epoch and samples of each batch in a diary; a line that was torn is left out."""
    if not os.path.exists(path):
        return []
    lines = Path(path).read_text().splitlines(keepends=True)
    return [json.loads(line) for line in lines if line.endswith("\n")]


@dataclass
class Life:
    """A `stiffnet` command in a process of its own, from its start to its end."""

    argv: Sequence[str]
    place: Path  # for what it says and draws
    fault: Fault | None = None
    at: Mapping[int, Callable[[], object]] = field(default_factory=dict)  # to do at the n-th draw
    environ: Mapping[str, str] = field(default_factory=dict)
    pictures: bool = True  # in place of the data that the recipe names

    def __post_init__(self) -> None:
        self.place.mkdir(exist_ok=True)
        self.process = SERVER.Process(target=_live, args=(vars(self).copy(),))
        self.process.start()

    def kill(self) -> None:
        """End it at once, if it has not ended yet."""
        self.process.kill()
        self.process.join(PATIENCE)

    def send(self, number: int) -> None:
        """Send a signal."""
        os.kill(self.process.pid, number)

    def end(self, seconds: float = PATIENCE) -> int:
        """Wait for its end and return its exit status, or minus the signal that ended it."""
        self.process.join(seconds)
        if self.process.exitcode is None:
            self.kill()
            raise AssertionError(f"{self.argv} hung, after saying: {self.said}")
        return self.process.exitcode

    @property
    def said(self) -> str:
        """What came out on stdout and stderr."""
        path = self.place / "said"
        return path.read_text() if path.exists() else ""

    @property
    def drawn(self) -> list[list]:
        """Epoch and samples of each batch that was drawn."""
        return drawn(self.place / "drawn")

    @property
    def first_step(self) -> int:
        """The step that it began at, by its own words."""
        found = re.findall(r"Resuming from \S+-step-(\d+)", self.said)
        return int(found[-1]) if found else 0


def warm_up() -> None:
    """Wait until the fork server has imported what it has to."""
    first = SERVER.Process(target=bool)
    first.start()
    first.join(PATIENCE)


def _live(facts: dict) -> None:
    os.environ.update(facts["environ"])
    multiprocessing.set_start_method(None, force=True)  # its own children start as everywhere
    torch.set_num_threads(1)
    said = os.open(facts["place"] / "said", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    for stream in (sys.stdout, sys.stderr):
        os.dup2(said, stream.fileno())
    if facts["pictures"]:
        plain = vars(pictures(SAMPLES, 0))
        train = Diary(**plain, path=str(facts["place"] / "drawn"), at=facts["at"])
        build.open_splits = lambda spec: (train, pictures(10, 1))
    if facts["fault"] is not None:
        facts["fault"]()
    sys.exit(main(facts["argv"]))


def command(recipe: Recipe, out: Path, *more: object, home: Path | None = None) -> list[str]:
    """Write the recipe down, and return the command that begins its run or goes on with it."""
    file = (home or out.parent) / f"{recipe.fingerprint}.toml"
    file.write_text(to_toml(recipe))
    resume = ["--resume"] if os.path.exists(out / "recipe.toml") else []
    first = ["train", recipe.model, "--recipe", str(file), "--out", str(out)]
    return [*first, *resume, *map(str, more)]


def begin(recipe: Recipe, out: Path, *more: object, home: Path | None = None, **options) -> Life:
    """Begin a run, or go on with it; `home` is for our own files, beside the run if none."""
    home = home or out.parent
    argv = command(recipe, out, *more, home=home)
    return Life(argv, Path(tempfile.mkdtemp(prefix="life-", dir=home)), **options)


def finish(recipe: Recipe, out: Path, *more: object, **options) -> Life:
    """Begin a run, or go on with it, and see it end well, with nothing left lying about."""
    life = begin(recipe, out, *more, **options)
    assert life.end() == 0, life.said
    assert left_over(out) == []
    assert not (out / "checkpoints").exists()
    return life


def digest(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


def outcome(out: Path) -> dict[str, object]:
    """Everything that a finished run leaves, except how fast it was."""
    rows = [json.loads(line) for line in (out / "log.jsonl").read_text().splitlines()]
    for row in rows:
        del row["images_per_second"]
    networks = {name: digest(out / name / "weights.safetensors") for name in ("final", "best")}
    return {"log": rows, **networks}


def left_over(out: Path) -> list[str]:
    """What a killed run may leave behind, and the next one must not."""
    halves = [
        path
        for path in (*(out / "checkpoints").glob("*"), out / "final", out / "best")
        if path.is_dir() and not (path / MANIFEST).exists()
    ]
    return sorted(str(path.relative_to(out)) for path in (*out.rglob("*.tmp"), *halves))


def kept(out: Path) -> list[str]:
    """Names of the checkpoints in a run folder, oldest first."""
    return sorted(path.name for path in (out / "checkpoints").glob("epoch-*"))


# What can be done to a child.


def strike(number: int) -> None:
    """Send this process a signal."""
    os.kill(os.getpid(), number)


die = partial(strike, signal.SIGKILL)


def wait_for(path: Path) -> None:
    """Pause until there is such a file."""
    until(path.exists)


DISK = ("fsync", "mkdir", "rename", "replace", "rmdir", "unlink")


def at_disk_call(number: int, act: Callable[[], object], log: Path) -> None:
    """Before the n-th call that changes the disk do something; write all calls down."""
    done = 0

    def watched(name, real, *args, **kwargs):
        nonlocal done
        done += 1
        with open(log, "a") as stream:
            stream.write(f"{name} {subject(args[0])}\n")
        if done == number:
            act()
        return real(*args, **kwargs)

    for name in DISK:
        setattr(os, name, partial(watched, name, getattr(os, name)))


def subject(what: int | str | os.PathLike[str]) -> str:
    """Name of the file behind a path or a descriptor, without its random part."""
    path = os.readlink(f"/proc/self/fd/{what}") if isinstance(what, int) else os.fspath(what)
    return re.sub(r"^\.stiffnet\.(.*)\.\w+\.tmp$", r"\1", os.path.basename(path))


def at_file(name: str, nth: int, act: Callable[[], object], operation: str = "fsync") -> None:
    """Do something before an operation on files of this name, from the n-th such time on."""
    seen = 0

    def watched(real, of, *args, **kwargs):
        nonlocal seen
        if of(*args, **kwargs) == name:
            seen += 1
            if seen >= nth:
                act()
        return real(*args, **kwargs)

    where, of = {
        "mkstemp": (tempfile, lambda **options: options["prefix"].removeprefix(MARK).strip(".")),
        "fsync": (os, subject),
        "replace": (os, lambda source, target: os.path.basename(target)),
    }[operation]
    setattr(where, operation, partial(watched, getattr(where, operation), of))


class Stopper(run.Audience):
    """Ends a run in this process, as SIGTERM does, after some steps."""

    def __init__(self, steps: int) -> None:
        self.steps = steps

    def step(self, images, tally):
        self.steps -= 1
        if not self.steps:
            strike(signal.SIGTERM)


def full_disk() -> None:
    """Fail as a write to a full disk does."""
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def before_test(act: Callable[[], object]) -> None:
    """Do something just before each look at the test set."""
    real = run.evaluate

    def evaluate(*args, **kwargs):
        act()
        return real(*args, **kwargs)

    run.evaluate = evaluate


# Several processes of one run, and the processes of the machine.


def as_ranks(ranks: int, restarts: int = 0) -> list[dict[str, str]]:
    """Return what torchrun would put into the environment of each of its processes."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    shared = {
        "WORLD_SIZE": str(ranks),
        "LOCAL_WORLD_SIZE": str(ranks),
        "GROUP_RANK": "0",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "TORCHELASTIC_RUN_ID": "faults",
        "TORCHELASTIC_RESTART_COUNT": str(restarts),
        "TORCHELASTIC_USE_AGENT_STORE": "False",
    }
    return [{**shared, "RANK": str(rank), "LOCAL_RANK": str(rank)} for rank in range(ranks)]


def processes_of(session: int) -> list[int]:
    """Return the living processes of a session."""
    return _processes(3, session)


def children_of(pid: int) -> list[int]:
    """Return the living children of a process."""
    return _processes(1, pid)


def _processes(column: int, number: int) -> list[int]:
    """Return those with a number in a column after the name: state, parent, group, session."""
    found = []
    for entry in Path("/proc").glob("[0-9]*/stat"):
        try:
            facts = entry.read_text().rpartition(")")[2].split()
        except OSError:  # it has ended meanwhile
            continue
        if int(facts[column]) == number and facts[0] != "Z":
            found.append(int(entry.parent.name))
    return found


def until(condition: Callable[[], object], seconds: float = PATIENCE) -> None:
    """Wait for something to become true."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it never came"
        time.sleep(0.002)


def tell(facts: Mapping[str, int]) -> None:
    """Print counts, for `pytest -s` and for docs/reliability.md."""
    print(", ".join(f"{name}: {count:,}" for name, count in facts.items()))  # noqa: T201
