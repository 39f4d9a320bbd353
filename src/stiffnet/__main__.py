"""``python -m stiffnet`` is the command ``stiffnet``."""

from stiffnet.cli.main import main

if __name__ == "__main__":
    raise SystemExit(main())
