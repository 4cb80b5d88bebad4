"""Gradient accumulation: gradients equal those of the whole minibatch, with one part in memory at a time."""

from __future__ import annotations

import dataclasses
from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from curvebench import optimizers
from curvebench.backends.engine import engine
from curvebench.engine.bundle import Bundle
from curvebench.engine.memory import lanes_per_bundle
from curvebench.optimizers.options import OptionError
from curvebench.workloads.workload import GRADIENT_NORM, Workload
from tests.curvebench.engine.test_execution import changed, make_bundle, run, same
from tests.curvebench.networks import SMALL_ATTENTION, SMALL_CONVOLUTION
from tests.curvebench.test_executors import bundle_of
from tests.curvebench.toys import TANH, TANH_SHARED, begun
from tests.optimizers.test_kfac import NUMBERS
from tests.optimizers.test_kfac import bundle_of as kfac_bundle
from tests.workloads.cases import NAMES, minibatch, random_of, small

BACKENDS = ("jax", "torch")


def in_parts(bundle: Bundle, parts: int) -> Bundle:
    return changed(bundle, gradient_accumulation=parts)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("workload", [TANH, TANH_SHARED], ids=lambda workload: workload.name)
def test_runs_are_those_of_the_whole_minibatch(workload: Workload, backend: str) -> None:
    """The model state, which counts examples, goes from part to part."""
    bundle = make_bundle(workload)
    same(run(bundle, backend), run(in_parts(bundle, 5), backend), 1e-12)


@cache
def whole(batch_size: int) -> Any:
    return run(make_bundle(seeds=(0, 3), batch_size=batch_size, steps=4), "torch")


@given(st.integers(1, 4), st.integers(1, 7))
def test_any_parts_that_divide_the_minibatch_give_its_runs(size: int, parts: int) -> None:
    bundle = make_bundle(seeds=(0, 3), batch_size=size * parts, steps=4)
    same(whole(size * parts), run(in_parts(bundle, parts), "torch"), 1e-12)


def test_noise_is_cut_with_its_examples() -> None:
    """Dropout draws for each example: the same masks meet the same examples."""
    bundle = bundle_of(SMALL_ATTENTION, optimizers.rules()["sgd"], steps=3)
    same(run(bundle, "torch"), run(in_parts(bundle, 4), "torch"), 1e-12)


def test_noise_of_a_whole_step_is_that_of_each_part() -> None:
    def noise(settings: Any, generator: np.random.Generator, size: int) -> dict[str, np.ndarray]:
        return {"scale": generator.uniform(0.5, 1.5, 3), "factors": generator.uniform(0.5, 1.5, size)}

    def loss(ops: Any, params: Any, state: Any, batch: Any, noise: Any) -> Any:
        features = batch["features"] * noise["scale"] * noise["factors"][:, None]
        return TANH.loss(ops, params, state, {**batch, "features": features}, noise)

    metrics = {name: one for name, one in TANH.metrics.items() if name != GRADIENT_NORM}
    workload = dataclasses.replace(TANH, noise=noise, loss=loss, metrics=metrics)
    randoms = [random_of(seed) for seed in range(3)]
    bundle = dataclasses.replace(make_bundle(), workload=workload, randoms=randoms)
    same(run(bundle, "torch"), run(in_parts(bundle, 5), "torch"), 1e-12)


@pytest.mark.parametrize("backend", BACKENDS)
def test_streamed_minibatches_are_cut_too(backend: str) -> None:
    metrics = {name: one for name, one in TANH.metrics.items() if name != GRADIENT_NORM}
    workload = dataclasses.replace(TANH, metrics=metrics, streamed=True, evaluation_batch=7)
    bundle = make_bundle(workload)
    same(run(bundle, backend), run(in_parts(bundle, 2), backend), 1e-12)


def test_convolutions_of_a_single_run_with_statistics_of_each_part() -> None:
    """Batch norm gets one part at a time, and updates its running statistics by each part in order."""
    seen = []

    def loss(ops: Any, params: Any, state: Any, batch: Any, noise: Any) -> Any:
        seen.append(batch["images"].shape[0])
        return SMALL_CONVOLUTION.loss(ops, params, state, batch, noise)

    workload = dataclasses.replace(SMALL_CONVOLUTION, loss=loss)
    bundle = bundle_of(SMALL_CONVOLUTION, optimizers.rules()["sgd"], seeds=(0,), rates=1, steps=2)
    found = run(dataclasses.replace(in_parts(bundle, 4), workload=workload), "torch")
    assert set(seen) == {4}
    whole = run(bundle, "torch")
    assert np.isfinite(found.metrics["train_loss"]).all()
    assert found.metrics["train_loss"][0] == pytest.approx(whole.metrics["train_loss"][0], rel=1e-12)
    assert found.metrics["train_loss"][-1] != pytest.approx(whole.metrics["train_loss"][-1], rel=1e-6)


def test_backends_agree_on_batch_norm_in_parts() -> None:
    bundle = in_parts(bundle_of(SMALL_CONVOLUTION, optimizers.rules()["adam"], rates=1, steps=3), 4)
    same(run(bundle, "jax"), run(bundle, "torch"), 1e-9)


@pytest.mark.parametrize(
    ("fisher", "backend"),
    [("sampled", "jax"), *((each, "torch") for each in ("sampled", "expected", "empirical"))],
)
def test_statistics_of_layers_are_means_over_parts(fisher: str, backend: str) -> None:
    options = {"fisher": fisher, "factors_every": 2, "inverses_every": 2}
    bundle = kfac_bundle("kfac", options, NUMBERS, seeds=2)
    same(run(bundle, backend), run(in_parts(bundle, 4), backend), 1e-9)  # inverses amplify rounding


def test_hessians_are_means_over_parts() -> None:
    bundle = make_bundle(rule=optimizers.rules()["newton"], basis=False, steps=3, evaluations=3)
    bundle = dataclasses.replace(
        bundle, hyperparameters={**bundle.hyperparameters, "damping": np.full(2, 1.0)}
    )
    same(run(bundle, "torch"), run(in_parts(bundle, 2), "torch"), 1e-9)


@pytest.mark.parametrize("backend", ["jax", "torch"])
def test_a_probe_is_the_same_for_all_parts(backend: str) -> None:
    bundle = make_bundle(
        rule=optimizers.rules()["adahessian"], basis=False, steps=3, evaluations=3, batch_size=8
    )
    same(run(bundle, backend), run(in_parts(bundle, 2), backend), 1e-8)


def test_what_is_no_mean_over_parts_is_refused() -> None:
    bundle = kfac_bundle("kfac", {"fisher": "empirical_of_mean"}, NUMBERS)
    with pytest.raises(OptionError, match=r"kfac: needs statistics .* not the mean over its parts"):
        run(in_parts(bundle, 2), "torch")


# The noise of the noisy quadratic belongs to a whole batch, and its loss uses no examples.
@pytest.mark.parametrize(
    "name", [name for name in NAMES if small(name)[1].get("batch_size") and name != "noisy_quadratic"]
)
def test_losses_of_workloads_with_minibatches_are_means_over_examples(name: str) -> None:
    workload, settings = small(name)
    problem = workload.problem(settings, random_of(0))
    batch = minibatch(problem, 12)
    made = engine("torch", "float64")
    params = {key: made.ops.asarray(value) for key, value in problem.parameters.items()}
    state = {key: made.ops.asarray(value) for key, value in problem.state.items()}

    def of(examples: slice) -> float:
        part = {key: made.ops.asarray(value[examples]) for key, value in batch.items()}
        return float(workload.loss(made.ops, params, state, part, {})[0])

    parts = [of(slice(start, start + 4)) for start in (0, 4, 8)]
    assert np.mean(parts) == pytest.approx(of(slice(None)), rel=1e-12)


@pytest.mark.parametrize("network", ["layers", "convolutions"])
def test_activations_of_one_part_are_held_at_a_time(network: str) -> None:
    """The memory that XLA allocates for a step of a wide network falls with the number of parts."""

    def loss(ops: Any, params: Any, state: Any, batch: Any, noise: Any) -> Any:
        if network == "layers":
            hidden = ops.tanh(batch["features"] @ ops.broadcast_to(params["first"][:1, :1], (3, 2000)))
        else:
            images = ops.broadcast_to(
                batch["features"][:, :1, None, None], (len(batch["features"]), 1, 20, 20)
            )
            kernel = ops.broadcast_to(params["first"][:1, :1, None, None], (32, 1, 3, 3))
            hidden = ops.tanh(ops.conv2d(images, kernel))
        for _ in range(4):
            hidden = ops.tanh(hidden * 0.5)
        return ops.mean(hidden), state, {}

    metrics = {"train_loss": TANH.metrics["train_loss"]}
    workload = dataclasses.replace(TANH, loss=loss, metrics=metrics)
    made = engine("jax", "float64")

    def peak(parts: int) -> int:
        bundle = make_bundle(workload, seeds=(0,), rates=(0.1,), batch_size=30, basis=False, steps=4)
        bundle = in_parts(dataclasses.replace(bundle, rule=optimizers.rules()["sgd"]), parts)
        with made.context():
            _, _, segment = begun(bundle, made, 4)
            return made.device_peak(segment, lambda: None) or 0

    assert peak(10) < 0.25 * peak(1)


def test_more_lanes_fit_where_a_part_is_held() -> None:
    bundle = make_bundle(seeds=tuple(range(6)), rates=(0.1,), batch_size=30)
    workload = dataclasses.replace(
        TANH, evaluation_batch=1, metrics={"train_loss": TANH.metrics["train_loss"]}
    )
    bundle = dataclasses.replace(bundle, workload=workload)
    assert lanes_per_bundle(in_parts(bundle, 10), 8, 30_000) > lanes_per_bundle(bundle, 8, 30_000)
