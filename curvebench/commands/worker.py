"""The process of a worker, `python -m curvebench.commands.worker`, which supervisors start."""

from __future__ import annotations

import os
import socket
import sys
from pathlib import Path

from curvebench.__main__ import main
from curvebench.stages.workers import work

if __name__ == "__main__":
    # In its own session the process gets no interrupt from the terminal; the supervisor gets it, and when the
    # supervisor ends, the worker ends too.
    os.setsid()
    work(socket.socket(fileno=int(sys.argv[1])), Path(sys.argv[2]), main)
    # Exit without the shutdown of the interpreter, in which libraries spend up to 0.7 s.
    os._exit(0)
