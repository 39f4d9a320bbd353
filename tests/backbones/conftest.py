import pytest
import torch

import stiffnet.network.own_models  # noqa: F401  # timm knows our names from here on


@pytest.fixture(autouse=True)
def _same_numbers():
    torch.manual_seed(0)
