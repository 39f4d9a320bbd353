"""Which steps are the stiffest."""

import math
from collections.abc import Iterable, Sequence


def stiffest(nsi_mean: Sequence[float], counted: Iterable[bool]) -> list[int]:
    """Return the positions of the counted steps, the largest mean NSI first.

    Of equal ones the earlier step comes first; one without a number is left out.

    >>> stiffest([0.2, 0.9, float("nan"), 0.9, 0.5], [True, True, True, True, False])
    [1, 3, 0]
    """
    known = [i for i, counts in enumerate(counted) if counts and math.isfinite(nsi_mean[i])]
    return sorted(known, key=lambda i: -nsi_mean[i])
