"""Where the mass of a map lies on the image: in the centre, and around which point.

A map of h by w cells covers the image, whose sides have length 1; a cell is a square of one value.
"""

import numpy as np

from stiffnet.observe.channel_moments import Floats


def masses(maps: Floats, shift: float) -> dict[str, Floats]:
    """Return integrals over (images, rows, columns) maps, by the names that `MapsOf` has.

    >>> found = masses(np.ones((1, 7, 7)), 0.25)
    >>> {name: round(float(value[0]), 12) + 0.0 for name, value in found.items()}
    {'total': 1.0, 'centre': 0.25, 'moved': 0.25, 'x': 0.0, 'y': 0.0, 'carried': 0.0}
    """
    _, height, width = maps.shape
    rows, columns = covered(height, 0.25, 0.75), covered(width, 0.25, 0.75)
    moved = covered(width, 0.25 + shift, 0.75 + shift)
    below, right = places(height), places(width)
    around = covered(width, 1 - shift, 1)  # the part that leaves on the right enters on the left
    ones_y, ones_x = np.ones(height), np.ones(width)

    def integral(weights_y: Floats, weights_x: Floats) -> Floats:
        found: Floats = np.einsum("nyx,y,x->n", maps, weights_y, weights_x) / (height * width)
        return found

    return {
        "total": integral(ones_y, ones_x),
        "centre": integral(rows, columns),
        "moved": integral(rows, moved),
        "x": integral(ones_y, right),
        "y": integral(below, ones_x),
        "carried": integral(ones_y, right + shift - around),
    }


def covered(cells: int, low: float, high: float) -> Floats:
    """Return which share of each of `cells` on [0, 1] lies between two points, around the edge.

    >>> covered(4, 0.25, 0.75).tolist(), covered(3, 0.25, 0.75).round(12).tolist()
    ([0.0, 1.0, 1.0, 0.0], [0.25, 1.0, 0.25])
    """
    start = np.arange(cells) / cells
    end = (np.arange(cells) + 1) / cells
    turns = (
        np.clip(np.minimum(end, high + turn) - np.maximum(start, low + turn), 0, None)
        for turn in (-1, 0, 1)
    )
    found: Floats = sum(turns) * cells
    return found


def places(cells: int) -> Floats:
    """Return how far the middle of each cell is from that of the image.

    >>> places(4).tolist()
    [-0.375, -0.125, 0.125, 0.375]
    """
    found: Floats = (np.arange(cells) + 0.5) / cells - 0.5
    return found
