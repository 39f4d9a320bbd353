"""Which steps RKF45 takes: those that stability allows where the problem is stiff."""

import numpy as np
import pytest

from stiffnet.errors import OdeError
from stiffnet.ode import adaptive
from stiffnet.ode.vanderpol import vanderpol


def test_on_a_stiff_stretch_the_step_is_the_stability_limit_over_si():
    found = adaptive.run("robertson", until=2.0)
    later = found.to_frame()[len(found.steps) // 2 :]
    assert later["step_times_si"].median() == pytest.approx(found.stability, rel=1e-3)
    assert later["step"].corr(later["si"], method="spearman") < -0.95
    assert found.correlation is not None
    assert found.correlation < 0


def test_a_tighter_tolerance_does_not_shorten_steps_that_stability_holds():
    loose, tight = (adaptive.run("robertson", until=2.0, rtol=rtol) for rtol in (1e-5, 1e-7))
    ratio = np.median(tight.steps[-200:]) / np.median(loose.steps[-200:])
    assert ratio == pytest.approx(1, abs=0.01)


def test_si_stands_where_the_step_starts():
    found = adaptive.run("threebody")
    assert found.stiffness_index[0] == pytest.approx(1.0745699, rel=1e-6)
    assert found.times[0] == 0
    assert np.diff(found.times) == pytest.approx(found.steps[:-1], rel=1e-12)


def test_van_der_pol_rejects_steps_where_it_jumps():
    found = adaptive.run(vanderpol(1e-2))
    assert found.rejected > 0
    assert found.steps.max() > 20 * found.steps.min()


def test_a_constant_index_has_no_correlation():
    assert adaptive.run("eq8").correlation is None


def test_a_problem_that_is_too_stiff_is_refused():
    with pytest.raises(OdeError, match="too stiff for an explicit method"):
        adaptive.run("pollu", limit=100)
