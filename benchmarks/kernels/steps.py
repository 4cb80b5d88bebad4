"""Kernel cases of optimizer steps: one step of each optimizer on fixed gradients, as the engine runs it.

A shape set is a list of parameter shapes, such as the shapes of a transformer, on which rules are timed.

In citations, 004 is Bernacchia (2025), "Global curvature for second-order optimization of neural networks"
(docs/sources.md).
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from functools import partial
from math import prod
from typing import Any

import numpy as np

from curvebench import replay
from curvebench.backends.engine import engine
from curvebench.optimizers import rules
from curvebench.optimizers.arrays import map_arrays
from curvebench.optimizers.rule import Rule
from curvebench.steps.derivatives import StepInfo, model_of
from curvebench.steps.layout import layout, roles_of
from curvebench.steps.program import Constants, Inputs, Loaded, Program
from curvebench.steps.update import Update

from .case import PRECISIONS, KernelCase, ReadyCase, representable

Shapes = Mapping[str, tuple[int, ...]]

MODEL, FEED_FORWARD, VOCABULARY, LAYERS = 128, 512, 512, 2
CHANNELS = (3, 16, 32, 64, 128)


def _many_tiny() -> dict[str, tuple[int, ...]]:
    """Return 200 leaves of 1 to 64 entries, alternating vectors and matrices."""
    forms: tuple[tuple[int, ...], ...] = ((1,), (8,), (4, 4), (32,), (8, 8), (3, 5), (64,), (2, 16))
    return {f"leaf_{number}": forms[number % len(forms)] for number in range(200)}


def _transformer_like() -> dict[str, tuple[int, ...]]:
    """Return an embedding and two layers of attention, feed-forward network and norms, 459,264 entries."""
    shapes: dict[str, tuple[int, ...]] = {"embedding": (VOCABULARY, MODEL)}
    for layer in range(LAYERS):
        prefix = f"layer_{layer}"
        shapes |= {f"{prefix}.{name}": (MODEL, MODEL) for name in ("query", "key", "value", "output")}
        shapes |= {f"{prefix}.expand": (FEED_FORWARD, MODEL), f"{prefix}.contract": (MODEL, FEED_FORWARD)}
        shapes |= {f"{prefix}.norm_{number}": (MODEL,) for number in range(2)}
    return shapes


def _convolution_like() -> dict[str, tuple[int, ...]]:
    """Return four 3 x 3 convolutions with bias and norm, and a linear layer, 99,210 entries."""
    shapes: dict[str, tuple[int, ...]] = {}
    for number, (inputs, outputs) in enumerate(itertools.pairwise(CHANNELS)):
        shapes[f"convolution_{number}"] = (outputs, inputs, 3, 3)
        shapes |= {f"{name}_{number}": (outputs,) for name in ("bias", "scale", "shift")}
    shapes |= {"linear": (10, CHANNELS[-1]), "linear_bias": (10,)}
    return shapes


# Weights of the network in 004 Sec. 4, for rules that need the layers of a network.
NETWORK = "network_100_70_40"
NETWORKS: Mapping[str, Shapes] = {NETWORK: {"W1": (70, 100), "W2": (40, 70)}}

SHAPE_SETS: Mapping[str, Shapes] = {
    "many_tiny": _many_tiny(),
    "transformer_like": _transformer_like(),
    "convolution_like": _convolution_like(),
    "one_large": {"matrix": (1024, 1024)},
}


# The rate is so large that the update is not lost to rounding when it is added to the parameter.
LEARNING_RATE = 0.1
# Number of steps after which the result of a rule is compared with its reference.
STEPS = 3
TOLERANCE = {"float64": 1e-13, "float32": 2e-6}
# Hyperparameters of each rule that differ from their defaults.
# All steps have the same gradient, so that statistics of Shampoo and SOAP are singular or nearly singular.
# A large epsilon keeps the difference between float32 and float64 small.
# For Shampoo, float32 and float64 differ by 3e-2 with epsilon 1e-6, and by 2e-7 with epsilon 10.
# For SOAP, float32 and float64 differ by 3e-6 with epsilon 10.
HYPERPARAMETERS: Mapping[str, Mapping[str, float]] = {
    "shampoo": {"epsilon": 10.0},
    "idealized_shampoo": {"epsilon": 300.0},
    "soap": {"epsilon": 30.0},
}
# Rules that are timed on every shape set. All other rules are timed on one shape set only.
TRACKED = ("sgd", "momentum", "adagrad", "adam", "adamw", "shampoo", "soap", "muon")
EVERY_RULE_ON = "transformer_like"
# Rules with a d x d matrix or a Jacobian for d parameter entries, which is too large for the shape sets.
SMALL_PROBLEMS_ONLY = (
    "adagrad_full",
    "gauss_newton",
    "levenberg_marquardt",
    "newton",
    "spectral_full",
    "spring",
)


def step_numbers(every: int) -> Iterator[int]:
    """Yield step numbers without end: 1 to STEPS, then a cycle of the next `every` numbers."""
    return itertools.chain(range(1, STEPS + 1), itertools.cycle(range(STEPS + 1, STEPS + 1 + every)))


def hyperparameters_of(rule: Rule) -> dict[str, float]:
    """Return the learning rate and the hyperparameters of a rule's case that differ from their defaults."""
    return {"learning_rate": LEARNING_RATE, **HYPERPARAMETERS.get(rule.name, {})}


def initial(shapes: Shapes) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """Return random parameters and gradients in float64, by name; they are equal in every process."""
    generator = np.random.default_rng(0)
    params = {name: representable(generator, shape) for name, shape in shapes.items()}
    return params, {name: representable(generator, shape) for name, shape in shapes.items()}


def _gradient_as_batch(
    params: Any, model: Any, batch: Any, noise: Any, observes: bool, *, loss: Any, needs: Any
) -> StepInfo:
    """Return the batch as the gradient; this replaces the evaluation of a loss."""
    return StepInfo(loss, batch, model, needs)


def optimizer_step(
    backend: str, rule: Rule, shapes: Shapes, dtype: str, steps: int | None = None
) -> ReadyCase:
    """Prepare a step of a rule, as a compiled segment of the engine with one step and one lane.

    The buffers of the state are donated. Computations that are done only every few steps are done as often as
    in a run, because the step numbers repeat in cycles.

    Args:
        backend: jax or torch.
        rule: the update rule, with the hyperparameters of `hyperparameters_of`.
        shapes: shape by parameter name.
        dtype: float32 or float64.
        steps: planned number of steps, from which an engine decides whether compilation saves time; None for
            a large number, as in timings.

    Returns:
        A case whose `run` takes one step, and whose `result` is the vector of all parameters, in the order of
        `shapes`.
    """
    runtime = engine(backend, dtype)
    ops = runtime.ops
    lay = layout(shapes, roles_of(shapes))
    params, grads = initial(shapes)
    with runtime.context():

        def lane(arrays: Mapping[str, np.ndarray]) -> dict[str, Any]:
            return {name: ops.asarray(array[None, None]) for name, array in arrays.items()}

        def need_of(value: np.ndarray) -> Any:
            return ops.asarray(value[None, None])

        needs = {need.name: map_arrays(need_of, need.example(model_of(lay))) for need in rule.needs}
        evaluate = partial(_gradient_as_batch, loss=ops.zeros((1, 1)), needs=needs)
        program = Program(ops, Update(rule, lay), evaluate, parameter_dtype=ops.dtype)
        values = rule.complete(hyperparameters_of(rule))
        hyper = {name: ops.asarray(np.full((1, 1, 1), value)) for name, value in values.items()}
        constants = Constants(data=lane(grads), rows=None, matrices=(), hyper=hyper)
        cycle = rule.refresh_every or 1
        inputs = {
            number: Inputs(ops.asarray(np.array([float(number)])), ops.asarray(np.ones(1)))
            for number in range(1, STEPS + cycle + 1)
        }
        carry = program.start(lane(params), {}, constants)
        segment = runtime.segment(Loaded(program, carry, constants, {}), inputs[1], steps)
    upcoming = step_numbers(cycle)

    def run() -> None:
        nonlocal carry
        carry = segment(carry, constants, inputs[next(upcoming)])
        runtime.synchronize(carry)

    def result() -> np.ndarray:
        named = lay.unflatten(ops, carry.coordinates)
        return end_to_end({name: np.array(ops.to_numpy(named[name]), np.float64) for name in shapes})

    return ReadyCase(run, result, runtime.context)


def end_to_end(named: Mapping[str, np.ndarray]) -> np.ndarray:
    """Concatenate named arrays to one vector, in the order of the mapping."""
    return np.concatenate([np.ravel(array) for array in named.values()])


def _reference(rule: Rule, shapes: Shapes) -> np.ndarray:
    params, grads = initial(shapes)
    lay = layout(shapes, roles_of(shapes))
    needs = [{need.name: need.example(model_of(lay)) for need in rule.needs}] * STEPS
    path = replay(rule.name, params, [grads] * STEPS, hyperparameters_of(rule), "numpy", needs=needs)
    return end_to_end(path[-1])


def step_case(rule: Rule, kind: str) -> KernelCase:
    """Return the case of a rule on the shape set `kind`."""
    shapes = {**SHAPE_SETS, **NETWORKS}[kind]
    return KernelCase(
        name=f"step.{rule.name}.{kind}",
        sizes={"leaves": len(shapes), "parameters": sum(map(prod, shapes.values()))},
        prepare=lambda backend, dtype: optimizer_step(backend, rule, shapes, dtype),
        prepare_few=lambda backend, dtype: optimizer_step(backend, rule, shapes, dtype, STEPS),
        reference=lambda: _reference(rule, shapes),
        tolerance=TOLERANCE,
        calls=STEPS,
        dtypes=tuple(dtype for dtype in PRECISIONS if dtype in rule.dtypes),
        optimizer=rule.name,
    )


def sets_of(rule: str) -> tuple[str, ...]:
    """Return the names of the shape sets on which a rule is timed."""
    if rule in SMALL_PROBLEMS_ONLY:
        return ()
    if rules()[rule].for_model is not None:
        return tuple(NETWORKS)
    return tuple(SHAPE_SETS) if rule in TRACKED else (EVERY_RULE_ON,)


def step_cases() -> tuple[KernelCase, ...]:
    """Return the cases of every registered rule on its shape sets."""
    return tuple(step_case(rule, kind) for name, rule in rules().items() for kind in sets_of(name))
