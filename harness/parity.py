"""Parity: 20 steps of every optimizer on small workloads, backend against backend, in float64 and float32."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from harness.backends.engine import Engine, engine
from harness.basis_jobs import estimate, sampling_of
from harness.execution import Bundle, load, stretch_inputs
from harness.gradients import sampler
from harness.job import Instance, instance, orders_of, workload_of
from harness.program import pick
from harness.replaying import replay
from harness.spec import BasisSpec, WorkloadSpec
from optimizers import rules
from optimizers.bases import bases
from optimizers.rule import Rule

STEPS = 20
TOLERANCE = 1e-10  # largest difference over largest entry, where statistics have full rank
LEARNING_RATE = 0.01
Arrays = dict[str, np.ndarray]


@dataclass(frozen=True)
class Problem:
    """A small workload with its settings, and the options of the EGOP basis that it runs in (None: none)."""

    label: str
    workload: str
    settings: Mapping[str, Any]
    basis: Mapping[str, Any] | None = None


PROBLEMS = (
    Problem("least squares", "least_squares", {"n": 12, "d": 8}),
    Problem("least squares, EGOP", "least_squares", {"n": 12, "d": 8}, {"samples": "10.0 d"}),
    Problem("logistic regression", "logistic_regression", {"n": 20, "d": 3}),
    Problem(
        "linear network, EGOP",
        "linear_network",
        {
            "widths": [4, 6, 5, 3],
            "train_examples": 60,
            "validation_examples": 20,
            "test_examples": 20,
            "batch_size": 20,
        },
        {"samples": "5.0 d"},
    ),
    Problem("digits network", "digits_mlp", {"batch_size": 50}),
    Problem(
        "digits network, EGOP",
        "digits_mlp",
        {"batch_size": 50},
        {"samples": 60},  # a basis of rank 60 of 2,410, with dead pixels; it comes by value to all
    ),
)


@dataclass(frozen=True)
class Parity:
    """One comparison.

    Args:
        optimizer, problem: what was run.
        comparison: `torch against jax`, each by its own gradients; `numpy against jax`, by JAX's gradients;
            `float32 against float64`, on JAX.
        difference: largest difference over the largest entry of an array, over all arrays and the last step;
            for float32 in units of its rounding, 2^-24 of the largest entry.
        judged: whether the tolerance applies.
    """

    optimizer: str
    problem: str
    comparison: str
    difference: float
    judged: bool

    @property
    def holds(self) -> bool:
        """Whether the difference is within the tolerance; true where none applies."""
        return not self.judged or self.difference <= TOLERANCE


def parities() -> Iterator[Parity]:
    """Every optimizer on every problem; a generator, since each comparison takes a second."""
    for problem in PROBLEMS:
        spec = WorkloadSpec(problem.workload, {})
        settings = workload_of(spec).complete(problem.settings)
        one = instance(workload_of(spec), settings, 0)
        matrices = _matrices(problem, settings, one)
        for name, rule in rules().items():
            bundle = _bundle(spec, settings, one, matrices, rule)
            yield from _compare(name, rule, problem, bundle)


def _compare(name: str, rule: Rule, problem: Problem, bundle: Bundle) -> Iterator[Parity]:
    path, gradients = trajectory(bundle, engine("jax", "float64"))
    torch_path, _ = trajectory(bundle, engine("torch", "float64"))
    yield Parity(name, problem.label, "torch against jax", difference(torch_path, path), judged=True)
    given = {key: float(values[0]) for key, values in bundle.hyperparameters.items()}
    numpy_path = replay(
        name,
        _ordered(bundle, bundle.problems[0].parameters),
        [_ordered(bundle, grads) for grads in gradients],
        given,
        "numpy",
        basis=next((matrix[0] for matrix in bundle.matrices.values()), None),
    )
    yield Parity(name, problem.label, "numpy against jax", difference(numpy_path[-1], path), judged=True)
    single, _ = trajectory(bundle, engine("jax", "float32"))
    roundings = difference(single, path) * 2**24
    yield Parity(name, problem.label, "float32 against float64", roundings, judged=False)


def trajectory(bundle: Bundle, made: Engine) -> tuple[Arrays, list[Arrays]]:
    """Parameters after the last step of a bundle's first lane, and the gradient of each step."""
    gradients: list[Arrays] = []
    with made.context():
        loaded = load(bundle, made)
        carry, constants, program = loaded.carry, loaded.constants, loaded.program
        segment = made.segment(program, carry, constants, stretch_inputs(bundle, made, 0, 1))
        for step in range(len(bundle.schedule)):
            inputs = stretch_inputs(bundle, made, step, 1)
            params = program.parameters(carry.coordinates, constants.matrices)
            order = None if inputs.order is None else inputs.order[0]
            _, grads, _ = program.gradient(params, carry.model, pick(constants, order))
            gradients.append(_host(made, grads))
            carry = segment(carry, constants, inputs)
        return _host(made, program.parameters(carry.coordinates, constants.matrices)), gradients


def difference(one: Mapping[str, np.ndarray], other: Mapping[str, np.ndarray]) -> float:
    """The largest difference over the largest entry of its array, over all arrays."""
    return max(float(np.abs(one[name] - other[name]).max() / np.abs(other[name]).max()) for name in other)


def _host(made: Engine, arrays: Mapping[str, Any]) -> Arrays:
    return {name: np.array(made.ops.to_numpy(value)[0, 0], np.float64) for name, value in arrays.items()}


def _ordered(bundle: Bundle, arrays: Mapping[str, np.ndarray]) -> Arrays:
    """In the order of the layout, which is that of a basis over all parameters."""
    return {name: arrays[name] for name in bundle.layout.shapes}


def _matrices(
    problem: Problem, settings: Mapping[str, Any], one: Instance
) -> dict[tuple[str, ...], np.ndarray]:
    if problem.basis is None:
        return {}
    basis = BasisSpec("egop", "egop", bases()["egop"].complete(problem.basis))
    spec = WorkloadSpec(problem.workload, settings)
    sample = sampler(sampling_of(basis, spec, one), engine("jax", "float64"), one.problem, one.random)
    return {tuple(one.problem.parameters): estimate(basis, spec, one, sample)["matrix0"][None]}


def _bundle(
    spec: WorkloadSpec,
    settings: Mapping[str, Any],
    one: Instance,
    matrices: dict[tuple[str, ...], np.ndarray],
    rule: Rule,
) -> Bundle:
    values = rule.complete({"learning_rate": LEARNING_RATE})
    return Bundle(
        workload=workload_of(spec),
        rule=rule,
        problems=[one.problem],
        orders=orders_of([one], settings, STEPS),
        hyperparameters={name: np.array([value]) for name, value in values.items()},
        schedule=np.ones(STEPS),
        evaluations=1,
        matrices=matrices,
    )
