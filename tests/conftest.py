import pytest
from hypothesis import settings

settings.register_profile("ci", derandomize=True, database=None, deadline=None, print_blob=True)
settings.load_profile("ci")


@pytest.fixture(autouse=True)
def _no_traces(tmp_path, monkeypatch):
    """Every test runs in a folder of its own, so none can litter the checkout."""
    monkeypatch.chdir(tmp_path)
