"""Parity of the backends: what is known of its problems, and that a difference would be noticed."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from curvebench.__main__ import main
from curvebench.backends.engine import engine
from curvebench.basis_estimation.gradients import sampler
from curvebench.engine.clock import Clock
from curvebench.interop.replaying import Online
from curvebench.optimizers import rules
from curvebench.optimizers.bases.estimators import egop_matrix
from curvebench.optimizers.rule import Rule
from curvebench.planning.parity_problems import CORE, PROBLEMS, STEPS, TOLERANCE, ParityProblem
from curvebench.results.reading import read
from curvebench.results.schema import COMPARISONS
from curvebench.spec.method import OptimizerSpec
from curvebench.stages.job import estimate, sampling_of
from curvebench.stages.parity import (
    Parity,
    Prepared,
    bundle_of,
    compare,
    parities,
    prepare,
    relative,
    trajectory,
    ulps,
)
from tests.curvebench.stages.test_jobs import of_stage, run

BY_LABEL = {problem.label: problem for problem in PROBLEMS}
IN_EGOP = [problem for problem in PROBLEMS if problem.basis is not None]
ENTRYWISE = [name for name, rule in rules().items() if rule.scope == "entry"]
NOISE = 1e-12  # a coordinate of that share of the gradient's largest is rounding noise


def label_of(problem: ParityProblem) -> str:
    return problem.label.replace(" ", "-")


def gradients_of(prepared: Prepared) -> list[dict[str, np.ndarray]]:
    """Return the gradient of each step of gradient descent, in the order of the layout."""
    bundle = bundle_of(rules()["sgd"], prepared)
    gradients = trajectory(bundle, engine("torch", "float64"), Clock()).gradients
    return [{name: grads[name] for name in bundle.layout.shapes} for grads in gradients]


# --- the matrix ----------------------------------------------------------------------------------


@pytest.mark.long
def test_every_optimizer_takes_the_same_steps_on_every_backend(capsys: pytest.CaptureFixture[str]):
    assert main(["parity", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert {(row["optimizer"], row["problem"], row["comparison"]) for row in rows} == {
        (name, problem.label, comparison)
        for name, rule in rules().items()
        for problem in CORE
        for comparison in COMPARISONS
        if (rule.for_model is None or problem.label == "square linear network")
        and ("float32" in rule.dtypes or not comparison.startswith("float32"))
    }
    assert {row["optimizer"] for row in rows if row["judged"]} == set(rules())  # each is judged somewhere
    assert all(row["difference"] <= TOLERANCE for row in rows if row["judged"])
    assert {row["comparison"] for row in rows if row["judged"]} == {
        "torch against jax",
        "numpy against torch",
    }
    for backend in ("jax", "torch"):
        growth = [row for row in rows if row["comparison"] == f"float32 against float64 on {backend}"]
        assert {row["unit"] for row in growth} == {"ulps"}
        assert all(0 < row["first_step"] <= row["difference"] for row in growth)
        exact = [row["difference"] for row in growth if row["optimizer"] in ENTRYWISE]
        assert np.median(exact) < 100


@pytest.mark.parametrize(
    "labels",
    [("least squares", "wide least squares, EGOP"), pytest.param(tuple(BY_LABEL), marks=pytest.mark.long)],
    ids=["two", "all"],
)
def test_one_optimizer_can_be_asked_for_and_is_shown_as_lines(
    labels: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setattr("curvebench.planning.parity_problems.PROBLEMS", [BY_LABEL[label] for label in labels])
    assert main(["parity", "momentum"]) == 0
    head, *lines = capsys.readouterr().out.splitlines()
    assert head.split()[:2] == ["optimizer", "problem"]
    assert [line[27:53].strip() for line in lines] == [*labels]
    assert all(line.startswith("momentum ") for line in lines)
    assert lines[0].count("equal") == 2
    assert lines[0].count("ulps") == 2
    assert lines[labels.index("wide least squares, EGOP")].count("as measured") == 2


def test_a_rule_for_layers_is_compared_where_there_are_some():
    """In its own precision; layers keep their numbers where equal shapes stand side by side."""
    labels = ("least squares", "square linear network", "linear network", "linear network, EGOP")
    rows = list(parities(["symo"], [BY_LABEL[label] for label in labels]))
    compared = {(row.problem, row.comparison): row for row in rows}
    assert set(compared) == {
        (problem, comparison)
        for problem in ("square linear network", "linear network")
        for comparison in ("torch against jax", "numpy against torch")
    }
    assert all(row.holds for row in rows)
    assert compared["square linear network", "torch against jax"].judged
    assert compared["linear network", "numpy against torch"].difference < 1e-6


def test_numpy_takes_each_parameter_for_what_it_is():
    """A bias is no vector on a sphere."""
    (label,) = [label for label in BY_LABEL if label.startswith("digits")]
    engines = {(backend, "float64"): engine(backend, "float64") for backend in ("torch", "jax")}
    prepared = prepare(BY_LABEL[label], engines["torch", "float64"])
    _, numpy_row, *_ = itertools.islice(
        compare(rules()["trust_region_sphere"], prepared, engines, Clock()), 2
    )
    assert (numpy_row.comparison, numpy_row.difference < 1e-12) == ("numpy against torch", True)


def test_an_optimizer_that_raises_leaves_the_others_theirs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def some(rule: Rule, *rest: Any) -> Iterator[Parity]:
        comparisons = compare(rule, *rest)
        yield next(comparisons)
        if rule.name == "sgd":
            raise MemoryError("40 GiB")
        yield from comparisons

    monkeypatch.setattr("curvebench.stages.parity.compare", some)
    problem = CORE[0]
    spec = of_stage(
        "parity",
        steps=STEPS,
        optimizers=(OptimizerSpec("sgd"), OptimizerSpec("momentum")),
        workloads=(problem.workload_spec,),
        bases=(problem.basis_spec,),
    )
    folder = run(spec, tmp_path)
    assert read(folder, "parity")["optimizer"].to_list() == ["momentum"] * len(COMPARISONS)
    assert read(folder, "jobs")["failures"][0].to_list() == [
        {
            "what": f"parity of sgd on {problem.label}",
            "outcome": "out_of_memory",
            "reason": "MemoryError: 40 GiB",
        }
    ]


def test_a_difference_is_a_counted_error(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    """NumPy is fed one gradient that differs by a millionth."""

    class Disturbed(Online):
        def step(self, grads: Mapping[str, Any], *rest: Any, **needed: Any) -> dict[str, np.ndarray]:
            factor = 1 if self._steps else 1 + 1e-6
            return super().step({key: grad * factor for key, grad in grads.items()}, *rest, **needed)

    monkeypatch.setattr("curvebench.stages.parity.Online", Disturbed)
    monkeypatch.setattr("curvebench.planning.parity_problems.PROBLEMS", [BY_LABEL["least squares"]])
    assert main(["parity", "sgd"]) == 2
    said = capsys.readouterr()
    assert "DIFFERENT" in said.out
    assert "1 of 2 comparisons differ by more than 1e-10" in said.err


# --- what is known of the problems ---------------------------------------------------------------


def test_a_rule_is_judged_by_what_is_known_of_the_problem():
    entrywise, whole = rules()["adam"], rules()["shampoo"]
    assert [label for label, problem in BY_LABEL.items() if problem.judges(whole)] == [
        "square linear network"
    ]
    assert [label for label, problem in BY_LABEL.items() if not problem.judges(entrywise)] == [
        "wide least squares, EGOP"
    ]


@pytest.mark.parametrize("problem", PROBLEMS, ids=label_of)
def test_the_declared_facts_hold_for_the_gradients(problem: ParityProblem):
    """Ranks, gaps and noise, measured on the gradients of 20 steps; no fact is too modest either."""
    prepared = prepare(problem, engine("torch", "float64"))
    gradients = gradients_of(prepared)
    assert len(gradients) == STEPS
    shares, gaps = [], []
    for grads in gradients:
        for grad in grads.values():
            matrix = grad.reshape(len(grad), -1)
            values = np.linalg.svd(matrix, compute_uv=False)
            null = max(matrix.shape) > min(matrix.shape)  # whether G G^T or G^T G has a null space
            shares.append(0.0 if null else values[-1] / values[0])
            gaps.append(np.min(-np.diff(values) / values[:-1], initial=1.0))
    full_rank = min(shares) > 1e-6 and min(gaps) > 1e-3
    assert full_rank == problem.full_rank
    # Rules take roots of GG^T: rounding times its condition number is far below the tolerance.
    assert not full_rank or np.finfo(np.float64).eps / min(shares) ** 2 < TOLERANCE / 20

    flat = np.array([np.concatenate([grad.ravel() for grad in grads.values()]) for grads in gradients])
    rotated = flat @ next(iter(prepared.matrices.values()))[0] if prepared.matrices else flat
    # Largest entry of each coordinate over all steps, as a share of the largest of all.
    share = np.abs(rotated).max(axis=0) / np.abs(rotated).max()
    assert np.any((share > 0) & (share < NOISE)) != problem.free_of_noise
    assert bool(problem.reason) != (problem.full_rank and problem.free_of_noise)


# --- what holds in every gauge -------------------------------------------------------------------


def sampled(problem: ParityProblem, backend: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the EGOP by its definition, and the basis and eigenvalues of the estimator, from gradients of a
    backend.
    """
    prepared = prepare(problem, engine("torch", "float64"))
    basis, one = problem.basis_spec, prepared.instance
    sample = sampler(sampling_of(basis, one), engine(backend, "float64"), one.problem, one.random)
    rows = np.concatenate(
        [
            np.concatenate([array.reshape(len(array), -1) for array in piece.values()], axis=1)
            for piece in sample(one.problem, one.random)
        ]
    )
    arrays = estimate(basis, one, sample)
    return egop_matrix(rows), arrays["matrix0"], arrays["eigenvalues0"]


@pytest.mark.parametrize("problem", IN_EGOP, ids=label_of)
def test_a_basis_is_orthogonal_and_gives_back_its_matrix_on_both_backends(problem: ParityProblem):
    found = {}
    for backend in ("jax", "torch"):
        egop, basis, eigenvalues = sampled(problem, backend)
        size, largest = len(basis), eigenvalues[0]
        assert np.abs(basis.T @ basis - np.eye(size)).max() < 1e-13
        assert np.abs((basis * eigenvalues) @ basis.T - egop).max() < 1e-13 * largest
        live = basis[:, eigenvalues > NOISE * largest]
        found[backend] = egop, live @ live.T
    (jax_egop, jax_range), (torch_egop, torch_range) = found["jax"], found["torch"]
    assert relative(torch_egop, jax_egop) < 1e-12
    assert np.abs(torch_range - jax_range).max() < 1e-6  # the projection onto the range


# --- measures ------------------------------------------------------------------------------------


def test_a_difference_is_relative_to_the_largest_entry_of_its_array():
    assert relative(np.array([1.5, -100.0]), np.array([1.0, -100.0])) == pytest.approx(0.005)
    assert relative(np.zeros(2), np.zeros(2)) == 0
    assert relative(np.ones(2), np.zeros(2)) == np.inf
    assert np.isnan(relative(np.array([np.nan]), np.ones(1)))


def test_an_ulp_is_the_spacing_of_float32_at_the_largest_entry():
    largest = np.array([0.1, 3.0])
    assert ulps(np.nextafter(largest.astype(np.float32), np.float32(4)).astype(float), largest) == 1
    assert ulps(largest + np.array([2.0**-22, 0.0]), largest) == pytest.approx(1)


def parity(difference: float, judged: bool) -> Parity:
    return Parity("a", "b", "w", "identity", "c", "relative", 0.0, difference, judged)


def test_only_what_is_judged_can_fail():
    assert not parity(2 * TOLERANCE, judged=True).holds
    assert parity(TOLERANCE, judged=True).holds
    assert parity(2 * TOLERANCE, judged=False).holds
    assert not parity(float("nan"), judged=True).holds
