"""Kernel cases: right results, counted work, peers that take equal steps, a list that costs nothing."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from benchmarks.kernels.case import KernelCase, measured_error, relative_error
from benchmarks.kernels.cases import cases, timed
from benchmarks.kernels.counting import count
from benchmarks.kernels.peers import OPTAX, TORCH, peers
from benchmarks.kernels.shapes import SHAPE_SETS
from benchmarks.kernels.steps import STEPS, step_entries, step_flops
from optimizers import rules

ROOT = Path(__file__).resolve().parents[2]
# Optax has no epsilon outside the root: where the gradient is 1e-5, ours of 1e-10 changes the step.
PEER_TOLERANCE = {("adagrad", "jax"): 1e-5}
SMALL = {"matrix": (3, 4), "vector": (8,)}  # 20 entries
EVERY = [
    pytest.param(case, backend, dtype, id=f"{case.name}-{backend}-{dtype}")
    for case in cases().values()
    for backend in case.backends
    for dtype in case.dtypes
]


@pytest.mark.parametrize(("case", "backend", "dtype"), EVERY)
def test_a_case_gives_its_float64_reference(case: KernelCase, backend: str, dtype: str):
    assert measured_error(case, backend, dtype) <= case.tolerance[dtype]


def test_every_rule_is_timed_on_every_shape_set_and_backend():
    labels = {f"step.{rule}.{kind}" for rule in rules() for kind in SHAPE_SETS}
    assert labels == {name for name, case in cases().items() if case.group == "step"}
    assert {f"{label} {backend} float32" for label in labels for backend in ("jax", "torch")} <= set(timed())


def test_a_pattern_chooses_labels():
    assert list(timed(r"sgd\.one_large torch")) == ["step.sgd.one_large torch float32"]


def test_the_error_is_relative_to_the_largest_entry():
    assert relative_error(np.array([1.0, 4.5]), np.array([1.0, 4.0])) == 0.125


# --- work ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rule", "flops", "state"),
    [
        ("sgd", 2, 0),  # eta g, w - .
        ("momentum", 4, 1),  # mu v, g + ., eta v, w - .
        ("adagrad", 8, 1),  # g^2, s + ., v0 + s, root, + epsilon, g / ., eta ., w - .
        ("adam", 14, 2),  # m: 3, v: 4 with g^2, two corrections, root, + epsilon, quotient, eta ., w - .
        ("adamw", 15, 2),  # and w (1 - eta lambda)
    ],
)
def test_the_work_of_a_step_is_what_a_hand_counts(rule: str, flops: int, state: int):
    assert step_flops(rules()[rule], SMALL) == 20 * flops
    assert step_entries(rules()[rule], SMALL) == 20 * (3 + 2 * state)


def test_adamw_moves_28_bytes_a_parameter_in_float32():
    case = cases()["step.adamw.one_large"]
    assert case.bytes("float32") == 28 * 1024**2 == case.bytes("float64") // 2


def test_products_and_sums_are_counted_inside_matrix_products():
    arrays = {"a": np.ones((3, 4)), "b": np.ones((4, 5))}
    assert count(lambda ops, given: given["a"] @ given["b"], arrays) == 2 * 3 * 4 * 5
    assert count(lambda ops, given: ops.einsum("ij,jk->ik", given["a"], given["b"]), arrays) == 120
    assert count(lambda ops, given: ops.sum(given["a"] * given["a"]), arrays) == 12 + 12


def test_selection_layout_and_single_numbers_are_free():
    arrays = {"a": np.ones((3, 4)), "one": np.ones((1, 1))}

    def move(ops, given):
        return ops.reshape(ops.where(given["a"] > 0, given["a"], given["one"] + given["one"]), (12,))

    assert count(move, arrays) == 0


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


def test_a_rule_that_no_library_has_gets_no_peer():
    assert peers("no such rule", "torch") == {}
    assert peers("sgd", "numpy") == {}


# --- imports -------------------------------------------------------------------------------------


def test_listing_the_cases_imports_no_library():
    program = (
        "import sys; from benchmarks.kernels.asv_cases import Kernel; assert Kernel.params; "
        "print(*({'torch', 'jax', 'sklearn', 'optax'} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == []


def test_the_kernels_import_each_other_relatively():
    wrong = [
        f"{path.name} imports {node.module}"
        for path in (ROOT / "benchmarks" / "kernels").glob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ImportFrom) and node.level == 0 and str(node.module).startswith("benchmarks")
    ]
    assert not wrong
