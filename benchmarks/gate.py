"""`python -m benchmarks.gate BASE HEAD`: is a commit slower than another, or less accurate?

Its noise is part of the answer: `--aa` compares a commit with itself.
"""

from __future__ import annotations

import argparse
import datetime
import platform
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

from benchmarks.gate_statistics import LEVEL, Verdict, decide, least_rounds, rounds_to_add
from benchmarks.gate_studies import StudyRuns, final_runs
from benchmarks.gate_tables import compare_tables
from benchmarks.gate_timing import (
    GateError,
    Sample,
    checkouts,
    common_labels,
    measure,
    write_samples,
)
from benchmarks.kernels.worktrees import UnknownCommit, commit_of
from documents.errors import InputError

ROUNDS, MOST_ROUNDS, BLOCKS = 12, 100, 8
GOOD, WORSE, BAD_INPUT, UNDECIDED = 0, 1, 2, 3


def verdicts(samples: Sequence[Sample], effect: float, level: float) -> dict[str, Verdict]:
    """The verdict on each case."""
    return {sample.label: decide(sample.base, sample.head, effect, level) for sample in samples}


def confirmed(first: Verdict, second: Verdict) -> bool:
    """Whether a second sample says what the first said."""
    return first.outcome == second.outcome


def measure_enough(
    places: Mapping[str, Path], labels: Sequence[str], given: argparse.Namespace
) -> list[Sample]:
    """Time cases for as many rounds as given, and for as many more as the noise of each then asks for."""
    kept = {
        one.label: one for one in measure(places, labels, given.rounds, given.blocks, _estimate(given.rounds))
    }
    while True:
        found = verdicts(list(kept.values()), given.effect, given.level)
        more = {label: rounds_to_add(verdict, given.most_rounds) for label, verdict in found.items()}
        noisy = [label for label, rounds in more.items() if rounds]
        if not noisy:
            return list(kept.values())
        rounds = max(more.values())
        print(f"{len(noisy)} noisy cases: {rounds} more rounds")
        for added in measure(places, noisy, rounds, given.blocks, _estimate(rounds)):
            kept[added.label] = kept[added.label].joined(added)


def status(outcomes: Sequence[str]) -> int:
    """The exit status: 1 where anything is slower, else 3 where anything is undecided, else 0."""
    if "slower" in outcomes:
        return WORSE
    return UNDECIDED if "undecided" in outcomes else GOOD


def compare_commits(given: argparse.Namespace) -> int:
    """Time two commits, say what came out, and time again what seems to have changed."""
    root = Path.cwd()
    base, head = (commit_of(root, name) for name in (given.base, given.head))
    with checkouts(root, base, head) as places:
        labels = common_labels(places, given.case)
        print(f"{len(labels)} cases, {given.rounds} rounds of four processes")
        samples = measure_enough(places, labels, given)
        found = verdicts(samples, given.effect, given.level)
        kept = [samples]
        changed = [label for label, verdict in found.items() if verdict.outcome in ("slower", "faster")]
        unconfirmed = []
        if changed:
            print(f"{len(changed)} cases seem to have changed: once more with fresh processes")
            again = measure_enough(places, changed, given)
            kept.append(again)
            second = verdicts(again, given.effect, given.level)
            unconfirmed = [label for label in changed if not confirmed(found[label], second[label])]
    outcomes = []
    for label, verdict in found.items():
        doubtful = label in unconfirmed
        outcomes.append("undecided" if doubtful else verdict.outcome)
        print(f"{label}: {'undecided: a second sample does not confirm ' if doubtful else ''}{verdict}")
    _keep(given.out, kept, base, head)
    return status(outcomes)


def compare_equals(given: argparse.Namespace) -> int:
    """Compare HEAD with itself many times; anything but equal or undecided is a false alarm."""
    root = Path.cwd()
    head = commit_of(root, "HEAD")
    comparisons, alarms = [], 0
    with checkouts(root, head, head) as places:
        labels = common_labels(places, given.case)
        print(f"{given.aa} comparisons of HEAD with itself: {len(labels)} cases, {given.rounds} rounds each")
        for comparison in range(given.aa):
            progress = _estimate((given.aa - comparison) * given.rounds)
            samples = measure(places, labels, given.rounds, given.blocks, progress)
            comparisons.append(samples)
            found = verdicts(samples, given.effect, given.level)
            outcomes = [verdict.outcome for verdict in found.values()]
            alarms += sum(outcome in ("slower", "faster") for outcome in outcomes)
            for label, verdict in found.items():
                print(f"{comparison + 1} {label}: {verdict} (noise {100 * verdict.noise:.1f} %)", flush=True)
            _keep(given.out, comparisons, head, head)
    print(f"{alarms} false alarms in {given.aa} x {len(labels)} comparisons")
    return WORSE if alarms else GOOD


def compare_accuracy(base: Path, head: Path, given: argparse.Namespace) -> int:
    """Compare final metrics of two folders of tables."""
    found = compare_tables(base, head, given.metric, given.effect, given.level)
    for label, verdict in found:
        words = str(verdict).replace("slower", "worse").replace("faster", "better").replace("rounds", "seeds")
        print(f"{label} {given.metric}: {words}")
    return status([verdict.outcome for _, verdict in found])


def compare_studies(given: argparse.Namespace) -> int:
    """Run a study on two commits and compare its final metrics, seed by seed."""
    root = Path.cwd()
    base, head = (commit_of(root, name) for name in (given.base, given.head))
    runs = StudyRuns(given.study, given.scale, given.backend)
    with ExitStack() as stack:
        places = stack.enter_context(checkouts(root, base, head))
        kept = given.out or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="curvebench-gate-")))
        finals = {}
        for side, commit in (("base", base), ("head", head)):
            print(f"{runs}: {side} {commit[:12]}", flush=True)
            finals[side] = final_runs(places[side], commit, runs, kept.resolve() / commit)
        return compare_accuracy(finals["base"], finals["head"], given)


def _estimate(rounds: int) -> Callable[[int, float], None]:
    """Says after the first round how long all of them will take."""

    def say(number: int, seconds: float) -> None:
        if number == 1:
            print(f"about {rounds * seconds / 60:.1f} minutes in all", flush=True)

    return say


def _keep(file: Path | None, comparisons: Sequence[Sequence[Sample]], base: str, head: str) -> None:
    if file is not None:
        now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
        facts = {"base": base, "head": head, "written": now, "processor": platform.processor()}
        write_samples(file, comparisons, {**facts, "python": platform.python_version()})


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.gate",
        description="Say whether HEAD is slower than BASE, faster, equal within the effect, or undecided. "
        "Exit status: 0 nothing is worse, 1 something is, 2 bad input, 3 something is undecided.",
    )
    parser.add_argument("base", nargs="?", metavar="BASE", help="a commit")
    parser.add_argument("head", nargs="?", metavar="HEAD", help="a commit that is compared with it")
    other = parser.add_mutually_exclusive_group()
    other.add_argument("--aa", type=int, metavar="N", help="compare HEAD with itself N times instead")
    other.add_argument(
        "--tables", type=Path, nargs=2, metavar="DIR", help="compare final metrics of two folders of tables"
    )
    other.add_argument(
        "--study", metavar="NAME", help="compare final metrics of a study that is run on BASE and on HEAD"
    )
    parser.add_argument("--effect", type=float, default=0.05, help="the change that matters (0.05 is 5 %%)")
    parser.add_argument("--level", type=float, default=LEVEL, help=f"coverage of intervals ({LEVEL})")
    parser.add_argument("--case", default="", metavar="REGEX", help="only cases whose label contains this")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help=f"rounds of four processes ({ROUNDS})")
    parser.add_argument(
        "--most-rounds",
        type=int,
        default=MOST_ROUNDS,
        help=f"rounds that a case may have where noise asks for more; not of --aa ({MOST_ROUNDS})",
    )
    parser.add_argument("--blocks", type=int, default=BLOCKS, help=f"blocks a process and case ({BLOCKS})")
    parser.add_argument(
        "--out",
        type=Path,
        metavar="PATH",
        help="keep the raw timings, as JSON; of --study, a folder for results",
    )
    parser.add_argument("--scale", default="quick", help="of --study (quick)")
    parser.add_argument("--backend", default="jax", help="of --study (jax)")
    parser.add_argument(
        "--metric", default="train_loss", help="of --study and --tables; less is better (train_loss)"
    )
    return parser


def _check(given: argparse.Namespace) -> None:
    """Refuse what cannot be measured.

    Raises:
        GateError: the message says what would be right.
    """
    if not 0 < given.level < 1:
        raise GateError(f"--level {given.level}: a number between 0 and 1 is needed, such as {LEVEL}")
    if not given.effect > 0:
        raise GateError(f"--effect {given.effect}: a number above 0 is needed, 0.05 for 5 %")
    for name, least in (("rounds", least_rounds(given.level)), ("blocks", 1), ("aa", 1)):
        value = getattr(given, name)
        if value is not None and value < least:
            raise GateError(f"--{name} {value}: at least {least} is needed")
    if given.most_rounds < given.rounds:
        raise GateError(f"--most-rounds {given.most_rounds}: at least {given.rounds}, as --rounds, is needed")
    alone = given.aa is not None or given.tables is not None
    if alone == (given.head is not None):
        raise GateError("name two commits, BASE and HEAD, or one of --aa, --tables")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the gate; returns the exit status (argparse itself ends with 2)."""
    given = _parser().parse_args(arguments)
    try:
        _check(given)
        if given.tables is not None:
            base, head = given.tables
            return compare_accuracy(base, head, given)
        if given.study is not None:
            return compare_studies(given)
        return compare_commits(given) if given.aa is None else compare_equals(given)
    except (GateError, UnknownCommit, InputError) as error:
        print(f"error: {error}", file=sys.stderr)
        return BAD_INPUT


if __name__ == "__main__":
    sys.exit(main())
