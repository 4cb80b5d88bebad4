"""Function that reads all studies of a folder."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from itertools import pairwise
from pathlib import Path

from curvebench.paths import COMPARISONS, OWN_STUDIES, RESULTS, STUDY_FOLDER
from curvebench.planning.studies.study import Study
from curvebench.planning.studies.validation import read_study
from curvebench.spec.errors import InputError, Problems, put_aside
from curvebench.spec.study import StudyFile, read_yaml


def study_files(folder: Path, names: Collection[str] = ()) -> list[Path]:
    """Return the study files of a folder, sorted by name.

    For the project's own folder of studies, the study files of the user's folder `OWN_STUDIES` are added, so
    that both are found in any working directory. The requested comparisons are added as well.

    Args:
        folder: the folder.
        names: names that the user requested, of studies and of comparisons.
    """
    folders = (folder, OWN_STUDIES) if folder == STUDY_FOLDER else (folder,)
    paths = [path for each in folders for path in each.glob("*.yaml")]
    paths += [path for name, path in comparisons(folder).items() if name in names]
    return sorted(paths, key=lambda path: path.name)


def comparisons(folder: Path) -> dict[str, Path]:
    """Return a mapping from the names of comparisons in `RESULTS` to their study files.

    A comparison is a study that `curvebench compare` has made. Commands that run or check studies read it
    only if the user requests it by name, because reading it imports the user's model, which may have been
    moved since.

    Args:
        folder: folder of the study files. Comparisons belong to the project's own folder; for any other
            folder the result is empty.
    """
    paths = sorted(RESULTS.glob(f"{COMPARISONS}/*/*.yaml")) if folder == STUDY_FOLDER else []
    return {path.stem: path for path in paths}


def read_studies(
    folder: Path = STUDY_FOLDER, names: Sequence[str] = (), broken: dict[str, str] | None = None
) -> tuple[Study, ...]:
    """Read the studies of a folder, sorted by file name.

    Args:
        folder: folder of the study files (`study_files`).
        names: names of studies, comparisons and claims that the user requested. If all of them are names of
            study files, only these files are read, so that an error in another file does not matter. If an id
            of a claim is among them, all files are read, because any file may contain the claim. If `names`
            is empty, all files are read, except for comparisons.
        broken: a dictionary for the invalid studies that are not in `names`. Such a study is left out, and
            the reason why it is invalid is added to the dictionary, by name of the study. If `broken` is
            None, any invalid study is an error.

    Raises:
        InputError: with a line for each problem of each file. Names of studies and ids of claims must all be
            different, because users give both in one list, `--config studies=...`.
    """
    paths = study_files(folder, names)
    unread: list[Path] = []
    if names and set(names) <= {path.stem for path in paths}:
        unread = [path for path in paths if path.stem not in names]
        paths = [path for path in paths if path.stem in names]
    if not paths:
        raise InputError(
            f"{folder}: holds no study file (*.yaml); name the folder that does, such as {STUDY_FOLDER}"
        )
    studies: list[Study] = []
    problems = Problems()
    for path in paths:
        with problems.caught(), put_aside(None if path.stem in names else broken, path.stem):
            studies.append(read_study(path))
    for path, following in pairwise(paths):
        if path.stem == following.stem:
            problems.add(f"{following}: {path} has the same name; rename one")
    files: dict[str, Path] = {}
    for study in studies:
        for claim in study.claims:
            if (file := files.setdefault(claim.id, study.path)) != study.path:
                problems.add(f"{study.path}: claims: the id {claim.id!r} is also in {file}; ids must differ")
    for study in studies:
        if (file := files.get(study.name, study.path)) != study.path:
            message = f"the id {study.name!r} is also the name of {study.path}; rename one"
            problems.add(f"{file}: claims: {message}")
    for path in unread:
        for name in _ids_in(path, files):
            problems.add(f"{files[name]}: claims: the id {name!r} is also in {path}; ids must differ")
    problems.check()
    return tuple(studies)


def _ids_in(path: Path, ids: Iterable[str]) -> list[str]:
    """Return the ids in `ids` that belong to claims of a study file; none if the file is not valid YAML.

    Only the ids of claims are read from the file. The rest of the file is not validated.
    """
    text = path.read_text(encoding="utf-8", errors="replace")
    # Searching for the ids in the text is much faster than parsing YAML, and excludes most files.
    candidates = [name for name in ids if name in text]
    if not candidates:
        return []
    try:
        claims = read_yaml(path, "a study", StudyFile).get("claims")
    except InputError:
        return []
    written = claims if isinstance(claims, list) else []
    claim_ids = [claim.get("id") for claim in written if isinstance(claim, dict)]
    return [name for name in candidates if name in claim_ids]
