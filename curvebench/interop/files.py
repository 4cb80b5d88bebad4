"""Import of a user's Python files, such as a file with an optimizer, and of the modules in the same folder.

A user's file can import modules from its own folder, its *neighbours*, as a script can. Neighbours are found
in the syntax tree of the file, without executing code.
"""

from __future__ import annotations

import ast
import hashlib
import importlib.util
import re
import sys
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from types import ModuleType

from curvebench.spec.errors import InputError

# Path of a Python file, and optionally a colon and the name of an object in the file: `my.py:Lion`.
FILE = re.compile(r"(?P<path>.+\.py)(?::(?P<item>[^:/\\]+))?")
MODULE_PREFIX = "curvebench_file_"  # start of the module names of users' files


@cache
def load_file(path: Path) -> ModuleType:
    """Import a file as a module, once per process.

    The module's name in `sys.modules` contains a hash of the path, so that the name differs from all other
    modules. The folder of the file is appended to `sys.path`.

    Raises:
        InputError: when the file does not exist, or an import of a neighbour would find another module.
            Exceptions that code in the file raises are not caught.
    """
    name = f"{MODULE_PREFIX}{hashlib.sha256(str(path).encode()).hexdigest()[:12]}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None or not path.is_file():
        raise InputError(f"{path}: there is no such file")
    _make_importable(with_neighbours(path))
    module = importlib.util.module_from_spec(spec)
    # Register the module before its execution, since dataclasses look up their module in `sys.modules`.
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def with_neighbours(path: Path) -> list[Path]:
    """Return a user's file, followed by its neighbours: the modules of the same folder that it imports.

    Imports by neighbours are followed as well.

    Imports inside functions count. If a neighbour is in a package, the `__init__` of each package that
    contains the neighbour is included.

    Raises:
        InputError: if one of the files is not valid Python.
    """
    folder, files = path.parent, [path]
    for file in files:  # the loop also visits the files that it appends
        for name in imported_names(file, ".".join(file.relative_to(folder).parent.parts)):
            # A file in the root folder of a checkout of this project has the package curvebench next to it.
            # The package does not count as a neighbour.
            parts = with_packages(name) if name.split(".")[0] != "curvebench" else []
            modules = (module_file(folder, part) for part in parts)
            files += [module for module in modules if module and module not in files]
    return files


def _make_importable(files: Sequence[Path]) -> None:
    """Append the folder of a user's file to `sys.path`, so that the file can import its neighbours.

    The folder is added at the end, so that imports of other code still find the same modules as before.

    Args:
        files: the file, followed by its neighbours.

    Raises:
        InputError: if an import of a neighbour's name would find another module: an installed package, a
            module of the standard library, or a neighbour of another file that was imported before.
    """
    folder = files[0].parent
    if str(folder) not in sys.path:
        sys.path.append(str(folder))
    for top in dict.fromkeys(folder / file.relative_to(folder).parts[0] for file in files[1:]):
        spec = importlib.util.find_spec(top.stem)
        found = next(iter(spec.submodule_search_locations or [spec.origin or ""]), None) if spec else None
        if top.resolve() != Path(found or "").resolve():
            message = f"import {top.stem} finds {found}, not {top}, which is next to the file"
            raise InputError(f"{files[0]}: {message}; rename one of them")


def imported_names(path: Path, package: str) -> tuple[str, ...]:
    """Return the dotted names that a file imports: modules, and names inside modules.

    Args:
        path: the file.
        package: name of the package that contains the file, for relative imports; empty for no package.

    Raises:
        InputError: if the file is not valid Python.
    """
    try:
        return _imported_names(path.read_bytes(), package)
    except SyntaxError as error:
        raise InputError(f"{path}: line {error.lineno}: not valid Python ({error.msg})") from error


@cache
def _imported_names(source: bytes, package: str) -> tuple[str, ...]:
    names: list[str] = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            parents = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            base = [*filter(None, parents), *([node.module] if node.module else [])]
            names += [".".join([*base, alias.name]) for alias in node.names]
    return tuple(names)


def module_file(folder: Path, module: str) -> Path | None:
    """Return the file of a module or package; None if no file exists, as for a function in a module.

    Args:
        folder: folder in which an import would look for the module.
        module: dotted name of the module.
    """
    path = folder.joinpath(*module.split("."))
    return next(filter(Path.is_file, (path / "__init__.py", path.with_suffix(".py"))), None)


def with_packages(module: str) -> list[str]:
    """Return the names of the packages that contain a module, the outermost first, and the module's name."""
    parts = module.split(".")
    return [".".join(parts[:end]) for end in range(1, len(parts) + 1)]


@contextmanager
def as_errors_of_user(text: str, path: Path) -> Iterator[None]:
    """Return a context that turns an exception of a user's code into an InputError.

    Args:
        text: beginning of the message, which is followed by the exception and the line in the file.
        path: the user's file.
    """
    try:
        yield
    except InputError:
        raise
    except (Exception, SystemExit) as error:  # a user's code may raise any exception
        raise InputError(f"{text} ({error_at(error, path)})") from error


def error_at(error: BaseException, path: Path) -> str:
    """Return the message for an exception: its type, its text, and the line of `path` that raised it.

    The text becomes one line. JAX adds a sentence to some errors, with the place where JAX was called. This
    place is a line of curvebench and not of the user's file, so that the sentence is left out.
    """
    frames = traceback.extract_tb(error.__traceback__)
    lines = [frame.lineno for frame in frames if Path(frame.filename) == path]
    text = re.sub(r"The error occurred while tracing the function .* for \w+\. ", "", str(error))
    return f"{type(error).__name__}: {' '.join(text.split())}" + (f", line {lines[-1]}" if lines else "")
