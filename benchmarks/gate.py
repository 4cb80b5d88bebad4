"""`python -m benchmarks.gate BASE HEAD`: is a commit slower than another?

Both commits are checked out. A round starts a fresh process of each and takes samples of every kernel case
from both in turn; its log ratio is the median over pairs of samples next to each other, so that the load of
the machine cancels. Processes of equal code differ, so that rounds and not samples are the independent
evidence. A commit compared with itself (`HEAD HEAD`) shows the noise: slower or faster is a false alarm then.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np

from curvebench.benchmarks.kernels.worktrees import commit_of, worktree
from curvebench.progress import Progress
from curvebench.results.intervals import MedianInterval, median_interval
from curvebench.spec.errors import InputError
from curvebench.timing.clocks import one_thread_environment
from curvebench.timing.interleaving import turns

Outcome = Literal["slower", "faster", "equal", "undecided"]

WORKER = Path(__file__).with_name("gate_worker.py")
SIDES = ("base", "head")
LEVEL = 0.995  # of the interval of each case
FEWEST_ROUNDS = math.ceil(1 - math.log2(1 - LEVEL))  # fewer do not reach that level: 2 / 2^n <= 1 - level
ROUNDS = 24
SAMPLES = 8  # of each case and side in each round
GOOD, WORSE, BAD_INPUT, UNDECIDED = 0, 1, 2, 3


# --- timing --------------------------------------------------------------------------------------


@contextmanager
def worker(checkout: Path, pattern: str) -> Iterator[subprocess.Popen[str]]:
    """Start a process that times the cases of one checkout (`gate_worker`), and end it with the block."""
    command = [sys.executable, "-P", str(WORKER), str(checkout), pattern]
    variables = one_thread_environment(os.environ) | {"PYTHONPATH": str(checkout)}
    pipe = partial(subprocess.Popen, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    with pipe(command, cwd=checkout, env=variables) as process:
        try:
            yield process
        finally:
            process.kill()


def answer(side: str, process: subprocess.Popen[str], request: dict[str, Any] | None = None) -> Any:
    """Send a request to a process, if there is one, and return what it answers.

    Raises:
        InputError: when the process ended instead.
    """
    assert process.stdin
    assert process.stdout
    with suppress(BrokenPipeError):  # a process that has ended answers nothing below
        if request:
            print(json.dumps(request), file=process.stdin, flush=True)
    line = process.stdout.readline()
    if not line:
        raise InputError(f"the {side} commit cannot be timed: its process says why above")
    return json.loads(line)


def measure(checkouts: dict[str, Path], pattern: str, rounds: int) -> dict[str, np.ndarray]:
    """Time the cases that both checkouts have in turn.

    Args:
        checkouts: folder by side.
        pattern: a regular expression that labels contain.
        rounds: how often fresh processes start.

    Returns:
        Log ratios of seconds, head over base, shape (rounds,), by label.

    Raises:
        InputError: when a process fails, no case is on both sides, or a case is not the same work on both.
    """
    found: dict[str, list[float]] = {}
    progress = Progress("gate", rounds)
    for _ in range(rounds):
        with ExitStack() as stack:
            processes = [stack.enter_context(worker(checkouts[side], pattern)) for side in SIDES]
            base, head = (answer(*each) for each in zip(SIDES, processes, strict=True))
            for label in common_labels(base, head, pattern):
                request = {"label": label, "calls": max(base[label]["calls"], head[label]["calls"])}
                seconds = np.empty((SAMPLES, 2))
                for sample, side in turns(2, SAMPLES):
                    seconds[sample, side] = answer(SIDES[side], processes[side], request)
                found.setdefault(label, []).append(float(np.median(np.diff(np.log(seconds)))))
        progress.advance(1)
    return {label: np.array(ratios) for label, ratios in found.items()}


def common_labels(base: dict[str, Any], head: dict[str, Any], pattern: str) -> list[str]:
    """Return the labels of cases on both sides.

    Raises:
        InputError: when there is none, or a case has other sizes on the other side.
    """
    labels = [label for label in head if label in base]
    if not labels:
        raise InputError(f"--case {pattern!r}: no label of a kernel case of both commits contains it")
    for label in labels:
        ours, theirs = base[label]["sizes"], head[label]["sizes"]
        if ours != theirs:
            raise InputError(
                f"{label}: sizes are {ours} at the base and {theirs} at the head; "
                "a case that changes its work needs another name"
            )
    return labels


# --- verdicts ------------------------------------------------------------------------------------


def decide(log_ratios: np.ndarray, effect: float) -> tuple[Outcome, str]:
    """Decide whether head is slower than base, with the interval in words.

    `equal` needs the whole interval within the effect, `slower` and `faster` need it beyond 0. A change that
    is certain and smaller than the effect is equal. The interval is distribution-free: where sides are equal
    and rounds independent, it lies beyond 0 with probability 1 - `LEVEL` at most.

    Args:
        log_ratios: shape (rounds,).
        effect: the relative change that matters, 0.05 for 5 %.
    """
    found, limit = median_interval(log_ratios, LEVEL), math.log1p(effect)
    outcome: Outcome = "undecided"
    if -limit < found.low and found.high < limit:
        outcome = "equal"
    elif found.low > 0 or found.high < 0:
        outcome = "slower" if found.low > 0 else "faster"
    return outcome, in_words(found)


def in_words(found: MedianInterval) -> str:
    """Return the change and its interval in percent, from log ratios."""
    change, low, high = (100 * math.expm1(value) for value in (found.median, found.low, found.high))
    return f"{change:+.1f} % [{low:+.1f}, {high:+.1f}] of {found.count} rounds"


def compare(checkouts: dict[str, Path], pattern: str, rounds: int, effect: float) -> int:
    """Time two commits, time again what seems to have changed, print verdicts, and return the exit status."""
    outcomes = set()
    found = {label: decide(each, effect) for label, each in measure(checkouts, pattern, rounds).items()}
    changed = [re.escape(label) for label, (outcome, _) in found.items() if outcome in ("slower", "faster")]
    again = measure(checkouts, f"^({'|'.join(changed)})$", rounds) if changed else {}
    for label, (first, words) in found.items():
        outcome = first
        if label in again:
            second, more = decide(again[label], effect)
            outcome = first if second == first else "undecided"
            words = f"{words}; with fresh processes {second}: {more}"
        outcomes.add(outcome)
        print(f"{label}: {outcome}: {words}")
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
    parser.add_argument("--rounds", type=int, default=ROUNDS, help=f"rounds of two processes ({ROUNDS})")
    given = parser.parse_args(arguments)
    root = Path.cwd()
    try:
        if not given.effect > 0:
            raise InputError(f"--effect {given.effect}: a number above 0 is needed, 0.05 for 5 %")
        if given.rounds < FEWEST_ROUNDS:
            raise InputError(f"--rounds {given.rounds}: at least {FEWEST_ROUNDS} is needed")
        with ExitStack() as stack:
            # names of equal length, since the length of a path may shift what is in memory
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="curvebench-gate-")))
            commits = zip(SIDES, (commit_of(root, given.base), commit_of(root, given.head)), strict=True)
            checkouts = {
                side: stack.enter_context(worktree(root, commit, folder / side)) for side, commit in commits
            }
            return compare(checkouts, given.case, given.rounds, given.effect)
    except InputError as error:
        print(f"error: {error}", file=sys.stderr)
        return BAD_INPUT


if __name__ == "__main__":
    sys.exit(main())
