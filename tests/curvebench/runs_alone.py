"""The tiny study with a workload from a file, whose runs may be separate jobs."""

from __future__ import annotations

from pathlib import Path

from tests.curvebench.tiny import write_study
from tests.curvebench.user_files import user_file

FILE = user_file("long_squares.py")
ON_FILE = ("{least_squares: {n: 8, d: 4}}", "{long_squares.py: {n: 8, d: 4}}")
IN_ONE_BASIS = (
    ("identity, {egop: {blocks: all, samples: 2.0 d, sampling: {normal: 1.0}}}", "identity"),
    ("[adam @ egop], compared_to: [adam]", "[adam], compared_to: 1"),
)


def write_alone(folder: Path, *changes: tuple[str, str], alone: bool = True) -> Path:
    """Write the study `tiny` and its workload into a folder, with so little memory that each lane is a
    bundle.

    Args:
        folder: the folder.
        changes: replacements in the study's text.
        alone: whether the workload asks for a separate job per run.
    """
    path = write_study(
        folder, ON_FILE, ("    evaluations: 4", "    evaluations: 4\n    bundle_memory_bytes: 1"), *changes
    )
    text = FILE if alone else FILE.replace("separate_jobs=True", "separate_jobs=False")
    (folder / "long_squares.py").write_text(text)
    return path
