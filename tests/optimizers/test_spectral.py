"""Spectral-factorized curvature alone: closed forms, equal states, starts, cadence, drift, overflow."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from curvebench.backends.engine import engine
from curvebench.backends.numpy_ops import numpy_ops
from curvebench.engine.derivatives import map_arrays
from curvebench.engine.layout import layout, roles_of
from curvebench.engine.program import Update, Work
from curvebench.optimizers import rules
from curvebench.optimizers.rule import HyperparameterError
from tests.optimizers.families.spectral import AS_PRINTED
from tests.optimizers.paths import instance, leaves, path_of_one

# S = I at first, no damping, decay or momentum
BARE: Mapping[str, Any] = {"start": "identity", "velocity": False}
NUMBERS = {"learning_rate": 0.5, "damping": 0.0}


def drawn(shape: tuple[int, ...], steps: int, seed: int = 0) -> tuple[np.ndarray, list[np.ndarray]]:
    params, grads = instance({"w": shape}, seed=seed, steps=steps)
    return params["w"], [grad["w"] for grad in grads]


# --- closed forms --------------------------------------------------------------------------------


@pytest.mark.parametrize("gamma", [0.0, 1.0])
@pytest.mark.parametrize("power", [1, 2, 4])
def test_the_diagonal_rule_is_adagrad_and_rmsprop_with_the_root_p(power: int, gamma: float):
    """003 Sec. 3.2, A.1: v <- (1 - beta_2 gamma) v + beta_2 g^2 from 1, w <- w - eta v^(-1/p) g."""
    start, grads = drawn((3, 2), 12)
    hyper = {**NUMBERS, "curvature_rate": 0.3, "gamma": gamma}
    path = path_of_one("spectral_diagonal", start, grads, hyper, {**BARE, "power": power})
    w, v = start, np.ones((3, 2))
    for found, grad in zip(path, grads, strict=True):
        v = (1 - 0.3 * gamma) * v + 0.3 * grad**2
        w = w - 0.5 * v ** (-1 / power) * grad
        np.testing.assert_allclose(found, w, rtol=1e-14, atol=1e-15)


def test_the_diagonal_rule_whose_share_is_1_is_our_adagrad():
    start, grads = drawn((3, 2), 12)
    adagrad = path_of_one("adagrad", start, grads, {"learning_rate": 0.5, "initial_accumulator": 1.0})
    hyper = {**NUMBERS, "curvature_rate": 1.0, "gamma": 0.0}
    np.testing.assert_allclose(path_of_one("spectral_diagonal", start, grads, hyper, BARE), adagrad, 1e-9)


SINGLE = [np.diag(np.eye(3)[t % 3]) for t in range(6)]


@pytest.mark.parametrize(("name", "masks"), [("spectral", [np.eye(3)] * 6), ("spectral_full", SINGLE)])
def test_bases_stay_where_curvatures_are_diagonal(name: str, masks: list[np.ndarray]):
    """Those of diagonal matrices along both axes, and of vectors with one entry: nothing is rotated."""
    start, grads = drawn((3, 3), 6)
    given = [grad * mask for grad, mask in zip(grads, masks, strict=True)]
    for array in path_of_one(name, start, given, {**NUMBERS, "curvature_rate": 0.3}, BARE):
        moved = array - start
        np.testing.assert_array_equal(moved - np.diag(np.diag(moved)), 0.0)
    assert np.diag(moved).all()


def test_two_steps_by_hand():
    """From S = I the first step turns nothing, and the second turns by the Cayley map of one angle."""
    one, two = np.array([2.0, 1.0]), np.array([1.0, 3.0])
    hyper = {**NUMBERS, "curvature_rate": 0.5}
    options = {**BARE, "normalized": False, "tie_tolerance": 0.0}
    path = path_of_one("spectral_full", [0.0, 0.0], [one, two], hyper, options)
    np.testing.assert_allclose(path[0], [-0.5 * 2 / np.sqrt(2.5), -0.5 * 1 / 1], rtol=1e-15)
    # d = (2.5, 1), U_21 = -3 / (1 - 2.5) = 2, X = 0.25 * 2 = 1/2: cos = 3/5, sin = 4/5
    basis, values = np.array([[0.6, -0.8], [0.8, 0.6]]), np.array([1.25 + 0.5, 0.5 + 4.5])
    step = -0.5 * basis @ (values**-0.5 * (basis.T @ two))
    np.testing.assert_allclose(path[1] - path[0], step, rtol=1e-14)


def test_the_old_curvature_moves_before_it_learns():
    start, grads = drawn((3, 2), 2)
    for name in ("spectral", "spectral_full", "spectral_diagonal"):
        old = path_of_one(name, start, grads, NUMBERS, {**BARE, "moves_with": "old"})
        np.testing.assert_allclose(old[0], start - 0.5 * grads[0], atol=1e-15)
        new = path_of_one(name, start, [grads[0], 0 * grads[1]], NUMBERS, BARE)
        again = path_of_one(name, start, [grads[0], grads[0]], NUMBERS, {**BARE, "moves_with": "old"})
        # the first update of the curvature shows in the second step of the old, and in the first of the new
        np.testing.assert_allclose(again[1] - again[0], new[0] - start, atol=1e-14)


@pytest.mark.parametrize("name", ["spectral", "spectral_full", "spectral_diagonal"])
def test_a_direction_is_clipped_at_its_root_mean_square(name: str):
    start, grads = drawn((3, 2), 1)
    free = path_of_one(name, start, grads, NUMBERS, BARE)[0] - start
    size = np.sqrt(np.mean((free / 0.5) ** 2))
    for clipping in (0.5 * size, 2 * size):
        path = path_of_one(name, start, grads, NUMBERS, {**BARE, "clipping": clipping})
        np.testing.assert_allclose(path[0] - start, min(1, clipping / size) * free, rtol=1e-12)


# --- the start -----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["spectral", "spectral_full", "spectral_diagonal"])
@pytest.mark.parametrize("scale", [1e-120, 1e120])
def test_a_start_by_the_gradient_leaves_out_its_scale(name: str, scale: float):
    start, grads = drawn((4, 3), 12)
    path = path_of_one(name, start, [scale * grad for grad in grads], {**NUMBERS, "damping": 0.0})
    np.testing.assert_allclose(path, path_of_one(name, start, grads, NUMBERS), rtol=0, atol=1e-9)


def test_a_gradient_that_is_0_starts_from_the_identity():
    start, grads = drawn((4, 3), 3)
    given = [0 * grads[0], *grads[1:]]
    by_gradient, identity = (
        path_of_one("spectral", start, given, NUMBERS, {"start": one}) for one in ("gradient", "identity")
    )
    np.testing.assert_array_equal(by_gradient, identity)


@pytest.mark.filterwarnings("ignore:divide by zero", "ignore:invalid value")
@pytest.mark.parametrize("name", ["spectral", "spectral_full", "spectral_diagonal"])
def test_a_curvature_of_which_nothing_is_left_is_nan_and_does_not_stand_still(name: str):
    """At a gradient of 0 all is forgotten where curvature_rate and gamma are 1, but for the damping."""
    start, grads = drawn((3, 2), 3)
    hyper = {**NUMBERS, "curvature_rate": 1.0, "gamma": 1.0}
    given = [grads[0], 0 * grads[1], grads[2]]
    first, *later = path_of_one(name, start, given, hyper)
    assert np.isfinite(first).all()
    assert np.isnan(later).all()
    damped = path_of_one(name, start, given, {**hyper, "damping": 1e-8})
    assert np.isfinite(damped).all()
    assert (damped[2] != damped[1]).all()


# --- equal states --------------------------------------------------------------------------------


@pytest.mark.parametrize("backend", ["jax", "torch"])
@pytest.mark.parametrize("name", ["spectral", "spectral_full"])
def test_each_of_fifty_steps_is_the_same_from_equal_states(name: str, backend: str):
    """Of the method as printed, whose paths no two libraries share for long: a step at a time."""
    shapes: dict[str, tuple[int, ...]] = {"matrix": (5, 3), "convolution": (3, 2, 2, 2)}  # 39 coordinates
    rule, made = rules()[name].choose({**AS_PRINTED, "start": "gradient"}), engine(backend, "float64")
    lay = layout(shapes, roles_of(shapes))
    update, ops = Update(rule, lay), numpy_ops("float64")
    numbers = rule.complete({"learning_rate": 0.05, "damping": 1e-3})
    rng = np.random.default_rng(11)
    flat: Any = rng.standard_normal((1, 1, lay.total))
    state: Any = update.init(ops, flat)
    compiled: dict[Work, Any] = {}

    def like(given: Any, read: Any) -> Any:
        if isinstance(given, tuple):
            parts = [like(one, read) for one in given]
            return type(given)(*parts) if hasattr(given, "_fields") else tuple(parts)
        return read(given)

    for step in range(1, 51):
        grad = rng.standard_normal((1, 1, lay.total))
        values = {key: np.full((1, 1, 1), value) for key, value in {**numbers, "step": step}.items()}
        values["schedule"] = np.ones((1, 1, 1))
        work = update.work_of(step)
        with made.context():
            arguments = (
                made.ops.asarray(grad),
                like(state, made.ops.asarray),
                made.ops.asarray(flat),
                map_arrays(made.ops.asarray, values),
            )
            if work not in compiled:
                compiled[work] = made.compiled(
                    lambda grad, state, flat, values, work=work: update.apply(
                        made.ops, grad, state, flat, values, work
                    ),
                    *arguments,
                )
            found = like(compiled[work](*arguments), lambda one: np.array(made.ops.to_numpy(one)))
        flat, state = update.apply(ops, grad, state, flat, values, work)
        for ours, theirs in zip(leaves((flat, state)), leaves(tuple(found)), strict=True):
            scale = np.abs(ours).max()
            np.testing.assert_allclose(theirs, ours, rtol=0, atol=1e-10 * scale, err_msg=f"step {step}")


# --- cadence and drift ---------------------------------------------------------------------------


def test_the_curvature_and_the_correction_have_cadences_of_their_own():
    rule = rules()["spectral"].choose({"refresh_every": 2, "orthogonalize_every": 3})
    update = Update(rule, layout({"w": (3, 2)}, roles_of({"w": (3, 2)})))
    both = Work.REFRESH | Work.OBSERVE
    works = [update.work_of(step) for step in range(1, 8)]
    assert works == [
        Work.START | Work.OBSERVE, Work.NONE, Work.REFRESH, Work.OBSERVE, Work.REFRESH, Work.NONE, both
    ]  # fmt: skip
    assert update.cadence == set(works)


def final_bases(options: Mapping[str, Any], dtype: str, steps: int) -> list[np.ndarray]:
    """The bases after steps on random gradients of a 6 x 4 matrix."""
    rule, lay = rules()["spectral"].choose(options), layout({"w": (6, 4)}, roles_of({"w": (6, 4)}))
    update, ops, rng = Update(rule, lay), numpy_ops(dtype), np.random.default_rng(12)
    given = {"learning_rate": 0.1, "rotation_rate": 1.0, "others_learning_rate": 0.1, "schedule": 1.0}
    numbers = {**rule.complete({"learning_rate": 0.1, "rotation_rate": 1.0}), **given}
    flat = ops.zeros((1, 1, lay.total))
    state = update.init(ops, flat)
    for step in range(1, steps + 1):
        values = {key: ops.zeros((1, 1, 1)) + value for key, value in {**numbers, "step": step}.items()}
        grad = ops.asarray(rng.standard_normal((1, 1, lay.total)))
        flat, state = update.apply(ops, grad, state, flat, values, update.work_of(step))
    return [np.asarray(one.basis[0, 0, 0], float) for one in state[0].curvature.factors]


def defect(bases: list[np.ndarray]) -> float:
    """The largest |B^T B - I|_F."""
    return max(float(np.linalg.norm(basis.T @ basis - np.eye(len(basis)))) for basis in bases)


def test_exact_maps_stay_orthogonal_and_truncated_ones_with_a_correction():
    """A truncated map of Frobenius norm 1/2 leaves the manifold, if it is not brought back."""
    assert defect(final_bases({}, "float64", 300)) < 1e-12
    assert defect(final_bases({}, "float32", 300)) < 1e-4
    drifted = defect(final_bases({"cayley": "truncated"}, "float64", 300))
    corrected = defect(final_bases({"cayley": "truncated", "orthogonalize_every": 1}, "float64", 300))
    assert drifted > 1e-4
    assert corrected < drifted / 50


# --- what goes wrong -----------------------------------------------------------------------------


@pytest.mark.parametrize("backend", ["numpy", "torch"])
@pytest.mark.parametrize("name", ["spectral", "spectral_full", "spectral_diagonal"])
def test_an_exponential_that_overflows_is_no_number(name: str, backend: str):
    """And not a direction of 0, with which a run would go on as if nothing were wrong."""
    options = {"exponential": "exact", "start": "identity"}
    with np.errstate(all="ignore"):
        path = path_of_one(name, np.ones((3, 2)), [np.full((3, 2), 1e3)], NUMBERS, options, backend)
    assert np.isnan(path[0]).all()


def test_numbers_that_an_option_takes_away_are_refused():
    for options, number in (({"normalized": False}, "rotation_rate"), ({"velocity": False}, "momentum")):
        with pytest.raises(HyperparameterError, match=f"spectral has no hyperparameter '{number}'"):
            rules()["spectral"].choose(options).complete({"learning_rate": 0.1, number: 0.5})
