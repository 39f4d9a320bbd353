"""Other packages are needed by their own callback alone, and missed in one sentence."""

import subprocess
import sys

CODE = """
import sys, stiffnet.callbacks
assert not {"lightning", "pytorch_lightning"} & sys.modules.keys()
sys.modules["lightning"] = sys.modules["transformers"] = None  # as if they were not installed
for name in ("LightningStiffness", "TrainerStiffness", "Stiffness"):
    try:
        getattr(stiffnet.callbacks, name)
    except (ImportError, AttributeError) as error:
        print(error)
"""


def test_a_missing_package_is_one_sentence():
    done = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True)
    assert done.stdout.splitlines() == [
        "`LightningStiffness` needs the package lightning, which is not installed. Install it with "
        "`pip install lightning`.",
        "`TrainerStiffness` needs the package transformers, which is not installed. Install it "
        "with `pip install transformers[torch]`.",
        "module 'stiffnet.callbacks' has no attribute 'Stiffness'",
    ], done.stderr
