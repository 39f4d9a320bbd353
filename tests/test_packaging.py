"""What a package index shows of the project."""

import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.fixture
def metadata(monkeypatch):
    monkeypatch.chdir(ROOT)  # the parts of the page are read from there
    hatchling = pytest.importorskip("hatchling.metadata.core")
    plugins = pytest.importorskip("hatchling.plugin.manager")
    return hatchling.ProjectMetadata(str(ROOT), plugins.PluginManager())


def test_the_page_of_the_package_has_no_link_that_is_dead_there(metadata):
    shown = metadata.core.readme
    links = re.findall(r"\]\(([^)]*)\)", shown)
    assert "stiffnet" in shown
    assert [link for link in links if not link.startswith("https://")] == []


def test_the_package_and_its_citation_name_the_same_papers(metadata):
    cited = re.findall(r'url: "([^"]+)"', (ROOT / "CITATION.cff").read_text())
    assert sorted(metadata.core.urls.values()) == sorted(cited)
    assert all(url.startswith("https://") for url in cited)


def test_the_version_is_the_one_that_is_cited():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert f"version: {project['version']}\n" in (ROOT / "CITATION.cff").read_text()
