"""Kernel cases: right results, peers that take equal steps, imports."""

from __future__ import annotations

import ast
from pathlib import Path

import numpy as np
import pytest

from curvebench import replay
from curvebench.benchmarks.kernels.case import KernelCase, measured_error, relative_error
from curvebench.benchmarks.kernels.cases import cases, timed
from curvebench.benchmarks.kernels.matrix_peers import TORCH_MATRIX_PEERS
from curvebench.benchmarks.kernels.peers import OPTAX, TORCH, peers
from curvebench.benchmarks.kernels.shapes import NETWORK, SHAPE_SETS, Shapes
from curvebench.benchmarks.kernels.steps import (
    LEARNING_RATE,
    SMALL_PROBLEMS_ONLY,
    STEPS,
    TRACKED,
    end_to_end,
    optimizer_step,
    sets_of,
    start,
)
from curvebench.optimizers import rules
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
    labels = {f"step.{rule}.{kind}" for rule in rules() for kind in sets_of(rule)}
    assert {f"step.{rule}.{kind}" for rule in TRACKED for kind in SHAPE_SETS} < labels
    assert {rule for rule in rules() if not sets_of(rule)} == set(SMALL_PROBLEMS_ONLY)
    assert labels == {name for name in cases() if name.startswith("step.")}
    dtypes = {label: cases()[label].dtypes[0] for label in labels}
    assert {f"{label} {backend} {dtypes[label]}" for label in labels for backend in ("jax", "torch")} <= set(
        timed()
    )
    assert {label for label, dtype in dtypes.items() if dtype == "float64"} == {f"step.symo.{NETWORK}"}


# --- cadence -------------------------------------------------------------------------------------


def test_refreshes_come_as_often_as_in_a_run():
    """With roots every 2 steps and one gradient, steps come in pairs of equal length, each shorter."""
    rule = rules()["shampoo"].choose({"refresh_every": 2})
    prepared = optimizer_step("torch", rule, {"matrix": (2, 2)}, "float64", steps=1)
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
        ready = prepare(SHAPE_SETS["convolution_like"], "float64")
        with ready.context():
            for _ in range(STEPS):
                ready.run()
            assert relative_error(ready.result(), reference) < PEER_TOLERANCE.get((rule, backend), 1e-12)


# Full rank: the eigenbasis of a null space is arbitrary.
SQUARES: Shapes = {"one": (6, 6), "other": (6, 6), "vector": (8,)}
MATRICES: Shapes = {"tall": (8, 5), "wide": (4, 7), "convolution": (6, 3, 2, 2)}
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
    label: str, backend: str, options: dict[str, int], shapes: Shapes, tolerance: float
):
    rule = {"torch.optim": "muon", "optax": "muon", "pytorch_opt": "soap"}.get(label[:11], "shampoo")
    params, grads = start(shapes)
    path = replay(rule, params, [grads] * 12, {"learning_rate": LEARNING_RATE}, "numpy", options=options)
    ready = peers(rule, backend, options)[label](shapes, "float64")
    with ready.context(), qr_in_float64():
        for expected in path:
            ready.run()
            assert relative_error(ready.result(), end_to_end(expected)) < tolerance


def test_a_peer_is_named_for_every_rule_of_matrices():
    assert set(TORCH_MATRIX_PEERS) == set(TRACKED) - set(TORCH)


# --- imports -------------------------------------------------------------------------------------


def test_the_kernels_import_each_other_relatively():
    wrong = [
        f"{path.name} imports {node.module}"
        for path in (ROOT / "benchmarks" / "kernels").glob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ImportFrom) and node.level == 0 and str(node.module).startswith("benchmarks")
    ]
    assert not wrong
