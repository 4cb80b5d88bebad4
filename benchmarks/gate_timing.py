"""Two commits timed in turn: rounds of processes, blocks of calls, and the file that keeps them."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks.kernels.clock import one_thread_environment
from benchmarks.kernels.worktrees import worktree

WORKER = Path(__file__).with_name("gate_worker.py")
BLOCK_SECONDS = 0.02  # so long that the clock and an interrupt are small beside it
SIDES = ("base", "head")
OTHER = {"base": "head", "head": "base"}
PLACES = (("base", 0), ("head", 0), ("head", 1), ("base", 1))  # in the order of a block


class GateError(RuntimeError):
    """A comparison that cannot be made; the message says why."""


@dataclass(frozen=True)
class Sample:
    """Timings of one case on both sides.

    Args:
        label: case, backend and precision.
        base, head: (rounds, 2 processes, blocks) seconds of a call.
    """

    label: str
    base: list[list[list[float]]]
    head: list[list[list[float]]]

    def joined(self, other: Sample) -> Sample:
        """The rounds of both, of the same case."""
        return Sample(self.label, self.base + other.base, self.head + other.head)


class Worker:
    """A process that times one checkout (gate_worker)."""

    def __init__(self, checkout: Path, labels: Sequence[str]) -> None:
        variables = one_thread_environment(os.environ) | {"PYTHONPATH": str(checkout)}
        self.checkout = checkout
        # A pipe that nobody reads would fill up.
        self.words = tempfile.TemporaryFile("w+")  # noqa: SIM115 (closed with the process)
        self.process = subprocess.Popen(
            [sys.executable, "-P", str(WORKER), str(checkout), *labels],
            cwd=checkout,
            env=variables,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.words,
            text=True,
        )

    def answer(self) -> dict[str, Any]:
        """The next line that the process writes.

        Raises:
            GateError: when it ended instead.
        """
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            self.process.wait()
            self.words.seek(0)
            trouble = self.words.read().strip().splitlines()[-1:] or ["it ended without a word"]
            raise GateError(f"timing {self.checkout.name} failed: {trouble[0]}")
        answer: dict[str, Any] = json.loads(line)
        return answer

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
def working(checkout: Path, labels: Sequence[str]) -> Iterator[Worker]:
    """A worker until the end of the block."""
    worker = Worker(checkout, labels)
    try:
        yield worker
    finally:
        worker.close()


@contextmanager
def checkouts(root: Path, base: str, head: str) -> Iterator[dict[str, Path]]:
    """Both commits checked out, in folders whose names are equally long."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="curvebench-gate-")))
        yield {
            side: stack.enter_context(worktree(root, commit, folder / side))
            for side, commit in zip(SIDES, (base, head), strict=True)
        }


def labels_of(checkout: Path, pattern: str) -> list[str]:
    """The labels of a checkout's kernel cases that contain a pattern.

    Raises:
        GateError: when the checkout has no list of cases.
    """
    program = (
        "import json; from benchmarks.kernels.cases import timed; "
        f"print(json.dumps(list(timed({pattern!r}))))"
    )
    done = subprocess.run(
        [sys.executable, "-P", "-c", program],
        cwd=checkout,
        env={**os.environ, "PYTHONPATH": str(checkout)},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise GateError(
            f"the {checkout.name} commit has no kernel cases: {done.stderr.strip().splitlines()[-1]}"
        )
    labels: list[str] = json.loads(done.stdout.splitlines()[-1])
    return labels


def common_labels(places: Mapping[str, Path], pattern: str) -> list[str]:
    """The labels that both commits have.

    Raises:
        GateError: when there is none.
    """
    base, head = (labels_of(places[side], pattern) for side in SIDES)
    both = [label for label in head if label in base]
    if not both:
        raise GateError(f"--case {pattern!r}: no label of a kernel case of both commits contains it")
    return both


def measure(
    places: Mapping[str, Path],
    labels: Sequence[str],
    rounds: int,
    blocks: int,
    progress: Callable[[int, float], None] = lambda number, seconds: None,
) -> list[Sample]:
    """Time cases on two checkouts in turn.

    A round is two fresh processes a side. Inside it blocks are taken in turn, A1 B1 B2 A2, the next time
    with the sides exchanged, all with equally many calls.

    Args:
        places: checkout by side.
        labels: cases.
        rounds: how often fresh processes start: they differ by more than blocks do.
        blocks: blocks of each case in each process.
        progress: called after each round with its number, from 1, and its seconds.

    Raises:
        GateError: when a process fails, or a case is not the same work on both sides.
    """
    seconds: dict[str, dict[str, list[list[list[float]]]]] = {
        label: {side: [] for side in SIDES} for label in labels
    }
    for number in range(rounds):
        begin = time.perf_counter()
        with ExitStack() as stack:
            workers = {place: stack.enter_context(working(places[place[0]], labels)) for place in PLACES}
            facts = {place: workers[place].answer()["ready"] for place in PLACES}
            for label in labels:
                calls = _calls(label, facts)
                taken: dict[tuple[str, int], list[float]] = {place: [] for place in PLACES}
                for block in range(blocks):
                    for side, process in PLACES:
                        first = side if (number + block) % 2 == 0 else OTHER[side]
                        place = (first, process)
                        taken[place].append(workers[place].seconds(label, calls))
                for side in SIDES:
                    seconds[label][side].append([taken[side, process] for process in range(2)])
        progress(number + 1, time.perf_counter() - begin)
    return [Sample(label, **seconds[label]) for label in labels]


def _calls(label: str, facts: Mapping[tuple[str, int], Mapping[str, Any]]) -> int:
    """Calls of a block, the same everywhere."""
    base, head = facts["base", 0][label], facts["head", 0][label]
    for key in ("sizes", "flops"):
        if base[key] != head[key]:
            raise GateError(
                f"{label}: {key} are {base[key]} at the base and {head[key]} at the head; "
                "a case that changes its work needs another name"
            )
    return max(1, math.ceil(BLOCK_SECONDS / min(each[label]["seconds"] for each in facts.values())))


def write_samples(file: Path, comparisons: Sequence[Sequence[Sample]], facts: Mapping[str, Any]) -> None:
    """Keep raw timings: what was compared, and each comparison's samples."""
    kept = {**facts, "comparisons": [[asdict(sample) for sample in samples] for samples in comparisons]}
    temporary = file.with_suffix(file.suffix + ".part")
    temporary.write_text(json.dumps(kept))
    temporary.replace(file)
