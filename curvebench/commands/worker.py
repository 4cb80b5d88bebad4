"""Main module of a worker process, which computes jobs. Supervisors of jobs start it.

The command is `python -m curvebench.commands.worker`; see `curvebench.stages.workers`.
"""

from __future__ import annotations

import os
import socket
import sys
from pathlib import Path

from curvebench.__main__ import main
from curvebench.stages.workers import work

if __name__ == "__main__":
    # This process has a session of its own, and gets no interrupt (Ctrl-C) from the terminal.
    # The supervisor gets the interrupt, and this process ends when the supervisor ends.
    os.setsid()
    work(socket.socket(fileno=int(sys.argv[1])), Path(sys.argv[2]), main)
    # Exit without the usual shutdown of the interpreter, in which libraries spend up to 0.7 s.
    os._exit(0)
