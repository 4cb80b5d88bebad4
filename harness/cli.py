"""The command line of the harness: list, check, plan, estimate, run, parity, checks, compare and show."""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.errors import InputError
from harness.paths import RESULTS, STUDY_FOLDER
from optimizers.options import Option

if TYPE_CHECKING:
    from harness.plan import Plan
    from harness.studies import Study

BARS = " .:-=+*#%@"  # from the lowest to the highest value of a curve
CURVE_WIDTH = 60

EXAMPLES = """examples:
  python -m harness list                      what there is: workloads, optimizers, bases, studies, ...
  python -m harness list --json               the same for programs
  python -m harness check                     is every study valid? computes nothing
  python -m harness check convex              is this one?
  python -m harness plan scale=paper          what would be run? computes and writes nothing
  python -m harness estimate --scale paper    how long will it take? measures for minutes, writes nothing
  python -m harness run results/specs/S.json  compute one job, as Snakemake does
  python -m harness parity adam               does it take the same steps on torch, jax and numpy?
  python -m harness checks notes.regret       does this claim hold on random instances?
  python -m harness compare digits_mlp adam "adam @ egop" --backend jax     which step is faster?
  python -m harness show 3f9a6c1e5b7d-0004    one run: its settings, metrics and curve

The main job is `snakemake --cores all reports`; `snakemake -n reports` shows what it would do.
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit status: 0, or 2 for bad input, said in a line for each problem."""
    given = _parser().parse_args(arguments)
    try:
        given.command(given)
        sys.stdout.flush()
    except BrokenPipeError:  # the reader of a pipe, such as head, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except Exception as error:
        if not isinstance(error, _input_errors()):
            raise
        for line in _message(error).splitlines():
            print(f"error: {line}", file=sys.stderr)
        return 2
    return 0


def _input_errors() -> tuple[type[Exception], ...]:
    """The errors by which bad input is reported; OSError is a read-only or full folder, a lost file."""
    from results.errors import TableError
    from workloads import DataMissing
    from workloads.data import DataDamaged

    return InputError, OSError, TableError, DataMissing, DataDamaged


def _message(error: Exception) -> str:
    if isinstance(error, OSError):
        return f"{error.filename or 'a file'}: {error.strerror}; make room there, or give another --results"
    return str(error)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m harness",
        description="Benchmark optimizers: see what there is, check studies, run a job, look at a run.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    listing = _command(
        commands, "list", _list, "list workloads, optimizers, bases, backends, studies, claims"
    )
    listing.add_argument("--json", action="store_true", help="print JSON for programs")
    listing.add_argument("--markdown", action="store_true", help="print the page of all optimizers")
    _add_studies(listing)

    checking = _command(commands, "check", _check, "validate studies without computing")
    _add_names(checking)
    _add_studies(checking)

    planning = _command(commands, "plan", _tell_plan, "tell what would be run, computing and writing nothing")
    planning.add_argument(
        "config", nargs="*", metavar="KEY=VALUE", help="what follows --config of snakemake (default: none)"
    )
    planning.add_argument("--json", action="store_true", help="print JSON for programs")

    estimating = _command(
        commands, "estimate", _estimate, "estimate what studies cost, from short measurements"
    )
    _add_names(estimating)
    estimating.add_argument("--scale", default="quick", metavar="NAME", help="default: %(default)s")
    estimating.add_argument(
        "--backend", action="append", default=[], metavar="NAME", help="one of them (default: all)"
    )
    estimating.add_argument("--json", action="store_true", help="print JSON for programs")
    _add_studies(estimating)

    running = _command(commands, "run", _run, "compute one job from its spec file")
    running.add_argument(
        "spec", type=Path, metavar="SPEC", help="a file of results/specs, written by snakemake"
    )
    _add_results(running)
    running.add_argument(
        "--threads", type=_positive, default=1, help="processor threads (default: %(default)s)"
    )

    comparing = _command(commands, "parity", _parity, "compare the backends step by step, in float64")
    comparing.add_argument("optimizers", nargs="*", metavar="OPTIMIZER", help="names (default: all)")
    comparing.add_argument("--json", action="store_true", help="print JSON for programs")

    claims = _command(
        commands, "checks", _checks, "check claims on random instances, and print their verdicts"
    )
    claims.add_argument("claims", nargs="*", metavar="CLAIM", help="ids of property claims (default: all)")
    claims.add_argument("--scale", default="quick", metavar="NAME", help="default: %(default)s")
    claims.add_argument("--json", action="store_true", help="print JSON for programs")

    timing = _command(commands, "compare", _compare, "time two methods of a study in turn, as a ratio")
    timing.add_argument("study", metavar="STUDY", help="a study file's stem")
    timing.add_argument("first", metavar="FIRST", help="a method, such as adam")
    timing.add_argument("second", metavar="SECOND", help="another, such as 'adam @ egop'")
    timing.add_argument("--backend", required=True, metavar="NAME", help="jax or torch")
    timing.add_argument("--scale", default="quick", metavar="NAME", help="default: %(default)s")
    timing.add_argument("--workload", metavar="NAME", help="one of the study's (default: all)")
    timing.add_argument(
        "--rate",
        type=float,
        metavar="NUMBER",
        help="the learning rate of both methods (default: the first that the study tries)",
    )
    timing.add_argument(
        "--repetitions", type=_positive, default=21, help="stretches of each method (default: %(default)s)"
    )
    timing.add_argument("--json", action="store_true", help="print JSON for programs")
    _add_studies(timing)

    showing = _command(commands, "show", _show, "show one run: settings, metrics and curve")
    showing.add_argument("run", metavar="RUN", help="the run's name, or a beginning that no other run has")
    _add_folder(showing, "--results", RESULTS, "results folder, or a published set")
    return parser


Commands = Any  # argparse keeps the type of its subparsers private


def _command(
    commands: Commands, name: str, function: Callable[[argparse.Namespace], None], text: str
) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = commands.add_parser(
        name, help=text, description=f"{text.capitalize()}."
    )
    parser.set_defaults(command=function)
    return parser


def _add_names(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "names", nargs="*", metavar="STUDY", help="file stems or claim ids (default: all studies)"
    )


def _add_studies(parser: argparse.ArgumentParser) -> None:
    _add_folder(parser, "--studies", STUDY_FOLDER, "study files")


def _add_results(parser: argparse.ArgumentParser) -> None:
    _add_folder(parser, "--results", RESULTS, "results folder")


def _add_folder(parser: argparse.ArgumentParser, option: str, default: Path, text: str) -> None:
    parser.add_argument(
        option, type=Path, default=default, metavar="FOLDER", help=f"{text} (default: {default})"
    )


def _positive(text: str) -> int:
    try:
        value = int(text)
    except ValueError:
        value = 0
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number above 0")
    return value


# --- parity --------------------------------------------------------------------------------------


def _parity(given: argparse.Namespace) -> None:
    from dataclasses import asdict

    from harness.contestants import RULES
    from harness.parity import parities
    from harness.parity_problems import CORE, PROBLEMS, TOLERANCE
    from optimizers.names import unknown
    from results.schema import COMPARISONS

    rules = RULES.own()
    for name in given.optimizers:
        if name not in rules:
            raise InputError(unknown("the suite", "optimizer", name, rules))
    if not given.json:
        heads = [comparison.replace("against float64 ", "") for comparison in COMPARISONS]
        print(_parity_line("optimizer", "problem", heads))
    rows = []
    names, problems = (given.optimizers, PROBLEMS) if given.optimizers else (list(rules), CORE)
    for row in parities(names, problems):
        rows.append(row)
        if not given.json and row.comparison == COMPARISONS[-1]:
            values = [_parity_value(asdict(one) | {"holds": one.holds}) for one in rows[-len(COMPARISONS) :]]
            print(_parity_line(row.optimizer, row.problem, values), flush=True)
    if given.json:
        print(json.dumps([{**asdict(row), "holds": row.holds} for row in rows], indent=1))
    failed = [row for row in rows if not row.holds]
    if failed:
        judged = sum(row.judged for row in rows)
        raise InputError(f"{len(failed)} of {judged} comparisons differ by more than {TOLERANCE:g}")


def _parity_line(optimizer: str, problem: str, values: Sequence[str]) -> str:
    return f"{optimizer:26} {problem:26}{''.join(f'{value:25}' for value in values)}".rstrip()


def _parity_value(row: Mapping[str, Any]) -> str:
    if row["unit"] == "ulps":
        return f"{row['first_step']:.2g} to {row['difference']:.2g} ulps"
    verdict = ("equal" if row["holds"] else "DIFFERENT") if row["judged"] else "as measured"
    return f"{row['difference']:.1e} {verdict}"


# --- checks --------------------------------------------------------------------------------------


def _checks(given: argparse.Namespace) -> None:
    from harness.check_jobs import check, lines, summary, with_data
    from harness.checks import DEFAULT_SCALE, claims_by_id
    from optimizers.names import unknown

    known = {name: claim for name, (_, claim) in claims_by_id().items()}
    for name in given.claims:
        if name not in known:
            raise InputError(unknown("benchmarks/claims", "property claim", name, known))
    claims = [known[name] for name in dict.fromkeys(given.claims)] or list(known.values())
    named = [scale for claim in known.values() for part in claim.checks for scale in part.instances]
    scales = sorted({"quick", DEFAULT_SCALE, *named})
    if given.scale not in scales:
        raise InputError(f"--scale: {unknown('benchmarks/claims', 'scale', given.scale, scales)}")
    claims, skipped = with_data(claims)
    reasons = [f"{name} cannot be checked: {reason}" for name, reason in skipped.items()]
    if given.claims and reasons:
        raise InputError("\n".join(reasons))
    for reason in reasons:
        print(reason, file=sys.stderr)
    found = check(claims, given.scale, "property checks")
    said = [summary(claim, given.scale, found) for claim in claims]
    print(json.dumps(said, indent=1) if given.json else "\n".join(lines(said)))
    found.raise_errors()


# --- compare -------------------------------------------------------------------------------------


def _compare(given: argparse.Namespace) -> None:
    from dataclasses import asdict

    from harness.comparing import Request, compare, lines

    request = Request(
        study=given.study,
        methods=(given.first, given.second),
        backend=given.backend,
        scale=given.scale,
        workload=given.workload,
        learning_rate=given.rate,
        repetitions=given.repetitions,
        studies=given.studies,
    )
    found = []
    for comparison in compare(request):
        found.append(comparison)
        if not given.json:
            print("\n".join(lines(comparison)), flush=True)
    if given.json:
        print(json.dumps([asdict(comparison) for comparison in found], indent=1))


# --- list ----------------------------------------------------------------------------------------


def _list(given: argparse.Namespace) -> None:
    content = catalogue(given.studies)
    if given.markdown:
        from harness.reference import page

        print(page(content["optimizers"]), end="")
        return
    print(json.dumps(content, indent=1) if given.json else _catalogue_text(content))


def catalogue(study_folder: Path) -> dict[str, Any]:
    """All that studies can name, and the studies, in plain JSON types.

    Raises:
        InputError: for bad studies.
    """
    from harness.backends import BACKENDS
    from harness.checks import claims_by_id, file_of
    from harness.contestants import RULES, WORKLOADS, known
    from harness.studies import read_studies
    from optimizers.bases import bases

    rules, problems = known(RULES), known(WORKLOADS)  # first: a broken module is told once, not by study
    studies = read_studies(study_folder)
    return {
        "workloads": {
            name: {
                "description": workload.description,
                "source": workload.source,
                "settings": {
                    key: {"default": setting.default, "description": setting.description}
                    for key, setting in workload.settings.items()
                },
                "metrics": {key: metric.direction for key, metric in workload.metrics.items()},
                "missing": workload.missing(workload.complete({})),
            }
            for name, workload in problems.items()
        },
        "optimizers": {
            name: {
                "source": rule.source,
                "hyperparameters": {
                    key: {"default": one.default, "interval": one.interval, "description": one.description}
                    for key, one in rule.hyperparameters.items()
                },
                "options": _options(rule.options),
            }
            for name, rule in rules.items()
        },
        "bases": {
            name: {
                "description": basis.description,
                "source": basis.source,
                "options": _options(basis.options),
            }
            for name, basis in bases().items()
        },
        "backends": list(BACKENDS),
        "studies": {
            study.name: {"question": study.question, "source": study.source, "scales": list(study.scales)}
            for study in studies
        },
        "scales": sorted({scale for study in studies for scale in study.scales}),
        "claims": {
            claim.id: {"sentence": claim.sentence, "source": claim.source, "study": study.name}
            for study in studies
            for claim in study.claims
        }
        | {
            name: {"sentence": claim.sentence, "source": claim.source, "checked in": file_of(module)}
            for name, (module, claim) in claims_by_id().items()
        },
    }


def _options(options: Mapping[str, Option]) -> dict[str, Any]:
    return {
        key: {"default": option.default, "description": option.description} for key, option in options.items()
    }


def _catalogue_text(content: Mapping[str, Any]) -> str:
    lines: list[str] = []
    for part, items in content.items():
        lines += ["", part.upper()]
        if isinstance(items, list):
            lines.append(f"  {', '.join(items)}")
            continue
        for name, item in items.items():
            said = [item[key] for key in ("description", "question", "sentence") if key in item]
            lines.append(f"  {name}: {' '.join([*said, '(' + item['source'] + ')'])}")
            lines += [f"    {line}" for line in _details(item)]
    return "\n".join(lines[1:])


def _details(item: Mapping[str, Any]) -> list[str]:
    lines = [
        f"{name} = {json.dumps(one['default'])}: {one['description']}"
        for group in ("settings", "options")
        for name, one in item.get(group, {}).items()
    ]
    for name, one in item.get("hyperparameters", {}).items():
        default = "must be given" if one["default"] is None else f"{one['default']:g}"
        lines.append(f"{name} = {default}, in {one['interval']}: {one['description']}")
    lines += [f"{group}: {', '.join(item[group])}" for group in ("metrics", "scales") if group in item]
    lines += [f"{key}: {item[key]}" for key in ("study", "checked in", "missing") if item.get(key)]
    return lines


# --- check ---------------------------------------------------------------------------------------


def _check_rules() -> None:
    """Take one step of every optimizer on NumPy, so that a slip in a rule shows before compute is spent.

    Raises:
        InputError: for optimizers that take no step, and modules of rules or workloads that are broken.
    """
    import numpy as np

    from harness.contestants import RULES, WORKLOADS, known, origin
    from harness.replaying import replay

    WORKLOADS.own()

    problems = []
    ones = {"w": np.ones((2, 3))}
    for name, rule in known(RULES).items():
        hessians = [np.eye(6)] if rule.needs_hessian else None
        try:
            replay(name, ones, [ones], {"learning_rate": 0.5}, "numpy", hessians=hessians)
        except Exception as error:  # whatever a rule of the user's raises
            defined = origin(RULES, name)
            files = [
                *(f"{module.replace('.', '/')}.py" for module in defined.modules),
                *defined.files.values(),
            ]
            problems.append(f"{files[0]}: {name}: a step fails ({type(error).__name__}: {error})")
    if problems:
        raise InputError("\n".join(problems))


def _check(given: argparse.Namespace) -> None:
    _check_rules()
    from harness.cautions import cautions
    from harness.studies import read_studies

    read = read_studies(given.studies, given.names)
    asked = [study for study in read if not given.names or _is_asked(study, given.names)]
    scales = dict.fromkeys(scale for study in asked or read for scale in study.scales)
    plans = [(scale, _plan(given, scale)) for scale in scales]
    valid = "1 study is valid" if len(asked) == 1 else f"{len(asked)} studies are valid"
    if asked:
        print(f"{valid}: {', '.join(study.name for study in asked)}")
    for scale, plan in plans:
        print(plan.summary())
        print("".join(f"  note: {said}\n" for said in cautions(asked, scale)), end="")


def _is_asked(study: Study, names: Sequence[str]) -> bool:
    return study.name in names or any(claim.id in names for claim in study.claims)


OPTIONS = {"--config studies": "STUDY", "--config scale": "--scale", "--config backends": "--backend"}


def _plan(given: argparse.Namespace, scale: str, backends: Sequence[str] = ()) -> Plan:
    """The plan of what a command is asked for, whose errors name the command's options."""
    from harness.plan import make_plan, read_config

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


# --- plan ----------------------------------------------------------------------------------------


def _tell_plan(given: argparse.Namespace) -> None:
    from harness.plan import make_plan, read_config

    wrong = [text for text in given.config if "=" not in text]
    if wrong:
        raise InputError(f"{wrong[0]!r} is not KEY=VALUE, such as scale=paper")
    pairs = (text.partition("=") for text in given.config)
    plan = make_plan(read_config({key: value for key, _, value in pairs}))
    print(json.dumps({**plan.report, "jobs": len(plan.jobs)}, indent=1) if given.json else plan.summary())


# --- estimate ------------------------------------------------------------------------------------


def _estimate(given: argparse.Namespace) -> None:
    _announce_threads(1)
    from harness.clocks import limit_threads
    from harness.estimating import check_asked, described, estimates, head, line, tail

    plan = _plan(given, given.scale, given.backend)
    check_asked(plan)
    limit_threads(1)
    found = []
    if not given.json:
        print(head(plan))
    for study in estimates(plan):
        found.append(study)
        if not given.json:
            print(line(study.name, [study]), flush=True)
    print(json.dumps(described(plan, found), indent=1) if given.json else "\n".join(tail(plan, found)))


# --- run -----------------------------------------------------------------------------------------


def _announce_threads(threads: int) -> None:
    """Say how many threads libraries may use, in what they read when they are loaded."""
    for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ[variable] = str(threads)


def _run(given: argparse.Namespace) -> None:
    _announce_threads(given.threads)
    from harness.jobs import Interrupted, run_job

    try:
        print(run_job(given.spec, given.results, given.threads))
    except Interrupted as error:
        print(f"error: {given.spec}: {error}", file=sys.stderr)
        sys.exit(128 + signal.SIGTERM)


# --- show ----------------------------------------------------------------------------------------


def _show(given: argparse.Namespace) -> None:
    from results.reading import find_run

    row, curves = find_run(given.results, given.run)
    curve_of: dict[str, list[float]] = {}
    for metric, value in curves.select("metric", "value").iter_rows():
        curve_of.setdefault(metric, []).append(value)
    print("\n".join([*_run_lines(row), "", "CURVES", *_curve_lines(curve_of)]))


NESTED = ("hyperparameters", "final_metrics", "best_metrics", "targets")


def _run_lines(row: Mapping[str, Any]) -> list[str]:
    plain = {key: value for key, value in row.items() if key not in NESTED and value is not None}
    plain |= {item["name"]: item["value"] for item in row["hyperparameters"] or []}
    width = max(map(len, plain))
    lines = [f"{key:<{width}}  {value}" for key, value in plain.items()]
    best = {item["name"]: item for item in row["best_metrics"] or []}
    lines += ["", "METRICS"]
    for item in row["final_metrics"] or []:
        at_best = best.get(item["name"])
        also = f", best {at_best['value']:.6g} at step {at_best['step']}" if at_best else ""
        lines.append(f"{item['name']}: final {item['value']:.6g}{also}")
    for target in row["targets"] or []:
        reached = "not reached" if target["steps"] is None else f"reached after {target['steps']} steps"
        lines.append(f"target {target['metric']} {target['threshold']:g}: {reached}")
    return lines


def _curve_lines(curves: Mapping[str, Sequence[float]]) -> list[str]:
    width = max(map(len, curves), default=0)
    return [
        f"{metric:<{width}}  {bars(values)}  {values[0]:.4g} to {values[-1]:.4g}"
        for metric, values in curves.items()
    ]


def bars(values: Sequence[float], width: int = CURVE_WIDTH) -> str:
    """A curve as one line of text: a character for each of `width` checkpoints, `!` where not finite.

    The scale is logarithmic where all finite values are positive.
    """
    import numpy as np

    array = np.asarray(values, np.float64)
    if len(array) > width:
        array = array[np.linspace(0, len(array) - 1, width).round().astype(int)]
    finite = np.isfinite(array)
    if not finite.any():
        return "!" * len(array)
    if (array[finite] > 0).all():
        array = np.log(array, out=np.full_like(array, np.nan), where=finite)
    low, high = array[finite].min(), array[finite].max()
    levels = (array - low) / (high - low) * (len(BARS) - 1) if high > low else np.zeros_like(array)
    return "".join(BARS[round(level)] if ok else "!" for level, ok in zip(levels, finite, strict=True))
