"""`python -m benchmarks.gate BASE HEAD`: is a commit slower than another?

A commit beside itself (`HEAD HEAD`) shows the noise: anything but equal or undecided is a false alarm.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from curvebench.benchmarks.gate_statistics import LEVEL, Verdict, decide, least_rounds, rounds_to_add
from curvebench.benchmarks.gate_timing import checkouts, common_labels, measure
from curvebench.benchmarks.kernels.worktrees import commit_of
from curvebench.spec.errors import InputError

ROUNDS, MOST_ROUNDS = 12, 100  # of four processes; noise asks for more than the first, not than the second
GOOD, WORSE, BAD_INPUT, UNDECIDED = 0, 1, 2, 3


def timed(
    places: Mapping[str, Path], labels: Sequence[str], rounds: int, effect: float
) -> dict[str, Verdict]:
    """The verdicts on cases, timed for so many rounds and for as many more as the noise of each asks for."""
    kept = measure(places, labels, rounds)
    while True:
        found = {label: decide(one.base, one.head, effect, LEVEL) for label, one in kept.items()}
        more = {label: rounds_to_add(verdict, MOST_ROUNDS) for label, verdict in found.items()}
        noisy = [label for label, rounds in more.items() if rounds]
        if not noisy:
            return found
        print(f"{len(noisy)} noisy cases: {max(more.values())} more rounds")
        for label, added in measure(places, noisy, max(more.values())).items():
            kept[label] = kept[label].joined(added)


def compare_timings(places: Mapping[str, Path], given: argparse.Namespace) -> int:
    """Time two commits, say what came out, and time again what seems to have changed; the exit status."""
    labels = common_labels(places, given.case)
    print(f"{len(labels)} cases, {given.rounds} rounds of four processes")
    found = timed(places, labels, given.rounds, given.effect)
    changed = [label for label, verdict in found.items() if verdict.outcome in ("slower", "faster")]
    second: dict[str, Verdict] = {}
    if changed:
        print(f"{len(changed)} cases seem to have changed: once more with fresh processes")
        second = timed(places, changed, given.rounds, given.effect)
    outcomes = []
    for label, verdict in found.items():
        doubtful = label in second and second[label].outcome != verdict.outcome
        outcomes.append("undecided" if doubtful else verdict.outcome)
        print(f"{label}: {'undecided: a second sample does not confirm ' if doubtful else ''}{verdict}")
    if "slower" in outcomes:
        return WORSE
    return UNDECIDED if "undecided" in outcomes else GOOD


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the gate; returns the exit status (argparse itself ends with 2)."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.gate",
        description="Say whether HEAD is slower than BASE, faster, equal within the effect, or undecided. "
        "Exit status: 0 nothing is slower, 1 something is, 2 bad input, 3 something is undecided.",
    )
    parser.add_argument("base", metavar="BASE", help="a commit")
    parser.add_argument("head", metavar="HEAD", help="a commit that is compared with it")
    parser.add_argument("--effect", type=float, default=0.05, help="the change that matters (0.05 is 5 %%)")
    parser.add_argument("--case", default="", metavar="REGEX", help="only cases whose label contains this")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help=f"rounds of four processes ({ROUNDS})")
    given = parser.parse_args(arguments)
    try:
        if not given.effect > 0:
            raise InputError(f"--effect {given.effect}: a number above 0 is needed, 0.05 for 5 %")
        if given.rounds < least_rounds(LEVEL):
            raise InputError(f"--rounds {given.rounds}: at least {least_rounds(LEVEL)} is needed")
        root = Path.cwd()
        commits = {"base": commit_of(root, given.base), "head": commit_of(root, given.head)}
        with checkouts(root, commits) as places:
            return compare_timings(places, given)
    except InputError as error:
        print(f"error: {error}", file=sys.stderr)
        return BAD_INPUT


if __name__ == "__main__":
    sys.exit(main())
