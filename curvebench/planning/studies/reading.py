"""All studies of a folder."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from curvebench.paths import STUDY_FOLDER
from curvebench.planning.studies.study import Study
from curvebench.planning.studies.validation import read_study
from curvebench.spec.errors import InputError, Problems
from curvebench.spec.study import StudyFile, read_yaml


def read_studies(folder: Path = STUDY_FOLDER, names: Sequence[str] = ()) -> tuple[Study, ...]:
    """All studies of a folder, by name.

    Args:
        folder: where the study files lie.
        names: what is asked for; where each names a file, the other files are not read, so that a broken
            one is in nobody's way. Claims are found by reading all.

    Raises:
        InputError: with a line for each problem of each file.
    """
    paths = sorted(folder.glob("*.yaml"))
    others: list[Path] = []
    if names and set(names) <= {path.stem for path in paths}:
        others = [path for path in paths if path.stem not in names]
        paths = [path for path in paths if path.stem in names]
    if not paths:
        raise InputError(
            f"{folder}: holds no study file (*.yaml); name the folder that does, such as {STUDY_FOLDER}"
        )
    studies: list[Study] = []
    problems = Problems()
    for path in paths:
        with problems.caught():
            studies.append(read_study(path))
    homes: dict[str, Path] = {}
    for study in studies:
        for claim in study.claims:
            if (home := homes.setdefault(claim.id, study.path)) != study.path:
                problems.add(f"{study.path}: claims: the id {claim.id!r} is also in {home}; ids must differ")
    for study in studies:
        if (home := homes.get(study.name, study.path)) != study.path:
            said = f"the id {study.name!r} is also the name of {study.path}; rename one"
            problems.add(f"{home}: claims: {said}")
    for path in others:
        for name in _ids_in(path, homes):
            problems.add(f"{homes[name]}: claims: the id {name!r} is also in {path}; ids must differ")
    problems.check()
    return tuple(studies)


def _ids_in(path: Path, ids: Iterable[str]) -> list[str]:
    """Which ids of claims a file gives that is not read otherwise; none where it is broken."""
    text = path.read_text(encoding="utf-8", errors="replace")
    suspected = [name for name in ids if name in text]  # reading YAML takes much longer
    if not suspected:
        return []
    try:
        claims = read_yaml(path, "a study", StudyFile).get("claims")
    except InputError:
        return []
    given = (
        [claim.get("id") for claim in claims if isinstance(claim, dict)] if isinstance(claims, list) else []
    )
    return [name for name in suspected if name in given]
