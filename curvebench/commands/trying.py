"""`curvebench try`: one new method next to a published field, whose methods are not run again."""

from __future__ import annotations

import shlex
import shutil
import sys
import time
from argparse import Namespace
from pathlib import Path
from typing import TYPE_CHECKING

from curvebench.commands.command import JSON, RESULTS_FOLDER, STUDIES, argument, command, print_json
from curvebench.paths import SNAKEMAKE
from curvebench.spec.errors import InputError

if TYPE_CHECKING:
    from curvebench.planning.config import Config
    from curvebench.planning.newcomer import Newcomer
    from curvebench.planning.plan import Plan
    from curvebench.reports.tables import Tables
    from curvebench.spec.plan import ReportPlan, StudyPlan

FIELD = "field"  # the study whose published set newcomers join
ROUNDS = 3  # of the field: two that tune, and the final one


def names(text: str) -> tuple[str, ...]:
    """The names of an argument such as `a,b`."""
    return tuple(text.split(","))


@command(
    "try",
    argument(
        "method", help="my.py:Lion, torch:package.Class, optax:package.function, or a rule's name or file"
    ),
    argument("--options", default="{}", metavar="YAML", help="its arguments, such as '{betas: [0.9, 0.95]}'"),
    argument("--label", default="", help="what tables call it"),
    argument("--problems", type=names, default=(), metavar="A,B", help="some of the field's (default: all)"),
    argument("--author", default="", help="who hands the method in"),
    argument("--paper", default="", help="where it is described"),
    argument("--code", default="", help="where its code is"),
    argument("--publish", metavar="NAME", help="write the set that hands it in, results/published/NAME"),
    argument("--minutes", type=float, default=10, help="the most for the runs of a problem (default: 10)"),
    argument("--cores", default="all", help="of Snakemake (default: %(default)s)"),
    argument("--open", action="store_true", help="show the page in a browser"),
    JSON,
    STUDIES,
    RESULTS_FOLDER,
)
def try_method(given: Namespace) -> int:
    """Run one new method next to a published field, and say where it stands.

    It has the protocol of the field: the same problems, seeds, targets and number of learning rates. What is
    done already is not done again, so that an interrupted command goes on.
    """
    from curvebench.reports.sets.reproduce import run_snakemake
    from curvebench.reports.tables import tables_of
    from curvebench.results.outcomes import finished
    from curvebench.spec.plan import read_plan

    newcomer = newcomer_of(given)
    config = checked(given, newcomer)
    settings = [f"{key}={_written(value)}" for key, value in config if key in config.model_fields_set]
    target, name = ("publish", [f"name={given.publish}"]) if given.publish else ("site", [])
    called = [*SNAKEMAKE, "--cores", given.cores, target, "--config", *settings, *name]
    begun = time.time()
    try:
        status = run_snakemake([*called, "--quiet", "all"], output=sys.stderr)
    except KeyboardInterrupt:
        print("interrupted; the same command goes on where it was", file=sys.stderr)
        return 130
    path = config.site / "plan.json"
    if status and not (path.exists() and path.stat().st_mtime >= begun):
        raise InputError(
            "snakemake ended with an error; where none stands above, see it by\n"
            f"  {shlex.join(called)}\nThe same curvebench try goes on."
        )
    plan = read_plan(path)
    (study,) = (one for each in plan.archive for one in each.studies if one.name == newcomer.joins)
    tables = tables_of(study)
    print_standing(given, newcomer, plan, study, tables)
    return status or int(tables.runs.filter(finished(), method=newcomer.name).is_empty())


def newcomer_of(given: Namespace) -> Newcomer:
    """Write the study of the method that is tried.

    Raises:
        InputError: for an argument that cannot be, or where the field is not there.
    """
    from curvebench.planning.newcomer import write_newcomer
    from curvebench.spec.study import Contribution, parsed_yaml

    field = given.studies / f"{FIELD}.yaml"
    if not field.exists():
        raise InputError(f"{field}: there is no such file; name the folder of its study with --studies")
    options = parsed_yaml("--options", given.options)
    if not isinstance(options, dict):
        raise InputError(f"--options: {given.options!r} is no mapping, such as '{{betas: [0.9, 0.95]}}'")
    if given.publish:
        check_new_set(given)
    by = Contribution(author=given.author, paper=given.paper, code=given.code) if given.author else None
    about = {"label": given.label, "options": options, "problems": given.problems, "contributed": by}
    return write_newcomer(given.method, field, given.results, **about)


def checked(given: Namespace, newcomer: Newcomer) -> Config:
    """Return the configuration that runs a newcomer; delete its study where it cannot be run or published.

    Raises:
        InputError: for a method that takes no step, a wrong study, or runs that cannot be published.
    """
    from curvebench.commands.studies import check_methods
    from curvebench.planning.plan import make_plan
    from curvebench.planning.studies.validation import read_study

    config = newcomer.config(given.results).model_copy(update={"minutes": given.minutes / ROUNDS})
    try:
        check_methods([read_study(newcomer.path)])
        planned = make_plan(config)
        if given.publish:
            check_runs(planned, given.results / "runs" / newcomer.name)
    except InputError as error:
        if not config.site.exists():
            shutil.rmtree(newcomer.path.parent)
        raise InputError(in_words_of_the_command(str(error), given.method, newcomer)) from error
    return config


def print_standing(
    given: Namespace, newcomer: Newcomer, plan: ReportPlan, study: StudyPlan, tables: Tables
) -> None:
    """Print where the newcomer stands among the methods of the field, and what failed of its runs.

    Args:
        plan: of its site.
        study, tables: of the field.

    Raises:
        InputError: where no run says anything of it.
    """
    from curvebench.reports.boards.newcomer import as_json, as_text, hopeless, newcomers
    from curvebench.reports.failures import in_words, read_failures
    from curvebench.reports.pages.site import study_file
    from curvebench.results.archive import HERE

    for failure in read_failures(plan):
        print(f"failed: {in_words(failure)}", file=sys.stderr)
    found = next((one for one in newcomers(study, tables) if one.place == HERE), None)
    without_hope = hopeless(tables.runs, given.method, newcomer.name)
    if found is None:
        raise InputError(without_hope or "no final run says anything of the method; what failed stands above")
    page = (newcomer.config(given.results).site / study_file(study.name)).resolve()
    if given.json:
        print_json({**as_json(found), "page": str(page)})
    else:
        print(f"{as_text(found)}\n\nPage: {page}")
    if without_hope:
        print(without_hope, file=sys.stderr)
    if given.open:
        import webbrowser

        webbrowser.open(page.as_uri())


def in_words_of_the_command(text: str, method: str, newcomer: Newcomer) -> str:
    """An error that names the method and its options as the user does, not the study written for it."""
    from curvebench.interop.foreign import REFUSES
    from curvebench.planning.newcomer import located

    text = text.replace(f"{newcomer.path}: optimizers.{newcomer.name}: ", "")
    text = text.replace(f"optimizers.{located(method)}: ", "").replace("`label:`", "--label")
    remedy = "; give it arguments with --options '{NAME: VALUE}'" if REFUSES in text else ""
    return text.replace(f"{newcomer.path}: ", f"{method}: ") + remedy


def check_new_set(given: Namespace) -> None:
    """Check that a set may be written of what is about to be run.

    Raises:
        InputError: for a name that will not do, some of the problems, and code that no commit has.
    """
    from curvebench.interop.files import FILE
    from curvebench.interop.foreign import is_foreign
    from curvebench.paths import NEW_SETS
    from curvebench.results.provenance import check_committed
    from curvebench.spec.sets import check_name

    check_name(given.publish, NEW_SETS)
    if given.problems:
        raise InputError("--publish: a set has all problems; leave --problems out")
    named = FILE.fullmatch(given.method.partition(":")[2] if is_foreign(given.method) else given.method)
    check_committed(Path(named["path"]).resolve() if named else None)


def check_runs(planned: Plan, folder: Path) -> None:
    """Check that those runs of a newcomer that are there already can be published.

    Args:
        folder: of its runs.

    Raises:
        InputError: where some are of code that was not committed.
    """
    from curvebench.results.reading import read

    paths = [job.folder / "jobs.parquet" for job in planned.jobs]
    jobs = read([path for path in paths if path.exists()], "jobs")
    if unknown := jobs["dirty"].fill_null(value=True).sum():
        raise InputError(
            f"--publish: {unknown} of its jobs ran before their code was committed; delete {folder}, and try "
            "again"
        )


def _written(value: object) -> str:
    return ",".join(value) if isinstance(value, tuple) else str(value)
