"""A study that is as small as one can be, and ways to change it."""

from __future__ import annotations

from pathlib import Path

from tests.curvebench.user_files import user_file

TINY = user_file("tiny.yaml")
TWO_STAGES = "  protocol: two_stage_sweep\n  of: learning_rate\n  coarse: [1e-2, 1e-1]\n"
# what may take their place: one stage, a few points
SEARCH = """\
  protocol: random_search
  budget: 2
  space: {learning_rate: {low: 1e-2, high: 1e-1, scale: log}}
"""


def leave_tiny(project: Path) -> None:
    """Leave a copy of the project the tiny study, no property checks and a problem of parity: it runs all."""
    for path in (project / "benchmarks/studies").glob("*.yaml"):
        path.unlink()
    for path in (project / "benchmarks/claims").glob("[!_]*.py"):
        path.unlink()
    (project / "benchmarks/census.yaml").unlink()  # of claims that are decided by nothing now
    write_study(project / "benchmarks/studies")
    with (project / "curvebench/planning/parity_problems.py").open("a") as problems:
        problems.write("PROBLEMS = CORE = PROBLEMS[:1]\n")


def write_study(folder: Path, *changes: tuple[str, str], name: str = "tiny") -> Path:
    """Write the tiny study with some of its text replaced; each old text must be there."""
    text = TINY
    for old, new in changes:
        assert old in text, f"{old!r} is not in the tiny study"
        text = text.replace(old, new)
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}.yaml"
    path.write_text(text)
    return path
