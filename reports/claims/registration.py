"""When the limits of claims were registered, and which published sets had shown an outcome before that time.

A look is a published set with a verdict on a claim. `python -m benchmarks.registration` writes the file from
the history of the repository.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

from curvebench.paths import PUBLISHED

FILE = PUBLISHED / "registration.json"


@dataclass(frozen=True)
class Registration:
    """When the present limits of a claim were committed, and which published sets had a verdict on the claim.

    Args:
        commit: commit that brought the present limits, as 8 hexadecimal digits.
        date: day of that commit, such as 2026-11-25.
        looks: names of all sets that published a verdict on the claim, oldest first.
        earlier: names of the sets that were published before the commit.
        note: words of the claim's setting, in a published set, that say that limits were chosen after runs;
            empty if there are none.
    """

    commit: str
    date: str
    looks: tuple[str, ...]
    earlier: tuple[str, ...]
    note: str = ""


@cache
def registered() -> Mapping[str, Registration]:
    """Return the registration of each claim, by the claim's id; empty if there is no file."""
    written = json.loads(FILE.read_text()) if FILE.is_file() else {}
    return {claim: Registration(**item) for claim, item in written.items()}
