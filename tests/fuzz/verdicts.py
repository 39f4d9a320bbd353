"""What came of holding one network to one law."""

import re
import traceback
from collections.abc import Callable
from dataclasses import dataclass

from stiffnet.errors import StiffnetError

RIGHT, REFUSED, WRONG = "right", "refused", "wrong"


class WrongError(AssertionError):
    """The law does not hold: something other than what the reference says, without a word."""


@dataclass(frozen=True)
class Verdict:
    """One law, held or not."""

    seed: int
    law: str
    kind: str
    detail: str = ""

    @property
    def reason(self) -> str:
        """The detail without names and numbers, for counting."""
        text = self.detail
        inner = re.search(r"\((?:\w+: )?([a-z].*?)\)(?:;|\.| and \d+ more)", text)
        if self.kind == REFUSED and inner:
            text = inner[1]
        text = re.sub(r" \([^()]*\.py, line \d+", "", text)
        text = re.sub(r"\[.*\]", "[…]", text)
        text = re.sub(r"'[^']*'|`[^`]*`", "…", text)
        text = re.sub(r"\b(Block|Branch|Gate)\w*", r"\1", text)
        text = re.sub(r"\b(m\d+|parts)(\.\w+)*", "m", text)
        return re.sub(r"\d+(\.\d+)?(e-?\d+)?", "N", text)[:110]


def judged(seed: int, law: str, hold: Callable[[], None]) -> Verdict:
    """Hold a network to a law."""
    try:
        hold()
    except StiffnetError as error:
        return Verdict(seed, law, REFUSED, str(error))
    except WrongError as error:
        return Verdict(seed, law, WRONG, str(error))
    except Exception as error:  # not one of ours: the user would see a traceback
        last = traceback.extract_tb(error.__traceback__)[-1]
        where = f"{last.filename.rpartition('/')[2]}:{last.lineno}"
        return Verdict(seed, law, WRONG, f"{type(error).__name__} at {where}: {error}")
    return Verdict(seed, law, RIGHT)
