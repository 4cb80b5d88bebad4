"""Hashes of the source files that decide a result.

The files are found by following imports in syntax trees, without executing code.

A job's hash contains the hashes of its source files, so that a job is run again when one of them changes.
"""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Iterable, Mapping, Sequence
from functools import cache, partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

from curvebench import EXPORTS
from curvebench.interop.files import imported_names, module_file, with_packages
from curvebench.optimizers.bases import KIND as BASES
from curvebench.registry import RULES, WORKLOADS, find_workload, located, origin
from curvebench.spec.errors import InputError
from curvebench.spec.job import TRAJECTORY_VERSION, JobSpec
from curvebench.spec.method import BasisSpec, WorkloadSpec

ROOT = Path(__file__).resolve().parent.parent
RULES_AND_WORKLOADS = ("curvebench.optimizers", "curvebench.workloads")
# Packages whose modules are hashed for the jobs of studies, and whose imports are followed.
# The engine, which executes steps, is not hashed.
# If a change of the engine alters results, a test that compares with stored trajectories fails.
# TRAJECTORY_VERSION must be increased after such a change.
FOLLOWED = ("curvebench.spec", *RULES_AND_WORKLOADS)
# Nodes of syntax trees that may have a docstring.
DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
# Module that defines each public name, such as `curvebench.Rule`.
PUBLIC = {f"curvebench.{name}": module for name, module in EXPORTS.items()}
DATA = "data:"  # prefix of keys of data files in the mapping `JobSpec.sources`


class SourceTree:
    """Cache of file hashes and package versions for a plan, so that each file is read and hashed once.

    Args:
        root: folder that contains the package `curvebench`.
    """

    def __init__(self, root: Path = ROOT) -> None:
        self.root = root
        self._file = cache(partial(module_file, root))
        self._hash = cache(content_hash)
        self._imported = cache(self._imports)
        self._sources = cache(self._all_sources)
        self._version = cache(version)

    def sources(self, modules: Iterable[str], followed: tuple[str, ...] = FOLLOWED) -> Mapping[str, str]:
        """Return the SHA-256 of modules, and of all modules in `followed` that they import.

        Imports by imported modules are followed as well.

        Docstrings and comments are not hashed, so that no run is computed again because a sentence was
        improved. Imports inside functions are followed as well. For a module in a package, the `__init__` of
        the package is hashed as well.

        Args:
            modules: dotted names such as `curvebench.optimizers.adam`.
            followed: packages whose imports are followed.

        Returns:
            A mapping from paths relative to the root, in alphabetical order, to hexadecimal SHA-256
            (`content_hash`).

        Raises:
            InputError: if a module has no file, or a file is not valid Python.
        """
        return self._sources(tuple(sorted(set(modules))), followed)

    def data_files(self, specs: Iterable[WorkloadSpec]) -> dict[str, str]:
        """Return the SHA-256 of the data of workloads.

        The keys of the result are `data:` followed by the name of a file or by the name of a data set.
        """
        hashes = dict[str, str]()
        for spec in specs:
            workload = find_workload(spec.locator)
            hashes |= {f"{DATA}{path.name}": self._hash(path) for path in workload.files(spec.settings)}
            own = workload.data_hashes(spec.settings)
            hashes |= {f"{DATA}{spec.name}: {name}": digest for name, digest in own.items()}
        return hashes

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
            modules: modules that decide the result in addition to rules, workloads and bases.
            rules: locators of the optimizers that the job runs.
            workloads: workloads that the job runs.
            bases: bases (changes of coordinates of the parameters) that the job uses.
            packages: names of distributions, such as `numpy`, whose versions decide the result, too.
            followed: packages whose imports are followed.
        """
        origins = [origin(RULES, locator) for locator in rules]
        origins += [origin(WORKLOADS, spec.locator) for spec in workloads]
        needed = [*modules, *(module for item in origins for module in item.modules)]
        files = {key: path for item in origins for key, path in item.files.items()}
        versions = {*packages, *(package for item in origins for package in item.packages)}
        return {
            "sources": {
                **self.sources((*needed, *(BASES.module_of(spec.name) for spec in bases)), followed),
                **self.outside(files),
                **self.data_files(workloads),
            },
            "versions": {package: self._version(package) for package in sorted(versions)},
        }

    def outside(self, files: Mapping[str, Path], followed: tuple[str, ...] = FOLLOWED) -> dict[str, str]:
        """Return the SHA-256 of Python files outside the project, and of modules that they import.

        Only imported modules in `followed` are included.

        Args:
            files: a mapping from keys to the paths of the files. The hashes of the files have the same keys;
                the hashes of imported modules have paths as keys.
            followed: packages whose imports are followed.

        Raises:
            InputError: if a file is not valid Python.
        """
        imported = [name for path in files.values() for name in self._imported(path.stem, path, followed)]
        hashes = {key: self._hash(path) for key, path in files.items()}
        return {**hashes, **self.sources(imported, followed)}

    def _all_sources(self, modules: tuple[str, ...], followed: tuple[str, ...]) -> Mapping[str, str]:
        """Return a mapping from paths to the SHA-256 of modules, and of all modules that they import.

        Imports by imported modules are followed as well.
        """
        paths: dict[str, Path] = {}
        waiting = [name for module in modules for name in _hashed(module)]
        while waiting:
            module = waiting.pop()
            if module in paths:
                continue
            path = self._file(module)
            if path is None:
                raise InputError(
                    f"{module}: no such module below {self.root}; the job's sources cannot be hashed"
                )
            paths[module] = path
            waiting.extend(self._imported(module, path, followed))
        return {path.relative_to(self.root).as_posix(): self._hash(path) for path in sorted(paths.values())}

    def _imports(self, module: str, path: Path, followed: tuple[str, ...]) -> tuple[str, ...]:
        """Return the names of the followed modules that a file imports, and the names of their packages.

        A public name, as in `from curvebench import Rule`, counts as the module that defines it. `import
        curvebench` counts as all public names, because the file may use any of them.

        Args:
            module: dotted name of the file's module, to which relative imports refer.
            path: the file.
            followed: packages whose imports are followed.
        """
        package = module if path.name == "__init__.py" else module.rpartition(".")[0]
        names = imported_names(path, package)
        if {"curvebench", "curvebench.*"} & {*names}:
            names += tuple(PUBLIC.values())
        return tuple(
            part
            for imported in names
            if _is_below(name := PUBLIC.get(imported, imported), followed)
            for part in _hashed(name)
            if self._file(part) is not None  # leave out names of functions and classes
        )


def check_unchanged(spec: JobSpec) -> None:
    """Check that source files, data files and package versions are the same as when the job was planned.

    Otherwise the job's result would be stored under the hash of other code.

    Raises:
        InputError: if a file or a version has changed. The message names the file or the package.
    """
    files = {name: located(name) or ROOT / name for name in spec.sources if not name.startswith(DATA)}
    current = {name: content_hash(path) if path.is_file() else None for name, path in files.items()}
    current |= SourceTree().data_files(spec.workloads) if len(files) < len(spec.sources) else {}
    changed = [name for name, planned in spec.sources.items() if current.get(name) != planned]
    changed += [package for package, planned in spec.versions.items() if version(package) != planned]
    if spec.trajectory_version != TRAJECTORY_VERSION:
        changed.append("curvebench.spec.job.TRAJECTORY_VERSION")
    if changed:
        raise InputError(
            f"{spec.study} {spec.stage} {spec.hash}: {', '.join(changed)} changed since it was planned; "
            "run snakemake again, which plans it anew"
        )


def content_hash(path: Path) -> str:
    """Return the hexadecimal SHA-256 of a file. Docstrings and comments of a Python file are not hashed."""
    return hashlib.sha256(_content(path)).hexdigest()


def files_hash(paths: Iterable[Path], root: Path = ROOT) -> str:
    """Return one hash of the names and contents of several files below `root`.

    The hash is the first 16 hexadecimal digits of a SHA-256. Docstrings and comments of Python files are left
    out.
    """
    digest = hashlib.sha256()
    for path in sorted(paths):
        content = _content(path)
        digest.update(f"{path.relative_to(root).as_posix()}\0{len(content)}\0".encode() + content)
    return digest.hexdigest()[:16]


def _content(path: Path) -> bytes:
    """Return the bytes of a file that are hashed.

    For a Python file, these are the code without docstrings and comments; for other files, all bytes.
    """
    content = path.read_bytes()
    return _code(content) if path.suffix == ".py" else content


@cache
def _code(source: bytes) -> bytes:
    """Return the code of a Python file without docstrings and comments.

    If the file is not valid Python, return the whole source.

    The result is cached, because parsing takes a hundred times as long as reading, and a plan hashes most
    files for several jobs.
    """
    try:
        return code_of(ast.parse(source)).encode()
    except SyntaxError:
        return source


def code_of(tree: ast.Module) -> str:
    """Remove docstrings from a syntax tree, and return the code of the tree, which has no comments either."""
    for node in ast.walk(tree):
        if isinstance(node, DOCUMENTED) and ast.get_docstring(node, clean=False) is not None:
            node.body = node.body[1:] or [ast.Pass()]
    return ast.unparse(tree)


def _is_below(module: str, packages: tuple[str, ...]) -> bool:
    """Return whether a module is one of the given packages or inside one of them."""
    return any(f"{module}.".startswith(f"{package}.") for package in packages)


def _hashed(module: str) -> list[str]:
    """Return the names of a module and of the packages that contain it, except `curvebench`, whose
    `__init__` has no code that decides results.
    """
    return with_packages(module)[1:]
