"""What the demo prints last."""

from stiffnet.cli import demo


def test_the_commands_that_it_prints_can_be_copied(tmp_path):
    assert demo._measure(tmp_path / "my demo") == (
        f"stiffnet measure '{tmp_path}/my demo' --data digits:test"
    )
