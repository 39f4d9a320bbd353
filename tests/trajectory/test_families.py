"""Every family of timm and torchvision: its steps are found, or the reason is written down."""

import re
from importlib.util import find_spec
from pathlib import Path

import pytest
import timm
import torch
import torchvision
from packaging.version import Version
from timm.models import _registry

from stiffnet.errors import StepError
from stiffnet.trajectory.steps import steps
from trajectory.families import (
    NOT_FOUND,
    SLOW_TIMM,
    TIMM,
    TIMM_VERSION,
    TORCHVISION,
    TORCHVISION_ON_CPU,
    TORCHVISION_VIDEO,
    TORCHVISION_WITHOUT_STEPS,
    WITHOUT_STEPS,
)

pytestmark = pytest.mark.filterwarnings("ignore:.*:UserWarning", "ignore:.*:FutureWarning")


def on_meta(build, size, *shape):
    """Build and probe without computing: shapes are all that the rule looks at."""
    with torch.device("meta"):
        model = build()
    return steps(model, torch.empty(1, 3, *shape, size, size, device="meta"))


HEAVY = {
    "byoanet", "cait", "coat", "crossvit", "csatv2", "deepseek_vit", "efficientformer_v2",
    "efficientnet", "efficientvit_msra", "hardcorenas", "inception_resnet_v2", "inception_v3",
    "inception_v4", "lowformer", "maxvit_t", "maxxvit", "mobilenetv5", "mvit_v2_s", "nasnet",
    "nest", "nextvit", "pnasnet", "repvit", "shvit", "swin_v2_t", "tnt", "vitamin", "volo", "xcit",
}  # fmt: skip
"""Families that take a second or more, though only shapes are computed."""


def split(names, named):
    """The same, with the heavy ones marked slow."""
    return [
        pytest.param(n, id=named(n), marks=pytest.mark.slow if named(n) in HEAVY else [])
        for n in names
    ]


@pytest.mark.parametrize("family", split(TIMM, lambda f: f.module))
def test_a_timm_family_has_its_steps(family):
    if not timm.is_model(family.model):
        pytest.skip(f"this timm has no {family.model}")
    found = on_meta(lambda: timm.create_model(family.model), family.size)
    assert (len(found), sum(s.counted for s in found)) == (family.steps, family.counted)


@pytest.mark.slow
@pytest.mark.parametrize("family", SLOW_TIMM, ids=lambda f: f.module)
def test_a_slow_timm_family_has_its_steps(family):
    model = timm.create_model(family.model)
    found = steps(model, torch.rand(1, 3, family.size, family.size))
    assert (len(found), sum(s.counted for s in found)) == (family.steps, family.counted)


@pytest.mark.parametrize("module", split([*WITHOUT_STEPS, *NOT_FOUND], str))
def test_a_timm_family_without_steps_says_so(module):
    model, _ = (WITHOUT_STEPS | NOT_FOUND)[module]
    size = timm.get_pretrained_cfg(model).input_size[-1]
    with pytest.raises(StepError, match=r"has no residual steps.*Measure a residual network"):
        on_meta(lambda: timm.create_model(model), size)


FILES = {f.module for f in TIMM + SLOW_TIMM}


def test_every_file_of_timm_is_accounted_for():
    lists = (FILES, set(WITHOUT_STEPS), set(NOT_FOUND))
    listed = set().union(*lists)
    known = {  # timm's own: ours and those of tests are registered, too
        name for name in _registry._module_to_models if find_spec(f"timm.models.{name}")
    }
    assert sum(map(len, lists)) == len(listed)
    if Version(timm.__version__) > Version(TIMM_VERSION):
        assert listed <= known, "timm has lost files"
        pytest.skip(f"newer than the list: {sorted(known - listed)}")
    assert known <= listed
    if Version(timm.__version__) == Version(TIMM_VERSION):
        assert listed == known


def test_the_page_says_in_how_many_files_of_timm_steps_are_found():
    page = (Path(__file__).parents[2] / "docs" / "measuring.md").read_text(encoding="utf-8")
    said = re.search(
        r"Of the (\d+) files of models in timm (\S+), (\d+) have steps that are found, "
        r"(\d+) have none",
        page,
    )
    assert said is not None
    files = len(FILES) + len(WITHOUT_STEPS) + len(NOT_FOUND)
    assert said.groups() == (str(files), TIMM_VERSION, str(len(FILES)), str(len(WITHOUT_STEPS)))
    assert len(NOT_FOUND) == 2  # "and in two they are not found"


@pytest.mark.parametrize("family", split(TORCHVISION, lambda f: f.model))
def test_a_torchvision_family_has_its_steps(family):
    found = on_meta(lambda: torchvision.models.get_model(family.model), family.size)
    assert (len(found), sum(s.counted for s in found)) == (family.steps, family.counted)


@pytest.mark.parametrize("family", TORCHVISION_ON_CPU, ids=lambda f: f.model)
def test_a_torchvision_family_on_the_cpu_has_its_steps(family):
    model = torchvision.models.get_model(family.model)
    found = steps(model, torch.rand(1, 3, family.size, family.size))
    assert (len(found), sum(s.counted for s in found)) == (family.steps, family.counted)


@pytest.mark.parametrize("family", split(TORCHVISION_VIDEO, lambda f: f.model))
def test_a_torchvision_video_family_has_its_steps(family):
    found = on_meta(lambda: torchvision.models.get_model(family.model), family.size, 16)
    assert (len(found), sum(s.counted for s in found)) == (family.steps, family.counted)


@pytest.mark.parametrize("name", TORCHVISION_WITHOUT_STEPS)
def test_a_torchvision_family_without_steps_says_so(name):
    options = {"init_weights": False} if name == "googlenet" else {}
    with pytest.raises(StepError, match="has no residual steps"):
        on_meta(lambda: torchvision.models.get_model(name, **options), 224)
