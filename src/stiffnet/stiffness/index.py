"""The neural stiffness index (NSI): how large a step's rate is, measured in its own state."""

from collections.abc import Sequence

from torch import Tensor

from stiffnet.errors import NonFiniteError, StepError
from stiffnet.stiffness.given import name_samples
from stiffnet.trajectory.norms import as_double


def index_from_norms(
    state_norms: Tensor, rate_norms: Tensor, *, what: str, first: int = 0
) -> Tensor:
    r"""Neural stiffness index of one step, per sample, in float64.

    $$\zeta_t = \lVert f_t \rVert_2 \,/\, \lVert x_t \rVert_2$$

    Nothing is added to the denominator: a state of norm zero is an error, not a large number.
    Given norms of the gated rate $\Delta t \otimes f_t$ instead of $f_t$, this is the increment.
    `what` is the step's name, and `first` the number of the first sample in the data, for messages.

    Raises:
        NonFiniteError: If a norm is NaN or infinite, or a state's norm is zero.
        StepError: If there are not as many rates as states.

    Example:
        >>> import torch
        >>> index_from_norms(torch.tensor([4.0, 8.0]), torch.tensor([1.0, 6.0]), what="layer1.0")
        tensor([0.2500, 0.7500], dtype=torch.float64)
    """
    if state_norms.shape != rate_norms.shape:
        raise StepError(
            f"At {what} there are state norms of shape {tuple(state_norms.shape)} but rate norms "
            f"of shape {tuple(rate_norms.shape)}; give one of each per sample."
        )
    state, rate = as_double(state_norms), as_double(rate_norms)
    index = rate / state
    if not _all_known(index, state):
        raise NonFiniteError(_why_not_finite(state, rate, what, first))
    return index


def indices_from_norms(
    state_norms: Tensor, rate_norms: Tensor, *, steps: Sequence[str], first: int = 0
) -> Tensor:
    """Do as `index_from_norms` for all steps of a pass, and look at all of the numbers once.

    Norms are (samples, steps); rates may be several such tables, stacked.

    Raises:
        NonFiniteError: If an index does not exist; of the first such step, table by table.

    Example:
        >>> import torch
        >>> indices_from_norms(torch.tensor([[4.0, 8.0]]), torch.tensor([[1.0, 6.0]]), steps="ab")
        tensor([[0.2500, 0.7500]], dtype=torch.float64)
    """
    state, rate = as_double(state_norms), as_double(rate_norms)
    index = rate / state
    if not _all_known(index, state):
        for table in rate.reshape(-1, *state.shape):
            for number, step in enumerate(steps):
                columns = state[:, number], table[:, number]
                index_from_norms(*columns, what=f"step {step!r}", first=first)
    return index


def _all_known(index: Tensor, state: Tensor) -> bool:
    """Whether there is an index everywhere; asks the device once."""
    return bool((index.isfinite() & state.isfinite()).all())


def _why_not_finite(state: Tensor, rate: Tensor, what: str, first: int) -> str:
    for noun, norms in (("state", state), ("rate", rate)):
        for word, bad in (("NaN", norms.isnan()), ("infinite", norms.isinf())):
            if bool(bad.any()):
                return (
                    f"The {noun} at {what} is {word} for {name_samples(bad, first)}; check the "
                    "weights and these inputs, or measure in float32 if this was half precision."
                )
    if bool((state == 0).any()):
        return (
            f"The state at {what} has norm zero for {name_samples(state == 0, first)}, so that no "
            "index exists; leave out these inputs (are they blank?) or this step."
        )
    bad = (rate / state).isinf()
    return (
        f"The rate at {what} is more than 1e308 times its state for {name_samples(bad, first)}; "
        "check the weights, or leave out these inputs or this step."
    )
