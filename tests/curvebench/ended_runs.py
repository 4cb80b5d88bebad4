"""Run a bundle in its own process and kill it at a given moment: `python -m tests.curvebench.ended_runs`."""

from __future__ import annotations

import math
import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

import numpy as np

from curvebench.backends.engine import engine
from curvebench.engine import execution, inputs
from curvebench.engine.checkpoints import Checkpoints
from curvebench.engine.clock import Clock
from curvebench.engine.execution import execute
from tests.curvebench.engine.test_checkpoints import BUNDLES

RESULT = "result.npz"
STEPS = 300


class Moment(NamedTuple):
    """Moment at which a process is killed.

    It is a number of seconds after the process begins a phase for the nth time. The process gets the signal.
    """

    phase: str
    number: int
    seconds: float
    signal: int


class KillingClock(Clock):
    """Clock that kills its process at a given moment."""

    def __init__(self, moment: Moment) -> None:
        super().__init__()
        self.moment, self.left = moment, moment.number

    @contextmanager
    def phase(self, name: str, part: str | None = None) -> Iterator[None]:
        if name == self.moment.phase:
            self.left -= 1
            if self.left == 0:
                kill = (os.getpid(), self.moment.signal)
                threading.Timer(self.moment.seconds, os.kill, kill).start()
        with super().phase(name, part):
            yield


def main(name: str, backend: str, precision: str, folder: Path, moment: Moment) -> None:
    """Run a bundle with checkpoints at short segments, as if each took long, and write the results."""

    def end(number: int, frame: FrameType | None) -> None:
        os._exit(128 + number)

    signal.signal(signal.SIGTERM, end)
    inputs.MIN_SEGMENT_PRODUCTS, inputs.MIN_SEGMENTS, execution.SEGMENT_SECONDS = 1, STEPS // 2, 0.003
    saves = Checkpoints(folder / "run", {"run": name}, every=0.0, worth=0.0, share=math.inf)
    bundle = replace(BUNDLES[name](STEPS), evaluations=STEPS // 4)
    run = execute(bundle, engine(backend, precision), KillingClock(moment), checkpoints=saves)
    arrays: dict[str, Any] = {f"metric {metric}": values for metric, values in run.metrics.items()}
    arrays |= {key: getattr(run, key) for key in ("steps", "diverged_at", "stopped_at")}
    np.savez(folder / RESULT, **arrays)


if __name__ == "__main__":
    _, name, backend, precision, folder, phase, number, seconds, sent = sys.argv
    main(name, backend, precision, Path(folder), Moment(phase, int(number), float(seconds), int(sent)))
