"""Steps on a network and its data, gradients included: K-FAC's beside SGD's and beside that of curvlinops."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

import numpy as np

from curvebench.backends import BACKENDS
from curvebench.backends.engine import engine
from curvebench.engine.execution import Bundle, load, stretch_inputs
from curvebench.optimizers import rules
from curvebench.optimizers.rule import Rule
from curvebench.seeding import WorkloadRandom
from curvebench.workloads import workloads

from .case import ReadyCase
from .peers import Contest
from .steps import end_to_end

WORKLOAD = "digits_mlp"
STEPS_A_CALL = 20  # two turns of a cadence of 10
BATCH = 300
LANES = (3, 4)  # seeds x settings, of K-FAC beside SGD
RATE = {"learning_rate": 1e-3}
EVERY = (1, 10)  # steps between two statistics and inverses
# Of a K-FAC whose factors are those of the last minibatch, as curvlinops has them.
OPTIONS: Mapping[str, Any] = {"fisher": "empirical"}
NUMBERS: Mapping[str, float] = {
    "learning_rate": 0.01,
    "damping": 1e-2,
    "factor_decay": 0.0,
    "momentum": 0.0,
    "weight_decay": 0.0,
}


def _bundle(rule: Rule, numbers: Mapping[str, float], lanes: tuple[int, int]) -> Bundle:
    """Seeds and equal settings of a rule for the steps of one call, on minibatches always the same."""
    seeds, settings = lanes
    workload = workloads()[WORKLOAD]
    given = workload.complete({"batch_size": BATCH})
    randoms = [WorkloadRandom(WORKLOAD, seed) for seed in range(seeds)]
    problems = [workload.problem(given, random) for random in randoms]
    examples = len(problems[0].splits["train"]["labels"])
    return Bundle(
        workload=workload,
        rule=rule,
        problems=problems,
        orders=np.random.default_rng(0).integers(0, examples, (STEPS_A_CALL, seeds, BATCH)),
        hyperparameters={
            name: np.full(settings, value) for name, value in rule.complete(dict(numbers)).items()
        },
        schedule=np.ones(STEPS_A_CALL),
        evaluations=1,
        settings=given,
        randoms=randoms,
    )


def network_steps(
    backend: str,
    rule: Rule,
    dtype: str,
    numbers: Mapping[str, float],
    lanes: tuple[int, int] = (1, 1),
    steps: int | None = None,
) -> ReadyCase:
    """Steps of a rule on the network through the engine, `STEPS_A_CALL` a call.

    Args:
        backend: jax or torch.
        rule: the update rule.
        dtype: float32 or float64.
        numbers: those of its hyperparameters that are not at their defaults.
        lanes: seeds and settings.
        steps: how many are planned, by which an engine decides whether compiling is worth its time; None:
            many.

    Returns:
        `result` gives the parameters of the first lane end to end.
    """
    bundle, made = _bundle(rule, numbers, lanes), engine(backend, dtype)
    with made.context():
        loaded = load(bundle, made)
        inputs = stretch_inputs(bundle, made, 0, STEPS_A_CALL)
        program, carry, constants = loaded.program, loaded.carry, loaded.constants
        segment = made.segment(program, carry, constants, inputs, steps)

    def run() -> None:
        nonlocal carry
        carry = segment(carry, constants, inputs)
        made.finish(carry)

    def result() -> np.ndarray:
        named = program.parameters(carry.coordinates, ())
        return end_to_end({name: made.ops.to_numpy(value)[0, 0] for name, value in named.items()})

    return ReadyCase(run, result, made.context)


def kfac_steps(backend: str, dtype: str, steps: int | None = None) -> ReadyCase:
    """Ours of a single run, with the settings by which curvlinops takes the same steps."""
    return network_steps(backend, rules()["kfac"].choose(OPTIONS), dtype, NUMBERS, steps=steps)


def curvlinops_steps(dtype: str) -> ReadyCase:
    """The same steps by curvlinops: its factors of each minibatch, and their inverse times the gradient."""
    import torch
    from curvlinops import KFACInverseLinearOperator, KFACLinearOperator
    from torch import nn

    kind = getattr(torch, dtype)
    bundle = _bundle(rules()["kfac"].choose(OPTIONS), NUMBERS, (1, 1))
    [problem] = bundle.problems
    train = problem.splits["train"]
    inner, outer = problem.parameters["W1"].shape, problem.parameters["W2"].shape
    module = nn.Sequential(
        nn.Linear(inner[1], inner[0], dtype=kind), nn.ReLU(), nn.Linear(outer[1], outer[0], dtype=kind)
    )
    params = list(module.parameters())
    with torch.no_grad():
        for param, start in zip(params, problem.parameters.values(), strict=True):
            param.copy_(torch.tensor(start))
    assert bundle.orders is not None
    orders = torch.tensor(bundle.orders[:, 0])
    features, labels = torch.tensor(train["features"], dtype=kind), torch.tensor(train["labels"])
    loss = nn.CrossEntropyLoss()

    def run() -> None:
        for chosen in orders:
            x, y = features[chosen], labels[chosen]
            gradient = torch.autograd.grad(loss(module(x), y), params)
            # Told what they would look for in the data: how many examples, and terms of the loss for each.
            factors = KFACLinearOperator(
                module,
                loss,
                params,
                [(x, y)],
                check_deterministic=False,
                fisher_type="empirical",
                separate_weight_and_bias=False,
                num_data=BATCH,
                num_per_example_loss_terms=1,
            )
            inverse = KFACInverseLinearOperator(
                factors, damping=NUMBERS["damping"], use_heuristic_damping=True
            )
            natural = inverse @ list(gradient)
            with torch.no_grad():
                for param, step in zip(params, natural, strict=True):
                    param.sub_(step, alpha=NUMBERS["learning_rate"])

    def result() -> np.ndarray:
        return end_to_end({str(number): param.detach().numpy() for number, param in enumerate(params)})

    return ReadyCase(run, result)


def network_contests() -> Iterator[Contest]:
    """K-FAC beside curvlinops, a single run; and beside SGD, lanes, with updates as in runs of this size."""
    name, dtype = f"step.kfac.{WORKLOAD}", "float32"
    ours, theirs = partial(kfac_steps, "torch", dtype), partial(curvlinops_steps, dtype)
    yield Contest(name, "torch", dtype, "curvlinops", ours, theirs, steps=STEPS_A_CALL)
    for backend in BACKENDS:
        steps = partial(network_steps, backend, dtype=dtype, numbers=RATE, lanes=LANES, steps=STEPS_A_CALL)
        for every in EVERY:
            rule = rules()["kfac"].choose({"factors_every": every, "inverses_every": every})
            yield Contest(
                f"{name} beside sgd, {LANES[0]} x {LANES[1]} lanes, every {every}",
                *(backend, dtype, "sgd, ours"),
                *(partial(steps, rule), partial(steps, rules()["sgd"])),
                steps=STEPS_A_CALL,
            )
