"""Rules as transformations of Optax: the engine's own path, compiled, chained, masked and scheduled."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import curvebench
from curvebench import as_optax
from curvebench.engine.schedules import multipliers
from curvebench.optimizers import rules
from curvebench.spec.errors import InputError
from tests.optimizers.paths import instance
from tests.optimizers.references import BATTERY

Arrays = dict[str, Any]


@pytest.fixture(autouse=True)
def float64() -> Iterator[None]:
    with jax.enable_x64(True):
        yield


# --- every rule --------------------------------------------------------------------------------------

SHAPES: dict[str, tuple[int, ...]] = {"matrix": (3, 2), "twin": (3, 2), "vector": (4,), "scalar": ()}
drawn = partial(instance, steps=7)


def path_of(transformation: Any, start: Any, grads: list[Any]) -> list[Any]:
    """Return the parameters after each update, all in one scan."""

    def step(carry: Any, grad: Any) -> Any:
        params, state = carry
        updates, state = transformation.update(grad, state, params)
        params = optax.apply_updates(params, updates)
        return (params, state), params

    params = jax.tree.map(jnp.asarray, start)
    stacked = jax.tree.map(lambda *steps: jnp.stack(steps), *grads)
    _, path = jax.jit(lambda carry, grads: jax.lax.scan(step, carry, grads))(
        (params, transformation.init(params)), stacked
    )
    return [
        jax.tree.map(lambda values, number=number: np.asarray(values[number]), path)
        for number in range(len(grads))
    ]


def path_by(update: Callable[..., Any], transformation: Any, start: Any, grads: list[Any]) -> list[Any]:
    """Return the parameters after each update, one call after the other."""
    params, found = jax.tree.map(jnp.asarray, start), []
    state = transformation.init(params)
    for grad in grads:
        updates, state = update(grad, state, params)
        params = optax.apply_updates(params, updates)
        found.append(params)
    return found


def assert_path(found: list[Arrays], expected: list[Arrays], rtol: float = 1e-12) -> None:
    for step, wanted in zip(found, expected, strict=True):
        for name, value in wanted.items():
            np.testing.assert_allclose(step[name], value, rtol=rtol, atol=rtol / 100, err_msg=name)


# One of each way in which a rule is called, and those that are refused; the battery has every rule on JAX.
WAYS = (
    "sgd",
    "adam",
    "adagrad_norm",
    "shampoo",
    "soap",
    "muon",
    "newton",
    "kfac",
    "nesterov_lookahead",
    "symo",
)


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[] if name in WAYS else [pytest.mark.long]) for name in rules()]
)
def test_every_rule_takes_the_steps_of_a_replay(name: str) -> None:
    rule, entry = rules()[name], BATTERY[name]
    if rule.needs or rule.gradient_at is not None:
        reason = f"needs {rule.needs[0].description}" if rule.needs else "takes its gradient at another point"
        with pytest.raises(InputError, match=f"{name} {reason}.* run it in a study"):
            as_optax(name, **entry.hyper)
        return
    options = {"refresh_every": 3} if "refresh_every" in rule.options else {}
    start, grads = drawn(entry.shapes_or({name: SHAPES[name] for name in ("matrix", "vector")}))
    start, kinds = entry.begun(start), entry.kinds
    expected = curvebench.replay(name, start, grads, entry.hyper, "numpy", options=options, kinds=kinds)
    assert_path(path_of(as_optax(name, options, kinds, **entry.hyper), start, grads), expected)


def test_schedules_are_functions_of_the_number_of_updates() -> None:
    """The fallback rule of Muon follows the schedule of the only learning rate."""
    start, grads = drawn(SHAPES)
    hyper = {"learning_rate": 0.02, "others_ratio": 0.5}
    schedule = multipliers({"name": "cosine"}, len(grads))
    given = {**hyper, "learning_rate": lambda count: 0.02 * jnp.asarray(schedule)[count]}
    online = curvebench.Online("muon", start, hyper, "numpy")
    expected = [online.step(grad, schedule=value) for grad, value in zip(grads, schedule, strict=True)]
    assert_path(path_of(as_optax("muon", **given), start, grads), expected)


# --- with the rest of Optax ----------------------------------------------------------------------------


def test_a_chain_clips_before_the_rule() -> None:
    start, grads = drawn(SHAPES)
    clipped = []
    for grad in grads:
        norm = np.sqrt(sum(float((value**2).sum()) for value in grad.values()))
        clipped.append({name: value / max(1.0, norm) for name, value in grad.items()})
    chain = optax.chain(optax.clip_by_global_norm(1.0), as_optax("momentum", learning_rate=0.1))
    assert_path(
        path_of(chain, start, grads),
        curvebench.replay("momentum", start, clipped, {"learning_rate": 0.1}, "numpy"),
    )


@pytest.mark.parametrize("optimizer", ["adam", "adagrad_full"])
def test_groups_have_learning_rates_of_their_own(optimizer: str) -> None:
    start, grads = drawn(SHAPES)
    labels = {"matrix": "slow", "twin": "fast", "vector": "fast", "scalar": "slow"}
    rates = {"slow": 0.01, "fast": 0.1, "nobody": 1.0}
    partitioned = optax.partition(
        {label: as_optax(optimizer, learning_rate=rate) for label, rate in rates.items()}, labels
    )
    found = path_of(partitioned, start, grads)
    for label in ("slow", "fast"):
        names = [name for name, other in labels.items() if other == label]
        some = [{name: grad[name] for name in names} for grad in (start, *grads)]
        assert_path(
            found, curvebench.replay(optimizer, some[0], some[1:], {"learning_rate": rates[label]}, "numpy")
        )


@pytest.mark.parametrize(
    "kinds",
    [{name: "embedding" if name == "twin" else None for name in SHAPES}, {"twin": "embedding"}.get],
    ids=["tree", "function"],
)
def test_a_mask_leaves_parameters_out(kinds: Any) -> None:
    """Kinds cover all parameters, also where the rule sees some."""
    start, grads = drawn(SHAPES)
    frozen = {name: name == "matrix" for name in SHAPES}
    muon = as_optax("muon", kinds=kinds, learning_rate=0.1, others_ratio=0.1)
    rest = optax.masked(muon, {name: not mask for name, mask in frozen.items()})
    found = path_of(optax.chain(optax.masked(optax.set_to_zero(), frozen), rest), start, grads)
    names = ("twin", "vector", "scalar")
    some = [{name: grad[name] for name in names} for grad in (start, *grads)]
    assert_path(found, curvebench.replay("adamw", some[0], some[1:], {"learning_rate": 0.01}, "numpy"))
    np.testing.assert_array_equal(found[-1]["matrix"], start["matrix"])


def test_hyperparameters_may_be_injected_and_changed() -> None:
    def make(learning_rate: Any, momentum: Any) -> Any:
        return as_optax("momentum", learning_rate=learning_rate, momentum=momentum)

    injected = optax.inject_hyperparams(make)(learning_rate=0.5, momentum=0.5)
    params, grads = {"w": jnp.array([8.0, -4.0])}, {"w": jnp.array([2.0, 1.0])}
    state = injected.init(params)
    update = jax.jit(injected.update)
    for rate, momentum in ((0.5, 0.5), (0.25, 0.0)):
        state.hyperparams.update(learning_rate=jnp.asarray(rate), momentum=jnp.asarray(momentum))
        updates, state = update(grads, state, params)
        params = optax.apply_updates(params, updates)
    assert params["w"].tolist() == [8.0 - 1.0 - 0.5, -4.0 - 0.5 - 0.25]

    warm = optax.inject_hyperparams(make)(learning_rate=lambda count: 0.5 * count, momentum=0.5)
    path = path_of(warm, {"w": np.array([8.0])}, [{"w": np.array([2.0])}] * 3)
    assert [step["w"].item() for step in path] == [8.0, 8.0 - 1.5, 8.0 - 1.5 - 3.5]
    with pytest.raises(InputError, match=r"learning_rate = -1.0 is outside \(0, inf\)"):
        optax.inject_hyperparams(make)(learning_rate=-1.0, momentum=0.5).init(params)


# --- trees, precisions, compilation ----------------------------------------------------------------------


@pytest.mark.parametrize("optimizer", ["shampoo", "adagrad_norm"])
def test_any_tree_of_two_precisions(optimizer: str) -> None:
    start, grads = drawn(SHAPES)

    def tree(arrays: Arrays) -> Any:
        layers = [(arrays["matrix"].astype(np.float32), None), (arrays["twin"], arrays["vector"])]
        return {"layers": layers, "scale": arrays["scalar"]}

    transformation = as_optax(optimizer, learning_rate=0.1)
    updates, _ = jax.eval_shape(
        transformation.update, tree(grads[0]), transformation.init(tree(start)), tree(start)
    )
    assert jax.tree.map(lambda array: array.dtype, updates) == jax.tree.map(
        lambda array: array.dtype, tree(start)
    )
    found = path_of(transformation, tree(start), [tree(grad) for grad in grads])
    expected = curvebench.replay(optimizer, start, grads, {"learning_rate": 0.1}, "numpy")
    for step, wanted in zip(found, expected, strict=True):
        single, (twin, vector) = step["layers"][0][0], step["layers"][1]
        assert [array.dtype.name for array in (single, twin, step["scale"])] == [
            "float32",
            "float64",
            "float64",
        ]
        tolerance = 1e-12 if optimizer == "shampoo" else 1e-6  # one vector: rounded gradients meet the others
        np.testing.assert_allclose(single, wanted["matrix"], rtol=1e-3, atol=1e-5)
        np.testing.assert_allclose(twin, wanted["twin"], rtol=tolerance, atol=tolerance)
        np.testing.assert_allclose(vector, wanted["vector"], rtol=tolerance, atol=tolerance)


def test_float32_stays_float32_outside_of_float64() -> None:
    start, grads = drawn({"matrix": (3, 2)})
    single = [jax.tree.map(np.float32, arrays) for arrays in (start, *grads)]
    hyper, options = {"learning_rate": 0.1, "epsilon": 0.1}, {"refresh_every": 2}
    with jax.enable_x64(False):
        found = path_of(as_optax("shampoo", options, **hyper), single[0], single[1:])
    assert found[-1]["matrix"].dtype.name == "float32"
    assert_path(found, curvebench.replay("shampoo", start, grads, hyper, "numpy", options=options), 1e-4)


def test_all_steps_are_one_program() -> None:
    """Also those with amortized work and those without; uncompiled, they are the same."""
    start, grads = drawn({"matrix": (3, 2)})
    transformation = as_optax("shampoo", {"refresh_every": 3}, learning_rate=0.1)
    traced = []

    def update(*arguments: Any) -> Any:
        traced.append(1)
        return transformation.update(*arguments)

    compiled = path_by(jax.jit(update), transformation, start, grads)
    assert len(traced) == 1
    assert_path(compiled, path_of(transformation, start, grads))
    assert_path(path_by(transformation.update, transformation, start, grads[:2]), compiled[:2])


def test_runs_may_be_mapped() -> None:
    """Three runs side by side, with learning rates of their own."""
    start, grads = drawn({"matrix": (3, 2)})
    rates = np.array([0.05, 0.1, 0.2])

    def final(rate: Any) -> Any:
        transformation = as_optax("shampoo", {"refresh_every": 3}, learning_rate=rate)
        return path_by(transformation.update, transformation, start, grads[:4])[-1]

    found = jax.jit(jax.vmap(final))(rates)["matrix"]
    for rate, value in zip(rates, found, strict=True):
        path = curvebench.replay(
            "shampoo", start, grads[:4], {"learning_rate": rate}, "numpy", options={"refresh_every": 3}
        )
        np.testing.assert_allclose(value, path[-1]["matrix"], rtol=1e-11)


# --- bad input ---------------------------------------------------------------------------------------------


def test_without_optax_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "optax", None)
    with pytest.raises(ImportError, match="as_optax needs Optax, which is not installed: pip install optax"):
        as_optax("adam", learning_rate=0.1)
