"""The study of a newcomer: one method under the protocol of a published study, on its problems or some."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from curvebench.interop import foreign
from curvebench.interop.files import FILE, error_at, load_file
from curvebench.planning.config import Config
from curvebench.registry import RULES, find_rule
from curvebench.results.temporary import write_texts
from curvebench.spec.errors import InputError, unknown
from curvebench.spec.study import LETTERS, Contribution, Named, StudyFile, read_study_file

PLACE = "newcomers"  # in the results folder
HEAD = "# One method under the protocol of a published study, written by curvebench try.\n"


@dataclass(frozen=True)
class Newcomer:
    """A study file of one method that joins a published study.

    Args:
        path: the file; beside it lies a copy of the study that it joins.
        joins: that study's name.
        scale: the one that it is run at.
        backend: the one that the method runs on.
    """

    path: Path
    joins: str
    scale: str
    backend: str

    @property
    def name(self) -> str:
        """The study's name, which is the method's."""
        return self.path.stem

    def config(self, results: Path) -> Config:
        """The configuration that runs it, into a site of its own."""
        return Config(
            scale=self.scale,
            studies=(self.name,),
            backends=(self.backend,),
            study_folder=self.path.parent,
            results=results,
            site=self.path.parent / "site",
            parity=False,
        )


def located(name: str) -> str:
    """The locator of a method as a user names it, with the whole path of a file.

    `my.py:Lion` gets the library that its object is like, where none stands before it.

    Raises:
        InputError: where the file cannot be read, or does not hold it.
    """
    library, _, rest = name.partition(":") if foreign.is_foreign(name) else ("", "", name)
    match = FILE.fullmatch(rest)
    if match is None:
        return name
    path, item = Path(match["path"]).resolve(), match["item"]
    try:
        defined = vars(load_file(path))
    except InputError:
        raise
    except Exception as error:  # whatever the file raises
        raise InputError(f"{match['path']}: cannot be imported ({error_at(error, path)})") from error
    if item not in defined and RULES.constant in defined:
        return f"{path}:{item}" if item else str(path)
    own = [key for key, one in defined.items() if getattr(one, "__module__", "") == defined["__name__"]]
    if item is None:
        raise InputError(f"{name}: name what is in the file after a colon: {name}:{(own or ['NAME'])[0]}")
    if item not in defined:
        raise InputError(unknown(match["path"], "optimizer", item, own))
    return f"{library or ('torch' if isinstance(defined[item], type) else 'optax')}:{path}:{item}"


def write_newcomer(
    name: str,
    joins: Path,
    results: Path,
    *,
    label: str = "",
    options: Mapping[str, Any] | None = None,
    problems: Sequence[str] = (),
    contributed: Contribution | None = None,
) -> Newcomer:
    """Write the study of a newcomer, in a folder of its own below the results.

    Args:
        name: `my.py:Lion`, or as in a study file; a path is relative to the working folder.
        joins: the file of the study that it joins.
        options: what stands below its name in a study file.
        problems: workloads of that study; empty for all.

    Raises:
        InputError: for a name that nothing has, a label that is taken, or problems that the study has not.
    """
    locator, study = located(name), read_study_file(joins)
    rule = find_rule(locator)
    called = label or rule.name
    if not LETTERS.fullmatch(called):
        raise InputError(f"--label: {called!r} is not made of small letters, digits, _ and -; give another")
    if (joins.parent / f"{called}.yaml").exists():
        raise InputError(f"--label: {called!r} is a study in {joins.parent}; give another")
    folder = results / PLACE / called
    entry = {locator: {**(options or {}), "label": called}}
    content: dict[str, Any] = {
        "joins": joins.stem,
        "question": f"How good is {called} under the protocol of {joins.stem}?",
        "optimizers": [entry],
    }
    if contributed is not None:
        content["contributed"] = contributed.model_dump()
    if problems:
        content["workloads"] = [_written(one) for one in _chosen(study, joins, problems)]
    folder.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(joins, folder / joins.name)
    path = folder / f"{called}.yaml"
    write_texts({path: f"{HEAD}{json.dumps(content, indent=1)}\n"})
    (scale,) = list(study.scales)[:1]
    return Newcomer(path, joins.stem, scale, rule.backend or next(iter(study.scales[scale].backends)))


def _chosen(study: StudyFile, path: Path, problems: Sequence[str]) -> list[Named]:
    known = {one.label or one.name: one for one in study.workloads}
    for name in problems:
        if name not in known:
            raise InputError(f"--problems: {unknown(str(path), 'problem', name, known)}")
    return [one for name, one in known.items() if name in problems]


def _written(workload: Named) -> dict[str, Any]:
    about = {"label": workload.label} if workload.label else {}
    return {workload.name: {**workload.options, **about}}
