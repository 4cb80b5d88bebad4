"""Test for slowdowns between two commits: `python -m benchmarks.gate BASE HEAD`.

Both commits are checked out. Each round starts one fresh process per commit and takes samples of every kernel
case from the two processes in turn. The log ratio of a round is the median of log(head / base) over pairs of
adjacent samples, so that the load of the machine cancels. Two processes that run equal code differ
systematically. The rounds, and not the samples, are therefore the independent observations. Comparing a
commit with itself (`HEAD HEAD`) shows the noise: every `slower` or `faster` is then a false alarm.
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
# Confidence level of the interval for each case's median log ratio.
LEVEL = 0.995
# Minimum number of rounds for an interval of level LEVEL.
# A distribution-free interval from n rounds has at most the level 1 - 2 / 2^n.
FEWEST_ROUNDS = math.ceil(1 - math.log2(1 - LEVEL))
ROUNDS = 24
# Timed samples of each case, per commit and round.
SAMPLES = 8
GOOD, WORSE, BAD_INPUT, UNDECIDED = 0, 1, 2, 3


# --- timing of two commits ------------------------------------------------------------------------


@contextmanager
def worker(checkout: Path, pattern: str) -> Iterator[subprocess.Popen[str]]:
    """Start a worker process (`gate_worker`) for one checkout, and kill it when the block ends."""
    command = [sys.executable, "-P", str(WORKER), str(checkout), pattern]
    variables = one_thread_environment(os.environ) | {"PYTHONPATH": str(checkout)}
    pipe = partial(subprocess.Popen, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    with pipe(command, cwd=checkout, env=variables) as process:
        try:
            yield process
        finally:
            process.kill()


def answer(side: str, process: subprocess.Popen[str], request: dict[str, Any] | None = None) -> Any:
    """Send a request to a worker process and return its answer.

    Args:
        side: `base` or `head`, for the error message.
        process: the worker process of this side.
        request: the JSON object to send. With None, nothing is sent, and the answer is the first line that
            the process writes.

    Raises:
        InputError: if the process has ended.
    """
    assert process.stdin
    assert process.stdout
    # If the process has ended, the missing answer is reported below.
    with suppress(BrokenPipeError):
        if request:
            print(json.dumps(request), file=process.stdin, flush=True)
    line = process.stdout.readline()
    if not line:
        raise InputError(f"the {side} commit cannot be timed: its process says why above")
    return json.loads(line)


def measure(checkouts: dict[str, Path], pattern: str, rounds: int) -> dict[str, np.ndarray]:
    """Time the kernel cases that both checkouts have, in both checkouts in turn.

    Args:
        checkouts: folder of the checkout by side, `base` and `head`.
        pattern: regular expression that must occur in the label of a case.
        rounds: number of rounds; each starts two fresh processes.

    Returns:
        By label, for each round the logarithm of the head's time divided by the base's time, shape (rounds,).

    Raises:
        InputError: if a process fails, if the checkouts have no case in common, or if the sizes of a case
            differ between the checkouts.
    """
    log_ratios: dict[str, list[float]] = {}
    progress = Progress("gate", rounds)
    for _ in range(rounds):
        with ExitStack() as stack:
            processes = [stack.enter_context(worker(checkouts[side], pattern)) for side in SIDES]
            base, head = (answer(*pair) for pair in zip(SIDES, processes, strict=True))
            for label in common_labels(base, head, pattern):
                request = {"label": label, "calls": max(base[label]["calls"], head[label]["calls"])}
                seconds = np.empty((SAMPLES, 2))
                for sample, side in turns(2, SAMPLES):
                    seconds[sample, side] = answer(SIDES[side], processes[side], request)
                log_ratios.setdefault(label, []).append(float(np.median(np.diff(np.log(seconds)))))
        progress.advance(1)
    return {label: np.array(ratios) for label, ratios in log_ratios.items()}


def common_labels(base: dict[str, Any], head: dict[str, Any], pattern: str) -> list[str]:
    """Return the labels of the cases that base and head have in common, in the order of the head's cases.

    Args:
        base, head: by label, the calls and sizes that the worker processes of the two commits report.
        pattern: regular expression by which the cases were chosen, for the error message.

    Raises:
        InputError: if there is no common case, or the sizes of a case differ between base and head.
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


# --- outcomes -------------------------------------------------------------------------------------


def decide(log_ratios: np.ndarray, effect: float) -> tuple[Outcome, str]:
    """Decide whether head is slower than base, and describe the interval in words.

    The outcome is `equal` if the whole confidence interval is within +- the effect, even if the interval
    excludes 0. Otherwise the outcome is `slower` or `faster` if the interval excludes 0, and `undecided` if
    it contains 0. The interval is distribution-free: if the two commits are equally fast and the rounds
    independent, the interval excludes 0 with a probability of at most 1 - `LEVEL`.

    Args:
        log_ratios: log(head / base) of each round, shape (rounds,).
        effect: smallest relative change that matters, 0.05 for 5 %.
    """
    interval, limit = median_interval(log_ratios, LEVEL), math.log1p(effect)
    outcome: Outcome = "undecided"
    if -limit < interval.low and interval.high < limit:
        outcome = "equal"
    elif interval.low > 0 or interval.high < 0:
        outcome = "slower" if interval.low > 0 else "faster"
    return outcome, in_words(interval)


def in_words(interval: MedianInterval) -> str:
    """Return the median change and its interval as a text, in percent.

    Args:
        interval: interval of the median log ratio.
    """
    change, low, high = (100 * math.expm1(value) for value in (interval.median, interval.low, interval.high))
    return f"{change:+.1f} % [{low:+.1f}, {high:+.1f}] of {interval.count} rounds"


def compare(checkouts: dict[str, Path], pattern: str, rounds: int, effect: float) -> int:
    """Time two commits and print an outcome for each case.

    Cases that seem slower or faster are timed again with fresh processes. If the second outcome is not the
    same, the case is `undecided`.

    Returns:
        The exit status.
    """
    outcomes = set()
    log_ratios = measure(checkouts, pattern, rounds)
    decisions = {label: decide(ratios, effect) for label, ratios in log_ratios.items()}
    changed = [re.escape(label) for label, (first, _) in decisions.items() if first in ("slower", "faster")]
    repeated = measure(checkouts, f"^({'|'.join(changed)})$", rounds) if changed else {}
    for label, (first, words) in decisions.items():
        outcome = first
        if label in repeated:
            second, more = decide(repeated[label], effect)
            outcome = first if second == first else "undecided"
            words = f"{words}; with fresh processes {second}: {more}"
        outcomes.add(outcome)
        print(f"{label}: {outcome}: {words}")
    if "slower" in outcomes:
        return WORSE
    return UNDECIDED if "undecided" in outcomes else GOOD


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the gate and return the exit status; argparse itself exits with 2 for unknown arguments."""
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
    options = parser.parse_args(arguments)
    root = Path.cwd()
    try:
        if not options.effect > 0:
            raise InputError(f"--effect {options.effect}: a number above 0 is needed, 0.05 for 5 %")
        if options.rounds < FEWEST_ROUNDS:
            raise InputError(f"--rounds {options.rounds}: at least {FEWEST_ROUNDS} is needed")
        with ExitStack() as stack:
            # The folders have names of equal length, since a path's length may shift addresses in memory.
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="curvebench-gate-")))
            commits = zip(SIDES, (commit_of(root, options.base), commit_of(root, options.head)), strict=True)
            checkouts = {
                side: stack.enter_context(worktree(root, commit, folder / side)) for side, commit in commits
            }
            return compare(checkouts, options.case, options.rounds, options.effect)
    except InputError as error:
        print(f"error: {error}", file=sys.stderr)
        return BAD_INPUT


if __name__ == "__main__":
    sys.exit(main())
