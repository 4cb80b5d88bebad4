"""Peak resident memory of a stretch of work, where the system can reset it (Linux)."""

from __future__ import annotations

import ctypes
import gc
import re
import sys
from collections.abc import Callable
from pathlib import Path

PROCESS = Path("/proc/self")
RESET_PEAK = "5"  # what the kernel takes in clear_refs: the peak becomes what is resident now (proc(5))


def resident_bytes(process: Path = PROCESS) -> int | None:
    """What this process has in memory, with what it no longer uses given back; None where nobody says."""
    gc.collect()
    if sys.platform == "linux":
        # the GNU library's; others give back themselves
        trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
        if trim is not None:
            trim(0)
    return _status(process, "VmRSS")


def peak_resident_bytes(run: Callable[[], None], process: Path = PROCESS) -> int | None:
    """The most that this process has in memory while `run` runs; None where the peak cannot be reset."""
    try:
        (process / "clear_refs").write_text(RESET_PEAK)
    except OSError:
        run()
        return None
    run()
    return _status(process, "VmHWM")


def _status(process: Path, key: str) -> int | None:
    try:
        text = (process / "status").read_text()
    except OSError:
        return None
    found = re.search(rf"^{key}:\s+(\d+) kB$", text, re.MULTILINE)
    return int(found[1]) * 1024 if found else None
