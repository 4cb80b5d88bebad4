"""The house rules: pins, layout of imports, docstrings, and the Makefile's habits."""

from __future__ import annotations

import ast
import importlib
import importlib.metadata
import re
import shutil
import subprocess
import sys
import tomllib
from collections import Counter, defaultdict
from functools import cache
from graphlib import TopologicalSorter
from importlib.util import find_spec
from pathlib import Path

import polars as pl
import pytest
from ruamel.yaml import YAML

import curvebench
from curvebench import EXPORTS, __version__, load, published
from curvebench.optimizers import rules

ROOT = Path(__file__).resolve().parent.parent
ROOMS = ("curvebench", "reports", "results")  # folders of one purpose each
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
LOCK = ROOT / "requirements.lock"
WITHOUT_DEPENDENCIES = ROOT / "requirements-no-deps.lock"

# Folders at the root whose packages are links below curvebench
LINKED = ("benchmarks", "optimizers", "reports", "results", "workloads")
# The order of imports: each package or module below curvebench with those that it stands on. It may import
# these, all that they stand on, and `paths`; nothing else of the project, anywhere in its files.
STANDS_ON = {
    "spec": (),
    "workloads": ("spec",),
    "optimizers": ("spec",),
    "results": ("spec",),
    "reports": ("results",),
    "loading": ("reports",),
    "seeding": ("workloads",),
    "arrays": (),
    "precision": ("arrays", "optimizers"),
    "steps": ("precision", "workloads"),
    "backends": ("steps",),
    "basis_estimation": ("backends", "seeding"),
    "engine": ("basis_estimation", "results"),
    "interop": ("engine",),
    "registry": ("interop",),
    "sources": ("registry",),
    "property_checks": ("sources",),
    "timing": ("engine",),
    "planning": ("property_checks",),
    "progress": (),
    "stages": ("planning", "progress", "timing"),
    "benchmarks": ("loading", "stages"),
    "commands": ("benchmarks",),
}
PACKAGES = ("curvebench", *LINKED)
# one for the data that it carries, one for its command, one for a profile that names it
OF_THE_CUDA_EXTRA = ("pynvml",)  # imported where it is installed
UNIMPORTED = {"scikit-learn", "snakemake", "snakemake-executor-plugin-slurm"}
ARRAYS_ONLY = {
    "PIL",
    "numpy",
    "scipy",
    "sklearn",
}  # packages of others that optimizers and workloads may use


def pins(lines: list[str]) -> list[str]:
    return [line.strip() for line in lines if line.strip() and not line.startswith("#")]


def all_pins() -> list[str]:
    """Return the pins of both lock files: packages installed with their dependencies, and without."""
    return [pin for file in (LOCK, WITHOUT_DEPENDENCIES) for pin in pins(file.read_text().splitlines())]


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def sources(*folders: str) -> list[Path]:
    return sorted(path for folder in folders for path in (ROOT / folder).rglob("*.py"))


@cache
def imports(path: Path, of_names: bool = False) -> tuple[str, ...]:
    """Return the dotted names of all absolute imports in a file, and of the names that they import."""
    found: list[str] = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found += (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found += [node.module, *(f"{node.module}.{alias.name}" for alias in node.names if of_names)]
    return tuple(found)


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


# --- pins ----------------------------------------------------------------------------------------


def test_the_lock_file_holds_exact_public_versions_only():
    wrong = [pin for pin in all_pins() if not re.fullmatch(r"[\w.-]+==\d[\w.]*", pin)]
    assert not wrong, f"{LOCK.name}: no local versions, paths, hashes, options or ranges, please"


def test_the_lock_file_names_each_package_once_and_no_package_of_one_accelerator():
    names = [normal(pin.split("==")[0]) for pin in all_pins()]
    assert len(names) == len(set(names))
    assert not [name for name in names if name.startswith(("nvidia-", "cuda-", "triton", "jax-cuda"))]


def test_conda_users_get_the_same_pins():
    environment = YAML(typ="safe").load((ROOT / "environment.yml").read_text())
    *conda, pip = environment["dependencies"]
    assert pip["pip"] == pins(LOCK.read_text().splitlines())
    assert conda == ["python=3.11", "pip"]
    assert PROJECT["project"]["requires-python"] == ">=3.11"


def test_the_environment_is_the_one_that_the_lock_file_describes():
    locked = dict(pin.split("==") for pin in all_pins())
    installed = {name: importlib.metadata.version(name).split("+")[0] for name in locked}
    assert installed == locked


def test_declared_dependencies_are_those_that_are_imported_and_all_are_pinned():
    declared = {normal(name) for name in PROJECT["project"]["dependencies"]}
    extras = PROJECT["project"]["optional-dependencies"]
    locked = {normal(pin.split("==")[0]) for pin in all_pins()}
    assert (
        declared | {normal(name) for extra in ("bench", "test", "lint") for name in extras[extra]} <= locked
    )

    distributions = importlib.metadata.packages_distributions()
    imported = {
        normal(distribution)
        for path in sources(*PACKAGES)
        for module in imports(path)
        if (top := module.split(".")[0]) not in ("curvebench", *sys.stdlib_module_names, *OF_THE_CUDA_EXTRA)
        for distribution in distributions[top]
    }
    bench = {normal(name) for name in extras["bench"]} | {"pytest"}
    assert (imported - bench) | UNIMPORTED == declared


# --- sources -------------------------------------------------------------------------------------


def test_a_file_starts_with_what_it_holds():
    files = sources(*PACKAGES, "tests")
    assert not [name_of(path) for path in files if not re.match(r'"""[^"]{10}', path.read_text())]


def module_of(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts if parts[0] in ("curvebench", "tests") else ("curvebench", *parts))


def package_of(module: str) -> str | None:
    """Return the package or module below curvebench that contains a module; None if all modules may import
    it.
    """
    package = module.partition(".")[2].split(".")[0]
    return package if package in STANDS_ON else None


def below(package: str) -> set[str]:
    """Return the packages that a package may import."""
    return set(STANDS_ON[package]).union(*map(below, STANDS_ON[package]))


@pytest.mark.parametrize("package", STANDS_ON)
def test_packages_import_one_way(package: str):
    wrong = {
        f"{name_of(path)} imports {module}"
        for path in sources(*PACKAGES)
        if package_of(module_of(path)) == package
        for module in imports(path, of_names=True)
        if module.startswith("curvebench.") and package_of(module) not in {None, package, *below(package)}
    }
    assert not wrong


def test_every_package_has_its_place_in_the_order_of_imports():
    folders = {path.parent.name for path in ROOT.glob("curvebench/*/__init__.py")}
    assert folders | {path.stem for path in ROOT.glob("curvebench/[!_]*.py")} == {*STANDS_ON, "paths"}
    tuple(TopologicalSorter(STANDS_ON).static_order())  # a CycleError names the packages


def test_the_folders_at_the_root_are_imported_by_their_names_below_curvebench():
    """Otherwise a module would be imported twice, with two classes of one name."""
    outside, files = {"documents", "harness", *LINKED}, sources(*PACKAGES, "tests")
    wrong = {name_of(path): {name.split(".")[0] for name in imports(path)} & outside for path in files}
    assert not {name for name, modules in wrong.items() if modules}


@pytest.mark.parametrize("name", [*LINKED, "Snakefile", "environment.yml", "profiles"])
def test_what_stands_at_the_root_is_a_link_in_the_package(name: str):
    assert (ROOT / "curvebench" / name).readlink() == Path("..") / name


@pytest.mark.parametrize("name", EXPORTS)
def test_a_public_name_is_there_and_no_module_has_it(name: str):
    """The attribute of a package's module would hide a name that is equal, where it was imported before."""
    assert getattr(curvebench, name) is not None
    assert find_spec(f"curvebench.{name}") is None


def test_no_imports_go_round():
    graph: dict[str, set[str]] = {}
    for path in sources(*PACKAGES):
        name = module_of(path)
        graph[name] = {*imports(path, of_names=True)} - {name}
    tuple(TopologicalSorter(graph).static_order())  # a CycleError names the modules


def test_no_class_has_the_name_of_another():
    places = defaultdict(list)
    for path in sources(*PACKAGES):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef):
                places[node.name].append(name_of(path))
    assert not {name: paths for name, paths in places.items() if len(paths) > 1}


@pytest.mark.parametrize("package", ROOMS)
def test_a_folder_has_at_most_14_files(package: str):
    sizes = Counter(path.parent for path in sources(package))
    assert not {name_of(folder): size for folder, size in sizes.items() if size > 14}


@pytest.mark.parametrize("package", ["optimizers", "workloads"])
def test_rules_and_problems_see_arrays_only_through_the_ops(package: str):
    wrong = {
        f"{name_of(path)} imports {module}"
        for path in sources(package)
        for module in imports(path)
        if module.split(".")[0] not in {*ARRAYS_ONLY, *sys.stdlib_module_names}
        and not module.startswith(f"curvebench.{package}")
        and module not in PLAIN
    }
    assert not wrong


ENGINES = ("curvebench.engine.execution", "curvebench.interop.replaying", "curvebench.backends.torch_engine")
# Programs that start often, and packages that they import neither directly nor through other modules.
LIGHT = {
    "command": ("from curvebench.__main__ import main", {"numpy", "polars", "pydantic"}),
    "check": ("from curvebench.__main__ import main; main(['check', 'convex'])", {"jax", "sklearn"}),
    "computing": (
        "; ".join(map("import {}".format, ENGINES))
        + "; from curvebench import optimizers, workloads; optimizers.rules(), workloads.workloads()",
        {"pydantic", "polars"},
    ),
    "kernels": (
        "from curvebench.benchmarks.kernels.asv_cases import Kernel; assert Kernel.params",
        {"torch", "jax", "sklearn", "optax"},
    ),
    "gpu": (
        "import curvebench.benchmarks.gpu as g; g.machine('cpu'); [g.engine(b, 'mixed') for b in g.BACKENDS]",
        {"polars", "pydantic", "snakemake"},
    ),
    "claims": (
        "from curvebench.property_checks.checks import claims_by_id; claims_by_id()",
        {"torch", "jax", "scipy", "polars"},
    ),
    "provenance": (
        "from curvebench.results.provenance import provenance; provenance(1)",
        {"torch", "jax", "numpy", "sklearn"},
    ),
}


@pytest.mark.parametrize("name", LIGHT)
def test_what_is_to_be_light_imports_no_heavy_library(name: str):
    program, heavy = LIGHT[name]
    program += f"; import sys; print('imported:', *{heavy} & set(sys.modules))"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=ROOT
    )
    assert done.stdout.splitlines()[-1] == "imported:"


PLAIN = (
    "curvebench.spec.definitions",
    "curvebench.spec.errors",
    "curvebench.spec.values",
)  # of documents, what imports nothing but Python's own
PURE = ("curvebench.results.intervals",)  # statistics that harness and reports share


def test_statistics_do_no_input_or_output():
    doors = {"io", "os", "pathlib", "shutil", "socket", "subprocess", "tempfile", "urllib"}
    calls = re.compile(r"open|print|input|(read|scan|write|sink)_\w+|savefig")
    wrong = []
    shared = [path for path in sources("results") if module_of(path) in PURE]
    for path in [*sources("reports/statistics"), *shared]:
        wrong += [
            f"{name_of(path)} imports {name}"
            for name in imports(path)
            if (name.split(".")[0] in doors or name.startswith("curvebench.results")) and name not in PURE
        ]
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call):
                called = getattr(node.func, "attr", getattr(node.func, "id", ""))
                wrong += [f"{name_of(path)}:{node.lineno} calls {called}"] if calls.fullmatch(called) else []
    assert not wrong


# --- papers --------------------------------------------------------------------------------------


def test_the_changelog_is_short_and_begins_with_this_version():
    text = (ROOT / "CHANGELOG.md").read_text()
    versions = re.findall(r"^## (Unreleased|[\d.]+)", text, re.MULTILINE)
    assert __version__ in versions[:2]
    assert set(versions[: versions.index(__version__)]) <= {"Unreleased"}
    assert len(text.split(f"## {__version__}", 1)[1].split("\n## ")[0].splitlines()) <= 150


def test_the_changelog_counts_rules_and_claims_as_they_are():
    text = (ROOT / "CHANGELOG.md").read_text()
    claims = pl.concat([load(name).claims for name in published()]).filter(pl.col("verdict") != "not run")
    assert f"\n- {len(rules())} rules:" in text
    assert f"\n- {claims['claim'].n_unique()} claims " in text


def test_citation_and_documentation_name_this_version_and_licence():
    citation = YAML(typ="safe").load((ROOT / "CITATION.cff").read_text())
    assert citation["version"] == __version__
    pages = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")]
    tags = {tag for page in pages for tag in re.findall(r"`(?:git tag )?(v[\d.]+)`", page.read_text())}
    assert tags == {f"v{__version__}"}
    assert citation["license"] == PROJECT["project"]["license"]
    assert (ROOT / "LICENSE").read_text().startswith("BSD 3-Clause License")


# --- make ----------------------------------------------------------------------------------------


@pytest.fixture
def without_environment(tmp_path: Path) -> Path:
    """Return a folder with the files from which the environment is made, without an environment."""
    for name in ("Makefile", LOCK.name, WITHOUT_DEPENDENCIES.name, "pyproject.toml"):
        shutil.copy(ROOT / name, tmp_path)
    return tmp_path


@pytest.fixture
def house(without_environment: Path) -> Path:
    """Return such a folder with an environment whose Python is a script that records its arguments."""
    python = without_environment / ".venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text('#!/bin/sh\necho "$@" >> "$(dirname "$0")/calls"\n')
    python.chmod(0o755)
    return without_environment


def make(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["make", *arguments], cwd=folder, capture_output=True, text=True, check=False)


def calls(folder: Path) -> list[str]:
    file = folder / ".venv" / "bin" / "calls"
    return file.read_text().splitlines() if file.exists() else []


def test_the_environment_is_made_once_from_the_lock_file_and_again_when_it_changes(house: Path):
    alone = WITHOUT_DEPENDENCIES.name
    assert make(house, "environment").returncode == 0
    assert calls(house) == [
        "-m pip install --quiet --requirement requirements.lock",
        f"-m pip install --quiet --no-deps --no-build-isolation --requirement {alone} --editable .",
    ]
    (house / "requirements.lock").touch()
    assert make(house, "environment").returncode == 0
    assert len(calls(house)) == 2, "equal content means ready, whatever the time of the file"

    with (house / "requirements.lock").open("a") as lock:
        lock.write("another==1.0\n")
    assert make(house, "environment").returncode == 0
    assert len(calls(house)) == 4


def test_a_failed_installation_does_not_count_as_ready(house: Path):
    (house / ".venv" / "bin" / "python").write_text("#!/bin/sh\nexit 1\n")
    assert make(house, "environment").returncode != 0
    assert not list((house / ".venv").glob("ready-*"))


# stand-in for a program: it writes down its name and arguments, and makes the environment when told to
PROGRAM = """#!/bin/sh
name=$(basename "$0")
case "$name $*" in
  "python"*" -c "*) exit {other} ;;
  *" .venv")
    echo "$name $*" > made_by
    mkdir -p .venv/bin && printf '#!/bin/sh\\n' > .venv/bin/python && chmod +x .venv/bin/python
    exit {failure} ;;
esac
"""
TOOLS = ("sh", "cat", "cksum", "rm", "touch", "mkdir", "chmod", "basename")


def path_with(folder: Path, *programs: str, other: int = 1, failure: int = 0) -> str:
    """Return a folder for PATH, below the given one, with the shell's tools and stand-ins of Python and uv.

    Args:
        programs: the names of the stand-ins.
        other: the status with which Python says that it is another than 3.11; 0 where it is 3.11.
        failure: the status of making the environment.
    """
    folder = folder / "programs"
    folder.mkdir()
    for tool in TOOLS:
        (folder / tool).symlink_to(shutil.which(tool) or "")
    for program in programs:
        (folder / program).write_text(PROGRAM.format(other=other, failure=failure))
        (folder / program).chmod(0o755)
    return str(folder)


@pytest.mark.parametrize(
    ("programs", "other", "made_by"),
    [
        (("python3", "uv"), 0, "python3 -m venv .venv"),
        (("python3.11", "python3", "uv"), 0, "python3.11 -m venv .venv"),
        (("python3", "uv"), 1, "uv venv --seed --python 3.11 .venv"),
        (("uv",), 1, "uv venv --seed --python 3.11 .venv"),
    ],
)
def test_the_environment_is_made_by_python_3_11_or_else_by_uv(
    without_environment: Path, programs: tuple[str, ...], other: int, made_by: str
):
    path = path_with(without_environment, *programs, other=other)
    done = make(without_environment, "environment", f"PATH={path}")
    assert done.returncode == 0, done.stderr
    assert (without_environment / "made_by").read_text().strip() == made_by


@pytest.mark.parametrize(
    ("programs", "arguments"), [(("python3",), ()), ((), ()), (("python3", "uv"), ("PYTHON=/bin/false",))]
)
def test_another_python_is_refused_in_a_line_with_the_remedies(
    without_environment: Path, programs: tuple[str, ...], arguments: tuple[str, ...]
):
    """Without uv, or where another Python is named: that is not passed over."""
    done = make(
        without_environment, "environment", f"PATH={path_with(without_environment, *programs)}", *arguments
    )
    assert done.returncode != 0
    (said, *_) = done.stderr.splitlines()
    for part in ("needs Python 3.11", "https://docs.astral.sh/uv", "make PYTHON=/path/to/python3.11"):
        assert part in said
    assert not (without_environment / ".venv").exists()


def test_an_environment_that_could_not_be_made_is_not_left_behind(without_environment: Path):
    """Debian's Python without `python3-venv` leaves one without pip."""
    path = path_with(without_environment, "python3", other=0, failure=1)
    assert make(without_environment, "environment", f"PATH={path}").returncode != 0
    assert (without_environment / "made_by").exists()
    assert not (without_environment / ".venv").exists()


def test_clean_removes_what_was_written_and_nothing_else(house: Path):
    before = {path for path in house.rglob("*") if path.is_file()}
    kept = house / "results" / "published" / "table.parquet"
    written = [
        house / folder / "file"
        for folder in (
            *("results/specs", "results/runs", "results/tables", "results/figures", "results/logs"),
            "results/checkpoints",
            *("reports/site", ".snakemake", ".cache", ".pytest_cache", "curvebench/backends/__pycache__"),
        )
    ]
    for path in [kept, *written]:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("")
    assert make(house, "clean").returncode == 0
    assert {path for path in house.rglob("*") if path.is_file()} == before | {kept}


def test_continuous_integration_calls_lint_and_test_on_a_bare_machine_before_it_installs_anything():
    script = ROOT / ".ci" / "run"
    assert script.stat().st_mode & 0o111
    text = script.read_text()
    lines = text.splitlines()
    assert "set -euo pipefail" in lines
    called = [line.split()[2] for line in lines if line.startswith("make ")]
    assert called == ["lint", "test", "test-all", "docs"]
    assert text.index(" test\n") < text.index("apt-get install") < text.index("ALL_INSTALLED=1 make")
