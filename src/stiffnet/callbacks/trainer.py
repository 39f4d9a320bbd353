"""Stiffness by epoch in the Trainer of transformers."""

import math
from typing import Any

from torch.utils.data import DataLoader

from stiffnet.callbacks.monitor import SAMPLES, StiffnessMonitor
from stiffnet.trajectory.wrappers import own_chance

try:
    from transformers import TrainerCallback
except ImportError as error:
    raise ImportError(
        "`TrainerStiffness` needs the package transformers, which is not installed. Install it "
        "with `pip install transformers[torch]`."
    ) from error


_ROUNDING = 1e-9  # far below the share of a batch in an epoch


class TrainerStiffness(TrainerCallback):
    """Logs TNS and the NSI of every step before training and after each epoch.

    Where training ends or goes on in the middle of an epoch, the row's epoch is a fraction, as in
    the trainer's own log. The numbers go through ``trainer.log``: into the history, and to all that
    it reports to. Add it with ``trainer.add_callback(TrainerStiffness(trainer))``.

    Args:
        trainer: Whose logger takes the numbers.
        data: As in `StiffnessMonitor`. None takes the trainer's evaluation data, or its training
            data if there are none, through its own collator.
        samples, seed, every, stop_on_nan: As in `StiffnessMonitor`.
    """

    def __init__(
        self,
        trainer: Any,
        data: Any = None,
        *,
        samples: int = SAMPLES,
        seed: int | None = None,
        every: int = 1,
        stop_on_nan: bool = False,
    ) -> None:
        self.trainer = trainer
        self.monitor = StiffnessMonitor(
            data, samples=samples, seed=seed, every=every, stop_on_nan=stop_on_nan
        )

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Measure the network as training begins, or goes on."""
        if self.monitor.data is None:
            self.monitor.data = _data_of(self.trainer, kwargs["train_dataloader"])
        self._log(control, kwargs["model"], _epochs(state))

    def on_epoch_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Measure the network after an epoch."""
        self._log(control, kwargs["model"], _epochs(state))

    def _log(self, control: Any, model: Any, epoch: float) -> None:
        row = self.monitor(model, epoch)
        wanted = control.should_log  # which logging ours would take for done
        if row:
            self.trainer.log(row)
        control.should_log = wanted


def _epochs(state: Any) -> float:
    """Epochs done so far: a whole number, but in the middle of one."""
    done = float(state.epoch or 0)
    whole = round(done)
    return whole if math.isclose(done, whole, abs_tol=_ROUNDING) else done


def _data_of(trainer: Any, training: Any) -> Any:
    """Return the trainer's evaluation or training data, as a loader that asks no sampler."""
    given = trainer.eval_dataset
    if given is None:
        loader, size = training, trainer.args.train_batch_size
    else:
        first = next(iter(given)) if isinstance(given, dict) else None
        with own_chance(trainer.model):
            loader, size = trainer.get_eval_dataloader(first), trainer.args.eval_batch_size
    return DataLoader(loader.dataset, batch_size=size, collate_fn=loader.collate_fn)
