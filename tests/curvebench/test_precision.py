"""Precision policies: what is held and computed in what, gradients, steps, and what is refused."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any, get_args

import jax
import numpy as np
import pytest
import torch

from curvebench import optimizers, replay
from curvebench.backends.engine import engine
from curvebench.engine.bundle import Bundle
from curvebench.engine.evaluation import evaluator
from curvebench.engine.execution import execute
from curvebench.engine.inputs import segment_inputs
from curvebench.engine.loading import load
from curvebench.interop.foreign import rule as foreign_rule
from curvebench.optimizers.options import OptionError
from curvebench.optimizers.rule import Rule
from curvebench.optimizers.state_precision import HALF
from curvebench.precision import POLICIES, HalfProducts
from curvebench.spec.values import Precision
from curvebench.steps.derivatives import StepEvaluation, StepInfo
from curvebench.steps.engine import Engine
from curvebench.steps.program import Program, minibatch_of, step_of
from curvebench.steps.update import Work
from tests.curvebench.engine.test_execution import changed, make_bundle
from tests.curvebench.test_executors import NETWORKS, bundle_of
from tests.curvebench.toys import advanced

RULES = optimizers.rules()
WORDS = tuple(POLICIES)
BOTH = pytest.mark.parametrize("backend", ["torch", "jax"])
IN_HALF = {name: rule for name, rule in RULES.items() if HALF in rule.dtypes}


def test_a_study_has_a_word_for_every_policy() -> None:
    assert get_args(Precision) == WORDS


def test_the_rules_that_may_be_held_in_half_precision() -> None:
    adaptive = {"adam", "adamw", "muon", "soap", "shampoo"}
    spectral = {"spectral", "spectral_full", "spectral_diagonal"}
    descent = {"sgd", "momentum", "nesterov", "nesterov_lookahead"}
    assert set(IN_HALF) == adaptive | spectral | descent


@BOTH
def test_a_rule_that_may_not_says_so_before_it_runs(backend: str) -> None:
    bundle = bundle_of(NETWORKS["small_attention"], RULES["adagrad"], seeds=(0,), rates=1)
    with pytest.raises(OptionError, match=r"adagrad: runs in float64 or float32, .* precision: mixed"):
        execute(bundle, engine(backend, "bfloat16"))


def dtype_of(array: Any) -> str:
    return str(array.dtype).removeprefix("torch.")


def state_of(rule: Rule, backend: str, word: str) -> tuple[Engine, Any]:
    bundle = bundle_of(NETWORKS["small_convolution"], rule, seeds=(0,), rates=1)
    made = engine(backend, word)
    with made.context():
        return made, load(bundle, made).carry


def at_first_step(bundle: Bundle, made: Engine, take: Callable[[Program, StepInfo], Any]) -> Any:
    """Return what `take` gives at the first step, compiled as in runs; call inside the engine's context."""
    loaded, inputs = load(bundle, made), step_of(segment_inputs(bundle, made, 0, 1), 0)
    program, carry, constants = loaded.program, loaded.carry, loaded.constants

    def taken(params: Any) -> Any:
        return take(program, program.evaluate(params, carry.model, constants, inputs, Work.NONE))

    point = program.point(carry, constants, inputs)
    return made.compiled(taken, point)(point)


@pytest.mark.parametrize("word", WORDS)
@BOTH
def test_what_is_held_has_the_precision_and_the_bytes_of_the_policy(backend: str, word: str) -> None:
    made, carry = state_of(RULES["adamw"], backend, word)
    parameters = {"float64": "float64", "bfloat16": "bfloat16"}.get(word, "float32")
    size = {"float64": 8, "float32": 4, "bfloat16": 2}[parameters]
    (held,) = carry.state
    assert dtype_of(carry.coordinates) == dtype_of(held.first) == dtype_of(held.second) == parameters
    assert made.state_bytes(carry.state) == 2 * size * math.prod(carry.coordinates.shape)
    assert dtype_of(carry.model["mean"]) == ("float64" if word == "float64" else "float32")


@BOTH
@pytest.mark.parametrize(
    ("name", "options", "held"),
    [
        ("soap", {}, "float32"),
        ("soap", {"state_precision": "bfloat16"}, "bfloat16"),
        ("shampoo", {}, "float32"),
        ("spectral", {}, "bfloat16"),
        ("adamw", {"state_precision": "computed"}, "float32"),
    ],
)
def test_state_beside_parameters_in_half(backend: str, name: str, options: Any, held: str) -> None:
    _, carry = state_of(RULES[name].choose(options), backend, "bfloat16")
    assert dtype_of(carry.coordinates) == "bfloat16"
    leaves = (
        jax.tree.leaves(carry.state) if backend == "jax" else torch.utils._pytree.tree_leaves(carry.state)
    )
    assert {dtype_of(leaf) for leaf in leaves} == {held}


# --- what is computed ----------------------------------------------------------------------------


def gradients(name: str, backend: str, word: str, excess: bool = False) -> dict[str, np.ndarray]:
    """Return the gradients of a network on its first minibatch."""
    workload = NETWORKS[name]
    bundle, made = bundle_of(workload, RULES["sgd"], seeds=(0,), rates=1), engine(backend, word)
    with made.context():
        loaded = load(bundle, made)
        inputs = step_of(segment_inputs(bundle, made, 0, 1), 0)
        params = loaded.program.point(loaded.carry, loaded.constants, inputs)
        batch = minibatch_of(loaded.constants, inputs)
        gradient = partial(StepEvaluation(made, workload.loss, per_seed=True), observes=False)
        if backend == "jax":
            # XLA else leaves out casts to half precision that are followed by casts back
            gradient = jax.jit(gradient, compiler_options={"xla_allow_excess_precision": excess})
        grads = gradient(params, loaded.carry.model, batch, inputs.noise).gradient
        return {key: np.array(made.ops.to_numpy(value), np.float64) for key, value in grads.items()}


def error(found: dict[str, np.ndarray], wanted: dict[str, np.ndarray]) -> float:
    """Return the largest relative error of a parameter's gradient, by Euclidean norms."""
    return max(
        float(np.linalg.norm(found[name] - wanted[name]) / np.linalg.norm(wanted[name])) for name in wanted
    )


@pytest.mark.parametrize("word", ["mixed", "bfloat16"])
@pytest.mark.parametrize("name", NETWORKS)
def test_gradients_are_as_good_on_either_backend(name: str, word: str) -> None:
    exact = gradients(name, "torch", "float64")
    by_torch, by_jax = (error(gradients(name, backend, word), exact) for backend in ("torch", "jax"))
    assert max(by_torch, by_jax) < 2 * min(by_torch, by_jax)
    assert error(gradients(name, "jax", word, excess=True), exact) < 2 * by_torch
    eps = 2.0**-8
    assert eps / 8 < max(by_torch, by_jax) < 16 * eps  # rounded somewhere, and not everywhere


def test_state_of_optax_stays_wide() -> None:
    """Sums over all steps, such as a schedule-free weight, would stop in half precision."""
    _, carry = state_of(foreign_rule("optax:optax.contrib.schedule_free_adamw"), "jax", "bfloat16")
    assert dtype_of(carry.coordinates) == "bfloat16"
    assert "bfloat16" not in {dtype_of(leaf) for leaf in jax.tree.leaves(carry.state)}


@BOTH
def test_gradients_of_parts_are_averaged_wide(backend: str) -> None:
    """Their mean has less rounding than a single part's, and clipping keeps that."""
    bundle = bundle_of(NETWORKS["small_attention"], RULES["sgd"], seeds=(0,), rates=1)
    bundle = changed(bundle, gradient_accumulation=8, clip_gradient_norm=1e6)
    made = engine(backend, "bfloat16")
    with made.context():
        found = at_first_step(bundle, made, lambda program, info: program.clipped(info).gradient)
        assert {dtype_of(value) for value in found.values()} == {"float32"}
        arrays = {key: np.array(made.ops.to_numpy(value), np.float64) for key, value in found.items()}
    assert error(arrays, gradients("small_attention", "torch", "float64")) < 2.0**-6


@BOTH
@pytest.mark.parametrize("name", NETWORKS)
def test_products_alone_are_in_half_precision(name: str, backend: str) -> None:
    made = engine(backend, "mixed")
    seen: dict[str, set[str]] = {}

    class Watched(HalfProducts):
        def __getattr__(self, function: str) -> Any:
            found = getattr(made.ops, function)
            if function not in {"mean", "log_softmax", "argmax"}:
                return found

            def watched(x: Any, *arguments: Any, **options: Any) -> Any:
                seen.setdefault(function, set()).add(dtype_of(x))
                return found(x, *arguments, **options)

            return watched

    workload = NETWORKS[name]
    made.model_ops = made.single_run_ops = Watched(made.ops, made.policy)  # type: ignore[assignment]
    bundle = bundle_of(workload, RULES["sgd"], seeds=(0,), rates=1)
    with made.context():
        loaded = load(bundle, made)
        evaluator(bundle, made, loaded)(loaded.carry, loaded.constants)
    assert seen["mean"] == {"float32"}
    x = made.ops.asarray(np.ones((2, 4)))
    with made.context():
        table = made.model_ops
        assert dtype_of(table.linear(x, x)) == dtype_of(table.matmul(x, x.T)) == "bfloat16"
        assert dtype_of(table.linear(x, x, bias=made.ops.asarray(np.ones(2)))) == "bfloat16"
        assert dtype_of(table.softmax(table.linear(x, x), -1)) == "float32"
        assert dtype_of(table.log_sigmoid(table.linear(x, x))) == "float32"
        assert dtype_of(table.gelu(table.linear(x, x))) == "bfloat16"
        ones = made.ops.asarray(np.ones(4))
        assert dtype_of(table.layer_norm(x, ones, ones, 1e-6)) == "float32"
        half = table.linear(x, made.ops.asarray(np.ones((4, 4))))
        assert dtype_of(table.layer_norm(half, ones, ones, 1e-6)) == "bfloat16"


@BOTH
def test_pooling_sums_wide(backend: str) -> None:
    """Of many numbers of one sign a sum in half precision stops at 256 times the smallest."""
    x = 1.0 + np.random.default_rng(0).random((1, 2, 28, 28))
    made = engine(backend, "mixed")
    with made.context():
        half = made.ops.cast(made.ops.asarray(x), HALF)
        exact = np.array(made.ops.to_numpy(half), np.float64).mean((2, 3))
        found = made.model_ops.average_pool2d(half, 28, 28)
        assert dtype_of(found) == HALF
        np.testing.assert_allclose(np.array(made.ops.to_numpy(found), np.float64)[..., 0, 0], exact, 2.0**-8)


def test_tf32_is_of_the_model_alone_on_torch() -> None:
    made, seen = engine("torch", "tf32"), []
    flags = torch.backends.cuda.matmul
    with made.context():
        assert not flags.allow_tf32

        def loss(ops: Any, params: Any, state: Any, batch: Any, noise: Any) -> Any:
            seen.append(flags.allow_tf32)
            return ops.sum(params["w"]), state, {}

        evaluation = StepEvaluation(made, loss, per_seed=False)
        evaluation({"w": torch.ones(1, 1, 3)}, {}, {"x": torch.ones(2)}, {}, observes=False)
        assert seen == [True]
        assert not flags.allow_tf32


@pytest.mark.parametrize(
    ("word", "precision"), [("tf32", "Precision.HIGH)"), ("float32", "Precision.HIGHEST)")]
)
def test_products_of_the_model_say_tf32_on_jax(word: str, precision: str) -> None:
    made = engine("jax", word)

    def loss(ops: Any, params: Any, state: Any, batch: Any, noise: Any) -> Any:
        return ops.sum(ops.linear(batch["x"], params["w"])), state, {}

    with made.context():
        one = jax.numpy.ones
        gradient = partial(StepEvaluation(made, loss, per_seed=False), observes=False)
        graph = jax.make_jaxpr(gradient)({"w": one((1, 1, 3, 4))}, {}, {"x": one((2, 4))}, {})
        strict = jax.make_jaxpr(lambda x: made.ops.matmul(x, x))(one((3, 3)))
    products = [line for line in str(graph).splitlines() if "precision" in line]
    assert len(products) == 2  # one product for the loss, and one for its gradient
    assert all(precision in line for line in products)
    assert "HIGHEST" in str(strict)


def hessian(backend: str, word: str) -> np.ndarray:
    bundle = make_bundle(rule=RULES["newton"], seeds=(0,), rates=(1.0,), steps=1, evaluations=1, basis=False)
    made = engine(backend, word)
    with made.context():
        found = at_first_step(bundle, made, lambda _, info: info.needs["hessian"])
        return np.array(made.ops.to_numpy(found), np.float64)


@BOTH
def test_what_a_rule_needs_is_computed_wide_in_any_policy(backend: str) -> None:
    wanted = hessian(backend, "float64")
    assert np.linalg.norm(hessian(backend, "mixed") - wanted) < 1e-4 * np.linalg.norm(wanted)


# --- runs ----------------------------------------------------------------------------------------


def assert_it_trains(name: str, rule: Rule, backend: str, word: str, steps: int) -> None:
    bundle = bundle_of(NETWORKS[name], rule, seeds=(0,), rates=1, steps=steps)
    found = execute(bundle, engine(backend, word))
    assert not found.diverged_at.any()
    losses = found.metrics["train_loss"][:, 0, 0]
    assert np.isfinite(losses).all()
    assert losses[-1] < losses[0] + 0.1


@BOTH
@pytest.mark.parametrize(("name", "word"), [*zip(NETWORKS, ["mixed", "bfloat16"], strict=True)])
def test_adamw_takes_200_steps(name: str, word: str, backend: str) -> None:
    assert_it_trains(name, RULES["adamw"], backend, word, 200)


@pytest.mark.long
@BOTH
@pytest.mark.parametrize("word", ["tf32", "mixed", "bfloat16"])
@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("rule", IN_HALF)
def test_every_rule_takes_200_steps(rule: str, name: str, word: str, backend: str) -> None:
    assert_it_trains(name, RULES[rule], backend, word, 200)


@BOTH
def test_parameters_in_half_are_rounded_once_a_step(backend: str) -> None:
    """SGD by NumPy: w in bfloat16, the step in float32 of the gradient in bfloat16, rounded to nearest."""
    bundle = bundle_of(NETWORKS["small_attention"], RULES["sgd"], seeds=(0,), rates=1, steps=1)
    made = engine(backend, "bfloat16")
    rate = np.float32(bundle.hyperparameters["learning_rate"][0] * bundle.schedule[0])
    with made.context():
        loaded = load(bundle, made)
        before = np.array(made.ops.to_numpy(loaded.carry.coordinates), np.float32).ravel()
        found = at_first_step(bundle, made, lambda program, info: program.coordinates(info.gradient, ()))
        grad = np.array(made.ops.to_numpy(found), np.float32).ravel()
        _, carry = advanced(bundle, made, 1)
        after = np.array(made.ops.to_numpy(carry.coordinates), np.float32).ravel()
    wanted = (before - rate * grad).astype(np.float32).astype(jax.numpy.bfloat16).astype(np.float32)
    changed = np.mean(after != before)
    assert changed > 0.1
    assert np.mean(after == wanted) > 0.99  # a compiler may round a product and a sum as one
    np.testing.assert_allclose(after, wanted, rtol=2.0**-7, atol=1e-30)


@BOTH
def test_newton_schulz_in_half_precision_is_that_of_pytorchs_muon(backend: str) -> None:
    """torch.optim.Muon rounds to bfloat16 before it divides by the norm, and ours after: both once."""
    generator = np.random.default_rng(0)
    start, grad = generator.standard_normal((2, 6, 9))
    numbers = {"learning_rate": 1.0, "momentum": 0.0, "weight_decay": 0.0}
    steps = {
        precision: start
        - replay(
            "muon",
            {"w": start},
            [{"w": grad}],
            numbers,
            backend,
            "float32",
            options={"newton_schulz_precision": precision},
        )[-1]["w"]
        for precision in ("computed", "bfloat16")
    }
    param = torch.nn.Parameter(torch.tensor(start, dtype=torch.float32))
    param.grad = torch.tensor(grad, dtype=torch.float32)
    torch.optim.Muon([param], lr=1.0, momentum=0.0, weight_decay=0.0).step()
    theirs = start - param.detach().numpy()
    size, half = np.linalg.norm(theirs), steps["bfloat16"]
    from_exact, between = (np.linalg.norm(one - half) / size for one in (steps["computed"], theirs))
    assert 2.0**-10 < from_exact < 2.0**-4  # rounding of five steps, whose slopes at 0 are 3.4
    assert between < 2.0**-4
