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
from curvebench.results.archive import local_plans
from curvebench.results.reading import time_of_planning
from curvebench.spec.plan import StudyPlan

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


def decided_before(study: StudyPlan, claim: str) -> bool:
    """Return whether local runs decided a claim by other limits before its study was planned as it is now.

    Args:
        study: a study with local runs.
        claim: id of a claim of the study.
    """
    now = time_of_planning(study.tables)
    folders = [file.parent for file in study.tables.parent.glob(f"{study.name}.*/runs.parquet")]
    earlier = local_plans(folder for folder in folders if time_of_planning(folder) < now)
    rules = [old.rules.get(claim) for plan in earlier for old in plan.studies]
    return any(rule not in (None, study.rules[claim]) for rule in rules)
