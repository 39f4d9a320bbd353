"""Fuzz `attach`, `detach`, `measure`, `record`, `steps`, `fold` and `spectrum` by hand.

``PYTHONPATH=tests python -m fuzz --cases 5000`` runs many networks, and ``--seed 17`` shows one.
"""

import argparse
import sys
import warnings
from collections.abc import Sequence

import torch

from fuzz.build import case
from fuzz.laws import LAWS, told, verdicts
from fuzz.verdicts import WRONG, Verdict


def main(arguments: Sequence[str] | None = None) -> int:
    """Return 1 if a law does not hold, as a process does."""
    parser = argparse.ArgumentParser(prog="python -m fuzz", description=__doc__)
    parser.add_argument("--cases", type=int, default=200, help="how many networks")
    parser.add_argument("--first", type=int, default=0, help="seed of the first of them")
    parser.add_argument("--seed", type=int, help="run this one only, and print its source")
    parser.add_argument("--law", choices=LAWS, action="append", help="hold it to this law only")
    given = parser.parse_args(arguments)
    torch.set_num_threads(1)
    warnings.simplefilter("error")
    laws = given.law or list(LAWS)
    if given.seed is not None:
        with case(given.seed) as made:
            sys.stdout.write(made.made.plain)
            sys.stdout.write(f"\nexample {tuple(made.example.shape)}, ")
            sys.stdout.write(f"others {[tuple(x.shape) for x in made.others]}\n")
        found = verdicts(given.seed, laws)
        for verdict in found:
            sys.stdout.write(f"{verdict.law}: {verdict.kind} {verdict.detail}\n")
        return int(any(verdict.kind == WRONG for verdict in found))
    found = []
    for seed in range(given.first, given.first + given.cases):
        found += _shown(verdicts(seed, laws))
    sys.stdout.write(told(found) + "\n")
    return int(any(verdict.kind == WRONG for verdict in found))


def _shown(found: list[Verdict]) -> list[Verdict]:
    for verdict in found:
        if verdict.kind == WRONG:
            sys.stdout.write(f"seed {verdict.seed}, {verdict.law}: {verdict.detail[:300]}\n")
            sys.stdout.flush()
    return found


if __name__ == "__main__":
    sys.exit(main())
