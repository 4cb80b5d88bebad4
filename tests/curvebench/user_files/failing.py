"""Rule that fails in a different way for each number of parameters."""

import ctypes
import os
import signal
import time
from dataclasses import replace

from curvebench.optimizers.gradient_descent import SGD


def _allocate():
    held = []
    while True:
        held.append(bytearray(1 << 28))


ACTS = {
    4: lambda: 1 / 0,
    5: lambda: os.kill(os.getpid(), signal.SIGKILL),
    6: _allocate,
    7: lambda: ctypes.string_at(0),
    8: lambda: time.sleep(3600),
}


def _update(ops, grad, state, param, hyper):
    ACTS[param.shape[-1]]()


RULES = (replace(SGD, name="failing", update=_update),)
