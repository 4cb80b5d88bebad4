"""`curvebench try`: run one new method, and compare the method with the published field.

The field is a study with a published set, which contains the results of several methods. The runs of the
field are not repeated. The new method runs as a submission: a study with one method, under the protocol of
the field.
"""

from __future__ import annotations

import shlex
import shutil
import sys
import tempfile
import time
from argparse import Namespace
from pathlib import Path
from typing import TYPE_CHECKING

from curvebench.commands.command import CORES, JSON, OPEN, RESULTS_FOLDER, STUDIES, argument, command, present
from curvebench.paths import NEW_SETS, PUBLISHED, SNAKEMAKE
from curvebench.spec.errors import InputError
from curvebench.spec.sets import check_name

if TYPE_CHECKING:
    from curvebench.planning.config import Config
    from curvebench.planning.plan import Plan
    from curvebench.planning.submission import Submission
    from curvebench.spec.plan import ReportPlan, StudyPlan

ROUNDS = 3  # Number of rounds of a runs job of the field's study: two tuning rounds and the final round


def names(text: str) -> tuple[str, ...]:
    """Split an argument such as `a,b` into names."""
    return tuple(text.split(","))


@command(
    "try",
    argument("method", metavar="METHOD"),
    argument("--options", default="{}", metavar="YAML"),
    argument("--label", default="", metavar="NAME"),
    argument("--field", default="field", metavar="STUDY"),
    argument("--problems", type=names, default=(), metavar="A,B"),
    argument("--author", default="", metavar="TEXT"),
    argument("--paper", default="", metavar="TEXT"),
    argument("--code", default="", metavar="TEXT"),
    argument("--publish", metavar="NAME"),
    argument("--minutes", type=float, default=10, metavar="NUMBER"),
    CORES,
    OPEN,
    JSON,
    STUDIES,
    RESULTS_FOLDER,
)
def try_method(args: Namespace) -> int:
    """Run a new optimizer on the problems of the published field, and rank it.

    The field is a study whose results come with curvebench. The new method gets the same problems, seeds,
    targets and number of learning rates as the methods of the field, which are not run again. An interrupted
    command resumes when it is called again. The status is 1 if every run of every problem failed.

    Args:
        method: my.py:Lion (a class or function in a file), my.py (an update rule), torch:package.Class,
            optax:package.function, or the name of an optimizer that curvebench list prints
        --options: arguments of the method, such as '{betas: [0.9, 0.95]}' (default: none)
        --label: name of the method in tables (default: from METHOD)
        --field: study whose methods the new method is compared with (default: %(default)s)
        --problems: problems of the field to run, separated by commas (default: all)
        --author: author of the submission, shown with a published set
        --paper: paper that describes the method
        --code: address of the code of the method
        --publish: write the results as a set that can be submitted, results/published/NAME (default: no set)
        --minutes: time limit for all runs of a problem, in minutes (default: %(default)s)
    """
    from curvebench.reports.boards.submission import as_json, as_text, hopeless, submissions
    from curvebench.reports.pages.site import study_file
    from curvebench.reports.tables import tables_of
    from curvebench.results.archive import LOCAL, read_archive
    from curvebench.results.outcomes import finished

    submission = submission_of(args)
    config = checked(args, submission)
    target, name = ("publish", [f"name={args.publish}"]) if args.publish else ("site", [])
    status, plan = run_to_plan("curvebench try", config, args.cores, target, *name)
    studies = (study for published in plan.archive for study in published.studies)
    (study,) = (study for study in studies if study.name == submission.joins)
    tables = tables_of(study)
    standing = next((standing for standing in submissions(study, tables) if standing.origin == LOCAL), None)
    reason = hopeless(tables.runs, args.method, submission.name)
    if standing is None:
        raise InputError(reason or "no final run of the method has a result; the failures are listed above")
    page = (config.site / study_file(study.name)).resolve()
    present(as_json(standing), as_text(standing), page, args)
    published = (other for one in read_archive(PUBLISHED) for other in one.studies)
    for other in (other for other in published if other.groups and other.name != study.name):
        cost = f"about {minutes_of_a_method(other):.2g} minutes of processor time"
        print(f"Another protocol: --field {other.name}, {cost}", file=sys.stderr)
    if reason:
        print(reason, file=sys.stderr)
    return status or int(tables.runs.filter(finished(), method=submission.name).is_empty())


def minutes_of_a_method(field: StudyPlan) -> float:
    """Return the processor time that a method of a published study took on average, in minutes."""
    from curvebench.reports.tables import tables_of

    jobs = tables_of(field).jobs
    return float(jobs["total_seconds"].sum()) / 60 / max(len(field.methods), 1)


def submission_of(args: Namespace) -> Submission:
    """Write the study file of the submission that runs the new method, and return the submission.

    Args:
        args: arguments of the command `try`.

    Raises:
        InputError: when an argument is invalid, or the study of the field is missing.
    """
    from curvebench.planning.submission import write_submission
    from curvebench.spec.study import Contribution, parsed_yaml

    check_writable(args.results)
    field = args.studies / f"{args.field}.yaml"
    if not field.exists():
        raise InputError(f"{field}: there is no such file; name the folder of its study with --studies")
    options = parsed_yaml("--options", args.options)
    if not isinstance(options, dict):
        raise InputError(f"--options: {args.options!r} is no mapping, such as '{{betas: [0.9, 0.95]}}'")
    if args.publish:
        check_new_set(args)
    contributed = Contribution(author=args.author, paper=args.paper, code=args.code) if args.author else None
    details = {"label": args.label, "options": options, "problems": args.problems, "contributed": contributed}
    return write_submission(args.method, field, args.results, **details)


def checked(args: Namespace, submission: Submission) -> Config:
    """Check the new method for a few seconds, and return the configuration that runs it.

    If a check fails before the first run, the study file of the method is deleted.

    Args:
        args: arguments of the command.
        submission: the study that runs the new method.

    Raises:
        InputError: when a step of the method fails, when the study file of the method is invalid, or when the
            runs of the method cannot be published.
    """
    from curvebench.commands.studies import check_methods
    from curvebench.planning.plan import make_plan
    from curvebench.planning.studies.validation import read_study

    config = submission.config(args.results).model_copy(update={"minutes": args.minutes / ROUNDS})
    try:
        for note in check_methods([read_study(submission.path)]):
            print(f"note: {in_words_of_the_command(note, args.method, submission)}", file=sys.stderr)
        planned = make_plan(config)
        if args.publish:
            check_runs(planned, args.results / "runs" / submission.name)
    except InputError as error:
        if not config.site.exists():
            shutil.rmtree(submission.path.parent)
        raise InputError(in_words_of_the_command(str(error), args.method, submission)) from error
    return config


def in_words_of_the_command(text: str, method: str, submission: Submission) -> str:
    """Replace keys of the submission's study file in a message by arguments of the command `try`.

    The user gave the method, `--label` and `--options`, and has not seen the study file.

    Args:
        text: the message.
        method: the method, as the user gave it.
        submission: the study that runs the method.
    """
    from curvebench.interop.foreign import REFUSES
    from curvebench.planning.submission import located

    text = text.replace(f"{submission.path}: optimizers.{submission.name}: ", "")
    text = text.replace(f"optimizers.{located(method)}: ", "").replace("`label:`", "--label")
    remedy = "; give it arguments with --options '{NAME: VALUE}'" if REFUSES in text else ""
    return text.replace(f"{submission.path}: ", f"{method}: ") + remedy


def check_new_set(args: Namespace) -> None:
    """Check, before anything is run, that the results may be published as a set.

    Raises:
        InputError: when the name of the set is invalid or taken, when problems are left out, or when the code
            of the method is not committed.
    """
    from curvebench.interop.files import FILE, with_neighbours
    from curvebench.interop.foreign import is_foreign
    from curvebench.results.provenance import check_committed

    check_name(args.publish, NEW_SETS)
    if args.problems:
        raise InputError("--publish: a set has all problems; leave --problems out")
    file = FILE.fullmatch(args.method.partition(":")[2] if is_foreign(args.method) else args.method)
    check_committed(with_neighbours(Path(file["path"]).resolve()) if file else ())


def check_runs(planned: Plan, folder: Path) -> None:
    """Check that the existing runs of the new method, which earlier calls have made, can be published.

    Args:
        planned: the plan of the new method's study.
        folder: the folder with the runs of the study, which the message names.

    Raises:
        InputError: when a run was made by code that was not committed.
    """
    from curvebench.results.reading import read

    paths = [job.folder / "jobs.parquet" for job in planned.jobs]
    jobs = read([path for path in paths if path.exists()], "jobs")
    if unknown := jobs["dirty"].fill_null(value=True).sum():
        raise InputError(
            f"--publish: {unknown} of its jobs ran before their code was committed; delete {folder}, and try "
            "again"
        )


def check_writable(results: Path) -> None:
    """Check, before anything is computed, that the results folder and Snakemake's own folder can be written.

    Raises:
        InputError: with the folder and a remedy, if a folder cannot be written.
    """
    remedies = {
        results: "name another folder with --results",
        # Snakemake cannot write this folder to another place.
        Path(".snakemake"): "Snakemake writes this folder to the working folder, so change to another folder",
    }
    for folder, remedy in remedies.items():
        try:
            folder.mkdir(parents=True, exist_ok=True)
            tempfile.TemporaryFile(dir=folder).close()
        except OSError as error:
            raise InputError(f"{folder.absolute()}: {error.strerror}; {remedy}") from error


def run_to_plan(
    command: str, config: Config, cores: str, target: str = "site", *words: str
) -> tuple[int, ReportPlan]:
    """Run Snakemake, print the failed runs, and read the plan of the site that Snakemake renders.

    Args:
        command: the command that calls this function, for messages.
        config: configuration of the run.
        cores: number of CPU cores to use, or `all`.
        target: target of Snakemake.
        words: further words of the configuration, `key=value`.

    Returns:
        The exit status of Snakemake, which is not 0 if runs have failed, and the plan.

    Raises:
        InputError: if Snakemake ends before it has rendered the site.
        KeyboardInterrupt: if the user interrupts it.
    """
    from curvebench.reports.failures import in_words, read_failures
    from curvebench.reports.sets.reproduce import run_snakemake
    from curvebench.spec.plan import read_plan

    given = config.model_dump(mode="json", exclude_unset=True).items()
    settings = [f"{key}={','.join(value) if isinstance(value, list) else value}" for key, value in given]
    called = [*SNAKEMAKE, "--cores", cores, target, "--config", *settings, *words]
    start = time.time()
    try:
        status = run_snakemake([*called, "--quiet", "all"], output=sys.stderr)
    except KeyboardInterrupt:
        raise KeyboardInterrupt("interrupted; the same command resumes the runs") from None
    path = config.site / "plan.json"
    if status and not (path.exists() and path.stat().st_mtime >= start):
        raise InputError(
            "snakemake ended with an error; if it is not printed above, this command prints it:\n"
            f"  {shlex.join(called)}\nThe same {command} resumes the runs."
        )
    plan = read_plan(path)
    for failure in read_failures(plan):
        print(f"failed: {in_words(failure)}", file=sys.stderr)
    return status, plan
