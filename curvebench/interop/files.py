"""Single files of users as modules."""

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

FILE = re.compile(r"(?P<path>.+\.py)(?::(?P<item>[^:/\\]+))?")  # a path, and perhaps a name in it


@cache
def load_file(path: Path) -> ModuleType:
    """A file as a module, under a name that no package has.

    Raises:
        InputError: where there is none; what the file itself raises comes through.
    """
    name = f"curvebench_file_{hashlib.sha256(str(path).encode()).hexdigest()[:12]}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None or not path.is_file():
        raise InputError(f"{path}: there is no such file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


def error_at(error: Exception, path: Path) -> str:
    """What a file raises, and at which of its lines."""
    lines = [one.lineno for one in traceback.extract_tb(error.__traceback__) if Path(one.filename) == path]
    return f"{type(error).__name__}: {error}" + (f", line {lines[-1]}" if lines else "")
