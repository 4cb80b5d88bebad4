"""Import of single Python files of users that belong to no package, such as a file with an optimizer."""

from __future__ import annotations

import hashlib
import importlib.util
import re
import sys
import traceback
from functools import cache
from pathlib import Path
from types import ModuleType

from curvebench.spec.errors import InputError

# Path of a Python file, and optionally a colon and the name of an object in the file: `my.py:Lion`.
FILE = re.compile(r"(?P<path>.+\.py)(?::(?P<item>[^:/\\]+))?")


@cache
def load_file(path: Path) -> ModuleType:
    """Import a file as a module, once per process.

    The module's name in `sys.modules` is a hash of the path, so that it differs from all packages.

    Raises:
        InputError: when there is no such file. Exceptions that are raised by code in the file are not caught.
    """
    name = f"curvebench_file_{hashlib.sha256(str(path).encode()).hexdigest()[:12]}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None or not path.is_file():
        raise InputError(f"{path}: there is no such file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # register it before execution, since dataclasses look up their module there
    spec.loader.exec_module(module)
    return module


def error_at(error: Exception, path: Path) -> str:
    """Return a message for an exception: its type, its text, and the line of a user's file that raised it."""
    frames = traceback.extract_tb(error.__traceback__)
    lines = [frame.lineno for frame in frames if Path(frame.filename) == path]
    return f"{type(error).__name__}: {error}" + (f", line {lines[-1]}" if lines else "")
