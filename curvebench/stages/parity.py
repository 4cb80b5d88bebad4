"""Parity: an optimizer's steps on small problems, backend against backend, and float32 against float64."""

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
from curvebench.optimizers.options import OptionError
from curvebench.optimizers.rule import Rule, map_arrays
from curvebench.planning import parity_problems
from curvebench.progress import Progress
from curvebench.results import schema
from curvebench.stages.job import Instance, Job, estimate, instance, orders_of, sampling_of, workload_of
from curvebench.steps.engine import Engine
from curvebench.steps.program import step_of
from curvebench.steps.update import Update

SEED = 0
Arrays = dict[str, np.ndarray]
Engines = Mapping[tuple[str, str], Engine]  # by backend and precision


@dataclass(frozen=True)
class Parity:
    """One comparison.

    Args:
        optimizer, problem, workload, basis: what was run; `problem` is the label.
        comparison: `torch against jax`, each by its own gradients; `numpy against torch`, by PyTorch's
            gradients; `float32 against float64 on jax`, and on torch.
        unit: `relative`, to the largest entry of the array; or `ulps`, float32's spacing at that entry.
        first_step: largest difference over all arrays after one step.
        difference: the same over all arrays and steps.
        judged: whether the tolerance applies.
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
        """Whether the difference is within the tolerance; true where none applies."""
        return not self.judged or self.difference <= parity_problems.TOLERANCE  # NaN is not


@dataclass(frozen=True)
class Prepared:
    """A problem with its data, and its basis by value, (1, d, d), which all backends are given."""

    problem: parity_problems.ParityProblem
    instance: Instance
    matrices: Mapping[tuple[str, ...], np.ndarray]


def parities(
    names: Sequence[str],
    problems: Sequence[parity_problems.ParityProblem] = parity_problems.PROBLEMS,
    job: Job | None = None,
) -> Iterator[Parity]:
    """Every named optimizer on every problem; a generator, since a problem takes a second.

    Args:
        job: has the engines and the clock, and takes what an optimizer raises on a problem, whose comparisons
            are left out then; None to raise.
    """
    clock = Clock() if job is None else job.clock
    made = engine if job is None else lambda backend, dtype: job.engine(dtype, backend)
    pairs = itertools.product(BACKENDS, ("float64", "float32"))
    engines = {(backend, dtype): made(backend, dtype) for backend, dtype in pairs}
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


def prepare(problem: parity_problems.ParityProblem, made: Engine) -> Prepared:
    """Draw a problem's data and estimate its basis."""
    workload, basis = problem.workload_spec, problem.basis_spec
    one = instance(workload_of(workload), workload.settings, SEED)
    if problem.basis is None:
        return Prepared(problem, one, {})
    sample = sampler(sampling_of(basis, one), made, one.problem, one.random)
    matrix = estimate(basis, one, sample)["matrix0"]
    return Prepared(problem, one, {tuple(one.problem.parameters): matrix[None]})


def compare(rule: Rule, prepared: Prepared, engines: Engines, clock: Clock) -> Iterator[Parity]:
    """All comparisons of one rule on one problem; none where it is for other models.

    A rule that runs in float64 alone has none in float32.
    """
    problem = prepared.problem
    bundle = bundle_of(rule, prepared)
    if not _takes(bundle):
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
    # A rule may have no path here, such as one on the simplex; on one backend alone that is a difference.
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


def _takes(bundle: Bundle) -> bool:
    """Whether the problem has the layers of a model that the rule is for."""
    try:
        return Update(bundle.rule, bundle.layout).bound is not None
    except OptionError:
        return False


class Trajectory(NamedTuple):
    """What a bundle's first lane did.

    Args:
        params: after each step.
        gradients, needs: before each step on torch, and what the rule needs besides; else nothing. JAX's are
            inside its compiled step, and compiling them apart would double its time.
    """

    params: list[Arrays]
    gradients: list[Arrays]
    needs: list[Arrays]


def trajectory(bundle: Bundle, made: Engine, clock: Clock) -> Trajectory:
    """The path of a bundle's first lane."""
    found = Trajectory([], [], [])
    with made.context():
        loaded = load(bundle, made, clock)
        carry, constants, program = loaded.carry, loaded.constants, loaded.program
        with clock.phase("compile"):
            segment = made.segment(loaded, segment_inputs(bundle, made, 0, 1), steps=0)
        with clock.phase("step"):
            for step in range(len(bundle.schedule)):
                inputs = segment_inputs(bundle, made, step, 1)
                if made.ops.backend == "torch":
                    one = step_of(inputs, 0)
                    point = program.point(carry, constants, one)
                    work = program.update.work_of(step + 1)
                    info = program.evaluate(point, carry.model, constants, one, work)
                    found.gradients.append(_host(made, info.gradient))
                    found.needs.append(_host(made, info.needs))
                carry = segment(carry, constants, inputs)
                found.params.append(_host(made, program.parameters(carry.coordinates, constants.matrices)))
    return found


def _is_finite(arrays: Arrays) -> bool:
    return all(bool(np.isfinite(array).all()) for array in arrays.values())


def relative(one: np.ndarray, other: np.ndarray) -> float:
    """The largest difference over the largest entry of `other`; 0 or inf where all of `other` is 0."""
    error, scale = float(np.abs(one - other).max()), float(np.abs(other).max())
    if scale == 0:
        return 0.0 if error == 0 else float("inf")
    return error / scale


def ulps(one: np.ndarray, other: np.ndarray) -> float:
    """The largest difference in units of the spacing of float32 at the largest entry of `other`."""
    return float(np.abs(one - other).max() / np.spacing(np.float32(np.abs(other).max())))


def _by_step(measure: Any, one: Sequence[Mapping[str, np.ndarray]], other: Sequence[Arrays]) -> list[float]:
    """The largest measure over all arrays, at each step."""
    return [
        float(np.max([measure(mine[name], theirs[name]) for name in theirs]))  # NaN stays NaN
        for mine, theirs in zip(one, other, strict=True)
    ]


def _host(made: Engine, arrays: Mapping[str, Any]) -> dict[str, Any]:
    return map_arrays(lambda value: np.array(made.ops.to_numpy(value)[0, 0], np.float64), arrays)


def _ordered(bundle: Bundle, arrays: Mapping[str, np.ndarray]) -> Arrays:
    """In the order of the layout, which is that of a basis over all parameters."""
    return {name: arrays[name] for name in bundle.layout.shapes}


def bundle_of(rule: Rule, prepared: Prepared) -> Bundle:
    """A rule's only lane on a problem."""
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
    """Compare the spec's optimizers and write their parity."""
    spec = job.spec
    names = [optimizer.name for optimizer in spec.optimizers]
    pairs = list(zip(spec.workloads, spec.bases, strict=True))
    problems = [one for one in parity_problems.PROBLEMS if (one.workload_spec, one.basis_spec) in pairs]
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
