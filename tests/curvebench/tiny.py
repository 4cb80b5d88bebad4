"""A study that is as small as possible, and functions that change it."""

from __future__ import annotations

from pathlib import Path

from tests.curvebench.user_files import user_file

TINY = user_file("tiny.yaml")
TWO_STAGES = "  protocol: two_stage_sweep\n  of: learning_rate\n  coarse: [1e-2, 1e-1]\n"
# An alternative to TWO_STAGES: one stage with few points.
SEARCH = """\
  protocol: random_search
  budget_per_dimension: 2
  space: {learning_rate: {low: 1e-2, high: 1e-1, scale: log}}
"""


def leave_tiny(project: Path) -> None:
    """Reduce a copy of the project to the tiny study and one parity problem, without property checks."""
    for path in (project / "benchmarks/studies").glob("*.yaml"):
        path.unlink()
    for path in (project / "benchmarks/claims").glob("[!_]*.py"):
        path.unlink()
    # Without studies, no claim of a paper is decided.
    for path in (project / "benchmarks/papers").glob("*.yaml"):
        path.unlink()
    write_study(project / "benchmarks/studies")
    with (project / "curvebench/planning/parity_problems.py").open("a") as problems:
        problems.write("PROBLEMS = CORE = PROBLEMS[:1]\n")


def write_study(folder: Path, *changes: tuple[str, str], name: str = "tiny") -> Path:
    """Write the tiny study with replacements; each old text must occur in it."""
    text = TINY
    for old, new in changes:
        assert old in text, f"{old!r} is not in the tiny study"
        text = text.replace(old, new)
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}.yaml"
    path.write_text(text)
    return path
