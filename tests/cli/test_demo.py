"""What the demo prints last."""

from stiffnet.cli.terminal import measuring


def test_the_commands_that_it_prints_can_be_copied(tmp_path):
    assert measuring(tmp_path / "my demo", "digits") == (
        f"stiffnet measure '{tmp_path}/my demo' --data digits:test"
    )
