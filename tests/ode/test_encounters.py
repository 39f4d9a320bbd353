"""Three bodies: what they conserve, and shares that have a closed form or may not change."""

import numpy as np
import pytest

from stiffnet.errors import OdeError
from stiffnet.ode import encounters, threebody
from stiffnet.ode.problem import Floats

# Energy after twenty units of time: steps are held to 1e-9 of the smallest distance, and an
# encounter turns a relative error of a place into one of the energy. 2e-6 is the worst of 1,000.
ENERGY = 1e-5
# Roundings that differ by 1e-16, after ten units of time in which neighbours part.
CHAOS = 1e-9


@pytest.fixture(scope="module")
def some():
    return encounters.run(40, seed=1)


def test_energy_and_angular_momentum_are_conserved(some):
    assert some.energy_error.max() < ENERGY
    assert some.momentum_error.max() < ENERGY / 10
    assert some.closest.min() < 0.1  # there was something to survive


def test_a_tighter_tolerance_conserves_better(some):
    tight = encounters.run(40, seed=1, rtol=1e-11)
    assert tight.energy_error.max() < some.energy_error.max() / 20


def test_the_rate_conserves_momentum_energy_and_angular_momentum():
    """The derivative of each along the flow is zero, by a complex step."""
    states = threebody.ring(20, seed=0)
    rates = threebody.rate(0.0, states)
    assert np.abs(rates[:, 6:].reshape(20, 3, 2).sum(axis=1)).max() < 1e-15
    for conserved in (threebody.energy, threebody.angular_momentum):
        along = conserved(states + 1e-30j * rates).imag / 1e-30
        assert np.abs(along).max() < 1e-14


def same(one, other) -> bool:
    return all(
        np.array_equal(getattr(one, name), getattr(other, name))
        for name in ("closest", "time", "intervals")
    )


def permuted(states: Floats) -> Floats:
    halves = states.reshape(-1, 2, 3, 2)
    return halves[:, :, [2, 0, 1], :].reshape(-1, 12)


def exchanged(states: Floats) -> Floats:
    return states.reshape(-1, 2, 3, 2)[:, :, [1, 0, 2], :].reshape(-1, 12)


def turned(states: Floats) -> Floats:
    """By a right angle, which rounds nothing."""
    pairs = states.reshape(-1, 6, 2)
    return np.stack([-pairs[..., 1], pairs[..., 0]], axis=-1).reshape(-1, 12)


def mirrored(states: Floats) -> Floats:
    return (states.reshape(-1, 6, 2) * [1.0, -1.0]).reshape(-1, 12)


@pytest.mark.parametrize("change", [permuted, exchanged, turned, mirrored])
def test_names_and_axes_of_the_bodies_do_not_matter(change):
    """Bit for bit, so that chaos has nothing to grow."""
    starts = threebody.ring(10, seed=2)
    plain = encounters.run(starts, duration=12.0)
    assert same(plain, encounters.run(change(starts), duration=12.0))


def test_a_run_does_not_see_the_others():
    starts = threebody.ring(6, seed=3)
    together = encounters.run(starts, duration=10.0)
    for i in range(6):
        alone = encounters.run(starts[i : i + 1], duration=10.0)
        assert np.array_equal(alone.closest[0], together.closest[i])
        assert np.array_equal(alone.time[0], together.time[i])


def test_a_seed_says_everything(some):
    assert same(some, encounters.run(40, seed=1))
    assert not same(some, encounters.run(40, seed=4))


def test_lengths_and_times_have_no_units():
    """Four times the size, eight times the duration: the same shares, by Kepler's third law."""
    starts = threebody.ring(10, seed=5)
    larger = np.concatenate([4 * starts[:, :6], starts[:, 6:] / 2], axis=1)
    levels = np.array([0.1, 0.3, 1.0])
    one = encounters.run(starts, duration=10.0, thresholds=levels)
    other = encounters.run(larger, duration=80.0, interval=0.8, thresholds=4 * levels)
    assert one.time == pytest.approx(other.time, rel=CHAOS)
    assert 4 * one.closest == pytest.approx(other.closest, rel=CHAOS)


@pytest.mark.parametrize("eccentricity", [0.5, 0.9])
def test_shares_of_lagranges_triangle_are_keplers(eccentricity):
    """Below a distance d while r = a (1 + e cos E) < d / √3; the time is (E + e sin E) / 2π."""
    each = threebody.threebody(eccentricity)
    axis, side = 1 / (1 + eccentricity), np.sqrt(3)
    levels = side * np.linspace(axis * (1 - eccentricity) * 0.9, 1.1, 12)
    found = encounters.run(
        each.start[None], duration=each.interval[1], interval=each.interval[1] / 50,
        thresholds=levels, rtol=1e-11,
    )  # fmt: skip
    cosine = np.clip((levels / side / axis - 1) / eccentricity, -1, 1)
    anomaly = np.arccos(cosine)
    expected = 1 - (anomaly + eccentricity * np.sin(anomaly)) / np.pi
    assert found.closest[0] == pytest.approx(side * axis * (1 - eccentricity), rel=1e-3)
    assert found.time[0] == pytest.approx(expected, abs=2e-4)
    edges = np.arange(51) / 50  # of the intervals, in turns; the triangle is small around 1/2
    inside = (1 - expected) / 2
    touched = [
        ((edges[1:] > begin) & (edges[:-1] < 1 - begin)).mean() if begin < 0.5 else 0
        for begin in inside
    ]
    assert found.intervals[0] == pytest.approx(touched, abs=0.021)


def test_a_circle_is_inside_above_its_side_and_never_below():
    each = threebody.threebody(0.0)
    side = np.sqrt(3)
    found = encounters.run(each.start[None], duration=2.0, thresholds=[side - 1e-6, side + 1e-6])
    assert found.time.tolist() == [[0.0, pytest.approx(1.0, rel=1e-14)]]
    assert found.runs.tolist() == [0.0, 1.0]


def test_shares_grow_with_the_threshold_and_time_is_within_intervals(some):
    for shares in (some.time, some.intervals, some.runs):
        assert (np.diff(shares, axis=-1) >= 0).all()
        assert shares.min() >= 0
        assert shares.max() <= 1 + 1e-12
    assert (some.time <= some.intervals + 1e-12).all()
    assert np.array_equal(some.runs > 0, some.intervals.max(axis=0) > 0)


def test_initial_states_are_drawn_as_described():
    states = threebody.ring(4000, seed=0)
    places, speeds = (half.reshape(-1, 3, 2) for half in np.split(states, 2, axis=1))
    radius = np.linalg.norm(places, axis=2)
    assert radius == pytest.approx(radius[:, [0]] * np.ones(3), rel=1e-12)
    assert radius.min() >= 0.9
    assert radius.max() <= 1.2
    assert threebody.separations(states) == pytest.approx(np.sqrt(3) * radius, rel=1e-12)
    calm = threebody.ring(50, seed=0, spread=0.0)
    pull = -threebody.rate(0.0, calm)[:, 6:].reshape(-1, 3, 2)
    place, speed = (half.reshape(-1, 3, 2) for half in np.split(calm, 2, axis=1))
    square = (speed**2).sum(axis=2, keepdims=True) / (place**2).sum(axis=2, keepdims=True)
    assert pull == pytest.approx(square * place, rel=1e-10)  # v² / r is the pull
    ratio = speeds / np.sqrt(1 / np.sqrt(3) / radius[..., None])
    assert np.abs(ratio).max() <= 1.2


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (lambda: encounters.run(0), "nothing to count in 0 runs. Ask for one or more"),
        (lambda: encounters.run(-3), "nothing to count in -3 runs"),
        (lambda: encounters.run(1, duration=0.0), "A run of length 0 has no intervals"),
        (lambda: encounters.run(1, duration=np.nan), "A run of length nan has no intervals"),
        (lambda: encounters.run(1, interval=-1.0), "no intervals of length -1"),
        (lambda: encounters.run(1, thresholds=[]), "one or more positive distances"),
        (lambda: encounters.run(1, thresholds=[0.1, np.nan]), "one or more positive distances"),
        (lambda: encounters.run(1, rtol=2.0), "The relative tolerance is 2.0"),
        (lambda: encounters.run(np.full((1, 12), np.nan), duration=1.0), "run 0 is not finite"),
        (lambda: encounters.run(np.zeros((1, 12)), duration=1.0), "Two bodies of run 0 start in"),
        (lambda: encounters.run(np.zeros(12), duration=1.0), r"these are \(12,\)"),
    ],
)
def test_what_cannot_be_counted_is_refused_in_a_sentence(wrong, message):
    with pytest.raises(OdeError, match=message):
        wrong()


def test_a_collision_is_named():
    """Two bodies at rest fall into each other; the third is far away."""
    start = np.zeros((1, 12))
    start[0, :6] = [-0.5, 0, 0.5, 0, 0, 1000.0]
    with pytest.raises(OdeError, match="Two bodies of run 0 come within"):
        encounters.run(start, duration=2.0)
