"""One table of bad input: each is answered with the file, the key and the remedy, before any compute."""
# ruff: noqa: E501 (one case a line reads as the table that it is)

from __future__ import annotations

import errno
import io
import math
import os
import re
import shlex
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import redirect_stderr
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from jax import numpy as jnp
from ruamel.yaml import YAML

from curvebench import Online, as_optax, as_torch, load, loading, replay
from curvebench.__main__ import main
from curvebench.backends.engine import engine
from curvebench.optimizers import rules
from curvebench.optimizers.bases import bases
from curvebench.planning.config import Config
from curvebench.planning.plan import Plan, make_plan, prepare, write_specs
from curvebench.planning.studies.reading import read_studies
from curvebench.property_checks.checks import Measure, Series
from curvebench.registry import find_rule
from curvebench.seeding import WorkloadRandom, batch_order
from curvebench.spec.errors import InputError
from curvebench.spec.sets import BEGIN, END, between_markers, check_name, check_waivers
from curvebench.steps.layout import layout, roles_of
from curvebench.workloads import workloads
from curvebench.workloads.networks.hierarchical_transformer import HieraViT, MaskUnitAttention
from curvebench.workloads.workload import Role
from tests.curvebench.engine.test_execution import make_bundle
from tests.curvebench.test_as_torch_layers import Tied, made
from tests.curvebench.test_foreign import run
from tests.curvebench.tiny import write_study
from tests.curvebench.user_files import user_file

Act = Callable[[Path, pytest.MonkeyPatch], int]
HERE = Path(__file__).parent


@dataclass(frozen=True)
class Case:
    """Bad input: what is done in a fresh folder, what the message must hold, and what it must not."""

    name: str
    act: Act
    shown: tuple[str, ...]
    hidden: tuple[str, ...] = ()


def configures(
    config: Mapping[str, object] | None = None,
    study: Mapping[str, str] | None = None,
    also: Mapping[str, str | bytes] | None = None,
    files: Mapping[str, str] | None = None,
    command: str = "",
) -> Act:
    """Read the tiny study with texts replaced, and other files; with a configuration do what the Snakefile does.

    With a command of curvebench, run it in the folder that holds the folder of studies.
    """

    def act(folder: Path, monkeypatch: pytest.MonkeyPatch) -> int:
        studies = folder / "studies"
        write_study(studies, *(study or {}).items())
        given = {name: user_file(file) for name, file in (files or {}).items()}
        for name, content in (given | dict(also or {})).items():
            (studies / name).write_bytes(content if isinstance(content, bytes) else content.encode())
        monkeypatch.chdir(folder)
        if command:
            return main(shlex.split(command))
        try:
            if config is None:
                read_studies(studies)
            else:
                folders = {"results": str(folder / "results"), "site": str(folder / "site")}
                prepare({**folders, "study_folder": str(studies), **config})
        except InputError as error:
            sys.stderr.writelines(f"error: {line}\n" for line in str(error).splitlines())
            return 2
        return 0

    return act


def one(**given: object) -> dict[str, object]:
    """Return a group of as_torch with one parameter."""
    return {"params": [torch.nn.Parameter(torch.ones(2))], **given}


def symo(kinds: Mapping[str, Any] | None = None, **shapes: tuple[int, ...]) -> Online:
    """SymO on parameters of these shapes."""
    params = {name: np.ones(shape) for name, shape in shapes.items()}
    return Online("symo", params, {"learning_rate": 0.3, "factor_decay": 0.9}, kinds=kinds or {})


def replayed(**changes: Any) -> object:
    """Return a replay of Adam with some of its arguments changed."""
    arrays = {"w": np.ones((3, 2)), "b": np.ones(3)}
    given: dict[str, Any] = {"optimizer": "adam", "params": arrays, "grads": [arrays, arrays]}
    return replay(**{**given, "hyper": {"learning_rate": 0.1}, "backend": "numpy", **changes})


def calls(expression: str) -> Act:
    """Evaluate an expression, which sees NAMES."""

    def act(folder: Path, _: pytest.MonkeyPatch) -> int:
        try:
            eval(expression, {**NAMES})
        except ValueError as error:
            sys.stderr.write(f"error: {type(error).__name__}: {error}\n")
            return 2
        return 0

    return act


def planned(folder: Path) -> Plan:
    """Return the plan of the tiny study."""
    studies = folder / "studies"
    write_study(studies)
    return make_plan(Config(studies=("tiny",), results=folder, site=folder / "site", study_folder=studies))


def spec_holds(old: str, new: str) -> Act:
    """`curvebench run` on a spec whose text is changed."""

    def act(folder: Path, _: pytest.MonkeyPatch) -> int:
        plan = planned(folder)
        write_specs(plan)
        path = plan.jobs[0].spec_path
        path.write_text(path.read_text().replace(old, new))
        return main(["run", str(path), "--results", str(folder)])

    return act


def folder_refuses(number: int) -> Act:
    """Return a case whose results folder cannot be written to: the probe and the files themselves fail."""

    def act(folder: Path, monkeypatch: pytest.MonkeyPatch) -> int:
        def refuse(*_: object, **given: object) -> None:
            raise OSError(number, os.strerror(number), str(given["dir"]))

        monkeypatch.setattr(tempfile, "TemporaryFile", refuse)
        return configures({"studies": "tiny"})(folder, monkeypatch)

    return act


FILES = [
    Case("damaged spec", spec_holds('"stage"', "stage"), (".json: not a job spec", "delete it and run snakemake again")),
    Case("edited spec", spec_holds('"seeds": [\n  0', '"seeds": [\n  7'), (".json: its content has the hash", "delete the file")),
    Case("read-only results folder", folder_refuses(errno.EROFS), ("specs: cannot be written (Read-only file system)", "--config results=")),
    Case("full results folder", folder_refuses(errno.ENOSPC), ("specs: cannot be written (No space left on device)", "make room")),
]  # fmt: skip


NAMES = {
    "np": np,
    "jnp": jnp,
    "nn": torch.nn,
    "math": math,
    "BEGIN": BEGIN,
    "END": END,
} | {  # names that expressions of the table may use
    seen.__name__: seen
    for seen in (
        *(torch, replace, workloads, rules, bases, find_rule, replayed, run, symo, one, made, Tied, Role),
        *(as_torch, as_optax, HieraViT, MaskUnitAttention, check_name, check_waivers, between_markers, Path),
        *(layout, roles_of, engine, batch_order, WorkloadRandom, Measure, Series, load, Online, make_bundle),
    )
}


def table() -> Iterator[Case]:
    """Read the table of bad studies and configurations."""
    for name, row in YAML(typ="safe").load(HERE / "bad_input.yaml").items():
        says, hides = row.pop("says"), row.pop("hides", ())
        act = calls(row["call"]) if "call" in row else configures(**row)
        yield Case(name, act, tuple(says), tuple(hides))


CASES = {case.name: case for case in (*table(), *FILES)}


@cache
def answer(name: str) -> tuple[int, str, bool]:
    """Return the exit status of a case, what it wrote to standard error, and whether it left a table of jobs."""
    written = io.StringIO()
    with (
        tempfile.TemporaryDirectory() as folder,
        pytest.MonkeyPatch.context() as patch,
        redirect_stderr(written),
    ):
        # The messages must not depend on studies that were run in this folder before.
        patch.setattr(loading, "TABLES", Path(folder))
        status = CASES[name].act(Path(folder), patch)
        ran = any(Path(folder).rglob("jobs.parquet"))
    return status, re.sub(r"\b[0-9a-f]{16}\b", "HASH", written.getvalue().replace(folder, "FOLDER")), ran


@pytest.mark.parametrize("name", CASES)
def test_bad_input_is_answered(name):
    status, said, ran = answer(name)
    assert (status, ran) == (2, False)
    assert all(line.startswith("error: ") for line in said.splitlines() if not line.startswith(" "))
    for part in CASES[name].shown:
        assert part in said
    assert not any(part in said for part in (*CASES[name].hidden, "Traceback"))


def test_messages_are_as_they_were_reviewed(frozen):
    """Their wording is reviewed in one place, tests/messages.txt, which `--update` writes."""
    frozen(HERE / "messages.txt", "\n".join(f"{name}:\n{answer(name)[1]}" for name in CASES))


def test_a_full_disk_leaves_no_half_written_spec(tmp_path, monkeypatch):
    plan = planned(tmp_path)

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(Path, "replace", full)
    with pytest.raises(InputError, match="No space left on device"):
        write_specs(plan)
    assert not list((tmp_path / "specs").iterdir())
