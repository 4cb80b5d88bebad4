"""Submissions: studies that `curvebench try` writes to compare a user's method with a published study.

A submission runs one method on the workloads of the published study. The seeds, the targets and the number of
settings that tuning tries are the same as for the methods of the published study. The runs of the published
study are not repeated.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from curvebench.interop import foreign
from curvebench.interop.files import FILE, as_errors_of_user, load_file
from curvebench.planning.config import Config, config_of_study
from curvebench.registry import RULES, find_rule, unwrapped
from curvebench.results.temporary import write_texts
from curvebench.spec.errors import InputError, check_known, unknown
from curvebench.spec.study import LETTERS, Contribution, NamedWorkload, StudyFile, read_study_file

# Folder in the results folder that has a folder for each published study, with a folder for each submission.
FOLDER_NAME = "submissions"
HEAD = "# One method under the protocol of a published study, written by curvebench try.\n"


@dataclass(frozen=True)
class Submission:
    """A study file with one method that joins a published study.

    Args:
        path: study file of the submission. The folder of this file also contains a copy of the study file of
            the published study.
        joins: name of the published study.
        scale: name of the scale, a size of the published study, at which the submission is run.
        backend: name of the backend on which the submission is run.
    """

    path: Path
    joins: str
    scale: str
    backend: str

    @property
    def name(self) -> str:
        """Name of the submission as a study, which is also the label of its method."""
        return self.path.stem

    def config(self, results: Path) -> Config:
        """Return the configuration of Snakemake that runs the submission and renders a site of its own."""
        return config_of_study(self.path, self.scale, results, backends=(self.backend,))


def located(name: str) -> str:
    """Return the text by which `curvebench.registry.find_rule` finds an optimizer that a user names.

    If the name contains the path of a file, the path becomes absolute. For a class or a function in a file,
    such as `my.py:Lion`, a missing prefix of a library is added: `torch:` for a class, `optax:` for anything
    else.

    Args:
        name: name of an optimizer, as in a study file or on the command line.

    Raises:
        InputError: if the file cannot be imported, or does not define the name.
    """
    inner, wrapper = unwrapped(name)
    if wrapper is not None:
        return f"{located(inner)}+{wrapper.name}"
    library, _, rest = name.partition(":") if foreign.is_foreign(name) else ("", "", name)
    match = FILE.fullmatch(rest)
    if match is None:
        return name
    path, item = Path(match["path"]).resolve(), match["item"]
    with as_errors_of_user(f"{match['path']}: cannot be imported", path):
        defined = vars(load_file(path))
    if item not in defined and RULES.constant in defined:
        return f"{path}:{item}" if item else str(path)
    names = [key for key, obj in defined.items() if getattr(obj, "__module__", "") == defined["__name__"]]
    if item is None:
        raise InputError(f"{name}: name what is in the file after a colon: {name}:{(names or ['NAME'])[0]}")
    if item not in defined:
        raise InputError(unknown(match["path"], "optimizer", item, names))
    return f"{library or ('torch' if isinstance(defined[item], type) else 'optax')}:{path}:{item}"


def write_submission(
    name: str,
    joins: Path,
    results: Path,
    *,
    label: str = "",
    options: Mapping[str, Any] | None = None,
    problems: Sequence[str] = (),
    contributed: Contribution | None = None,
) -> Submission:
    """Write the study file of a submission to a folder of its own in the results folder.

    Args:
        name: optimizer as in a study file, or `my.py:Lion`; a relative path starts at the working directory.
        joins: study file of the published study.
        results: results folder.
        label: name of the submission, which is also the label of its method. If it is empty, the name of the
            optimizer is used.
        options: hyperparameters and options, as under the optimizer's name in a study file; None for the
            defaults.
        problems: labels of the workloads of the published study on which the method runs; empty for all
            workloads.
        contributed: author of the method if the results are to be published; otherwise None.

    Raises:
        InputError: for an unknown optimizer, a label that is invalid or in use, or a workload that the
            published study does not have.
    """
    locator, study = located(name), read_study_file(joins)
    rule = find_rule(locator)
    label = label or rule.name
    if not LETTERS.fullmatch(label):
        raise InputError(f"--label: {label!r} is not made of small letters, digits, _ and -; give another")
    if (joins.parent / f"{label}.yaml").exists():
        raise InputError(f"--label: {label!r} is a study in {joins.parent}; give another")
    folder = results / FOLDER_NAME / joins.stem / label
    content: dict[str, Any] = {
        "joins": joins.stem,
        "question": f"How good is {label} under the protocol of {joins.stem}?",
        "optimizers": [{locator: {**(options or {}), "label": label}}],
    }
    if contributed is not None:
        content["contributed"] = contributed.model_dump()
    if problems:
        content["workloads"] = [_written(workload) for workload in _chosen(study, joins, problems)]
    folder.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(joins, folder / joins.name)
    path = folder / f"{label}.yaml"
    write_texts({path: f"{HEAD}{json.dumps(content, indent=1)}\n"})
    (scale,) = list(study.scales)[:1]
    return Submission(path, joins.stem, scale, rule.backend or next(iter(study.scales[scale].backends)))


def _chosen(study: StudyFile, path: Path, problems: Sequence[str]) -> list[NamedWorkload]:
    """Return the entries of some workloads of a study, in the order of the study.

    Args:
        study: the study.
        path: path of the study file, for messages.
        problems: labels of the workloads to return.
    """
    by_name = {workload.label or workload.name: workload for workload in study.workloads}
    check_known(str(path), "problem", problems, by_name, where="--problems: ")
    return [workload for name, workload in by_name.items() if name in problems]


def _written(workload: NamedWorkload) -> dict[str, Any]:
    """Return an entry of a study's workloads in the form that study files have."""
    keys = workload.model_dump(include={"label", "sweep"}, exclude_defaults=True)
    return {workload.name: workload.options | keys}
