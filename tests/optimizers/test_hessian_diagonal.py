"""Estimates of the Hessian's diagonal: against differences of gradients, sampled targets and a library."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from pytorch_optimizer import AdaHessian, SophiaH

from curvebench import find_rule, replay
from curvebench.arrays.torch_ops import torch_ops
from curvebench.backends.engine import engine
from curvebench.engine.bundle import Bundle
from curvebench.engine.inputs import segment_inputs
from curvebench.engine.loading import load
from curvebench.optimizers import rules
from curvebench.optimizers.hessian_diagonal import diagonal_need
from curvebench.optimizers.options import OptionError
from curvebench.spec.errors import InputError
from curvebench.steps.derivatives import DRAWS
from curvebench.steps.program import step_of
from curvebench.steps.update import Work
from curvebench.workloads import workloads
from curvebench.workloads.workload import Likelihood, Workload
from tests.curvebench.engine.test_execution import make_bundle, run
from tests.curvebench.networks import SMALL_CONVOLUTION

BATCH, SEEDS = 6, 2
BACKENDS = ["jax", "torch"]
SMALL = {"n": 20, "d": 5}


def bundle_of(name: str, options: dict[str, Any] | None = None, workload: str = "digits_mlp") -> Bundle:
    chosen: Workload = {**workloads(), "small_convolution": SMALL_CONVOLUTION}[workload]
    chosen = replace(chosen, dtype="float64")
    batch = None if workload == "least_squares" else BATCH
    settings = chosen.complete(SMALL if batch is None else {"batch_size": batch})
    rule = rules()[name].choose(options or {})
    made = make_bundle(chosen, rule, range(SEEDS), (0.1, 0.2), batch, basis=False, steps=1, given=settings)
    return replace(made, evaluations=1, settings=settings)


def factors(bundle: Bundle, backend: str) -> np.ndarray:
    """Return the need of the first step in the coordinates of the basis, (S, K, 2, d)."""
    made = engine(backend, "float64")
    with made.context():
        loaded = load(bundle, made)
        one = step_of(segment_inputs(bundle, made, 0, 1), 0)
        program, carry = loaded.program, loaded.carry
        point = program.point(carry, loaded.constants, one)
        info = program.evaluate(point, carry.model, loaded.constants, one, Work.OBSERVE)
        values = program.needs_in_basis(info, loaded.constants.matrices)
        return np.array(made.ops.to_numpy(values["diagonal_factors"]))


def loss_of(bundle: Bundle, seed: int) -> tuple[Any, torch.Tensor]:
    """Return the loss of the first step as a function of a vector in PyTorch, and the initial vector."""
    problem, drawn = bundle.problems[seed], bundle.draws(seed, 1)
    rows = slice(None) if bundle.orders is None else bundle.orders[0, seed]
    batch = {name: torch.tensor(value[rows]) for name, value in problem.splits["train"].items()}
    noise = {name: torch.tensor(value) for name, value in drawn.items() if name != DRAWS}
    state = {name: torch.tensor(value) for name, value in problem.state.items()}
    sizes = [value.size for value in problem.parameters.values()]

    def loss(vector: torch.Tensor) -> torch.Tensor:
        parts = zip(problem.parameters.items(), vector.split(sizes), strict=True)
        params = {name: part.reshape(value.shape) for (name, value), part in parts}
        return bundle.workload.loss(torch_ops("cpu", "float64"), params, state, batch, noise)[0]

    start = np.concatenate([value.ravel() for value in problem.parameters.values()])
    return loss, torch.tensor(start)


def product(bundle: Bundle, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the probe of a seed, and the central difference of gradients along the probe."""
    loss, start = loss_of(bundle, seed)
    (probe,) = bundle.draws(seed, 1)[DRAWS]
    gradient, along = torch.func.grad(loss), 1e-5 * torch.tensor(probe)
    return probe, ((gradient(start + along) - gradient(start - along)) / 2e-5).numpy()


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("workload", ["digits_mlp", "small_convolution", "least_squares"])
def test_the_vectors_are_the_probe_and_its_product_with_the_hessian(workload: str, backend: str):
    bundle = bundle_of("sophia_h", workload=workload)
    found = factors(bundle, backend)
    for seed in range(SEEDS):
        for setting in range(2):
            for vector, expected in zip(found[seed, setting], product(bundle, seed), strict=True):
                np.testing.assert_allclose(vector, expected, rtol=1e-6, atol=1e-7)
    assert np.abs(found[0, 0, 0] - found[1, 0, 0]).max() > 0.1, "each seed draws its own probe"


@pytest.mark.parametrize("backend", BACKENDS)
def test_one_run_alone_has_the_vectors_of_its_lane(backend: str):
    for name, workload in (("sophia_h", "digits_mlp"), ("sophia_g", "digits_mlp")):
        bundle = bundle_of(name, workload=workload)
        alone = factors(bundle.subset(slice(1, 2), slice(1, 2)), backend)
        np.testing.assert_allclose(factors(bundle, backend)[1:, 1:], alone, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("backend", BACKENDS)
def test_the_mean_over_a_filter_replaces_each_of_its_entries(backend: str):
    bundle = bundle_of("adahessian", {"spatial_averaging": True}, "small_convolution")
    estimate = np.multiply(*product(bundle, 0))
    found, start = np.prod(factors(bundle, backend)[0, 0], axis=0), 0
    for name, value in bundle.problems[0].parameters.items():
        part = np.s_[start : start + value.size]
        expected, start = estimate[part], start + value.size
        if name == "kernel":
            means = expected.reshape(*value.shape[:2], 9).mean(axis=-1, keepdims=True)
            expected = np.repeat(means, 9, axis=-1).ravel()
        np.testing.assert_allclose(found[part], expected, rtol=1e-6, atol=1e-7)


def test_probes_have_the_distribution_of_their_name():
    rng = np.random.default_rng(0)
    for probe, fourth in (("rademacher", 1.0), ("gaussian", 3.0)):
        draw = diagonal_need(probe).draw
        assert draw is not None
        numbers = draw(None, rng, (1, 100_000))
        moments = [np.mean(numbers**power) for power in (1, 2, 4)]
        np.testing.assert_allclose(moments, [0.0, 1.0, fourth], atol=0.06)
    for name, options, probe in (
        ("adahessian", {}, "rademacher"),
        ("adahessian", {"probe": "gaussian"}, "gaussian"),
        ("sophia_h", {}, "gaussian"),
        ("sophia_h", {"probe": "rademacher"}, "rademacher"),
    ):
        assert rules()[name].choose(options).needs[0].draw is diagonal_need(probe).draw


@pytest.mark.parametrize("backend", BACKENDS)
def test_both_vectors_are_known_in_every_basis(backend: str):
    """The basis of right singular vectors makes the Hessian of least squares diagonal."""
    bundle = bundle_of("adahessian", workload="least_squares")
    matrices = [problem.splits["train"]["features"] for problem in bundle.problems]
    decompositions = [np.linalg.svd(matrix) for matrix in matrices]
    basis = np.stack([vh.T for _, _, vh in decompositions])
    seldom = bundle_of("sophia_h", workload="least_squares")
    seldom = replace(seldom, schedule=np.ones(3), matrices={("theta",): basis})
    assert np.isfinite(run(seldom, backend).metrics["train_loss"]).all()
    found = factors(replace(bundle, matrices={("theta",): basis}), backend)
    for seed, (_, values, _) in enumerate(decompositions):
        probe, in_basis = found[seed, 0]
        np.testing.assert_allclose(in_basis, values**2 * probe, rtol=1e-10, atol=1e-13)
        (drawn,) = bundle.draws(seed, 1)[DRAWS]
        np.testing.assert_allclose(probe, basis[seed].T @ drawn, rtol=1e-12, atol=1e-14)


# --- drawn targets -------------------------------------------------------------------------------


@pytest.mark.parametrize("scale", [1.0, 2.5])
@pytest.mark.parametrize("backend", BACKENDS)
def test_bartlett_is_the_squared_gradient_of_drawn_targets_times_the_batch(backend: str, scale: float):
    bundle = bundle_of("sophia_g")
    given = bundle.workload.likelihood
    assert given is not None
    scaled = replace(bundle.workload, likelihood=Likelihood(given.outputs, "categorical", scale))
    bundle = replace(bundle, workload=scaled)
    found = factors(bundle, backend)
    ops = torch_ops("cpu", "float64")
    for seed, problem in enumerate(bundle.problems):
        params = {name: torch.tensor(value, requires_grad=True) for name, value in problem.parameters.items()}
        assert bundle.orders is not None
        rows = bundle.orders[0, seed]
        batch = {name: torch.tensor(value[rows]) for name, value in problem.splits["train"].items()}
        outputs = given.outputs(ops, params, {}, batch, {})
        targets = (outputs + torch.tensor(bundle.draws(seed, 1)[DRAWS])).argmax(-1)
        torch.nn.functional.cross_entropy(outputs, targets).backward()
        gradient = np.concatenate([param.grad.numpy().ravel() for param in params.values()])
        np.testing.assert_allclose(found[seed, 1, 0], gradient, rtol=1e-9, atol=1e-13)
        np.testing.assert_allclose(
            np.prod(found[seed, 1], axis=0), BATCH * scale * gradient**2, rtol=1e-9, atol=1e-15
        )


def test_sophia_g_is_refused_without_a_likelihood_and_with_accumulation():
    rule = rules()["sophia_g"]
    with pytest.raises(OptionError, match=r"drawn targets \(sophia_h does without\): the workload does not"):
        rule.needs[0].check_likelihood("sophia_g", None)
    assert not rule.needs[0].is_mean
    assert rules()["sophia_h"].needs[0].is_mean


# --- other implementations -----------------------------------------------------------------------


def libraries_path(
    make: Any, starts: np.ndarray, grads: np.ndarray, diagonals: np.ndarray, every: int
) -> list[np.ndarray]:
    """Return the path of an optimizer of pytorch_optimizer that gets the estimates at every k-th step."""
    leaf = torch.tensor(starts)
    optimizer = make([leaf])
    path = []
    for number, (grad, diagonal) in enumerate(zip(grads, diagonals, strict=True)):
        leaf.grad = torch.tensor(grad)
        optimizer.step(hessian=None if number % every else [torch.tensor(diagonal)])
        path.append(leaf.numpy().copy())
    return path


@pytest.mark.parametrize("every", [1, 3])
@pytest.mark.parametrize("name", ["sophia_h", "adahessian"])
def test_path_is_that_of_pytorch_optimizer(name: str, every: int):
    """Its Sophia has another parametrization: a rate of eta / gamma and a limit of gamma for m / h.

    Its bias correction of AdaHessian counts steps, and ours estimates, which is the same for `every` = 1.
    """
    rng = np.random.default_rng(3)
    start, (grads, one, other) = rng.standard_normal(7), rng.standard_normal((3, 12, 7))
    gamma = 0.3
    numbers = {"learning_rate": 0.05, "beta1": 0.9, "beta2": 0.8, "weight_decay": 0.03, "epsilon": 1e-3}
    usual = {"betas": (0.9, 0.8), "update_period": 10**9, "foreach": False}

    def theirs(leaves: list[torch.Tensor]) -> torch.optim.Optimizer:
        if name == "sophia_h":
            decay = numbers["weight_decay"] * gamma
            return SophiaH(leaves, 0.05 / gamma, eps=1e-3 / gamma, p=gamma, weight_decay=decay, **usual)
        return AdaHessian(leaves, 0.05, eps=1e-3, hessian_power=0.7, weight_decay=0.03, **usual)

    numbers |= {"gamma": gamma} if name == "sophia_h" else {"hessian_power": 0.7}
    expected = libraries_path(theirs, start, grads, one * other, every)
    needs = [{"diagonal_factors": np.stack(pair)} for pair in zip(one, other, strict=True)]
    found = replay(
        name,
        {"w": start},
        [{"w": grad} for grad in grads],
        numbers,
        "numpy",
        options={"hessian_every": every},
        needs=needs,
    )
    if name == "adahessian" and every > 1:
        assert np.abs(found[-1]["w"] - expected[-1]).max() > 1e-3
        return
    for ours, library in zip(found, expected, strict=True):
        np.testing.assert_allclose(ours["w"], library, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(
    ("name", "options", "cost"),
    [
        ("sophia_h", {}, [0, 3, 12, 15]),
        ("sophia_g", {}, [0, 2, 11, 13]),
        ("adahessian", {}, [0, 3, 30, 33]),
        ("adahessian", {"hessian_every": 5}, [0, 3, 14, 17]),
    ],
)
def test_a_in_basiswith_the_hessian_costs_two_gradients(name: str, options: dict[str, Any], cost: list[int]):
    assert bundle_of(name, options).evaluations_of(np.array([0, 1, 10, 11])).tolist() == cost


@pytest.mark.parametrize("name", ["adahessian", "sophia_h"])
def test_an_optimizer_of_pytorch_may_differentiate_the_gradient(name: str):
    """Random signs give the exact diagonal of a diagonal Hessian, whoever draws them: paths are equal."""
    ours = {"probe": "rademacher", "hessian_every": 1 if name == "adahessian" else 3}
    bundle = bundle_of(name, ours, "least_squares")
    problems = []
    for problem in bundle.problems[:1]:
        train = problem.splits["train"]
        features = np.eye(*train["features"].shape) * np.arange(1, 6)
        problems.append(replace(problem, splits={"train": {**train, "features": features}}))
    numbers = {"beta1": 0.9, "beta2": 0.8, "weight_decay": 0.0, "epsilon": 1e-3}
    numbers |= {"gamma": 0.3} if name == "sophia_h" else {"hessian_power": 0.7}
    hyper = {key: np.array([value]) for key, value in {"learning_rate": 0.05, **numbers}.items()}
    bundle = replace(
        bundle,
        hyperparameters=hyper,
        schedule=np.ones(7),
        problems=problems,
        randoms=bundle.randoms[:1],
    )
    expected = run(bundle, "torch").metrics["train_loss"]
    arguments: dict[str, Any] = {"betas": [0.9, 0.8], "eps": 1e-3, "hessian_power": 0.7}
    rate, locator = 0.05, "torch:pytorch_optimizer.AdaHessian"
    if name == "sophia_h":
        arguments = {"betas": [0.9, 0.8], "eps": 1e-3 / 0.3, "p": 0.3, "hessian_distribution": "rademacher"}
        arguments["update_period"] = 3
        rate, locator = 0.05 / 0.3, "torch:pytorch_optimizer.SophiaH"
    theirs = find_rule(locator).choose({"arguments": arguments})
    assert theirs.chosen["arguments"]["create_graph"]
    foreign = replace(bundle, rule=theirs, hyperparameters={"learning_rate": np.array([rate])})
    found = run(foreign, "torch")
    np.testing.assert_allclose(found.metrics["train_loss"], expected, rtol=1e-11)
    counted = foreign.evaluations_of(np.array([7])) + found.closure_gradients[-1]
    assert counted == bundle.evaluations_of(np.array([7]))
    refused = replace(foreign, rule=theirs.choose({"arguments": {**arguments, "create_graph": False}}))
    with pytest.raises(InputError, match="if it differentiates the gradient, give create_graph: true"):
        run(refused, "torch")
