"""The step sizes that Runge-Kutta-Fehlberg chooses, against the stiffness where it chooses them."""

from scipy.stats import spearmanr

from stiffnet.ode import fehlberg
from stiffnet.ode.indices import stiffness_index
from stiffnet.ode.problem import LIMIT, Problem
from stiffnet.ode.problems import problem as named
from stiffnet.results.ode import AdaptiveSteps


def run(
    problem: str | Problem, *, rtol: float = 1e-6, until: float | None = None, limit: int = LIMIT
) -> AdaptiveSteps:
    """Solve a problem by RKF45, and put SI beside every step that was accepted.

    An explicit method needs at least SI / 3 steps for each unit of time. Stiff problems of the
    table need a shorter interval, or a larger epsilon (`vanderpol(1e-3)`).

    Args:
        problem: A name of the table, or a problem.
        rtol: Relative tolerance of a step.
        until: Where the interval ends; the problem's own end if not given.
        limit: Number of attempts at which to stop.

    Raises:
        UnknownNameError: If no problem has that name.
        OdeError: If the problem needs too many steps.
    """
    chosen = named(problem, until)
    track = fehlberg.integrate(chosen, rtol=rtol, limit=limit)
    index = stiffness_index(chosen.jacobian(track.times[:-1], track.states[:-1]))
    steps = track.times[1:] - track.times[:-1]
    whole = slice(None, -1) if len(steps) > 2 else slice(None)  # the last was cut to fit
    constant = (index[whole] == index[0]).all()
    return AdaptiveSteps(
        problem=chosen.name,
        rtol=rtol,
        rejected=track.rejected,
        stability=fehlberg.stability_limit(),
        correlation=None if constant else float(spearmanr(steps[whole], index[whole]).statistic),
        times=track.times[:-1][whole],
        steps=steps[whole],
        stiffness_index=index[whole],
    )
