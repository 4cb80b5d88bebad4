"""Steps of K-FAC on a network and its data, gradients included: ours and those of curvlinops."""

from __future__ import annotations

from functools import partial

import numpy as np

from curvebench.backends.engine import engine
from curvebench.engine.bundle import Bundle
from curvebench.engine.inputs import segment_inputs
from curvebench.engine.loading import load
from curvebench.optimizers import rules
from curvebench.seeding import WorkloadRandom
from curvebench.workloads import workloads

from .case import ReadyCase
from .peers import Contest
from .steps import end_to_end

WORKLOAD = "digits_mlp"
STEPS_A_CALL = 20
BATCH = 300
NUMBERS = {
    "learning_rate": 0.01,
    "damping": 1e-2,
    "factor_decay": 0.0,  # the factors are those of the last minibatch, as curvlinops computes them
    "momentum": 0.0,
    "weight_decay": 0.0,
}


def _bundle() -> Bundle:
    """Return a single run for the steps of one call, always on the same minibatches."""
    workload = workloads()[WORKLOAD]
    rule = rules()["kfac"].choose({"fisher": "empirical"})
    given = workload.complete({"batch_size": BATCH})
    random = WorkloadRandom(WORKLOAD, 0)
    problem = workload.problem(given, random)
    examples = len(problem.splits["train"]["labels"])
    return Bundle(
        workload=workload,
        rule=rule,
        problems=[problem],
        orders=np.random.default_rng(0).integers(0, examples, (STEPS_A_CALL, 1, BATCH)),
        hyperparameters={name: np.array([value]) for name, value in rule.complete(NUMBERS).items()},
        schedule=np.ones(STEPS_A_CALL),
        settings=given,
        randoms=[random],
    )


def kfac_steps(dtype: str, steps: int | None = None) -> ReadyCase:
    """Prepare our steps on torch through the engine, `STEPS_A_CALL` in a call.

    Args:
        dtype: float32 or float64.
        steps: how many steps are planned, by which the engine decides whether compiling is worth its time;
            None for many.

    Returns:
        `result` gives the parameters end to end.
    """
    bundle, made = _bundle(), engine("torch", dtype)
    with made.context():
        loaded = load(bundle, made)
        inputs = segment_inputs(bundle, made, 0, STEPS_A_CALL)
        program, carry, constants = loaded.program, loaded.carry, loaded.constants
        segment = made.segment(loaded, inputs, steps)

    def run() -> None:
        nonlocal carry
        carry = segment(carry, constants, inputs)
        made.synchronize(carry)

    def result() -> np.ndarray:
        named = program.parameters(carry.coordinates, ())
        return end_to_end({name: made.ops.to_numpy(value)[0, 0] for name, value in named.items()})

    return ReadyCase(run, result, made.context)


def curvlinops_steps(dtype: str) -> ReadyCase:
    """The same steps by curvlinops: its factors of each minibatch, and their inverse times the gradient."""
    import torch
    from curvlinops import KFACInverseLinearOperator, KFACLinearOperator
    from torch import nn

    kind = getattr(torch, dtype)
    bundle = _bundle()
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


def kfac_contest() -> Contest:
    """Return the contest of a single run of K-FAC on torch with the same run of curvlinops."""
    name, dtype = f"step.kfac.{WORKLOAD}", "float32"
    ours, theirs = partial(kfac_steps, dtype), partial(curvlinops_steps, dtype)
    return Contest(name, "torch", dtype, "curvlinops", ours, theirs, steps=STEPS_A_CALL)
