"""`curvebench check`, `plan`, `estimate`: validate studies, predict jobs and time."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from curvebench.commands.command import (
    JSON,
    SCALE,
    STUDIES,
    STUDY_NAMES,
    argument,
    command,
    print_json,
    print_left_out,
)
from curvebench.spec.definitions import path_of
from curvebench.spec.errors import InputError, Problems, by_reason
from curvebench.timing.clocks import limit_threads

if TYPE_CHECKING:
    from curvebench.planning.plan import Plan
    from curvebench.planning.studies.study import Study

# Arguments of the commands in this module that have the same meaning as keys of Snakemake's configuration.
# A message about such a key then names the argument instead of the key.
ARGUMENTS = {"--config studies": "STUDY", "--config scale": "--scale", "--config backends": "--backend"}


@command("check", STUDY_NAMES, STUDIES)
def check(args: Namespace) -> None:
    """Validate study files without running them, and print their plans.

    To find errors before a run, it takes two steps of every optimizer of this project, takes three steps of
    each method on each problem if the method or the problem is from a file, a package or another library, and
    evaluates each workload once, on a few examples. It names arguments of methods that change nothing in a
    few steps. It compares training loss and gradient norm at the start of each workload's default problem
    with the values that the workload states. It names better settings in published sets that a search does
    not contain.
    """
    from curvebench.paths import PUBLISHED
    from curvebench.planning.studies.cautions import better_known
    from curvebench.planning.studies.reading import read_studies
    from curvebench.registry import RULES, WORKLOADS, known
    from curvebench.results.archive import read_archive

    # Load all workloads first, so that a broken module is reported before the studies that use it.
    WORKLOADS.own()
    broken: dict[str, str] = {}
    problems = Problems()
    _check_rules(known(RULES, broken), problems)
    problems.check()
    print_left_out(broken)
    all_studies = read_studies(args.studies, args.names, {} if args.names else None)
    studies = [
        study
        for study in all_studies
        if not args.names or {study.name, *(claim.id for claim in study.claims)} & {*args.names}
    ]
    notes = _check_workloads(studies)
    published = read_archive(PUBLISHED)
    notes += [*check_methods(studies), *better_known(studies, published)]
    scales = dict.fromkeys(scale for study in studies or all_studies for scale in study.scales)
    plans = [(scale, _plan_of(args, scale)) for scale in scales]
    valid = "1 study is valid" if len(studies) == 1 else f"{len(studies)} studies are valid"
    if studies:
        print(f"{valid}: {', '.join(study.name for study in studies)}")
    print("".join(f"  note: {note}\n" for note in notes), end="")
    for scale, plan in plans:
        _print_plan(plan, studies, scale)


def check_methods(studies: Sequence[Study]) -> list[str]:
    """Take a few steps of all methods of some studies, so that mistakes are reported before a run.

    Update rules that are defined in files are checked on NumPy. Then all methods are tried on the problems of
    their study (`curvebench.planning.trials`).

    Returns:
        Cautions: sentences on choices that are valid but likely to disappoint.

    Raises:
        InputError: with one line for each mistake of a method or of a workload.
    """
    from curvebench.planning.studies.cautions import acting
    from curvebench.planning.trials import Trials

    problems, cautions, trials = Problems(), Problems(), Trials()
    refused = _check_rules(_rules_of_files(studies), problems)
    for study in studies:
        for optimizer in study.optimizers:
            if optimizer.locator in refused:
                continue
            findings = trials.findings(study, optimizer)
            for error in findings.workload_errors:
                problems.add(f"{study.path}: {error}")
            for kind, messages in ((problems, findings.errors), (cautions, findings.cautions)):
                for message, names in messages.items():
                    where = f" (on {', '.join(names)})" if len(names) < len(findings.tried) else ""
                    kind.add(f"{study.path}: optimizers.{optimizer.label}: {message}{where}")
    problems.check()
    return [*cautions.lines, *acting(studies)]


def _check_rules(rules: Mapping[str, Any], problems: Problems) -> set[str]:
    """Take a few steps of update rules on NumPy, so that errors in the rules are reported before a run.

    A rule is refused if a step fails, or if the rule makes a run depend on another run that is computed
    together with the run.

    Args:
        rules: the rules, by the names under which the registry finds the rules.
        problems: collection to which a line is added for each refused rule.

    Returns:
        The names of the refused rules.
    """
    from curvebench.engine.lanes import check_lanes
    from curvebench.registry import RULES, origin

    refused = set()
    for name, rule in rules.items():
        try:
            check_lanes(rule)
        except Exception as error:  # The code of a user's rule may raise any exception.
            defined = origin(RULES, name)
            files = [*map(path_of, defined.modules), *map(str, defined.files.values())]
            failed = f"a step fails ({type(error).__name__}: {error})"
            problems.add(f"{files[0]}: {rule.name}: {error if isinstance(error, InputError) else failed}")
            refused.add(name)
    return refused


def _check_workloads(studies: Sequence[Study]) -> list[str]:
    """Evaluate the loss and the metrics of each workload once on NumPy, and compare its start.

    If studies use a workload with several settings, the settings with the fewest parameters are used. A
    workload is left out if its data is missing on this machine, or if it has very many parameters.

    Returns:
        A sentence for each workload whose start is not compared, because its data are missing.

    Raises:
        InputError: with one line for each workload whose loss or metrics fail, or whose start is different.
    """
    from curvebench.engine.first_evaluation import check_evaluation, check_start
    from curvebench.planning.trials import MAX_EVALUATED_PARAMETERS, size_of
    from curvebench.registry import find_workload

    scales = [(study, scale) for study in studies for scale in study.scales]
    uses = [(study, scale, spec) for study, scale in scales for spec in study.workloads[scale]]
    with_data = [use for use in uses if find_workload(use[2].locator).missing(use[2].settings) is None]
    evaluated, problems = set[str](), Problems()
    for study, scale, spec in sorted(with_data, key=lambda use: size_of(use[2])):
        if spec.locator in evaluated or size_of(spec) > MAX_EVALUATED_PARAMETERS:
            continue
        evaluated.add(spec.locator)
        workload = find_workload(spec.locator).evaluated_on(study.scales[scale].evaluated_splits)
        # A workload with a backend is a user's model, whose functions were tried when the study was read.
        if workload.backend is not None:
            continue
        with problems.caught(f"{study.path}: workload {spec.locator}: "):
            check_evaluation(workload.at(spec.settings), spec.settings)
    notes = []
    for workload in map(find_workload, dict.fromkeys(spec.locator for _, _, spec in uses)):
        missing = workload.start and workload.missing(workload.complete({}))
        if missing:
            notes.append(f"workload {workload.name}: its start is not compared; {missing}")
            continue
        with problems.caught(f"workload {workload.name}: "):
            check_start(workload)
    problems.check()
    return notes


def _rules_of_files(studies: Iterable[Study]) -> dict[str, Any]:
    """Return, for each locator of a user's file in a study, the update rule that the file defines.

    The registry does not list these rules.
    """
    from curvebench.interop.files import FILE
    from curvebench.registry import find_rule

    optimizers = (optimizer for study in studies for optimizer in study.optimizers)
    locators = {optimizer.locator for optimizer in optimizers if optimizer.only_backend is None}
    return {locator: find_rule(locator) for locator in sorted(filter(FILE.fullmatch, locators))}


def _print_plan(plan: Plan, studies: Iterable[Study], scale: str) -> None:
    """Print a plan, and below the plan a warning about each choice that is valid but likely to disappoint.

    Args:
        plan: the plan.
        studies: the studies whose choices are examined.
        scale: name of the scale.
    """
    from curvebench.planning.studies.cautions import cautions

    print(plan.summary())
    print("".join(f"  note: {caution}\n" for caution in cautions(studies, scale)), end="")


def _plan_of(args: Namespace, scale: str, backends: Sequence[str] = ()) -> Plan:
    """Return the plan of the studies that a command names.

    Args:
        args: arguments of the command.
        scale: name of the scale, a size of the studies.
        backends: names of the backends; empty for all backends that the studies use.

    Raises:
        InputError: when the studies cannot be planned; the message names arguments of the command
            (`ARGUMENTS`).
    """
    from curvebench.planning.config import read_config
    from curvebench.planning.plan import make_plan

    raw = {"scale": scale, "study_folder": str(args.studies), "studies": args.names}
    try:
        return make_plan(read_config({**raw, "backends": list(backends)}))
    except InputError as error:
        text = str(error)
        for key, name in ARGUMENTS.items():
            text = text.replace(f"{key}:", f"{name}:")
        raise InputError(text) from error


@command("plan", argument("config", nargs="*", metavar="KEY=VALUE"))
def plan(args: Namespace) -> None:
    """Print what Snakemake would run, without computing or writing anything.

    It prints studies, backends, numbers of jobs and runs, and what is skipped and why. Results that exist
    already are ignored.

    Args:
        config: configuration, such as scale=paper or studies=convex, as after --config of snakemake (default:
            the tour)
    """
    from curvebench.planning.config import read_config
    from curvebench.planning.plan import make_plan, with_data

    wrong = [text for text in args.config if "=" not in text]
    if wrong:
        raise InputError(
            f"{wrong[0]!r} is not KEY=VALUE, such as scale=paper; a study or a claim is studies={wrong[0]}"
        )
    pairs = (text.partition("=") for text in args.config)
    planned = make_plan(with_data(read_config({key: value for key, _, value in pairs})))
    _print_plan(planned, [study.study for study in planned.studies], planned.config.scale)


@command(
    "estimate",
    STUDY_NAMES,
    SCALE,
    argument("--backend", action="append", default=[], metavar="NAME"),
    JSON,
    STUDIES,
)
def estimate(args: Namespace) -> None:
    """Estimate jobs, runs and CPU time of studies from short measurements.

    Each method takes 20 steps on each problem, and each basis is estimated once; the times are multiplied by
    the planned numbers of steps and runs. Studies on a GPU are left out.

    Args:
        --backend: backend to estimate, jax or torch; may be repeated (default: all that a study uses)
    """
    limit_threads(1)
    from curvebench.stages.estimating import CAVEATS, HEAD, Cost, described, estimates, line, studies_on_cpu

    studies, skipped = studies_on_cpu(_plan_of(args, args.scale, args.backend))
    if args.json:
        print_json(described(args.scale, list(estimates(studies)), skipped))
        return
    costs: list[Cost] = []
    for planned, cost in estimates(studies):
        # Print the head of the table after the measurements of the first study.
        # Otherwise the progress bar of these measurements would be between the head and the first line.
        if not costs:
            print(HEAD)
        costs.append(cost)
        print(line(planned.study.name, cost), flush=True)
    print(line("total", sum(costs, Cost())), "", *CAVEATS, sep="\n")
    print("".join(f"skipped {names}: {reason}\n" for names, reason in by_reason(skipped)), end="")
