"""`curvebench check`, `convert`, `plan` and `estimate`: are studies valid, what do they run, for how long."""

from __future__ import annotations

import math
from argparse import Namespace
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from curvebench.commands.command import JSON, SCALE, STUDIES, STUDY_NAMES, argument, command, print_json
from curvebench.spec.definitions import path_of
from curvebench.spec.errors import InputError, Problems, by_reason
from curvebench.spec.sets import SUMS
from curvebench.timing.clocks import limit_threads

if TYPE_CHECKING:
    from curvebench.planning.plan import Plan
    from curvebench.planning.studies.study import Study
    from curvebench.spec.method import OptimizerSpec, WorkloadSpec

LARGEST = 10_000_000  # parameters of a workload that is tried: of more NumPy takes minutes
OPTIONS = {"--config studies": "STUDY", "--config scale": "--scale", "--config backends": "--backend"}


@command("check", STUDY_NAMES, STUDIES)
def check(given: Namespace) -> None:
    """Validate studies without computing."""
    from curvebench.planning.studies.reading import read_studies
    from curvebench.registry import RULES, WORKLOADS, known

    WORKLOADS.own()  # modules that are broken are told first
    _check_rules(known(RULES))
    read = read_studies(given.studies, given.names)
    studies = [
        study
        for study in read
        if not given.names or {study.name, *(claim.id for claim in study.claims)} & {*given.names}
    ]
    check_methods(studies)
    _check_workloads(studies)
    scales = dict.fromkeys(scale for study in studies or read for scale in study.scales)
    plans = [(scale, _plan_of(given, scale)) for scale in scales]
    valid = "1 study is valid" if len(studies) == 1 else f"{len(studies)} studies are valid"
    if studies:
        print(f"{valid}: {', '.join(study.name for study in studies)}")
    for scale, plan in plans:
        _print_plan(plan, studies, scale)


def check_methods(studies: Sequence[Study]) -> None:
    """Take steps of the methods of studies that are of other libraries, or of files.

    Raises:
        InputError: with a line for each that cannot be made, or takes no step.
    """
    _check_foreign(studies)
    _check_rules(_rules_of_files(studies))


def _check_rules(rules: Mapping[str, Any]) -> None:
    """Take steps of rules on NumPy, so that a slip in one shows before compute is spent.

    Args:
        rules: by the names under which they are found.

    Raises:
        InputError: for rules that take no step, or whose lanes are not each a run of its own.
    """
    from curvebench.engine.lanes import check_lanes
    from curvebench.registry import RULES, origin

    problems = Problems()
    for name, rule in rules.items():
        try:
            check_lanes(rule)
        except Exception as error:  # whatever a rule of the user's raises
            defined = origin(RULES, name)
            files = [*map(path_of, defined.modules)]
            files += [str(path) for path in defined.files.values()]
            said = (
                error if isinstance(error, InputError) else f"a step fails ({type(error).__name__}: {error})"
            )
            problems.add(f"{files[0]}: {rule.name}: {said}")
    problems.check()


def _check_foreign(studies: Sequence[Study]) -> None:
    """Take one step of every optimizer of another library, with the parameters of its study's workloads.

    Raises:
        InputError: with a line for each that cannot be made, or takes no step.
    """
    problems = Problems()
    for study in studies:
        for optimizer in study.optimizers:
            if optimizer.only_backend is not None:
                with problems.caught(f"{study.path}: optimizers.{optimizer.label}: "):
                    _try_steps(study, optimizer)
    problems.check()


def _check_workloads(studies: Sequence[Study]) -> None:
    """Evaluate each workload whose data are there once on NumPy, at the smallest settings that a study names.

    Raises:
        InputError: with a line for each that fails.
    """
    from curvebench.engine.first_evaluation import check_evaluation
    from curvebench.registry import find_workload

    named = [
        (study, scale, spec) for study in studies for scale, own in study.workloads.items() for spec in own
    ]
    there = [one for one in named if find_workload(one[2].locator).missing(one[2].settings) is None]
    tried, problems = set[str](), Problems()
    for study, scale, spec in sorted(there, key=lambda one: _size(one[2])):
        if spec.locator in tried or _size(spec) > LARGEST:
            continue
        tried.add(spec.locator)
        workload = find_workload(spec.locator).evaluated_on(study.scales[scale].evaluated_splits)
        with problems.caught(f"{study.path}: workload {spec.locator}: "):
            check_evaluation(workload, spec.settings)
    problems.check()


def _size(spec: WorkloadSpec) -> int:
    """The parameters of a workload."""
    from curvebench.registry import find_workload

    return sum(map(math.prod, find_workload(spec.locator).shapes_at(spec.settings).values()))


def _try_steps(study: Study, optimizer: OptimizerSpec) -> None:
    """One step at the least learning rate of the study, by each of its workloads' shapes."""
    import numpy as np

    from curvebench.interop.trial import try_steps
    from curvebench.registry import find_workload, rule_of

    least = {name: low for name, (low, _) in study.file.tuning.for_optimizer(optimizer).bounds.items()}
    tried = set()  # a rule refuses kinds of layers, not their sizes
    for spec in sorted((spec for specs in study.workloads.values() for spec in specs), key=_size):
        workload = find_workload(spec.locator)
        shapes = workload.shapes_at(spec.settings)
        kinds = {(role.kind, len(shapes[name])) for name, role in workload.roles(spec.settings).items()}
        if (key := (spec.locator, frozenset(kinds))) in tried:
            continue
        tried.add(key)
        parameters = workload.sample_parameters(spec.settings, np.random.default_rng(0))
        values = {**optimizer.hyperparameters, **least}
        rule = rule_of(optimizer, study.file.schedule.name)
        precision = study.file.precision or workload.dtype
        try_steps(optimizer.locator, rule, parameters, workload.roles(spec.settings), values, precision)


def _rules_of_files(studies: Iterable[Study]) -> dict[str, Any]:
    """The rules that studies name by a file, which `known` does not have."""
    from curvebench.interop.files import FILE
    from curvebench.registry import find_rule

    named = [one for study in studies for one in study.optimizers if one.only_backend is None]
    locators = sorted({one.locator for one in named if FILE.fullmatch(one.locator)})
    return {locator: find_rule(locator) for locator in locators}


def _print_plan(plan: Plan, studies: Iterable[Study], scale: str) -> None:
    """What would be run, and below it a note on each thing that is valid and yet would disappoint."""
    from curvebench.planning.studies.cautions import cautions

    print(plan.summary())
    print("".join(f"  note: {said}\n" for said in cautions(studies, scale)), end="")


def _plan_of(given: Namespace, scale: str, backends: Sequence[str] = ()) -> Plan:
    """The plan of the studies that a command names, whose errors name the command's options."""
    from curvebench.planning.config import read_config
    from curvebench.planning.plan import make_plan

    raw: dict[str, Any] = {"scale": scale, "study_folder": str(given.studies)}
    raw |= {"studies": given.names} if given.names else {}
    raw |= {"backends": list(backends)} if backends else {}
    try:
        return make_plan(read_config(raw))
    except InputError as error:
        text = str(error)
        for key, option in OPTIONS.items():
            text = text.replace(f"{key}:", f"{option}:")
        raise InputError(text) from error


@command(
    "convert",
    argument(
        "files", nargs="+", type=Path, metavar="FILE", help="a study, or the plan.json of a published set"
    ),
)
def convert(given: Namespace) -> None:
    """Give keys of studies and published sets their present names.

    Replaces the names that earlier versions had for keys, and changes nothing else. The checksum of a set's
    plan is renewed with it; a plan that does not match its checksum stays refused.
    """
    from curvebench.reports.sets.files import sha256, write_text
    from curvebench.spec.document import converted

    for file in given.files:
        before, text = sha256(file), file.read_text("utf-8", "surrogateescape")
        if (renamed := converted(text)) != text:
            write_text(file, renamed)
            if (sums := file.with_name(SUMS)).exists():
                write_text(sums, sums.read_text().replace(before, sha256(file)))
            print(f"converted: {file}")


@command(
    "plan",
    argument(
        "config", nargs="*", metavar="KEY=VALUE", help="what follows --config of snakemake (default: none)"
    ),
)
def plan(given: Namespace) -> None:
    """Tell what would be run, computing and writing nothing."""
    from curvebench.planning.config import read_config
    from curvebench.planning.plan import make_plan, with_data

    wrong = [text for text in given.config if "=" not in text]
    if wrong:
        raise InputError(
            f"{wrong[0]!r} is not KEY=VALUE, such as scale=paper; a study or a claim is studies={wrong[0]}"
        )
    pairs = (text.partition("=") for text in given.config)
    made = make_plan(with_data(read_config({key: value for key, _, value in pairs})))
    _print_plan(made, [planned.study for planned in made.studies], made.config.scale)


@command(
    "estimate",
    STUDY_NAMES,
    SCALE,
    argument("--backend", action="append", default=[], metavar="NAME", help="one of them (default: all)"),
    JSON,
    STUDIES,
)
def estimate(given: Namespace) -> None:
    """Estimate what studies cost on the CPU, from short measurements."""
    limit_threads(1)
    from curvebench.stages.estimating import HEAD, ROUGH, Cost, described, estimates, line, studies_on_cpu

    studies, skipped = studies_on_cpu(_plan_of(given, given.scale, given.backend))
    if given.json:
        print_json(described(given.scale, list(estimates(studies)), skipped))
        return
    found: list[Cost] = []
    for planned, cost in estimates(studies):
        if not found:  # below what is said of progress
            print(HEAD)
        found.append(cost)
        print(line(planned.study.name, cost), flush=True)
    print(line("total", sum(found, Cost())), "", *ROUGH, sep="\n")
    print("".join(f"skipped {names}: {reason}\n" for names, reason in by_reason(skipped)), end="")
