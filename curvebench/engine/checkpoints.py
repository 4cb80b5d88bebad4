"""Checkpoints of a bundle's run: what it goes on from, bit for bit, where its process was ended."""

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

EVERY = 15 * 60.0  # seconds of a run between two checkpoints
SHARE = 0.01  # of a run's time, which saving takes at most: on a slow disk checkpoints are rarer
WORTH = 60.0  # seconds of a run that a SIGTERM has saved; fewer are computed again
KEPT = 2  # the last ones: where one is damaged, the run goes on from the one before
HEADER = "header"  # the array of a file that is JSON: of which run it is, and what is no array

Restored = TypeVar("Restored")


@dataclass(frozen=True)
class Checkpoint:
    """A run after some of its steps.

    Args:
        done: how many steps.
        arrays: by name.
        seconds: by phase, of all processes so far.
        notes: for the provenance.
    """

    done: int
    arrays: Mapping[str, np.ndarray]
    seconds: Mapping[str, float]
    notes: list[str]


class DeferredTermination:
    """Has a SIGTERM wait from `begin` to `pass_on`, or to the end of a block, if anything handles it here."""

    def __init__(self) -> None:
        self.came = False
        self._before: Any = None

    def __enter__(self) -> DeferredTermination:
        return self

    def __exit__(self, *unused: object) -> None:
        self.pass_on()

    def begin(self) -> None:
        """Have it wait from now on."""
        before = signal.getsignal(signal.SIGTERM)
        if callable(before):
            self._before = before
            signal.signal(signal.SIGTERM, self._defer)

    def pass_on(self) -> None:
        """Handle SIGTERM as before from now on, and so the one that came."""
        before, self._before = self._before, None
        if before is None:
            return
        signal.signal(signal.SIGTERM, before)
        if self.came:
            before(signal.SIGTERM, None)

    def _defer(self, number: int, frame: FrameType | None) -> None:
        self.came = True


@dataclass
class Checkpoints:
    """Those of one bundle's run.

    Args:
        folder: of their files alone; it is there as long as one is.
        run: what decides the run's result; a checkpoint of another run is refused.
        name: of the run, in notes.
        every: seconds between two.
        worth: seconds of a run that are saved when it is asked to end.
        share: the most of the run's time that saving takes.
        termination: of the run, which begins to wait at its first step.
    """

    folder: Path
    run: Mapping[str, Any]
    name: str = "run"
    every: float = EVERY
    worth: float = WORTH
    share: float = SHARE
    notes: list[str] = field(default_factory=list)
    termination: DeferredTermination = field(default_factory=DeferredTermination)

    def __post_init__(self) -> None:
        self.last = time.monotonic()
        self.pause = self.every

    def is_due(self, ending: bool = False) -> bool:
        """Whether it is time for one: for a run that is asked to end, sooner."""
        return time.monotonic() - self.last >= (min(self.worth, self.pause) if ending else self.pause)

    def save(self, checkpoint: Checkpoint) -> None:
        """Write a checkpoint, whole or not at all; where the disk takes none the run goes on, with a note."""
        start = time.monotonic()
        about = {"run": self.run, "done": checkpoint.done}
        header = json.dumps({**about, "seconds": checkpoint.seconds, "notes": checkpoint.notes})
        arrays: dict[str, Any] = {HEADER: np.array(header), **checkpoint.arrays}
        try:
            with (
                taking_place(self.folder / f"{checkpoint.done:012d}.npz") as temporary,
                temporary.open("wb") as file,
            ):
                np.savez(file, **arrays)
            # halves that killed processes left begin with a dot, and go first
            for older in sorted(self.folder.glob("*.npz"))[:-KEPT]:
                older.unlink()
        except OSError as error:
            self._note(f"{self.name}: no checkpoint after step {checkpoint.done}: {error}")
        self.last = time.monotonic()
        self.pause = max(self.every, (self.last - start) / self.share)

    @property
    def done(self) -> int | None:
        """After how many steps the newest one was written; None where there is none."""
        return max((int(path.stem) for path in self.folder.glob("[0-9]*.npz")), default=None)

    def newest(self, restore: Callable[[Checkpoint], Restored]) -> Restored | None:
        """What is made of the newest checkpoint that is whole and of this run; None where there is none.

        Others are removed, with a note.
        """
        for path in sorted(self.folder.glob("[0-9]*.npz"), reverse=True):
            try:
                written, checkpoint = path.stat().st_mtime, self._read(path)
                found = restore(checkpoint)
            except Exception as error:  # whatever a damaged file raises, in any library that reads it
                why = f"{type(error).__name__}: {error}"
                self._note(f"{self.name}: cannot go on after step {int(path.stem)} ({why})")
                path.unlink()
                continue
            self.notes += [note for note in checkpoint.notes if note not in self.notes]
            now, kept = (
                datetime.fromtimestamp(at, UTC).isoformat(" ", "seconds") for at in (time.time(), written)
            )
            self._note(f"{self.name}: went on at {now} after step {checkpoint.done}, kept at {kept}")
            return found
        return None

    def remove(self) -> None:
        """Remove all, and folders above them that are empty then."""
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
    """Remove a folder, and of so many above it those that are empty then."""
    rmtree(folder, ignore_errors=True)
    with suppress(OSError):
        for above in list(folder.parents)[:parents]:
            above.rmdir()
