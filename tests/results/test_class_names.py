"""What the classes of a report are called."""

from types import SimpleNamespace

import pytest

from stiffnet.results.gradcam import GradcamReport
from stiffnet.results.stiffness import StiffnessReport


@pytest.mark.parametrize("report", [StiffnessReport, GradcamReport])
def test_a_label_without_a_name_is_called_by_its_number(report):
    made = SimpleNamespace(classes=("cat", "dog"))
    names = [report.class_name(made, label) for label in (-1, 0, 1, 2)]
    assert names == ["-1", "cat", "dog", "2"]
