"""Which first-party files decide what a module does, found in the syntax tree without importing."""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

from curvebench import EXPORTS
from curvebench.optimizers.bases import KIND as BASES
from curvebench.registry import RULES, WORKLOADS, find_workload, located, origin
from curvebench.spec.errors import InputError
from curvebench.spec.job import TRAJECTORY_VERSION, JobSpec
from curvebench.spec.method import BasisSpec, WorkloadSpec

ROOT = Path(__file__).resolve().parent.parent
RULES_AND_WORKLOADS = ("curvebench.optimizers", "curvebench.workloads")
# Of studies; the golden test makes TRAJECTORY_VERSION cover the harness.
FOLLOWED = ("curvebench.spec", *RULES_AND_WORKLOADS)
DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
DATA = "data:"  # marks the key of a data file among the sources


class SourceTree:
    """Files and packages as a plan finds them: each is looked up, read and hashed once.

    Args:
        root: the folder that holds the packages.
    """

    def __init__(self, root: Path = ROOT) -> None:
        self.root = root
        self._file = cache(self._find)
        self._hash = cache(content_hash)
        self._imported = cache(self._imports)
        self._sources = cache(self._all_sources)
        self._version = cache(version)

    def sources(self, modules: Iterable[str], followed: tuple[str, ...] = FOLLOWED) -> Mapping[str, str]:
        """Return the SHA-256 of the code of modules and of all that they import from the followed packages.

        Docstrings and comments do not count, so that improving a sentence recomputes nobody's runs. Imports
        inside functions count; a package's `__init__` counts for each of its modules.

        Args:
            modules: dotted names such as `curvebench.optimizers.adam`.
            followed: the packages whose imports are followed.

        Returns:
            Hexadecimal SHA-256 (`content_hash`) by path relative to the root, sorted.

        Raises:
            InputError: for a module without a file, or a file that is no Python.
        """
        return self._sources(tuple(sorted(set(modules))), followed)

    def data_files(self, specs: Iterable[WorkloadSpec]) -> dict[str, str]:
        """SHA-256 by `data:<name>` of the files that the workloads read (Workload.files)."""
        return {
            f"{DATA}{path.name}": self._hash(path)
            for spec in specs
            for path in find_workload(spec.locator).files(spec.settings)
        }

    def decisive(
        self,
        modules: Iterable[str],
        rules: Iterable[str],
        workloads: Sequence[WorkloadSpec],
        bases: Iterable[BasisSpec],
        packages: Iterable[str],
        followed: tuple[str, ...] = FOLLOWED,
    ) -> dict[str, Any]:
        """Return the fields `sources` and `versions` of a job's spec.

        Args:
            modules: those that decide it by themselves.
            rules: locators of what it runs, beside its workloads and bases.
            packages: the distributions whose versions count, beside those of rules and workloads.
            followed: as in `sources`.
        """
        origins = [origin(RULES, locator) for locator in rules]
        origins += [origin(WORKLOADS, spec.locator) for spec in workloads]
        own = (module for one in origins for module in one.modules)
        files = {key: path for one in origins for key, path in one.files.items()}
        versions = {*packages, *(package for one in origins for package in one.packages)}
        return {
            "sources": {
                **self.sources((*modules, *own, *(BASES.module_of(spec.name) for spec in bases)), followed),
                **self.outside(files),
                **self.data_files(workloads),
            },
            "versions": {package: self._version(package) for package in sorted(versions)},
        }

    def outside(self, files: Mapping[str, Path], followed: tuple[str, ...] = FOLLOWED) -> dict[str, str]:
        """SHA-256 of Python files outside by their keys, and of what they import from the followed packages.

        Raises:
            InputError: for a file that is no Python.
        """
        imported = [name for path in files.values() for name in self._imported(path.stem, path, followed)]
        own = {key: self._hash(path) for key, path in files.items()}
        return {**own, **self.sources(imported, followed)}

    def _all_sources(self, modules: tuple[str, ...], followed: tuple[str, ...]) -> Mapping[str, str]:
        found: dict[str, Path] = {}
        waiting = [name for module in modules for name in _with_packages(module)]
        while waiting:
            module = waiting.pop()
            if module in found:
                continue
            path = self._file(module)
            if path is None:
                raise InputError(
                    f"{module}: no such module below {self.root}; the job's sources cannot be hashed"
                )
            found[module] = path
            waiting.extend(self._imported(module, path, followed))
        return {path.relative_to(self.root).as_posix(): self._hash(path) for path in sorted(found.values())}

    def _find(self, module: str) -> Path | None:
        path = self.root.joinpath(*module.split("."))
        candidates = (path.with_suffix(".py"), path / "__init__.py")
        return next((candidate for candidate in candidates if candidate.is_file()), None)

    def _imports(self, module: str, path: Path, followed: tuple[str, ...]) -> tuple[str, ...]:
        """Dotted names of the followed modules that a file imports, with the packages around them.

        A public name, as in `from curvebench import Rule`, stands for the module that defines it; `import
        curvebench` stands for all of them, since the file may use any.
        """
        package = module if path.name == "__init__.py" else module.rpartition(".")[0]
        try:
            names = _names(path.read_bytes(), package)
        except SyntaxError as error:
            raise InputError(f"{path}: line {error.lineno}: not valid Python ({error.msg})") from error
        if {"curvebench", "curvebench.*"} & {*names}:
            names += tuple(EXPORTS.values())
        return tuple(
            part
            for imported in names
            if _is_below(name := EXPORTS.get(imported.removeprefix("curvebench."), imported), followed)
            for part in _with_packages(name)
            if self._file(part) is not None  # the last part may be a function, not a module
        )


def check_unchanged(spec: JobSpec) -> None:
    """Check that sources, data and packages are still those that the spec was planned with.

    Raises:
        InputError: naming what changed since; its result would be stored under a hash that is not its own.
    """
    files = {name: located(name) or ROOT / name for name in spec.sources if not name.startswith(DATA)}
    now = {name: content_hash(path) if path.is_file() else None for name, path in files.items()}
    now |= SourceTree().data_files(spec.workloads) if len(files) < len(spec.sources) else {}
    changed = [name for name, planned in spec.sources.items() if now.get(name) != planned]
    changed += [package for package, planned in spec.versions.items() if version(package) != planned]
    if spec.trajectory_version != TRAJECTORY_VERSION:
        changed.append("curvebench.spec.job.TRAJECTORY_VERSION")
    if changed:
        raise InputError(
            f"{spec.study} {spec.stage} {spec.hash}: {', '.join(changed)} changed since it was planned; "
            "run snakemake again, which plans it anew"
        )


def content_hash(path: Path) -> str:
    """Return the hexadecimal SHA-256 of a Python file's code, or of another file's bytes."""
    return hashlib.sha256(_content(path)).hexdigest()


def files_hash(paths: Iterable[Path], root: Path = ROOT) -> str:
    """Return one SHA-256 (first 16 digits) over the names and contents of several files below `root`."""
    digest = hashlib.sha256()
    for path in sorted(paths):
        content = _content(path)
        digest.update(f"{path.relative_to(root).as_posix()}\0{len(content)}\0".encode() + content)
    return digest.hexdigest()[:16]


def _content(path: Path) -> bytes:
    """Return the bytes of a file; for Python only its code, so that better prose recomputes no run."""
    content = path.read_bytes()
    return _code(content) if path.suffix == ".py" else content


@cache
def _code(source: bytes) -> bytes:
    """Return the part of a Python file that its hash covers: its code, or all of it where it does not parse.

    Parsing a file takes a hundred times as long as reading it, and a plan hashes most files for several jobs.
    """
    try:
        return code_of(ast.parse(source)).encode()
    except SyntaxError:
        return source


def code_of(tree: ast.Module) -> str:
    """Return the code of a syntax tree without docstrings and comments; the tree loses its docstrings."""
    for node in ast.walk(tree):
        if isinstance(node, DOCUMENTED) and ast.get_docstring(node, clean=False) is not None:
            node.body = node.body[1:] or [ast.Pass()]
    return ast.unparse(tree)


def _is_below(module: str, packages: tuple[str, ...]) -> bool:
    return any(f"{module}.".startswith(f"{package}.") for package in packages)


def _with_packages(module: str) -> list[str]:
    """A module and the packages around it, but for `curvebench` itself, which only lists public names."""
    parts = module.split(".")
    return [".".join(parts[: end + 1]) for end in range(1, len(parts))]


@cache
def _names(source: bytes, package: str) -> tuple[str, ...]:
    """Every dotted name that import statements could mean, modules and their members alike."""
    names: list[str] = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            above = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            base = ".".join([*above, *([node.module] if node.module else [])])
            names += [f"{base}.{alias.name}" for alias in node.names]
    return tuple(names)
