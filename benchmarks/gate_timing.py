"""Two commits timed in turn: rounds of processes, blocks of calls."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from curvebench.benchmarks.kernels.clock import one_thread_environment
from curvebench.benchmarks.kernels.worktrees import worktree
from curvebench.progress import Progress
from curvebench.spec.errors import InputError

WORKER = Path(__file__).with_name("gate_worker.py")
BLOCKS = 8  # of each case in each process
BLOCK_SECONDS = 0.02  # so long that the clock and an interrupt are small beside it
PLACES = (("base", 0), ("head", 0), ("head", 1), ("base", 1))  # in the order of a block
OTHER = {"base": "head", "head": "base"}

Seconds = list[list[list[float]]]


@dataclass(frozen=True)
class Sample:
    """Timings of one case on both sides.

    Args:
        base, head: (rounds, 2 processes, blocks) seconds of a call.
    """

    base: Seconds = field(default_factory=list)
    head: Seconds = field(default_factory=list)

    def joined(self, other: Sample) -> Sample:
        """The rounds of both, of the same case."""
        return Sample(self.base + other.base, self.head + other.head)


class Worker:
    """A process that times one checkout (gate_worker)."""

    def __init__(self, checkout: Path, labels: Sequence[str]) -> None:
        self.checkout = checkout
        # A pipe that nobody reads would fill up.
        self.words = tempfile.TemporaryFile("w+")  # noqa: SIM115 (closed with the process)
        self.process = subprocess.Popen(
            [sys.executable, "-P", str(WORKER), str(checkout), *labels],
            cwd=checkout,
            env=one_thread_environment(os.environ) | {"PYTHONPATH": str(checkout)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.words,
            text=True,
        )

    def answer(self) -> dict[str, Any]:
        """The next line that the process writes.

        Raises:
            InputError: when it ended instead.
        """
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            self.process.wait()
            self.words.seek(0)
            trouble = self.words.read().strip().splitlines()[-1:] or ["it ended without a word"]
            raise InputError(f"timing {self.checkout.name} failed: {trouble[0]}")
        return json.loads(line)

    def seconds(self, label: str, calls: int) -> float:
        """Seconds of a call, over a block of calls."""
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps({"label": label, "calls": calls}) + "\n")
        self.process.stdin.flush()
        return float(self.answer()["seconds"])

    def close(self) -> None:
        """End the process."""
        self.process.kill()
        self.process.communicate()
        self.words.close()


@contextmanager
def checkouts(root: Path, commits: Mapping[str, str]) -> Iterator[dict[str, Path]]:
    """Commits by side, checked out in folders whose names are equally long."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="curvebench-gate-")))
        yield {
            side: stack.enter_context(worktree(root, commit, folder / side))
            for side, commit in commits.items()
        }


def common_labels(places: Mapping[str, Path], pattern: str) -> list[str]:
    """The labels of kernel cases that both checkouts have and that contain a pattern.

    Raises:
        InputError: when there is none, or a checkout has no list of cases.
    """
    program = (
        "import json; from curvebench.benchmarks.kernels.cases import timed; "
        f"print(json.dumps(list(timed({pattern!r}))))"
    )
    labels: dict[str, list[str]] = {}
    for side, checkout in places.items():
        done = subprocess.run(
            [sys.executable, "-P", "-c", program],
            cwd=checkout,
            env={**os.environ, "PYTHONPATH": str(checkout)},
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            reason = done.stderr.strip().splitlines()[-1]
            raise InputError(f"the {side} commit has no kernel cases: {reason}")
        labels[side] = json.loads(done.stdout.splitlines()[-1])
    both = [label for label in labels["head"] if label in labels["base"]]
    if not both:
        raise InputError(f"--case {pattern!r}: no label of a kernel case of both commits contains it")
    return both


def measure(places: Mapping[str, Path], labels: Sequence[str], rounds: int) -> dict[str, Sample]:
    """Time cases on two checkouts in turn.

    A round is two fresh processes a side. Inside it blocks are taken in turn, A1 B1 B2 A2, the next time
    with the sides exchanged, all with equally many calls.

    Args:
        places: checkout by side.
        labels: cases.
        rounds: how often fresh processes start: they differ by more than blocks do.

    Raises:
        InputError: when a process fails, or a case is not the same work on both sides.
    """
    samples = {label: Sample() for label in labels}
    progress = Progress("gate", rounds)
    for number in range(rounds):
        with ExitStack() as stack:
            workers: dict[tuple[str, int], Worker] = {}
            for side, process in PLACES:
                workers[side, process] = Worker(places[side], labels)
                stack.callback(workers[side, process].close)
            facts = {place: worker.answer()["ready"] for place, worker in workers.items()}
            for label, sample in samples.items():
                calls = _calls(label, facts)
                taken: dict[tuple[str, int], list[float]] = {place: [] for place in PLACES}
                for block in range(BLOCKS):
                    for side, process in PLACES:
                        place = (side if (number + block) % 2 == 0 else OTHER[side], process)
                        taken[place].append(workers[place].seconds(label, calls))
                sample.base.append([taken["base", 0], taken["base", 1]])
                sample.head.append([taken["head", 0], taken["head", 1]])
        progress.advance(1)
    return samples


def _calls(label: str, facts: Mapping[tuple[str, int], Mapping[str, Any]]) -> int:
    """Calls of a block, the same everywhere."""
    base, head = (facts[side, 0][label]["sizes"] for side in OTHER)
    if base != head:
        raise InputError(
            f"{label}: sizes are {base} at the base and {head} at the head; "
            "a case that changes its work needs another name"
        )
    return max(1, math.ceil(BLOCK_SECONDS / min(each[label]["seconds"] for each in facts.values())))
