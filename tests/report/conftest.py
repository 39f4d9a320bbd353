import pytest


@pytest.fixture
def short_plotly(monkeypatch):
    """Put a stand-in for the five megabytes of plotly.js into pages."""
    monkeypatch.setattr("stiffnet.report.page.get_plotlyjs", lambda: "window.Plotly = {};")
