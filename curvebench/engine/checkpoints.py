"""Checkpoints of a run, from which it resumes bit for bit after its process was ended.

A checkpoint is a file in the format of NumPy (.npz) with the state of a bundle, which is a set of runs that
are computed together. Checkpoints are written at intervals of CHECKPOINT_SECONDS, and when the process
receives SIGTERM, but only between segments. A segment is a number of steps that one call of the device
computes.
"""

from __future__ import annotations

import json
import signal
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from shutil import rmtree
from types import FrameType
from typing import Any, TypeVar

import numpy as np

from curvebench.results.temporary import taking_place

CHECKPOINT_SECONDS = 15 * 60.0  # seconds between two checkpoints of a run
# Largest share of a run's time that is spent on writing checkpoints.
# Fewer checkpoints are written on a slow disk, so that the share stays below this number.
MAX_SAVING_SHARE = 0.01
MIN_SAVED_SECONDS = 60.0  # after SIGTERM, write a checkpoint only if the last one is at least this old
FILES_KEPT = 2  # checkpoints to keep: if the newest is damaged, the run resumes from the one before
# Name of the array in a checkpoint file whose value is JSON text.
# The text contains the identity of the run, and all fields of the checkpoint that are not arrays.
HEADER = "header"

Restored = TypeVar("Restored")


@dataclass(frozen=True)
class Checkpoint:
    """State of a run after some of its steps.

    Args:
        done: number of steps taken.
        arrays: a mapping from names to all arrays from which the run resumes.
        seconds: a mapping from phases to seconds, in all processes that have worked on the run.
        notes: notes for the provenance of the results.
    """

    done: int
    arrays: Mapping[str, np.ndarray]
    seconds: Mapping[str, float]
    notes: list[str]


class DeferredTermination:
    """Deferral of SIGTERM, so that a run can finish its segment and write a checkpoint before it ends.

    A signal that arrives after `begin` is handled when `pass_on` is called, or at the end of a `with` block.
    If the process has no handler for SIGTERM, the signal is not deferred.

    Attributes:
        came: whether a signal has arrived since `begin`.
    """

    def __init__(self) -> None:
        self.came = False
        self._handler: Any = None

    def __enter__(self) -> DeferredTermination:
        return self

    def __exit__(self, *unused: object) -> None:
        self.pass_on()

    def begin(self) -> None:
        """Defer SIGTERM until `pass_on`."""
        handler = signal.getsignal(signal.SIGTERM)
        if callable(handler):
            self._handler = handler
            signal.signal(signal.SIGTERM, self._defer)

    def pass_on(self) -> None:
        """Restore the handler of SIGTERM, and call it if a signal has arrived."""
        handler, self._handler = self._handler, None
        if handler is None:
            return
        signal.signal(signal.SIGTERM, handler)
        if self.came:
            handler(signal.SIGTERM, None)

    def _defer(self, number: int, frame: FrameType | None) -> None:
        self.came = True


@dataclass
class Checkpoints:
    """The checkpoints of one bundle's run.

    Args:
        folder: folder that contains only checkpoints of this run. The folder exists only while there are
            checkpoints.
        run: identity of the run, in JSON types: everything that decides the run's result. A checkpoint with
            another identity is refused.
        name: name of the run in notes.
        every: seconds between two checkpoints.
        worth: after SIGTERM, a checkpoint is written only if at least this number of seconds have passed
            since the last checkpoint.
        share: largest share of the run's time that is spent on writing checkpoints.
        notes: notes on checkpoints for the provenance of the results.
        termination: deferral of SIGTERM, which begins at the first step of the run.
    """

    folder: Path
    run: Mapping[str, Any]
    name: str = "run"
    every: float = CHECKPOINT_SECONDS
    worth: float = MIN_SAVED_SECONDS
    share: float = MAX_SAVING_SHARE
    notes: list[str] = field(default_factory=list)
    termination: DeferredTermination = field(default_factory=DeferredTermination)

    def __post_init__(self) -> None:
        self.last = time.monotonic()
        self.pause = self.every

    def is_due(self, ending: bool = False) -> bool:
        """Return whether enough time has passed to write another checkpoint now.

        Args:
            ending: whether the run has received SIGTERM. A checkpoint is then due earlier (`worth`).
        """
        return time.monotonic() - self.last >= (min(self.worth, self.pause) if ending else self.pause)

    def save(self, checkpoint: Checkpoint) -> None:
        """Write a checkpoint atomically, and remove old ones.

        If the disk is full or fails, the run continues without a checkpoint, and a note is recorded.
        """
        start = time.monotonic()
        identity = {"run": self.run, "done": checkpoint.done}
        header = json.dumps({**identity, "seconds": checkpoint.seconds, "notes": checkpoint.notes})
        arrays: dict[str, Any] = {HEADER: np.array(header), **checkpoint.arrays}
        try:
            with taking_place(self.folder / f"{checkpoint.done:012d}.npz") as path, path.open("wb") as file:
                np.savez(file, **arrays)
            # The names of incomplete files, which killed processes have left, begin with a dot.
            # These names are the first in the order of names, so that the files are removed as well.
            for older in sorted(self.folder.glob("*.npz"))[:-FILES_KEPT]:
                older.unlink()
        except OSError as error:
            self._note(f"{self.name}: no checkpoint after step {checkpoint.done}: {error}")
        self.last = time.monotonic()
        self.pause = max(self.every, (self.last - start) / self.share)

    @property
    def done(self) -> int | None:
        """Number of steps that were taken before the newest checkpoint; None if there is no checkpoint."""
        return max((int(path.stem) for path in self.folder.glob("[0-9]*.npz")), default=None)

    def newest(self, restore: Callable[[Checkpoint], Restored]) -> Restored | None:
        """Restore the newest checkpoint that is intact and belongs to this run.

        A checkpoint that cannot be restored is removed, with a note, and the next older checkpoint is tried.

        Args:
            restore: function that restores the state of the run from a checkpoint. It raises an exception if
                the checkpoint does not match the run.

        Returns:
            The result of `restore`; None if there is no checkpoint.
        """
        for path in sorted(self.folder.glob("[0-9]*.npz"), reverse=True):
            try:
                written, checkpoint = path.stat().st_mtime, self._read(path)
                restored = restore(checkpoint)
            except Exception as error:  # The libraries that read a damaged file may raise any exception.
                reason = f"{type(error).__name__}: {error}"
                self._note(f"{self.name}: cannot go on after step {int(path.stem)} ({reason})")
                path.unlink()
                continue
            self.notes += [note for note in checkpoint.notes if note not in self.notes]
            now, saved = (
                datetime.fromtimestamp(at, UTC).isoformat(" ", "seconds") for at in (time.time(), written)
            )
            self._note(f"{self.name}: went on at {now} after step {checkpoint.done}, kept at {saved}")
            return restored
        return None

    def remove(self) -> None:
        """Remove the folder of checkpoints, and each of its two parent folders if it is then empty."""
        remove_with_empty_parents(self.folder, parents=2)

    def _read(self, path: Path) -> Checkpoint:
        with path.open("rb") as file, np.load(file) as stored:
            arrays = {name: stored[name] for name in stored.files}
        header = json.loads(str(arrays.pop(HEADER)))
        if header["run"] != json.loads(json.dumps(self.run)):
            raise ValueError("it is of another run")
        return Checkpoint(header["done"], arrays, header["seconds"], header["notes"])

    def _note(self, text: str) -> None:
        sys.stderr.write(f"{text}\n")
        if text not in self.notes:
            self.notes.append(text)


def remove_with_empty_parents(folder: Path, parents: int) -> None:
    """Remove a folder with its contents, and up to `parents` of its parent folders if they are then empty."""
    rmtree(folder, ignore_errors=True)
    with suppress(OSError):
        for above in list(folder.parents)[:parents]:
            above.rmdir()
