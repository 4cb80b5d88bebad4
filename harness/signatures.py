"""What a function of another library takes, read from its source without importing it."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from harness.errors import InputError


def arguments_of(path: str) -> tuple[str, ...] | None:
    """The names of a function's or class' arguments; None where it takes any, or its source does not say.

    Args:
        path: a dotted name such as `torch.optim.NAdam`.

    Raises:
        InputError: when its package is not installed, or has nothing of that name.
    """
    package, *names = path.split(".")
    root = _top(package)
    if root is None:
        raise InputError(f"{path}: the package {package!r} is not installed")
    found = _resolve(root, names)
    if found is None:
        return None
    if isinstance(found, ast.ClassDef):
        own = [node for node in found.body if isinstance(node, ast.FunctionDef) and node.name == "__init__"]
        if not own:
            return None
        found = own[0]
    arguments = found.args
    if arguments.kwarg is not None:
        return None
    named = [one.arg for one in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)]
    return tuple(name for name in named if name != "self")


Definition = ast.ClassDef | ast.FunctionDef


def _top(package: str) -> Path | None:
    """The file or folder of a package that is not imported for it."""
    spec = find_spec(package)
    if spec is None:
        return None
    if spec.submodule_search_locations:
        return Path(next(iter(spec.submodule_search_locations)))
    return Path(spec.origin) if spec.origin else None


def _resolve(place: Path, names: Sequence[str], depth: int = 0) -> Definition | None:
    """The definition that a dotted name below a folder or file means; None where its source does not say."""
    if depth > 20 or not names:
        return None
    inner = _below(place, names[0])
    if inner is not None and len(names) > 1:
        return _resolve(inner, names[1:], depth + 1)
    file = place / "__init__.py" if place.is_dir() else place
    if not file.is_file():
        return None
    for node in reversed(_parsed(file).body):
        found = _meant(node, file, names, depth)
        if found is not None:
            return found
    if not _speaks_of(_parsed(file), names[0]):
        raise InputError(f"{file}: has no {names[0]!r}; give the dotted name that an import would take")
    return None


def _speaks_of(tree: ast.Module, name: str) -> bool:
    """Whether a file may define a name in a way that is not followed here."""
    return any(
        getattr(node, field, None) in (name, "*", "__getattr__")
        for node in ast.walk(tree)
        for field in ("id", "name", "asname", "attr", "value")
        if not isinstance(getattr(node, field, None), ast.AST)
    )


def _below(place: Path, name: str) -> Path | None:
    folder, file = place / name, place / f"{name}.py"
    return file if file.is_file() else folder if folder.is_dir() else None


@cache
def _parsed(file: Path) -> ast.Module:
    return ast.parse(file.read_bytes())


def _meant(node: ast.stmt, file: Path, names: Sequence[str], depth: int) -> Definition | None:
    """What a statement at the top of a file says about a name."""
    first, rest = names[0], names[1:]
    if isinstance(node, (ast.ClassDef, ast.FunctionDef)):
        return node if node.name == first and not rest else None
    if isinstance(node, ast.ImportFrom):
        for alias in node.names:
            if first == (alias.asname or alias.name) or alias.name == "*":
                base = _imported(node, file)
                inner = [first if alias.name == "*" else alias.name, *rest]
                return None if base is None else _resolve(base, inner, depth + 1)
    if isinstance(node, ast.Assign) and any(_is_name(target, first) for target in node.targets):
        dotted = _dotted(node.value)
        return _resolve(file, [*dotted, *rest], depth + 1) if dotted and dotted[0] != first else None
    return None


def _is_name(node: ast.expr, name: str) -> bool:
    return isinstance(node, ast.Name) and node.id == name


def _dotted(node: ast.expr) -> list[str]:
    if isinstance(node, ast.Name):
        return [node.id]
    inner = _dotted(node.value) if isinstance(node, ast.Attribute) else []
    return [*inner, node.attr] if inner and isinstance(node, ast.Attribute) else []


def _imported(node: ast.ImportFrom, file: Path) -> Path | None:
    """The folder or file that an import statement reads from."""
    parts = node.module.split(".") if node.module else []
    place: Path | None = file.parent
    if node.level:
        for _ in range(node.level - 1):
            place = place.parent if place else None
    else:
        place = _top(parts[0]) if parts else None
        parts = parts[1:]
    for part in parts:
        place = None if place is None else _below(place, part)
    return place
