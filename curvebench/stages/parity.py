"""Parity jobs: comparison of an optimizer's steps between backends and between precisions, on small problems.

A parity job takes a few steps of an update rule on each problem. Steps with PyTorch, JAX and NumPy in float64
must agree within a tolerance. Steps with PyTorch and JAX in float32 are compared with the steps in float64,
and the difference is reported. The needs of a rule are values that the rule uses in addition to the gradient,
such as a Hessian. A bundle is a set of runs (lanes) that are computed together. Bundles of this module have
one lane.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import numpy as np

from curvebench.backends import BACKENDS
from curvebench.backends.engine import engine
from curvebench.basis_estimation.gradients import sampler
from curvebench.engine.bundle import Bundle
from curvebench.engine.clock import Clock
from curvebench.engine.inputs import segment_inputs
from curvebench.engine.loading import load
from curvebench.interop.replaying import Online
from curvebench.optimizers import rules
from curvebench.optimizers.arrays import map_arrays
from curvebench.optimizers.options import OptionError
from curvebench.optimizers.rule import Rule
from curvebench.planning import parity_problems
from curvebench.progress import Progress
from curvebench.results import schema
from curvebench.stages.job import Instance, Job, estimate, instance, orders_of, sampling_of, workload_of
from curvebench.steps.engine import Engine
from curvebench.steps.program import step_of
from curvebench.steps.update import Update

SEED = 0
Arrays = dict[str, np.ndarray]
Engines = Mapping[tuple[str, str], Engine]  # engines by backend and precision


@dataclass(frozen=True)
class Parity:
    """Result of one comparison of two sequences of steps.

    Args:
        optimizer: name of the rule.
        problem: label of the problem.
        workload: name of the workload of the problem.
        basis: label of the basis of the problem.
        comparison: name of the comparison. In `torch against jax`, each backend computes gradients of its
            own. In `numpy against torch`, both use the gradients of PyTorch. `float32 against float64 on jax`
            and `float32 against float64 on torch` compare precisions.
        unit: `relative` if differences of a parameter array are divided by the largest absolute entry of the
            array; `ulps` if they are divided by the distance of adjacent float32 numbers at this entry.
        first_step: largest difference of any parameter array after the first step, in the unit.
        difference: largest difference of any parameter array after any step, in the unit.
        judged: whether `difference` must be within the tolerance.
    """

    optimizer: str
    problem: str
    workload: str
    basis: str
    comparison: str
    unit: str
    first_step: float
    difference: float
    judged: bool

    @property
    def holds(self) -> bool:
        """Whether `difference` is within the tolerance; true if no tolerance applies, false for NaN."""
        return not self.judged or self.difference <= parity_problems.TOLERANCE


@dataclass(frozen=True)
class Prepared:
    """A problem with its data and its basis, which are the same arrays for all backends.

    Args:
        problem: the problem.
        instance: data and initial parameters of the problem.
        matrices: the matrix of the problem's basis, of shape (1, d, d), where d is the number of entries of
            all parameters. The key is the tuple of the names of all parameters. Empty for the identity basis.
    """

    problem: parity_problems.ParityProblem
    instance: Instance
    matrices: Mapping[tuple[str, ...], np.ndarray]


def parities(
    names: Sequence[str],
    problems: Sequence[parity_problems.ParityProblem] = parity_problems.PROBLEMS,
    job: Job | None = None,
) -> Iterator[Parity]:
    """Compare each named optimizer on each problem, and yield the results as they are computed.

    Args:
        names: names of rules.
        problems: the problems.
        job: the job that provides engines and clock, and records an exception of an optimizer on a problem.
            In that case there are no results for this optimizer on this problem. If `job` is None, the
            exception is raised.
    """
    clock = Clock() if job is None else job.clock
    make = engine if job is None else lambda backend, dtype: job.engine(dtype, backend)
    pairs = itertools.product(BACKENDS, ("float64", "float32"))
    engines = {(backend, dtype): make(backend, dtype) for backend, dtype in pairs}
    for problem in problems:
        with clock.phase("data"):
            prepared = prepare(problem, engines["torch", "float64"])
        for name in names:
            try:
                yield from list(compare(rules()[name], prepared, engines, clock))
            except Exception as error:
                if job is None:
                    raise
                job.fail(f"parity of {name} on {problem.label}", error)


def prepare(problem: parity_problems.ParityProblem, sampling_engine: Engine) -> Prepared:
    """Draw the data of a problem, and estimate the basis of the problem.

    Args:
        problem: the problem.
        sampling_engine: engine that computes the gradients from which the basis is estimated.
    """
    workload, basis = problem.workload_spec, problem.basis_spec
    draw = instance(workload_of(workload), workload.settings, SEED)
    if problem.basis is None:
        return Prepared(problem, draw, {})
    sample = sampler(sampling_of(basis, draw), sampling_engine, draw.problem, draw.random)
    matrix = estimate(basis, draw, sample)["matrix0"]
    return Prepared(problem, draw, {tuple(draw.problem.parameters): matrix[None]})


def compare(rule: Rule, prepared: Prepared, engines: Engines, clock: Clock) -> Iterator[Parity]:
    """Yield all comparisons of a rule on a problem.

    If the rule needs layers and the problem has no layers, nothing is yielded. If the rule runs only in
    float64, the comparisons with float32 are left out.
    """
    problem = prepared.problem
    bundle = bundle_of(rule, prepared)
    if not _is_supported(bundle):
        return

    def parity(comparison: str, by_step: Sequence[float], judged: bool) -> Parity:
        return Parity(
            optimizer=rule.name,
            problem=problem.label,
            workload=problem.workload,
            basis=problem.basis_spec.label,
            comparison=comparison,
            unit="ulps" if comparison.startswith("float32") else "relative",
            first_step=by_step[0],
            difference=float(np.max(by_step)),
            judged=judged,
        )

    paths = {backend: trajectory(bundle, engines[backend, "float64"], clock) for backend in BACKENDS}
    torch_path, gradients, needs = paths["torch"]
    jax_path = paths["jax"].params
    # A rule may diverge on a problem that does not suit the rule.
    # If the rule diverges on both backends, there is no difference to judge.
    judged = problem.judges(rule) and any(_is_finite(path[-1]) for path in (torch_path, jax_path))
    yield parity("torch against jax", _by_step(relative, torch_path, jax_path), judged)
    with clock.phase("step"):
        online = Online(
            rule.name,
            _ordered(bundle, bundle.problems[0].parameters),
            {key: float(values[0]) for key, values in bundle.hyperparameters.items()},
            basis=next((matrix[0] for matrix in bundle.matrices.values()), None),
            kinds=bundle.layout.roles,
        )
        numpy_path = [
            online.step(_ordered(bundle, grads), 1.0, **needed)
            for grads, needed in zip(gradients, needs, strict=True)
        ]
    yield parity("numpy against torch", _by_step(relative, numpy_path, torch_path), judged)
    for backend in BACKENDS if "float32" in rule.dtypes else ():
        single = trajectory(bundle, engines[backend, "float32"], clock).params
        growth = _by_step(ulps, single, paths[backend].params)
        yield parity(f"float32 against float64 on {backend}", growth, judged=False)


def _is_supported(bundle: Bundle) -> bool:
    """Return whether the problem of a bundle has the layers that the rule of the bundle needs."""
    try:
        return Update(bundle.rule, bundle.layout).bound is not None
    except OptionError:
        return False


class Trajectory(NamedTuple):
    """Arrays of a bundle's first lane at each step.

    The lists `gradients` and `needs` are empty for JAX, because JAX computes gradients and needs within the
    compiled step. Compiling their computation separately would double the time.

    Args:
        params: after each step, a mapping from parameter names to arrays.
        gradients: at each step, a mapping from parameter names to gradients.
        needs: values that the rule uses in addition to the gradient, at each step.
    """

    params: list[Arrays]
    gradients: list[Arrays]
    needs: list[Arrays]


def trajectory(bundle: Bundle, backend: Engine, clock: Clock) -> Trajectory:
    """Take all steps of a bundle, and return the arrays of its first lane."""
    path = Trajectory([], [], [])
    with backend.context():
        loaded = load(bundle, backend, clock)
        carry, constants, program = loaded.carry, loaded.constants, loaded.program
        with clock.phase("compile"):
            segment = backend.segment(loaded, segment_inputs(bundle, backend, 0, 1), steps=0)
        with clock.phase("step"):
            for step in range(len(bundle.schedule)):
                inputs = segment_inputs(bundle, backend, step, 1)
                if backend.ops.backend == "torch":
                    step_inputs = step_of(inputs, 0)
                    point = program.point(carry, constants, step_inputs)
                    work = program.update.work_of(step + 1)
                    info = program.evaluate(point, carry.model, constants, step_inputs, work)
                    path.gradients.append(_to_host(backend, info.gradient))
                    path.needs.append(_to_host(backend, info.needs))
                carry = segment(carry, constants, inputs)
                params = program.parameters(carry.coordinates, constants.matrices)
                path.params.append(_to_host(backend, params))
    return path


def _is_finite(arrays: Arrays) -> bool:
    return all(bool(np.isfinite(array).all()) for array in arrays.values())


def relative(values: np.ndarray, reference: np.ndarray) -> float:
    """Return the largest difference of two arrays divided by the largest absolute entry of `reference`.

    If all entries of `reference` are 0, the result is 0 for equal arrays and otherwise infinite.
    """
    error, scale = float(np.abs(values - reference).max()), float(np.abs(reference).max())
    if scale == 0:
        return 0.0 if error == 0 else float("inf")
    return error / scale


def ulps(values: np.ndarray, reference: np.ndarray) -> float:
    """Return the largest difference of two arrays in ulps of float32.

    An ulp is the distance of adjacent float32 numbers. This function uses the ulp at the largest absolute
    entry of `reference`.
    """
    return float(np.abs(values - reference).max() / np.spacing(np.float32(np.abs(reference).max())))


def _by_step(distance: Any, path: Sequence[Mapping[str, Any]], reference: Sequence[Arrays]) -> list[float]:
    """Return, for each step, the largest distance between arrays of two sequences of steps.

    The result of a step is NaN if the distance of any array is NaN.

    Args:
        distance: function `(array, reference array) -> number`.
        path: after each step, a mapping from names to arrays.
        reference: the same for the sequence with which `path` is compared.
    """
    return [
        float(np.max([distance(values[name], expected[name]) for name in expected]))
        for values, expected in zip(path, reference, strict=True)
    ]


def _to_host(backend: Engine, arrays: Mapping[str, Any]) -> dict[str, Any]:
    return map_arrays(lambda value: np.array(backend.ops.to_numpy(value)[0, 0], np.float64), arrays)


def _ordered(bundle: Bundle, arrays: Mapping[str, np.ndarray]) -> Arrays:
    """Return the arrays in the order of the parameters in the bundle's layout.

    The rows of the matrix of a basis are in the same order.
    """
    return {name: arrays[name] for name in bundle.layout.shapes}


def bundle_of(rule: Rule, prepared: Prepared) -> Bundle:
    """Return the bundle with a single run: the steps of a rule on a problem."""
    workload = prepared.problem.workload_spec
    values = parity_problems.hyperparameters_of(rule)
    return Bundle(
        workload=workload_of(workload),
        rule=rule,
        problems=[prepared.instance.problem],
        orders=orders_of([prepared.instance], parity_problems.STEPS),
        hyperparameters={name: np.array([value]) for name, value in values.items()},
        schedule=np.ones(parity_problems.STEPS),
        matrices=prepared.matrices,
        settings=workload.settings,
        randoms=[prepared.instance.random],
    )


# --- the stage -----------------------------------------------------------------------------------


def compare_backends(job: Job) -> None:
    """Compare the optimizers of a parity job, and write the table `parity`."""
    spec = job.spec
    names = [optimizer.name for optimizer in spec.optimizers]
    pairs = list(zip(spec.workloads, spec.bases, strict=True))
    problems = [case for case in parity_problems.PROBLEMS if (case.workload_spec, case.basis_spec) in pairs]
    total = len(names) * len(problems) * len(schema.COMPARISONS)
    progress = Progress(f"parity of {', '.join(names)}", total)
    rows: list[dict[str, Any]] = []
    for row in parities(names, problems, job):
        rows.append(
            {
                **asdict(row),
                "holds": row.holds,
                "tolerance": parity_problems.TOLERANCE if row.judged else None,
                "steps": parity_problems.STEPS,
                "learning_rate": parity_problems.LEARNING_RATE,
                "spec_hash": spec.hash,
                "machine": job.machine,
            }
        )
        progress.advance(1, f"({row.problem})")
    job.write("parity", rows)
