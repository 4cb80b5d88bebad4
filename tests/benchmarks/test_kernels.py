"""Kernel cases: right results, imports, peers that take equal steps, ratios to them, and pytest-benchmark."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from curvebench import replay
from curvebench.benchmarks.kernels import steps
from curvebench.benchmarks.kernels.case import KernelCase, ReadyCase, measured_error, relative_error
from curvebench.benchmarks.kernels.cases import cases, timed
from curvebench.benchmarks.kernels.networks import STEPS_A_CALL, curvlinops_steps, kfac_steps
from curvebench.benchmarks.kernels.peers import OPTAX, TORCH, TORCH_MATRIX_PEERS, peers
from curvebench.benchmarks.kernels.ratios import contests, main
from curvebench.benchmarks.kernels.users_models import steps_as_workload, steps_in_a_loop
from curvebench.optimizers import rules
from curvebench.reports.pages.kernels import read_ratios
from tests.optimizers.families.soap import qr_in_float64

ROOT = Path(__file__).resolve().parents[2]
# Optax has no epsilon outside the root: where the gradient is 1e-5, ours of 1e-10 changes the step.
PEER_TOLERANCE = {("adagrad", "jax"): 1e-5}


def takes_long(case: KernelCase, backend: str, dtype: str) -> bool:
    """Whether a check is left to `make test-all`: large cases, and what other checks nearly repeat.

    Rules of whole leaves compile and decompose leaf by leaf; PyTorch takes them for small leaves, and
    tests/optimizers compares the rules on JAX, and all of them in float64.
    """
    if not case.optimizer:
        return "1024" in case.name
    if rules()[case.optimizer].scope == "leaf":
        return "many_tiny" not in case.name or backend == "jax"
    return dtype == "float64" or case.name.endswith(("one_large", "convolution_like"))


EVERY = [
    pytest.param(
        case,
        backend,
        dtype,
        id=f"{case.name}-{backend}-{dtype}",
        marks=[pytest.mark.long] if takes_long(case, backend, dtype) else [],
    )
    for case in cases().values()
    for backend in case.backends
    for dtype in case.dtypes
]
# PyTorch's own kernels update single runs of entrywise rules; all else is compiled where it is timed
COMPILED = [case for case in cases().values() if case.prepare_few and rules()[case.optimizer].scope == "leaf"]


@pytest.mark.parametrize(("case", "backend", "dtype"), EVERY)
def test_a_case_gives_its_float64_reference(case: KernelCase, backend: str, dtype: str):
    assert measured_error(case, backend, dtype, few=True) <= case.tolerance[dtype]


@pytest.mark.long
@pytest.mark.parametrize("case", COMPILED, ids=lambda case: case.name)
def test_a_case_compiled_by_torch_as_it_is_timed_gives_it_too(case: KernelCase):
    assert measured_error(case, "torch", "float32") <= case.tolerance["float32"]


def test_every_rule_is_timed_on_each_backend():
    labels = {f"step.{rule}.{kind}" for rule in rules() for kind in steps.sets_of(rule)}
    assert {f"step.{rule}.{kind}" for rule in steps.TRACKED for kind in steps.SHAPE_SETS} < labels
    assert {rule for rule in rules() if not steps.sets_of(rule)} == set(steps.SMALL_PROBLEMS_ONLY)
    assert labels == {name for name in cases() if name.startswith("step.")}
    dtypes = {label: cases()[label].dtypes[0] for label in labels}
    assert {f"{label} {backend} {dtypes[label]}" for label in labels for backend in ("jax", "torch")} <= set(
        timed()
    )
    assert {label for label, dtype in dtypes.items() if dtype == "float64"} == {f"step.symo.{steps.NETWORK}"}


# --- cadence -------------------------------------------------------------------------------------


def test_refreshes_come_as_often_as_in_a_run():
    """With roots every 2 steps and one gradient, steps come in pairs of equal length, each shorter."""
    rule = rules()["shampoo"].choose({"refresh_every": 2})
    prepared = steps.optimizer_step("torch", rule, {"matrix": (2, 2)}, "float64", steps=1)
    places = [prepared.result()]
    for _ in range(8):
        prepared.run()
        places.append(prepared.result())
    first, second = np.linalg.norm(np.diff(places, axis=0), axis=1).reshape(4, 2).T
    np.testing.assert_allclose(first, second, rtol=1e-10)
    assert (np.diff(first) < 0).all()


# --- peers ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("backend", ["jax", "torch"])
@pytest.mark.parametrize("rule", sorted(set(TORCH) | set(OPTAX)))
def test_peers_take_the_same_step(rule: str, backend: str):
    reference = cases()[f"step.{rule}.convolution_like"].reference()
    found = peers(rule, backend)
    assert list(found) == (["optax"] if backend == "jax" else ["torch.optim fused", "torch.optim foreach"])
    for prepare in found.values():
        ready = prepare(steps.SHAPE_SETS["convolution_like"], "float64")
        with ready.context():
            for _ in range(steps.STEPS):
                ready.run()
            assert relative_error(ready.result(), reference) < PEER_TOLERANCE.get((rule, backend), 1e-12)


# Full rank: the eigenbasis of a null space is arbitrary.
SQUARES: steps.Shapes = {"one": (6, 6), "other": (6, 6), "vector": (8,)}
MATRICES: steps.Shapes = {"tall": (8, 5), "wide": (4, 7), "convolution": (6, 3, 2, 2)}
EVERY_3 = {"refresh_every": 3}


@pytest.mark.parametrize(
    ("label", "backend", "options", "shapes", "tolerance"),
    [
        ("torch.optim.Muon in float32", "torch", {}, {**MATRICES, "vector": (5,)}, 1e-13),
        # epsilon is added to the norm; the AdamW of vectors has Nesterov's step
        ("optax", "jax", {}, MATRICES, 1e-7),
        # epsilon is added before the bias correction
        ("pytorch_optimizer SOAP", "torch", {}, SQUARES, 1e-5),
        ("ScalableShampoo, SVD", "torch", EVERY_3, {**SQUARES, **MATRICES}, 1e-10),
        ("ScalableShampoo, SVD", "jax", {"refresh_every": 1}, {**SQUARES, **MATRICES}, 1e-10),
    ],
)
def test_peers_of_matrix_rules_take_the_same_step(
    label: str, backend: str, options: dict[str, int], shapes: steps.Shapes, tolerance: float
):
    rule = {"torch.optim": "muon", "optax": "muon", "pytorch_opt": "soap"}.get(label[:11], "shampoo")
    params, grads = steps.initial(shapes)
    path = replay(
        rule, params, [grads] * 12, {"learning_rate": steps.LEARNING_RATE}, "numpy", options=options
    )
    ready = peers(rule, backend, options)[label](shapes, "float64")
    with ready.context(), qr_in_float64():
        for expected in path:
            ready.run()
            assert relative_error(ready.result(), steps.end_to_end(expected)) < tolerance


def test_a_peer_is_named_for_every_rule_of_matrices():
    assert set(TORCH_MATRIX_PEERS) == set(steps.TRACKED) - set(TORCH)


# --- imports -------------------------------------------------------------------------------------


def test_the_kernels_import_each_other_relatively():
    wrong = [
        f"{path.name} imports {node.module}"
        for path in (ROOT / "benchmarks" / "kernels").glob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ImportFrom) and node.level == 0 and str(node.module).startswith("benchmarks")
    ]
    assert not wrong


def test_every_peer_gets_a_row_and_every_backend_a_mean(capsys: pytest.CaptureFixture[str], tmp_path: Path):
    table = tmp_path / "ratios.csv"
    assert main(["--case", r"sgd\.many_tiny", "--repetitions", "2", "--out", str(table)]) == 0
    lines = capsys.readouterr().out.splitlines()
    written = read_ratios(table)
    # This command writes the file that is stored with the reports.
    assert written.schema == read_ratios().schema
    assert written["backend"].to_list() == ["jax", "torch", "torch"]
    for row, line in zip(written.iter_rows(named=True), lines, strict=False):
        assert line.startswith(f"{row['step']} {row['backend']} float32, ours / {row['peer']}: ")
        assert f" ms = {row['ratio']} [{row['low']}, {row['high']}]" in line
    means = [line.split(": geometric mean of ours / fastest ") for line in lines[len(written) :]]
    assert [backend for backend, _ in means] == ["jax", "torch"]
    jax = written["ratio"][0]
    assert means[0][1] == f"{jax:.3f}, worst {jax}", "of one step"


def takes_the_same_steps(ours: ReadyCase, theirs: ReadyCase, tolerance: float) -> None:
    """Check that two cases start at the same parameters, move, and end at the same parameters."""
    before = ours.result()
    np.testing.assert_array_equal(before, theirs.result())
    with ours.context():
        ours.run()
        theirs.run()
    assert np.abs(ours.result() - before).max() > 1e-3
    np.testing.assert_allclose(ours.result(), theirs.result(), atol=tolerance)


def test_curvlinops_takes_the_same_steps_of_k_fac():
    takes_the_same_steps(kfac_steps("float64", STEPS_A_CALL), curvlinops_steps("float64"), 1e-12)


@pytest.mark.parametrize(("model", "lanes"), [("DenseNetwork", 3), ("Recurrent", 1)])
def test_a_loop_takes_the_same_steps_of_a_users_model(model: str, lanes: int):
    takes_the_same_steps(steps_as_workload(model, lanes), steps_in_a_loop(model, lanes), 1e-3)


def test_k_fac_stands_beside_curvlinops():
    label = "step.kfac.digits_mlp torch float32"
    assert [(each.label, each.peer) for each in contests("kfac")] == [(label, "curvlinops")]


def test_a_pattern_that_fits_nothing_is_an_error(capsys: pytest.CaptureFixture[str]):
    assert main(["--case", "nothing"]) == 2
    assert "--case 'nothing'" in capsys.readouterr().err


def test_a_number_of_repetitions_that_is_none_is_an_error(capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit, match="2"):
        main(["--repetitions", "0"])
    assert "--repetitions 0: at least 1 is needed" in capsys.readouterr().err


@pytest.mark.long
def test_the_benchmarks_say_what_was_timed(tmp_path: Path):
    stored = tmp_path / "benchmarks.json"
    done = subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "benchmarks/kernels/bench_peers.py", "--benchmark-only"),
            *("-k", "sgd.many_tiny and jax", f"--benchmark-json={stored}", f"--benchmark-storage={tmp_path}"),
        ],
        cwd=ROOT,
        # the plugin refuses where a variable of xdist says that tests run in parallel
        env={name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    found = {each["name"]: each for each in json.loads(stored.read_text())["benchmarks"]}
    assert set(found) == {"ours", "optax"}
    for each in found.values():
        assert each["group"] == "step.sgd.many_tiny jax float32"
        assert each["extra_info"]["problem"] == "step.sgd.many_tiny"
        assert each["extra_info"]["size"] == {"leaves": 200, "parameters": 5800}
