"""One battery for every rule: against plain loops, PyTorch and Optax, exact cases and edge cases."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext
from functools import cache
from itertools import combinations, repeat
from math import prod
from typing import Any

import numpy as np
import pytest

from curvebench import replay
from curvebench.arrays.numpy_ops import numpy_ops
from curvebench.backends.engine import engine
from curvebench.interop.replaying import Online
from curvebench.optimizers import rules
from curvebench.optimizers.arrays import map_arrays
from curvebench.spec.errors import InputError
from curvebench.steps.layout import layout, roles_of
from curvebench.steps.update import Update, Work
from tests.optimizers.entry import HELD, Entry
from tests.optimizers.oracles import Arrays, optax_path, pytorch_path
from tests.optimizers.paths import assert_paths_close, instance, leaves
from tests.optimizers.references import BATTERY

BACKENDS = ("numpy", "jax", "torch")
SHAPES: dict[str, tuple[int, ...]] = {
    "matrix": (3, 2),
    "row": (1, 3),
    "column": (3, 1),
    "convolution": (2, 3, 2, 2),
    "vector": (4,),
    "one": (1,),
    "scalar": (),
}
FEW = {name: SHAPES[name] for name in ("matrix", "vector")}
FEW_ZEROS = {name: np.zeros(shape) for name, shape in FEW.items()}
OPS = numpy_ops("float64")
EVERY = [(label, backend) for label in BATTERY for backend in BACKENDS]
# JAX compiles for a second each: beside the loop, only the defaults are tried there
EDGES = [(label, backend) for label, backend in EVERY if backend != "jax" or label in rules()]
SCALE_FREE = [(label, backend) for label, backend in EDGES if BATTERY[label].scale_free is not None]
DIVIDING = [(label, backend) for label, backend in SCALE_FREE if BATTERY[label].scale_free]  # by squares


@cache
def compiled(optimizer: str, options: str, shapes: str, dtype: str) -> dict[int, Any]:
    """Return the programs of a rule that JAX has compiled for these shapes, by kind of refresh.

    The dictionary is empty at first; the first replay fills it.
    """
    return {}


class Compiled(Online):
    """A rule on JAX that shares compiled programs with all its replays on parameters of equal shapes.

    All numbers, also hyperparameters, are arguments of the programs: tests fail if a program has stored some.
    """

    def __init__(self, entry: Entry, params: Arrays, hyper: Mapping[str, float], dtype: str) -> None:
        super().__init__(
            entry.optimizer, params, hyper, "jax", dtype, options=entry.options, kinds=entry.kinds
        )
        shapes = {name: value.shape for name, value in params.items()}
        self._compiled = compiled(entry.optimizer, repr(entry.options), repr(shapes), dtype)


def replayed(
    entry: Entry,
    params: Arrays,
    grads: list[Arrays],
    backend: str,
    values: Mapping[str, float] | None = None,
    dtype: str = "float64",
) -> list[Arrays]:
    """Return the path of the entry's rule, with some of its hyperparameters replaced."""
    params = entry.begun(params)
    hyper = {**entry.hyper, **(values or {})}
    needs = entry.needs(params, len(grads))
    if backend == "jax":
        online = Compiled(entry, params, hyper, dtype)
        each = repeat({}) if needs is None else needs
        return [online.step(grad, 1.0, **needed) for grad, needed in zip(grads, each, strict=False)]
    return replay(
        entry.optimizer,
        params,
        grads,
        hyper,
        backend,
        dtype,
        options=entry.options,
        kinds=entry.kinds,
        needs=needs,
    )


# --- the table -------------------------------------------------------------------------------------


@pytest.mark.parametrize("optimizer", rules())
def test_every_rule_is_in_the_battery_with_every_option(optimizer: str):
    assert not BATTERY[optimizer].options, "the entry named like the rule has its defaults"
    entries = [entry for entry in BATTERY.values() if entry.optimizer == optimizer]
    chosen = {name for entry in entries for name in entry.options}
    elsewhere = {HELD, "newton_schulz_precision"}  # test_state_precision.py and test_precision.py
    assert chosen == set(rules()[optimizer].options) - elsewhere


@pytest.mark.parametrize("label", BATTERY)
def test_an_entry_has_nothing_at_its_default(label: str):
    entry = BATTERY[label]
    assert entry.optimizer in rules()
    specs = entry.rule.hyperparameters
    assert set(entry.hyper) == set(specs)
    assert not [name for name, value in entry.hyper.items() if value == specs[name].default]
    defaults = {name: option.default for name, option in entry.rule.options.items()}
    assert not [name for name in entry.options if entry.rule.chosen[name] == defaults[name]]


# --- other implementations ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("label", "backend", "shapes"),
    [
        # JAX compiles for a second each: options and all shapes are tried there by `make test-all`
        *(
            pytest.param(label, backend, SHAPES, marks=[pytest.mark.long] if backend == "jax" else [])
            for label, backend in EVERY
        ),
        *(pytest.param(label, "jax", FEW) for label in rules()),
    ],
    ids=lambda value: f"{len(value)} shapes" if isinstance(value, dict) else value,
)
def test_path_is_that_of_a_plain_loop(label: str, backend: str, shapes: Mapping[str, tuple[int, ...]]):
    entry = BATTERY[label]
    params, grads = instance(entry.shapes_or(shapes))
    expected = entry.path(entry.begun(params), grads, entry.hyper)
    assert_paths_close(replayed(entry, params, grads, backend), expected, entry.tolerance)


# The backends are held to the loop above; another library needs to agree with one of them.


@pytest.mark.parametrize(
    ("label", "library"),
    [
        (label, library)
        for label, entry in BATTERY.items()
        for library in ("pytorch", "optax")
        if getattr(entry, library)
    ],
)
def test_path_is_that_of_another_library(label: str, library: str):
    entry, oracle = BATTERY[label], getattr(BATTERY[label], library)
    params, grads = instance(SHAPES, seed=1)
    params, grads = oracle.takes(params), [oracle.takes(grad) for grad in grads]
    hyper = {**entry.hyper, **oracle.hyper}
    calculate = {"pytorch": pytorch_path, "optax": optax_path}[library]
    expected = calculate(oracle, entry.begun(params), grads, hyper)
    assert_paths_close(replayed(entry, params, grads, "numpy", hyper), expected, entry.tolerance)


# --- schedules -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("label", BATTERY)
def test_a_schedule_multiplies_every_learning_rate(label: str):
    """Also those of other parameters and of grafting, and a decay that follows only the schedule."""
    entry, multiplier = BATTERY[label], 0.5
    params, grads = instance(entry.shapes_or(FEW))
    start, needs = entry.begun(params), entry.needs(params, len(grads))
    online = Online(entry.optimizer, start, entry.hyper, options=entry.options, kinds=entry.kinds)
    each = repeat({}) if needs is None else needs
    path = [online.step(grad, multiplier, **needed) for grad, needed in zip(grads, each, strict=False)]
    scheduled = {name for name in entry.hyper if name.endswith("learning_rate")}
    scheduled |= {"weight_decay"} if entry.rule.chosen.get("decoupled_weight_decay") else set()
    hyper = {name: value * (multiplier if name in scheduled else 1) for name, value in entry.hyper.items()}
    assert_paths_close(path, entry.path(start, grads, hyper), entry.tolerance)


# --- zero, tiny, huge and rank-deficient gradients -----------------------------------------------------


@pytest.mark.parametrize(("label", "backend"), [pair for pair in EDGES if BATTERY[pair[0]].reads_gradient])
def test_zero_gradients_move_nothing(label: str, backend: str):
    entry = BATTERY[label]
    params, _ = instance(entry.shapes_or(FEW))
    zeros = {name: np.zeros_like(value) for name, value in params.items()}
    for arrays in replayed(entry, params, [zeros] * 3, backend, entry.still):
        for name, value in entry.begun(params).items():
            tolerance = entry.still_tolerance
            np.testing.assert_allclose(arrays[name], value, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize(("label", "backend"), SCALE_FREE)
def test_a_zero_entry_waits_without_epsilon_for_its_first_gradient(label: str, backend: str):
    entry = BATTERY[label]
    vectors = [[0.0, 2.0, 0.0, 0.0], [0.0, -1.0, 0.0, 0.0], [5.0, 1.0, 0.0, 0.0]]
    grads = [{**FEW_ZEROS, "vector": np.array(vector)} for vector in vectors]
    path = replayed(entry, FEW_ZEROS, grads, backend, entry.still)
    expected = entry.path(entry.begun(FEW_ZEROS), grads, {**entry.hyper, **entry.still})
    first = [arrays["vector"][0] for arrays in path]
    assert first[0] == first[1] == 0.0
    assert first[2] < 0.0
    assert_paths_close(path, expected, 1e-13)


@pytest.mark.parametrize(
    ("label", "backend", "dtype", "scale"),
    [
        (*pair, dtype, scale)
        for pair in SCALE_FREE
        for dtype, scale in (("float64", 1e140), ("float64", 1e-140), ("float32", 1e-15))
        if (pair[1], dtype) != ("jax", "float32")
    ],
)
def test_huge_and_tiny_gradients_move_like_ordinary_ones(label: str, backend: str, dtype: str, scale: float):
    """002 eq. 47: without epsilon the update does not depend on the gradients' scale."""
    entry = BATTERY[label]
    assert entry.scale_free is not None
    params, grads = instance(FEW, seed=3)
    _, scaled = instance(FEW, seed=3, scale=scale)
    hyper = {**entry.hyper, **entry.scale_free}
    assert_paths_close(
        replayed(entry, params, scaled, backend, hyper, dtype),
        entry.path(entry.begun(params), grads, hyper),
        10 * (entry.tolerance if dtype == "float64" else entry.tolerance_float32),
    )


@pytest.mark.parametrize(("label", "backend"), DIVIDING)
def test_squares_that_underflow_leave_finite_parameters(label: str, backend: str):
    entry = BATTERY[label]
    grads = [{**FEW_ZEROS, "vector": np.array([1e-200, -1e-200, 0.0, 0.0])}] * 3
    for arrays in replayed(entry, FEW_ZEROS, grads, backend, entry.still):
        np.testing.assert_array_equal(arrays["vector"], 0.0)


@pytest.mark.parametrize(("label", "backend"), EDGES)
def test_a_gradient_of_rank_one_gives_steps_of_ordinary_size(label: str, backend: str):
    """All steps have the same gradient, so that no statistic ever gets full rank."""
    entry, rng = BATTERY[label], np.random.default_rng(6)
    # On JAX, use the shapes for which it has compiled programs.
    shapes = entry.shapes_or(FEW if backend == "jax" else {"tall": (5, 3), "wide": (3, 5)})
    params = {name: rng.standard_normal(shape) for name, shape in shapes.items()}
    grad = {
        name: np.outer(rng.standard_normal(shape[0]), rng.standard_normal(prod(shape[1:]))).reshape(shape)
        if len(shape) > 1
        else rng.standard_normal(shape)
        for name, shape in shapes.items()
    }
    expected = entry.path(entry.begun(params), [grad] * 4, {**entry.hyper, **entry.still})
    path = replayed(entry, params, [grad] * 4, backend, entry.still)
    assert_paths_close(path, expected, 1e-7)


# --- precision and lanes -------------------------------------------------------------------------------


def runs_in(label: str, dtype: str) -> bool:
    return dtype in BATTERY[label].rule.dtypes


# Runs of different settings on JAX, tested below, are in float32, and near float64 as the runs here are.
@pytest.mark.parametrize(
    ("label", "backend"), [pair for pair in EDGES if pair[1] != "jax" and runs_in(pair[0], "float32")]
)
def test_float32_stays_float32_and_is_near_float64(label: str, backend: str):
    entry = BATTERY[label]
    params, grads = instance(entry.shapes_or(FEW), seed=4)
    path = replayed(entry, params, grads, backend, dtype="float32")
    assert {array.dtype for arrays in path for array in arrays.values()} == {np.dtype("float32")}
    assert_paths_close(path, entry.path(entry.begun(params), grads, entry.hyper), entry.tolerance_float32)


@pytest.mark.parametrize("label", BATTERY)
def test_a_rule_says_which_precision_it_runs_in(label: str):
    entry = BATTERY[label]
    params, grads = instance(entry.shapes_or(FEW))
    for dtype in ("float64", "float32"):
        with nullcontext() if runs_in(label, dtype) else pytest.raises(InputError, match="runs in float64"):
            replayed(entry, params, grads[:1], "numpy", dtype=dtype)


SEEDS, SETTINGS, LANE_STEPS = 2, 3, 4
POISONED = (1, 2)  # the lane whose second gradient is NaN


@pytest.mark.parametrize(
    ("label", "backend", "dtype"),
    [
        # Lanes and types are as plain in float32: JAX compiles both precisions for `make test-all` alone
        pytest.param(*pair, dtype, marks=[pytest.mark.long] if (pair[1], dtype) == ("jax", "float64") else [])
        for pair in EDGES
        for dtype in ("float32", "float64")
        if runs_in(pair[0], dtype)
    ],
)
def test_lanes_of_different_settings_are_runs_alone(label: str, backend: str, dtype: str):
    """Arrays (S, K, d) under hyperparameters (S, K, 1); a lane that gets a NaN keeps it to itself."""
    entry, rng = BATTERY[label], np.random.default_rng(5)
    shapes = entry.shapes_or(FEW)
    lay = layout(shapes, roles_of(shapes, entry.kinds))
    update = Update(entry.rule, lay)
    start = np.empty((SEEDS, SETTINGS, lay.total))
    for lane in np.ndindex(SEEDS, SETTINGS):
        drawn = lay.unflatten(OPS, rng.standard_normal(lay.total))
        start[lane] = lay.flatten(OPS, entry.begun(drawn), 0)
    grads = rng.standard_normal((LANE_STEPS, SEEDS, SETTINGS, lay.total))
    # downwards, so that shares stay below 1
    values = {
        lane: {name: value * (1 - 0.05 * number) for name, value in entry.hyper.items()}
        for number, lane in enumerate(np.ndindex(SEEDS, SETTINGS))
    }
    given = grads.copy()
    given[1][POISONED] = np.nan
    made = None if backend == "numpy" else engine(backend, dtype)
    ops = numpy_ops(dtype) if made is None else made.ops
    with nullcontext() if made is None else made.context():
        hyper = {
            name: ops.asarray(np.array([one[name] for one in values.values()]).reshape(SEEDS, SETTINGS, 1))
            for name in entry.hyper
        }
        needs = entry.needs(lay.unflatten(OPS, start[0, 0]), LANE_STEPS)

        def on_lanes(value: np.ndarray) -> Any:
            return ops.broadcast_to(ops.asarray(value), (SEEDS, SETTINGS, *value.shape))

        flat = ops.asarray(start)
        state = update.init(ops, flat)
        applied: dict[Work, Any] = {}
        for step in range(1, LANE_STEPS + 1):
            numbers = {"step": ops.zeros((1, 1, 1)) + step, "schedule": ops.zeros((1, 1, 1)) + 1}
            if needs is not None:
                numbers |= map_arrays(on_lanes, needs[step - 1])
            work = update.work_of(step)

            def apply(grad: Any, state: Any, flat: Any, values: Any, work: Work = work) -> Any:
                return update.apply(ops, grad, state, flat, values, work)

            arguments = (ops.asarray(given[step - 1]), state, flat, {**hyper, **numbers})
            if work not in applied:
                applied[work] = apply if made is None else made.compiled(apply, *arguments)
            flat, state = applied[work](*arguments)
        found = np.array(ops.to_numpy(flat))
        kinds = {str(ops.to_numpy(array).dtype) for array in (flat, *leaves(state))}
    assert kinds == {dtype}
    assert np.isnan(found[POISONED]).all() == entry.spreads_nan
    tolerance = entry.tolerance if dtype == "float64" else entry.tolerance_float32
    for seed, k in np.ndindex(SEEDS, SETTINGS):
        if (seed, k) != POISONED:
            alone = entry.path(
                lay.unflatten(OPS, start[seed, k]),
                [lay.unflatten(OPS, grad) for grad in grads[:, seed, k]],
                values[seed, k],
            )
            expected = lay.flatten(OPS, alone[-1], 0)
            np.testing.assert_allclose(found[seed, k], expected, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize(("label", "backend"), [pair for pair in EVERY if pair[0] in rules()])
def test_a_state_begins_with_arrays_of_its_own(label: str, backend: str):
    """Engines write into them and donate them: no two may share memory, nor one with the parameters."""
    made = None if backend == "numpy" else engine(backend, "float32")
    ops = numpy_ops("float32") if made is None else made.ops
    entry = BATTERY[label]
    shapes = entry.shapes_or(SHAPES)
    lay = layout(shapes, roles_of(shapes, entry.kinds))
    with nullcontext() if made is None else made.context():
        flat = ops.asarray(np.ones((2, 3, lay.total)))
        state = leaves(Update(entry.rule, lay).init(ops, flat))
        assert all(tuple(leaf.shape[:2]) == (2, 3) for leaf in state), "every lane has its own"
        if backend == "numpy":
            shared = [pair for pair in combinations([flat, *state], 2) if np.shares_memory(*pair)]
            assert not shared
            return
        places = [address(leaf) for leaf in (flat, *state)]
    assert len(set(places)) == len(places)


def address(array: Any) -> int:
    """Return the address of an array of JAX or PyTorch in memory."""
    found: int = (
        array.untyped_storage().data_ptr()
        if hasattr(array, "untyped_storage")
        else array.unsafe_buffer_pointer()
    )
    return found
