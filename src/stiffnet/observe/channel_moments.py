"""Mean and spread of every channel, over images that come in batches."""

import numpy as np

from stiffnet.stiffness.given import Floats as Floats


class Moments:
    """Weighted mean and squared deviations from it, for every channel, in one pass.

    Batches are merged by their own means, so that nothing cancels: a channel that never changes
    has a spread of zero. What has weight zero is left out, whatever its value.
    """

    def __init__(self, channels: int) -> None:
        self.channels = channels
        self.weight, self.mean, self.squares = np.zeros((3, channels))
        """The last is the weighted sum of squared deviations from the mean."""

    def add(self, values: Floats, weights: Floats) -> None:
        """Take in a batch of shape (images, channels)."""
        known = np.where(weights > 0, values, 0.0)
        first = known[np.argmax(weights > 0, axis=0), np.arange(self.channels)]
        weight = weights.sum(axis=0)
        some = weight > 0
        mean = first + _ratio((weights * (known - first)).sum(axis=0), weight)
        squares = (weights * (known - mean) ** 2).sum(axis=0)
        apart = np.where(some & (self.weight > 0), mean - self.mean, 0.0)
        total = self.weight + weight
        self.squares += squares + _ratio(apart**2 * self.weight * weight, total)
        self.mean = np.where(self.weight > 0, self.mean + _ratio(apart * weight, total), mean)
        self.weight = total

    def squares_around(self, centre: Floats) -> Floats:
        """Weighted sum of squared deviations from another centre than the mean."""
        apart = np.where(self.weight > 0, self.mean - centre, 0.0)
        squares: Floats = self.squares + self.weight * apart**2
        return squares

    def deviation(self) -> Floats:
        """Standard deviation where weights are counts (divisor N - 1); NaN below two."""
        unknown = np.full(self.channels, np.nan)
        variance = np.divide(self.squares, self.weight - 1, out=unknown, where=self.weight > 1)
        deviation: Floats = np.sqrt(variance)
        return deviation

    def known_mean(self) -> Floats:
        """The mean, and NaN where nothing came."""
        return np.where(self.weight > 0, self.mean, np.nan)


def _ratio(above: Floats, below: Floats) -> Floats:
    return np.divide(above, below, out=np.zeros_like(above), where=below > 0)
