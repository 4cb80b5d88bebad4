"""State in bfloat16: types and bytes, paths that equal an independent rounding, lanes, exports, refusals."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import torch

from curvebench import as_optax, as_torch, replay
from curvebench.arrays.numpy_ops import numpy_ops
from curvebench.backends.engine import engine
from curvebench.engine.bundle import Bundle
from curvebench.engine.execution import execute
from curvebench.optimizers import rules
from curvebench.optimizers.arrays import map_arrays
from curvebench.optimizers.gradient_descent import Momentum
from curvebench.optimizers.options import OptionError
from curvebench.optimizers.rule import LEARNING_RATE, Part, Rule
from curvebench.optimizers.state_precision import in_half_precision
from curvebench.planning.trials import workload_of
from curvebench.spec.errors import InputError
from curvebench.steps.layout import layout, roles_of
from curvebench.steps.program import StepProtocol
from curvebench.steps.update import Update
from curvebench.workloads.workload import Problem, Role
from tests.curvebench.toys import advanced
from tests.optimizers.paths import instance, leaves

HALF = {"state_precision": "bfloat16"}
RULES = {name: rule for name, rule in rules().items() if "state_precision" in rule.options}
SHAPES: dict[str, tuple[int, ...]] = {"first": (6, 4), "bias": (6,), "second": (3, 6)}
KINDS = {"first": "weight", "bias": "bias", "second": "weight"}
BOTH = pytest.mark.parametrize("backend", ["torch", "jax"])


def rounded(array: np.ndarray) -> np.ndarray:
    """Round to bfloat16, to nearest, ties to even, independently of any library; return float32."""
    bits = np.asarray(array, np.float32).view(np.uint32).astype(np.uint64)
    kept = (bits + 0x7FFF + ((bits >> 16) & 1)) & 0xFFFF0000
    return kept.astype(np.uint32).view(np.float32)


def test_the_rules_that_have_the_option() -> None:
    families = {"spectral", "spectral_full", "spectral_diagonal"}
    assert set(RULES) == {"adam", "adamw", "muon", "soap", "shampoo", *families}


def test_by_default_a_rule_is_what_it_was() -> None:
    for rule in RULES.values():
        assert "float64" in rule.dtypes
        assert rule.update.__module__ != in_half_precision.__module__


# --- paths -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", RULES)
def test_a_path_is_that_of_state_rounded_between_steps(name: str) -> None:
    """On NumPy to the last bit: the rule in float32, whose state is rounded by hand after each step."""
    ops, lay = numpy_ops("float32"), layout(SHAPES, roles_of(SHAPES, KINDS))
    plain, half = (Update(rules()[name].choose(options), lay) for options in ({}, HALF))
    rng = np.random.default_rng(3)
    flat = own = rng.standard_normal((2, 1, lay.total)).astype(np.float32)
    state, held = map_arrays(rounded, plain.init(ops, flat)), half.init(ops, own)
    numbers = plain.rule.complete({"learning_rate": 0.05})
    for step in range(1, 13):
        grad = rng.standard_normal(flat.shape).astype(np.float32)
        values = {key: np.full((1, 1, 1), value, np.float32) for key, value in numbers.items()}
        values |= {"step": np.full((1, 1, 1), step, np.float32), "schedule": np.ones((1, 1, 1), np.float32)}
        flat, state = plain.apply(ops, grad, state, flat, values, plain.work_of(step))
        own, held = half.apply(ops, grad, held, own, values, half.work_of(step))
        state = map_arrays(rounded, state)
        assert {leaf.dtype.name for leaf in leaves(held)} == {"bfloat16"}
        np.testing.assert_array_equal(own, flat)
        for one, other in zip(leaves(held), leaves(state), strict=True):
            np.testing.assert_array_equal(one.astype(np.float32), other)


@pytest.mark.parametrize(
    ("name", "backend"),
    [
        ("adamw", "torch"),
        ("adamw", "jax"),
        ("spectral", "torch"),
        pytest.param("spectral", "jax", marks=pytest.mark.long),
    ],
)
def test_backends_agree(name: str, backend: str) -> None:
    """To what a bit of state that rounds otherwise makes of a step, 2^-8 of it."""
    params, grads = instance(SHAPES, steps=8)
    given = params, grads, {"learning_rate": 0.01}
    numpy, other = (
        replay(name, *given, one, "float32", options=HALF, kinds=KINDS) for one in ("numpy", backend)
    )
    for shape in SHAPES:
        np.testing.assert_allclose(other[-1][shape], numpy[-1][shape], atol=3e-4)


def test_what_is_no_real_number_stays_and_all_that_reads_state_sees_it_cast_up() -> None:
    """A rule in parts that looks ahead, starts, observes and counts in whole numbers."""
    seen: list[tuple[str, str]] = []

    def read(what: str, state: Any) -> Any:
        seen.append((what, state.velocity[0].dtype.name))
        return state

    def update(ops: Any, grad: Any, state: Any, param: Any, hyper: Any) -> Any:
        velocity, count = read("update", state).velocity
        return param - hyper["learning_rate"] * grad, Momentum((velocity + grad / 3, count + 1))

    own = Rule(
        name="counting",
        source="here",
        hyperparameters={"learning_rate": LEARNING_RATE},
        init=lambda ops, param: Momentum((ops.zeros_like(param), np.zeros(param.shape, np.int32))),
        update=update,
        scope="leaf",
        start=lambda ops, grad, state, hyper: read("start", state),
        refresh=lambda ops, grad, state, hyper: read("refresh", state),
        observe=lambda ops, grad, state, hyper: read("observe", state),
        gradient_at=lambda ops, state, param, hyper: param + 0 * read("point", state).velocity[0],
        evaluated_at=lambda ops, state, param: param + 0 * read("evaluated", state).velocity[0],
    )
    part = Part(own)
    rule = in_half_precision(Rule(**{**vars(own), "part": lambda role, shape: part}))
    ops, lay = numpy_ops("float32"), layout({"a": (2,), "b": (2,)}, roles_of({"a": (2,), "b": (2,)}))
    update_of = Update(rule, lay)
    assert len(update_of.groups) == 1  # alike, so that they are updated at once
    flat = np.ones((1, 1, 4), np.float32)
    state = update_of.init(ops, flat)
    for step in (1, 2):
        values = {name: np.ones((1, 1, 1), np.float32) for name in ("learning_rate", "step", "schedule")}
        update_of.point(ops, state, flat, values)
        flat, state = update_of.apply(ops, flat, state, flat, values, update_of.work_of(step))
        update_of.evaluation_point(ops, state, flat)
    ways = {"update", "start", "refresh", "observe", "point", "evaluated"}
    assert set(seen) == {(way, "float32") for way in ways}
    velocity, count = state[0].velocity
    assert (velocity.dtype.name, count.dtype.name, count.max()) == ("bfloat16", "int32", 2)


# --- runs ------------------------------------------------------------------------------------------


def objective(ops: Any, params: Mapping[str, Any], batch: Mapping[str, Any]) -> Any:
    hidden = ops.tanh(batch["inputs"] @ ops.swapaxes(params["first"], 0, 1) + params["bias"])
    return ops.mean(ops.square(hidden @ ops.swapaxes(params["second"], 0, 1) - batch["targets"]))


def bundle_of(
    name: str, options: Mapping[str, Any], rates: tuple[float, ...], steps: int, **more: Any
) -> Bundle:
    rule, rng = rules()[name].choose(options), np.random.default_rng(1)
    inputs = rng.standard_normal((64, 4))
    train = {"inputs": inputs, "targets": np.tanh(inputs @ rng.standard_normal((4, 3)))}
    roles = {name: Role(kind, number) for number, (name, kind) in enumerate(KINDS.items())}
    complete = [rule.complete({"learning_rate": rate}) for rate in rates]
    return Bundle(
        workload=workload_of(objective, roles, "float32"),
        rule=rule,
        problems=[Problem(instance(SHAPES, seed)[0], {"train": train}) for seed in (0, 1)],
        orders=None,
        hyperparameters={key: np.array([one[key] for one in complete]) for key in complete[0]},
        schedule=np.ones(steps),
        **more,
    )


def ended(name: str, backend: str, options: Mapping[str, Any], steps: int, alone: bool = False) -> Any:
    bundle = bundle_of(name, options, (0.003, 0.01), steps)
    return execute(bundle.subset(slice(0, 1), slice(1, 2)) if alone else bundle, engine(backend, "float32"))


@pytest.mark.parametrize(
    ("name", "backend"),
    [
        *((name, "torch") for name in RULES),
        ("adamw", "jax"),
        pytest.param("spectral", "jax", marks=pytest.mark.long),
    ],
)
def test_lanes_and_a_run_alone_hold_half_of_the_bytes(name: str, backend: str) -> None:
    whole, half = (ended(name, backend, options, 4) for options in ({}, HALF))
    assert whole.state_bytes == 2 * half.state_bytes
    alone = ended(name, backend, HALF, 4, alone=True)
    assert alone.state_bytes == half.state_bytes
    last, own = (one.metrics["train_loss"][-1] for one in (half, alone))
    np.testing.assert_allclose(own[0, 0], last[0, 1], rtol=1e-3)
    assert not np.array_equal(last, whole.metrics["train_loss"][-1])


@BOTH
def test_state_is_of_that_type_after_steps_and_where_lanes_have_stopped(backend: str) -> None:
    made = engine(backend, "float32")
    stopping = StepProtocol(stop_gradient_norm=1e3)
    bundle = bundle_of("adamw", HALF, (0.01,), 4, protocol=stopping)
    with made.context():
        _, carry = advanced(bundle, made, 4)
        assert (np.asarray(made.ops.to_numpy(carry.stopped_at)) == 1).all()
        assert {str(leaf.dtype).removeprefix("torch.") for leaf in leaves(carry.state)} == {"bfloat16"}
        assert str(carry.coordinates.dtype).removeprefix("torch.") == "float32"


# --- ways out --------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["adamw", "spectral"])
def test_as_torch_holds_and_saves_it(name: str) -> None:
    params, grads = instance(SHAPES, steps=6)
    path = replay(name, params, grads, {"learning_rate": 0.01}, "torch", "float32", options=HALF, kinds=KINDS)
    weights = {
        key: torch.nn.Parameter(torch.tensor(value, dtype=torch.float32)) for key, value in params.items()
    }

    def made() -> Any:
        return as_torch(name, weights.items(), options=HALF, kinds=KINDS, learning_rate=0.01)

    optimizer = made()
    for number, grad in enumerate(grads):
        if number == 3:
            saved, optimizer = optimizer.state_dict(), made()
            optimizer.load_state_dict(saved)
        for key, weight in weights.items():
            weight.grad = torch.tensor(grad[key], dtype=torch.float32)
        optimizer.step()
    for key, weight in weights.items():
        np.testing.assert_allclose(weight.detach().numpy(), path[-1][key], atol=1e-6)
    held = [one for state in optimizer.state.values() for key, one in state.items() if key != "step"]
    assert {one.dtype for one in held} == {torch.bfloat16}


def test_as_optax_holds_it() -> None:
    params, grads = instance({"w": (5,)}, steps=4)
    path = replay("adamw", params, grads, {"learning_rate": 0.01}, "numpy", "float32", options=HALF)
    transformation = as_optax("adamw", options=HALF, learning_rate=0.01)
    tree = {key: jnp.asarray(value, jnp.float32) for key, value in params.items()}
    state = transformation.init(tree)
    update = jax.jit(transformation.update)
    for grad in grads:
        given = {key: jnp.asarray(value, jnp.float32) for key, value in grad.items()}
        updates, state = update(given, state, tree)
        tree = optax.apply_updates(tree, updates)
    for key, value in tree.items():
        np.testing.assert_allclose(value, path[-1][key], atol=1e-5)
    assert {leaf.dtype.name for leaf in jax.tree.leaves(state.rule)} == {"bfloat16"}


# --- refusals --------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", RULES)
def test_it_is_of_parameters_in_float32(name: str) -> None:
    params, grads = instance(SHAPES, steps=1)
    words = rf"{name}: runs in float32 or bfloat16, and .* float64;.* its option state_precision: parameters"
    with pytest.raises(InputError, match=words):
        replay(name, params, grads, {"learning_rate": 0.1}, "numpy", "float64", options=HALF, kinds=KINDS)
    with pytest.raises(OptionError, match="'float16' is not one of parameters, computed, bfloat16"):
        rules()[name].choose({"state_precision": "float16"})


def test_it_does_not_go_on_in_another_basis() -> None:
    lay = layout({"w": (4,)}, {"w": Role("vector")})
    assert Update(rules()["adam"], lay).check_change_of_basis() == ("first",)
    with pytest.raises(OptionError, match="adam: its state cannot go on in other coordinates"):
        Update(rules()["adam"].choose(HALF), lay).check_change_of_basis()
