"""The way of a value of a study to the specs of jobs: few modules pass it on."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from types import FrameType
from typing import Any

from curvebench.planning.plan import prepare
from tests.curvebench.tiny import write_study

LOW = 1e-7  # no other number of a plan has this value
WAY = {
    "curvebench.spec.study",  # read
    "curvebench.spec.tuning",
    "curvebench.planning.studies.validation",  # checked
    "curvebench.planning.studies.reading",
    "curvebench.planning.studies.study",
    "curvebench.planning.studies.seeds",
    "curvebench.spec.values",
    "curvebench.spec.document",
    "curvebench.spec.plan",  # pages read the key from the plan
    "curvebench.planning.plan",
    "curvebench.spec.job",  # written
}


def holds(value: Any, depth: int = 7) -> bool:
    """Whether the number is in a value."""
    if not depth or isinstance(value, str):
        return False
    if isinstance(value, float):
        return value == LOW
    if isinstance(value, Mapping):
        return any(holds(one, depth - 1) for one in value.values())
    if isinstance(value, (list, tuple, set, frozenset)):
        return any(holds(one, depth - 1) for one in value)
    own = type(value).__module__.startswith("curvebench.")
    return own and any(holds(one, depth - 1) for one in getattr(value, "__dict__", {}).values())


def test_a_rate_passes_few_modules_from_the_study_to_a_spec(tmp_path: Path):
    """In traced calls and their results, until the first runs are planned."""
    write_study(tmp_path / "studies", ("coarse: [1e-2, 1e-1]", "coarse: [1e-7, 1e-1]"))
    config = {"study_folder": str(tmp_path / "studies"), "studies": "tiny"}
    config |= {"results": str(tmp_path / "results"), "site": str(tmp_path / "site")}
    met: set[str] = set()

    def watch(frame: FrameType, event: str, result: Any) -> None:
        module = frame.f_globals.get("__name__", "")
        if not module.startswith("curvebench.") or event not in ("call", "return"):
            return
        if frame.f_code.co_name.startswith("<"):
            return  # comprehensions and lambdas count where they stand
        if holds(list(frame.f_locals.values()) if event == "call" else result):
            met.add(module)
        if event == "return" and frame.f_code.co_name == "_of_method":
            sys.setprofile(None)

    sys.setprofile(watch)
    try:
        prepare(config)
    finally:
        sys.setprofile(None)
    assert met == WAY
