"""The pages: their marked steps run, their links lead somewhere, their tables agree with the code."""

from __future__ import annotations

import contextlib
import doctest
import re
import runpy
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from pydantic import AliasChoices, BaseModel

import curvebench
from curvebench.__main__ import COMMANDS, main
from curvebench.engine.schedules import SHAPES
from curvebench.planning.config import Config
from curvebench.planning.studies.reading import read_studies
from curvebench.results import schema
from curvebench.spec import claim, document, sources, study, training, tuning
from tests.curvebench.tiny import leave_tiny

ROOT = Path(__file__).resolve().parent.parent
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
# a comment, `<!-- run -->` or `<!-- file: PATH -->`, above a block of code
MARKED = re.compile(
    r"^<!-- (?P<mark>run|file: (?P<file>\S+)) -->\n```\w*\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL
)
# the main job, and what looks for its results
MAIN_JOB = re.compile(r"^(snakemake --cores|test -s) .*\n", re.MULTILINE)
SCRIPT = re.compile(r"python (?P<file>\w+\.py)\n")  # run in this process, which has the libraries loaded
# Steps of these pages try every rule or optimizers of other libraries, or run tests.
LONG_PAGES = {"README.md", "CONTRIBUTING.md", "docs/how-to/plug-in.md", "docs/how-to/add-a-need.md"}
# Steps of these pages check all studies, or mutations of all claims; other pages have studies of their own.
WHOLE_PROJECT = {"README.md", "add-a-claim.md"}
COMMENTS = re.compile(r"^<!-- (?!leaderboard:).*? -->$", re.MULTILINE)  # publishing writes between those


@dataclass(frozen=True)
class Step:
    """A marked block: shell lines to run, or the text of a file to write."""

    text: str
    file: str | None


def name_of(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def steps(page: Path) -> list[Step]:
    return [Step(match["text"], match["file"]) for match in MARKED.finditer(page.read_text())]


def follow(page: Path, project: Path, variables: dict[str, str], chosen: list[Step]) -> None:
    """Do steps of the page in order, in a copy of the project, which has few studies and claims as a rule."""
    if page.name not in WHOLE_PROJECT:
        leave_tiny(project)
    variables.pop("CURVEBENCH_DATA", None)  # tests set it to a folder of made images, which commands refuse
    for step in chosen:
        if step.file is not None:
            target = project / step.file
            assert not target.exists(), f"{page.name}: the example {step.file} would overwrite a file"
            target.write_text(step.text)
            continue
        if script := SCRIPT.fullmatch(step.text):
            with contextlib.chdir(project):
                runpy.run_path(script["file"], run_name="__main__")
            continue
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", step.text],
            cwd=project,
            env=variables,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, (
            f"{page.name}:\n{step.text}\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
        )


# --- steps ---------------------------------------------------------------------------------------


def test_every_comment_is_a_mark_that_is_understood():
    for page in PAGES:
        assert len(COMMENTS.findall(page.read_text())) == len(steps(page)), name_of(page)
    assert steps(ROOT / "CONTRIBUTING.md")
    assert steps(ROOT / "README.md")


@pytest.mark.long
@pytest.mark.parametrize(
    "page", [page for page in PAGES if any(MAIN_JOB.search(step.text) for step in steps(page))], ids=name_of
)
def test_the_steps_of_a_page_work_as_they_stand(page: Path, project: Path, activated: dict[str, str]):
    follow(page, project, activated, steps(page))


@pytest.mark.slow
@pytest.mark.parametrize(
    "page",
    [
        pytest.param(page, marks=[pytest.mark.long] if name_of(page) in LONG_PAGES else [])
        for page in PAGES
        if steps(page)
    ],
    ids=name_of,
)
def test_the_steps_of_a_page_work_but_for_the_main_job(page: Path, project: Path, activated: dict[str, str]):
    """Its plan is read; test_snakefile.py runs it."""
    chosen = [replace(step, text=MAIN_JOB.sub("", step.text)) for step in steps(page)]
    follow(page, project, activated, chosen)


def test_a_new_need_of_a_rule_touches_at_most_five_files_and_changes_none():
    """The page's steps, which another test follows, run a rule with a need of its own on both backends."""
    page = ROOT / "docs" / "how-to" / "add-a-need.md"
    files = [step.file for step in steps(page) if step.file is not None]
    assert 1 <= len(files) <= 5
    assert not [file for file in files if (ROOT / file).exists()]
    assert [step.text for step in steps(page) if step.file is None] == [f"python -m pytest -q {files[-1]}\n"]


@pytest.mark.slow
def test_the_examples_for_contributors_obey_the_house_rules(project: Path, activated: dict[str, str]):
    examples = {step.file: step.text for step in steps(ROOT / "CONTRIBUTING.md") if step.file}
    for file, text in examples.items():
        (project / file).write_text(text)
    files = [file for file in examples if file.endswith(".py")]
    assert files
    # With the cache of an earlier run, mypy does not check equal sources again.
    mypy = ["mypy", "--cache-dir", str(ROOT / ".mypy_cache")]
    for command in (["ruff", "check"], ["ruff", "format", "--check"], mypy):
        done = subprocess.run(
            [*command, *files], cwd=project, env=activated, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr


# --- the interface ------------------------------------------------------------------------------------


def test_the_reference_of_the_interface_has_every_public_name():
    reference = (ROOT / "docs/reference/api.md").read_text()
    names = re.findall(r"^\.\. (?:auto\w+|py:data):: (\w+)$", reference, re.MULTILINE)
    assert {*names} == {*curvebench.__all__}


def test_the_examples_of_the_interface_give_what_they_print():
    finder, runner = doctest.DocTestFinder(recurse=False), doctest.DocTestRunner()
    for name in curvebench.__all__:
        for examples in finder.find(getattr(curvebench, name), name, module=False, globs={}):
            assert not runner.run(examples).failed, name
    assert runner.tries > 50


@pytest.mark.parametrize("page", [page for page in PAGES if page.parent.name != "decisions"], ids=name_of)
def test_pages_import_public_names_alone(page: Path):
    text = page.read_text()
    assert not re.findall(r"^(?:from|import) curvebench\..*", text, re.MULTILINE)
    names = re.findall(r"^from curvebench import (.*)$", text, re.MULTILINE)
    assert {name for line in names for name in line.split(", ")} <= {*curvebench.__all__}


def test_the_page_of_the_architecture_names_what_there_is():
    text = (ROOT / "docs/architecture.md").read_text()
    named = {name.replace("NAME", "convex") for name in re.findall(r"`([a-z_]+(?:/[\w.]+)+)`", text)}
    assert not [name for name in named if not (ROOT / name).exists()]
    for file, function in re.findall(r"`([\w/]+\.py)` \| `(\w+)`", text):
        assert f"def {function}(" in (ROOT / file).read_text(), function
    drawn = (ROOT / "docs/images/architecture.svg").read_text()
    rooms = {
        path.parent.name
        for path in (*ROOT.glob("curvebench/*/__init__.py"), *ROOT.glob("reports/*/__init__.py"))
    }
    assert rooms <= set(re.findall(r'class="(?:room-)?name">(\w+)<', drawn))


# --- tables --------------------------------------------------------------------------------------


def sections(page: str) -> Iterator[tuple[str, list[list[str]]]]:
    """Each second-level heading with the cells of the table below it."""
    for section in re.split(r"^## ", (ROOT / page).read_text(), flags=re.MULTILINE)[1:]:
        rows = re.findall(r"^\| (.+) \|$", section, re.MULTILINE)
        yield section.splitlines()[0], [row.split(" | ") for row in rows[2:]]


def kind(data_type: Any) -> str:
    if isinstance(data_type, pl.List):
        return f"list of {kind(data_type.inner)}"
    if isinstance(data_type, pl.Struct):
        return "{" + ", ".join(field.name for field in data_type.fields) + "}"
    names = {
        pl.String: "text",
        pl.Int64: "integer",
        pl.Float64: "float",
        pl.Boolean: "boolean",
        pl.Enum: "one of a list",
    }
    return names[data_type.base_type()]


def test_the_reference_of_tables_agrees_with_the_schema():
    described = {
        table: [(name, cell) for name, cell, *_ in rows]
        for table, rows in sections("docs/reference/tables.md")
    }
    assert described == {
        table: [(f"`{name}`", kind(data_type)) for name, data_type in columns.items()]
        for table, columns in schema.TABLES.items()
    }


MODELS: dict[str, Any] = {
    "The file": study.StudyFile,
    "tuning: two_stage_sweep": tuning.TwoStageSweep,
    "tuning: random_search, halton_search": tuning.Search,
    "tuning: successive_halving": tuning.SuccessiveHalving,
    "tuning: tpe": tuning.ParzenSearch,
    "tuning: an axis of space": tuning.Axis,
    "schedule": training.Schedule,
    "compare": study.Compare,
    "claims": claim.Claim,
    "claims: a condition": claim.OfQuantity,
    "scales": study.Scale,
    "scales: seeds": study.Seeds,
    "scales: a backend": study.BackendUse,
    "The tour": study.Tour,
    "A paper": sources.Paper,
    "A paper: a sentence": sources.Sentence,
    "contributed": study.Contribution,
}


def test_the_reference_of_study_files_lists_every_key():
    described = {
        title: sorted(cells[0].strip("`") for cells in rows)
        for title, rows in sections("docs/reference/study-files.md")
        if rows
    }
    assert described == {title: keys(model) for title, model in MODELS.items()}


def keys(annotation: Any) -> list[str]:
    fields = [item for model in document.models_of(annotation) for item in model.model_fields.items()]
    written = [item for item in fields if item[1].json_schema_extra != document.NOT_WRITTEN]
    aliases = {name: field.validation_alias for name, field in written}
    return sorted(
        str(key)
        for name, alias in aliases.items()
        for key in (alias.choices if isinstance(alias, AliasChoices) else [alias or name])
    )


def test_the_reference_of_study_files_leaves_no_part_out():
    parts = {
        item
        for module in (claim, sources, study, training, tuning)
        for item in vars(module).values()
        if isinstance(item, type) and issubclass(item, BaseModel)
    }
    parts -= {base for part in parts for base in part.__mro__[1:]}
    shorthand = {
        study.NamedBasis,
        study.NamedOptimizer,
        study.NamedWorkload,
        study.Sweep,
        study.FinalSeeds,
        tuning.Criterion,
        tuning.Tuned,
    }
    of_plans = {training.TrainingProtocol}
    conditions = document.models_of(claim.OfQuantity)
    assert parts.union(conditions) - shorthand - of_plans == {
        part for one in MODELS.values() for part in document.models_of(one)
    }


def test_the_reference_of_optimizers_is_what_the_command_prints(capsys: pytest.CaptureFixture[str]):
    assert main(["list", "--markdown"]) == 0
    assert (ROOT / "docs/reference/optimizers.md").read_text() == capsys.readouterr().out


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_rows_of_tables_have_a_cell_in_every_column(page: Path):
    text = re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    for table in re.findall(r"(?:^\|.*\n)+", text, re.MULTILINE):
        # A bar without a backslash ends a cell; the site drops what follows the last column.
        assert len({len(re.findall(r"(?<!\\)\|", row)) for row in table.splitlines()}) == 1, table


def test_the_seconds_of_published_jobs_are_those_of_their_tables(capsys: pytest.CaptureFixture[str]):
    main(["tables", "seconds", str(ROOT / "results/published")])
    assert capsys.readouterr().out in (ROOT / "docs/performance.md").read_text(), "curvebench tables seconds"


def test_the_reference_of_study_files_names_every_schedule():
    schedule = dict(sections("docs/reference/study-files.md"))["schedule"]
    assert set(SHAPES) <= set(re.findall(r"`(\w+)`", schedule[0][1]))


def test_the_reference_of_commands_lists_every_command_and_option(capsys: pytest.CaptureFixture[str]):
    page = (ROOT / "docs" / "reference" / "commands.md").read_text()
    found = re.findall(r"^## curvebench ([a-z -]+)\n(.*?)(?=^## |\Z)", page, re.MULTILINE | re.DOTALL)
    described = dict(found)
    assert list(described) == [command.name for part in COMMANDS.values() for command in part]
    for command, text in described.items():
        with pytest.raises(SystemExit, match="0"):
            main([*command.split(), "--help"])
        shown = capsys.readouterr().out
        options = set(re.findall(r"^  (?:-\w, )?(--[\w-]+)", shown, re.MULTILINE)) - {"--help"}
        assert options == set(re.findall(r"`(--[\w-]+)`", text)), command


def test_the_reference_of_commands_lists_every_configuration_key():
    rows = dict(sections("docs/reference/commands.md"))["snakemake"]
    assert [cells[0].strip("`") for cells in rows] == list(Config.model_fields)


def test_the_studies_of_the_readme_exist():
    listed = set(re.findall(r"^\| `(\w+)` \|", (ROOT / "README.md").read_text(), re.MULTILINE))
    assert listed
    assert listed <= {study.name for study in read_studies(ROOT / "benchmarks" / "studies")}
