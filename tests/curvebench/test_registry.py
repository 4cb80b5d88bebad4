"""Contestants from elsewhere: installed packages, single files, other libraries, in the same protocol."""

from __future__ import annotations

import dataclasses
import importlib.machinery
import importlib.util
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from curvebench import registry as contestants
from curvebench.backends.engine import engine
from curvebench.engine.bundle import Bundle
from curvebench.engine.execution import execute
from curvebench.planning.config import Config
from curvebench.planning.plan import make_plan, write_specs
from curvebench.registry import RULES, WORKLOADS, canonical, find_rule, find_workload, known, origin
from curvebench.results.reading import read
from curvebench.sources import check_unchanged
from curvebench.spec.errors import InputError
from curvebench.spec.job import RunsSpec
from curvebench.stages import timing_jobs
from curvebench.stages.jobs import run_job
from tests.curvebench.engine.test_execution import changed, make_bundle
from tests.curvebench.tiny import SEARCH, TWO_STAGES, write_study
from tests.curvebench.toys import TANH
from tests.curvebench.user_files import user_file

LION, BOWL, MINE = map(user_file, ("lion.py", "bowl.py", "mine.py"))
# changes of the tiny study: no basis, and the backend that has nothing to compile
IN_COORDINATES = ("[identity, {egop: {blocks: all, samples: 2.0 d, sampling: {normal: 1.0}}}]", "[identity]")
ON_TORCH = ("      jax: {}\n      torch: {tuned_on: jax, seeds: {final: 2}}\n", "      torch: {}\n")


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Yield an installed package with an optimizer and a workload, as pip would leave it."""
    site = tmp_path / "site"
    (site / "prowess").mkdir(parents=True)
    (site / "prowess/__init__.py").write_text('"""A package outside."""\n')
    (site / "prowess/rules.py").write_text(LION)
    (site / "prowess/problems.py").write_text(BOWL)
    facts = site / "prowess-1.5.dist-info"
    facts.mkdir()
    (facts / "METADATA").write_text("Metadata-Version: 2.1\nName: prowess\nVersion: 1.5\n")
    (facts / "entry_points.txt").write_text(
        "[curvebench.optimizers]\nprowess = prowess.rules\n"
        "[curvebench.workloads]\nprowess = prowess.problems\n"
    )
    monkeypatch.syspath_prepend(str(site))
    contestants._installed.cache_clear()
    yield site
    contestants._installed.cache_clear()
    for name in [name for name in sys.modules if name.split(".")[0] == "prowess"]:
        del sys.modules[name]
    importlib.invalidate_caches()


def config_of(study: Path, **settings: Any) -> Config:
    """Return a configuration that plans a single study."""
    return Config(study_folder=study.parent, studies=(study.stem,), **settings)


def run_all(
    study: Path, results: Path, backends: tuple[str, ...] = ("torch",), timing: bool = False
) -> pl.DataFrame:
    """Run all jobs of a study in this process, with `timing` the timing job too; return the table `runs`."""
    plan = make_plan(config_of(study, results=results, site=results / "site", backends=backends))
    write_specs(plan)
    jobs = [job for planned in plan.studies for job in planned.jobs]
    for job in jobs:
        if timing or job.spec.stage != "timing":
            run_job(job.spec_path, results)
    runs = [read(job.folder, "runs") for job in jobs if job.spec.stage == "runs"]
    return pl.concat(runs).filter(stage="final")


# --- packages ------------------------------------------------------------------------------------


def test_the_files_and_the_version_of_a_package_decide_the_hash(package: Path, tmp_path: Path):
    study = write_study(tmp_path / "studies", ("[sgd, adam]", "[panther, adam]"))

    def hashes() -> dict[str, str]:
        contestants._installed.cache_clear()
        plan = make_plan(config_of(study))
        return {
            f"{job.spec.stage} {job.spec.optimizers[0].label} {job.spec.backend}": job.spec.hash
            for job in plan.jobs
            if len(job.spec.optimizers) == 1 and job.spec.stage != "parity"
        }

    before = hashes()
    rules = package / "prowess/rules.py"
    rules.write_text(LION.replace("0.99", "0.98"))
    changed = {name for name, value in hashes().items() if value != before[name]}
    assert changed == {name for name in before if " panther " in name}
    rules.write_text(LION)
    assert hashes() == before
    facts = package / "prowess-1.5.dist-info/METADATA"
    facts.write_text(facts.read_text().replace("1.5", "1.6"))
    importlib.invalidate_caches()
    changed = {name for name, value in hashes().items() if value != before[name]}
    assert changed == {name for name in before if " panther " in name}


def test_what_is_known_is_ours_and_what_packages_bring(package: Path):
    assert find_rule("panther").source == "Chen et al. 2023"
    assert find_workload("bowl").description == "least squares under another name"
    assert {"panther", "adam"} <= set(known(RULES, {}))
    assert {"bowl", "least_squares"} <= set(known(WORKLOADS, {}))
    assert "panther" not in RULES.own()
    assert RULES.module_of("adamw") == "curvebench.optimizers.adam"
    assert origin(RULES, "panther").packages == ("prowess",)
    names = {f"package:prowess/{name}.py" for name in ("__init__", "rules", "problems")}
    assert set(origin(RULES, "panther").files) == names


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (LION.replace('"panther"', '"adam"'), "the name 'adam' is taken; rename the optimizer"),
        ("raise RuntimeError('no licence')", r"cannot be loaded \(RuntimeError: no licence\); fix it"),
        ("", "RULES is missing"),
    ],
)
def test_a_package_that_is_wrong_is_named(package: Path, content: str, said: str):
    (package / "prowess/rules.py").write_text(content)
    with pytest.raises(
        InputError, match=f"has no optimizer 'panther'.*\nentry point prowess = prowess.rules.*{said}"
    ):
        find_rule("panther")
    assert known(RULES, {}) == RULES.own()


# --- files ---------------------------------------------------------------------------------------


def test_a_broken_module_of_ours_is_named_with_the_remedy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "broken").mkdir()
    ours = "from curvebench.optimizers.adam import RULES\n"
    contents = {"__init__": "", "a": ours, "b": ours, "c": "RULES = (\n", "d": "RULES = ('adam',)\n"}
    for name, content in contents.items():
        (tmp_path / "broken" / f"{name}.py").write_text(content)
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(InputError) as raised:
        replace(RULES, package="broken").own()
    said = str(raised.value)
    assert "broken/b.py: the name 'adam' is taken in broken/a.py; rename the optimizer" in said
    assert "broken/c.py: cannot be loaded (SyntaxError: " in said
    assert "broken/d.py: RULES is missing, or is no tuple of Rule" in said


def test_a_file_beside_the_study_adds_an_optimizer_and_a_workload(tmp_path: Path):
    folder = tmp_path / "studies"
    study = write_study(
        folder,
        ("{least_squares: {n: 8, d: 4}}", "{bowl.py: {n: 8, d: 4}}"),
        ("[sgd, adam]", "[rules/lion.py, {rules/lion.py:panther: {label: panther-2}}]"),
        ("[adam @ egop], compared_to: [adam]", "[panther], compared_to: [panther-2]"),
        IN_COORDINATES,
        (TWO_STAGES, SEARCH),
        ON_TORCH,
    )
    (folder / "rules").mkdir()
    (folder / "rules/lion.py").write_text(LION)
    (folder / "bowl.py").write_text(BOWL)
    runs = run_all(study, tmp_path / "results")
    assert set(runs["optimizer"]) == {"panther", "panther-2"}
    assert set(runs["workload"]) == {"bowl"}
    plan = make_plan(config_of(study, results=tmp_path / "results"))
    final = next(job.spec for job in plan.jobs if job.spec.stage == "runs")
    keys = [key for key in final.sources if key.startswith("file:")]
    assert {Path(key).name for key in keys} == {"lion.py", "bowl.py"}
    # The rule imports this module of the project.
    assert "curvebench/optimizers/gradient_descent.py" in final.sources
    (folder / "rules/lion.py").write_text(LION.replace("0.99", "0.98"))
    with pytest.raises(InputError, match=r"lion\.py changed since it was planned"):
        check_unchanged(final)


def test_a_path_is_relative_to_the_study_or_the_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "studies"
    assert canonical("adam", folder) == "adam"
    assert canonical("torch:torch.optim.NAdam", folder) == "torch:torch.optim.NAdam"
    assert canonical("lion.py", folder) == "studies/lion.py"
    assert canonical("torch:lion.py:Lion", folder) == "torch:studies/lion.py:Lion"
    assert canonical("../lion.py:panther", folder) == "lion.py:panther"
    outside = canonical("../../lion.py", folder)
    assert outside == (tmp_path.parent / "lion.py").as_posix()


def test_a_name_of_a_file_that_is_taken_is_named(tmp_path: Path):
    (tmp_path / "lion.py").write_text(LION.replace('"panther"', '"momentum"'))
    with pytest.raises(InputError, match="the name 'momentum' is taken; rename the optimizer"):
        find_rule(canonical("lion.py", tmp_path))


def test_a_file_with_several_rules_wants_a_name(tmp_path: Path):
    (tmp_path / "same.py").write_text(LION.replace("RULES = (LION,)", "RULES = (LION, LION)"))
    assert find_rule(f"{tmp_path}/same.py").name == "panther"  # one name is enough
    two = LION + 'from dataclasses import replace\nRULES = (LION, replace(LION, name="tiger"))\n'
    (tmp_path / "two.py").write_text(two)
    assert find_rule(f"{tmp_path}/two.py:tiger").name == "tiger"
    with pytest.raises(InputError, match=r"name it after a colon: .*two\.py:NAME.*\(valid: panther, tiger\)"):
        find_rule(f"{tmp_path}/two.py")


# --- neighbours of files -------------------------------------------------------------------------


def test_a_file_two_imports_away_decides_the_hash(tmp_path: Path):
    """A workload imports one of its neighbours inside a function, which imports a module of a package."""
    folder = tmp_path / "studies"
    study = write_study(folder, ("{least_squares: {n: 8, d: 4}}", "{near.py: {n: 8, d: 4}}"))
    (folder / "far_away").mkdir()
    (folder / "near.py").write_text(BOWL + "\n\ndef late():\n    import between\n")
    (folder / "between.py").write_text("from far_away.sizes import SIZE\n")
    far = folder / "far_away/sizes.py"

    def final(text: str) -> RunsSpec:
        far.write_text(text)
        specs = [job.spec for job in make_plan(config_of(study)).jobs]
        return next(spec for spec in specs if isinstance(spec, RunsSpec) and spec.seeds)

    before = final("SIZE = 1\n")
    keys = [Path(key).name for key in before.sources if key.startswith("file:")]
    assert keys == ["near.py", "between.py", "sizes.py"]
    assert final('"""Sizes."""\nSIZE = 1  # a comment\n').hash == before.hash
    check_unchanged(before)
    assert final("SIZE = 2\n").hash != before.hash
    with pytest.raises(InputError, match=r"sizes\.py changed since it was planned"):
        check_unchanged(before)


def test_a_file_imports_its_neighbours_and_never_those_of_another(tmp_path: Path):
    for folder in ("one", "two", "shadow"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "mine.py").write_text(f"from twin_of_{folder[-1]} import RULES\n")
        (tmp_path / folder / f"twin_of_{folder[-1]}.py").write_text(LION)
    (tmp_path / "two/mine.py").write_text("def late():\n    import twin_of_e\n")
    (tmp_path / "two/twin_of_e.py").touch()
    (tmp_path / "shadow/mine.py").write_text("import json\n")
    (tmp_path / "shadow/json.py").touch()
    assert find_rule(f"{tmp_path}/one/mine.py").name == "panther"
    first, second = (tmp_path / folder / "twin_of_e.py" for folder in ("one", "two"))
    with pytest.raises(
        InputError, match=f"two/mine.py: import twin_of_e finds {first}, not {second}, .*rename"
    ):
        find_rule(f"{tmp_path}/two/mine.py")
    with pytest.raises(InputError, match=r"shadow/mine.py: import json finds .*, not .*/shadow/json\.py"):
        find_rule(f"{tmp_path}/shadow/mine.py")


# --- other libraries -----------------------------------------------------------------------------

CONTESTANTS = """[adam, {torch:torch.optim.NAdam: {weight_decay: 0.01}}, torch:pytorch_optimizer.SOAP,
  {optax:optax.contrib.muon: {ns_steps: 3, label: muon-3}}, optax:optax.lion]"""
FILES = """{torch:own/mine.py:Descent: {betas: [0.8, 0.9]}}, {optax:own/mine.py:ascent: {momentum: -0.1}}"""


@pytest.mark.long
def test_optimizers_of_other_libraries_run_in_our_protocol(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """All stages, timing too, in the problem's coordinates; bases: further down and in a notebook."""
    monkeypatch.setattr(timing_jobs, "REPETITIONS", 1)
    (tmp_path / "studies/own").mkdir(parents=True)
    (tmp_path / "studies/own/mine.py").write_text(MINE)
    study = write_study(
        tmp_path / "studies",
        ("[sgd, adam]", CONTESTANTS.replace("[adam", f"[adam, {FILES}")),
        IN_COORDINATES,
        (TWO_STAGES, SEARCH),
        ("[adam @ egop], compared_to: [adam]", "[torch-nadam], compared_to: [torch-soap]"),
    )
    runs = run_all(study, tmp_path / "results", ("jax", "torch"), timing=True)
    theirs = {
        "torch": {"torch-nadam", "torch-soap", "torch-descent"},
        "jax": {"muon-3", "optax-lion", "optax-ascent"},
    }
    assert (runs["state_bytes"] > 0).all()
    assert (runs["outcome"] != "error").all()
    plan = make_plan(config_of(study, results=tmp_path / "results"))
    for backend, expected in theirs.items():
        assert set(runs.filter(backend=backend)["optimizer"]) == {"adam", *expected}
        (timing,) = (job for job in plan.jobs if job.spec.backend == backend and job.spec.stage == "timing")
        assert expected < set(read(timing.folder, "timings").filter(phase="step")["optimizer"])
    tuned = {
        job.spec.optimizers[0].label: job.spec
        for job in plan.jobs
        if isinstance(job.spec, RunsSpec) and job.spec.backend == "torch" and 0 in job.spec.rounds
    }
    assert set(tuned) == theirs["torch"]  # adam's rate is jax'
    nadam, descent = tuned["torch-nadam"], tuned["torch-descent"]
    assert nadam.optimizers[0].options == {"arguments": {"weight_decay": 0.01}, "tuned": ["learning_rate"]}
    assert set(nadam.versions) == set(descent.versions) == {"numpy", "torch"}
    assert any(key.startswith("file:") and key.endswith("own/mine.py") for key in descent.sources)


OWN = "{momentum: {low: 0.5, high: 0.9, scale: linear}, learning_rate: {low: 1e-3, high: 1e-2, scale: log}}"


def searched(folder: Path, space: str = OWN) -> Path:
    """Write a study with a random search, in which an optimizer of another library has a search space of its
    own.
    """
    return write_study(
        folder,
        (TWO_STAGES, SEARCH),
        IN_COORDINATES,
        ("[adam @ egop], compared_to: [adam]", "[theirs], compared_to: [adam]"),
        ("[sgd, adam]", f"[adam, {{torch:torch.optim.SGD: {{space: {space}, label: theirs}}}}]"),
        ("shared_across: bases", "shared_across: none"),
        ON_TORCH,
    )


def test_an_optimizer_may_have_a_search_space_of_its_own_and_more_settings_for_it(tmp_path: Path):
    study = searched(tmp_path / "studies")
    runs = run_all(study, tmp_path / "results")
    theirs = runs.filter(pl.col("optimizer") == "theirs")
    assert theirs["learning_rate"].is_between(1e-3, 1e-2).all()
    values = theirs["hyperparameters"].explode()
    assert set(values.struct.field("name")) == {"momentum"}
    assert values.struct.field("value").is_between(0.5, 0.9).all()
    ours = runs.filter(pl.col("optimizer") == "adam")
    assert ours["learning_rate"].is_between(1e-2, 1e-1).all()
    plan = make_plan(config_of(study, results=tmp_path / "results"))
    lanes = {job.spec.description: job.spec.lanes for job in plan.jobs if isinstance(job.spec, RunsSpec)}
    assert [len(lanes["adam"]), lanes["theirs"][0]] == [2, 2 * lanes["adam"][0]]


def bundle_of(locator: str, arguments: dict[str, Any], basis: bool, **values: tuple[float, ...]) -> Bundle:
    rule = find_rule(locator).choose({"arguments": arguments, "tuned": list(values)})
    bundle = make_bundle(rule=find_rule("sgd"), steps=8, basis=basis)
    numbers = {name: np.array(value) for name, value in values.items()}
    return dataclasses.replace(bundle, rule=rule, hyperparameters=numbers)


@pytest.mark.parametrize("backend", ["jax", "torch"])
def test_in_a_basis_an_entrywise_optimizer_of_another_library_is_ours(backend: str):
    """Adam in blocks of rotated coordinates."""
    same: dict[str, tuple[str, dict[str, Any]]] = {
        "jax": ("optax:optax.adam", {"b1": 0.9, "b2": 0.999, "eps": 1e-8}),
        "torch": ("torch:torch.optim.Adam", {"betas": [0.9, 0.999], "eps": 1e-8}),
    }
    locator, arguments = same[backend]
    theirs = bundle_of(locator, arguments, True, learning_rate=(0.05,)).subset(slice(0, 1), slice(0, 1))
    ours = make_bundle(rule=find_rule("adam"), rates=(0.05,), steps=8).subset(slice(0, 1), slice(0, 1))
    made = engine(backend, "float64")
    np.testing.assert_allclose(
        execute(theirs, made).metrics["train_loss"], execute(ours, made).metrics["train_loss"], rtol=1e-11
    )


def test_a_lane_that_stops_stays_where_it_is_with_a_torch_optimizer():
    rule, made = find_rule("torch:torch.optim.SGD"), engine("torch", "float64")
    bundle = make_bundle(TANH, rule, (0,), (0.3,), batch_size=None, basis=False, steps=40, evaluations=40)
    threshold = float(np.median(execute(bundle, made).metrics["gradient_norm"]))
    result = execute(changed(bundle, stop_gradient_norm=threshold), made)
    stopped = int(result.stopped_at[0, 0])
    assert 1 < stopped < 40
    losses = result.metrics["train_loss"][:, 0, 0]
    assert (losses[stopped:] == losses[stopped]).all()
    assert losses[stopped - 1] < losses[stopped - 2]


def test_a_state_may_begin_with_the_parameters():
    bundle = bundle_of("optax:optax.contrib.dog", {}, False, learning_rate=(1.0,))
    assert np.isfinite(execute(bundle, engine("jax", "float64")).metrics["train_loss"]).all()


def test_the_files_of_a_package_decide_the_hash_of_its_contestants(package: Path):
    (package / "prowess/theirs.py").write_text("class Theirs:\n    def __init__(self, params, lr): ...\n")
    found = origin(RULES, "torch:prowess.theirs.Theirs")
    assert "package:prowess/theirs.py" in found.files
    assert contestants.located("package:prowess/theirs.py") == package / "prowess/theirs.py"
    assert origin(RULES, "torch:torch.optim.NAdam").files == {}


def test_the_files_of_a_package_are_found_wherever_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """In a folder of another name, as of editable installs, and in two, of which imports take the first."""
    for folder in ("src", "one/spread", "two/spread"):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "m.py").write_text(f"# {folder}\n")
    homes = {"mapped": [tmp_path / "src"], "spread": [tmp_path / "one/spread", tmp_path / "two/spread"]}

    def found(name: str) -> Any:
        spec = importlib.machinery.ModuleSpec(name, None, is_package=True)
        spec.submodule_search_locations = [str(home) for home in homes[name]]
        return spec

    monkeypatch.setattr(importlib.util, "find_spec", found)
    for name, (first, *_) in homes.items():
        assert contestants._package_files(name) == {f"package:{name}/m.py": first / "m.py"}
        assert contestants.located(f"package:{name}/m.py") == first / "m.py"


NADAM = (
    ("[sgd, adam]", "[torch:torch.optim.NAdam]"),
    ("[adam @ egop], compared_to: [adam]", "[torch-nadam @ egop], compared_to: [torch-nadam]"),
)


def test_a_study_on_one_backend_leaves_out_what_runs_on_another(tmp_path: Path):
    study = write_study(tmp_path, ("[sgd, adam]", "[adam, torch:torch.optim.NAdam]"))
    plan = make_plan(config_of(study, backends=("jax",)))
    jobs = [job for planned in plan.studies for job in planned.jobs]
    assert {one.label for job in jobs for one in job.spec.optimizers} == {"adam"}
    reason = "it runs on torch only; the backends of this run: jax"
    assert plan.studies[0].plan.unable == {"torch-nadam": reason}
    assert f"  skipped torch-nadam in tiny: {reason}" in plan.summary().splitlines()
    only = write_study(tmp_path / "only", *NADAM)
    plan = make_plan(config_of(only))
    assert {job.spec.backend for job in plan.jobs if job.spec.stage == "timing"} == {"torch"}
    plan = make_plan(config_of(only, backends=("jax",)))
    (skipped,) = plan.report.skipped
    assert (skipped.name, skipped.reason) == (
        "tiny",
        "it does not run on jax at this scale (it runs on: torch)",
    )
    on_jax = write_study(tmp_path / "none", *NADAM, ON_TORCH, ("      torch: {}\n", "      jax: {}\n"))
    (skipped,) = make_plan(config_of(on_jax)).report.skipped
    assert skipped.reason.endswith("(it runs on: none; its optimizers run on torch only)")
