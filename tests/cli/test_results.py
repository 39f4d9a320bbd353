"""What a command says of the weights that it was given."""

import torch

from stiffnet.cli.results import facts_of
from stiffnet.network.create import create_model
from stiffnet.network.open import open_model


def test_names_that_were_changed_are_noted_and_kept_with_the_result(tmp_path, capsys):
    state = create_model("resnet20_cifar", num_classes=4).state_dict()
    torch.save(state, tmp_path / "ours.pth")
    theirs = {name.replace("shortcut", "downsample"): value for name, value in state.items()}
    torch.save(theirs, tmp_path / "theirs.pth")
    said = {}
    for name in ("ours", "theirs"):
        loaded = open_model("resnet20_cifar", weights=tmp_path / f"{name}.pth", num_classes=4)
        weights = facts_of(loaded, "digits")["weights"]
        said[weights] = capsys.readouterr().err
    assert said == {
        "ours.pth": "",
        "theirs.pth, renamed downsample to shortcut": (
            "note: names in the weights file were changed to fit: downsample to shortcut.\n"
        ),
    }
