"""Stiffness by epoch in Lightning, whichever of its two packages the script imports."""

import math
import sys
from typing import Any

from torch import nn

from stiffnet.callbacks.monitor import PREFIX, SAMPLES, StiffnessMonitor
from stiffnet.errors import StepError
from stiffnet.words import listed

# `lightning` and `pytorch_lightning` are two copies of the same classes. A callback must be of
# the copy that the script uses, so what is imported already wins.
try:
    if "pytorch_lightning" in sys.modules and "lightning.pytorch" not in sys.modules:
        from pytorch_lightning import Callback
    else:
        from lightning.pytorch import Callback
except ImportError as error:
    raise ImportError(
        "`LightningStiffness` needs the package lightning, which is not installed. Install it "
        "with `pip install lightning`."
    ) from error


class LightningStiffness(Callback):
    """Logs TNS and the NSI of every step before training and after each epoch.

    The numbers go to every logger of the trainer, and as ``stiffness/tns`` to whatever monitors
    metrics, such as `ModelCheckpoint`. Under DDP each rank measures its part of the sample. The
    history is kept in checkpoints. Where training ends or goes on in the middle of an epoch, the
    row's epoch is a fraction; if nobody knows how long the epoch is, there is no row.

    Args:
        data: As in `StiffnessMonitor`. None takes the trainer's first validation data, or its
            training data if there are none.
        network: Path of the network in the module, such as ``"net"``; empty for the module itself,
            whose `forward` must take a batch's inputs.
        samples, seed, every, stop_on_nan, prefix: As in `StiffnessMonitor`.
    """

    def __init__(
        self,
        data: Any = None,
        *,
        network: str = "",
        samples: int = SAMPLES,
        seed: int | None = None,
        every: int = 1,
        stop_on_nan: bool = False,
        prefix: str = PREFIX,
    ) -> None:
        self.network = network
        self.monitor = StiffnessMonitor(
            data, samples=samples, seed=seed, every=every, stop_on_nan=stop_on_nan, prefix=prefix
        )

    @property
    def state_key(self) -> str:
        """Its name in a checkpoint: two callbacks whose numbers have other names have two."""
        if self.monitor.prefix == PREFIX:
            return type(self).__qualname__
        return str(self._generate_state_key(prefix=self.monitor.prefix))

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """Measure the network as training begins, or goes on."""
        if self.monitor.data is None:
            self.monitor.data = _data_of(trainer)
        part = _part_done(trainer)
        row = {} if part is None else self._again(pl_module, trainer.current_epoch + part)
        for logger in trainer.loggers if row else ():
            logger.log_metrics(row, step=trainer.global_step)

    def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:
        """Measure the network after an epoch."""
        part = _part_done(trainer)
        row = {}
        if part is not None:
            row = self.monitor(self._network(pl_module), trainer.current_epoch + (part or 1))
        several = trainer.world_size > 1  # whose numbers are equal, as Lightning cannot know
        pl_module.log_dict(row, on_step=False, on_epoch=True, sync_dist=several)

    def _again(self, module: Any, epoch: float) -> dict[str, float]:
        """Measure; the row takes the place of the one of that epoch in a checkpoint."""
        history = self.monitor.history
        before = len(history)
        row = self.monitor(self._network(module), epoch)
        if row and before and history[before - 1]["epoch"] == epoch:
            del history[before - 1]
        return row

    def state_dict(self) -> dict[str, Any]:
        """Return the history, for a checkpoint."""
        return {"history": self.monitor.history}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take the history of a checkpoint."""
        self.monitor.history = list(state_dict["history"])

    def _network(self, module: nn.Module) -> nn.Module:
        try:
            return module.get_submodule(self.network)
        except AttributeError as error:
            there = [name for name, _ in module.named_children()]
            raise StepError(
                f"`network` is {self.network!r}, and {type(module).__name__} has no such part; it "
                f"has {listed(there, 5) or 'none'}. Give the path of a network in it."
            ) from error


def _part_done(trainer: Any) -> float | None:
    """Share of an epoch that was broken off; 0 if none was, None if its length is not known."""
    progress, batches = trainer.fit_loop.epoch_loop.batch_progress, trainer.num_training_batches
    done = progress.current.ready
    if progress.is_last_batch or done in (0, batches):
        return 0.0
    return done / batches if math.isfinite(batches) else None


def _data_of(trainer: Any) -> Any:
    """Return the trainer's first validation loader, or its training loader."""
    given = trainer.val_dataloaders or trainer.train_dataloader
    while isinstance(given, list | tuple | dict):
        given = next(iter(given.values() if isinstance(given, dict) else given))
    return given
