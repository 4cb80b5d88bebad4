"""K-FAC steps of a network, including the computation of gradients, by this project and by curvlinops."""

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
HYPERPARAMETERS = {
    "learning_rate": 0.01,
    "damping": 1e-2,
    # With decay 0, a step uses the factors of its own minibatch only, as curvlinops does.
    "factor_decay": 0.0,
    "momentum": 0.0,
    "weight_decay": 0.0,
}


def _bundle() -> Bundle:
    """Return a single run that takes the steps of one call, always on the same minibatches."""
    workload = workloads()[WORKLOAD]
    rule = rules()["kfac"].choose({"fisher": "empirical"})
    settings = workload.complete({"batch_size": BATCH})
    random = WorkloadRandom(WORKLOAD, 0)
    problem = workload.problem(settings, random)
    examples = len(problem.splits["train"]["labels"])
    return Bundle(
        workload=workload,
        rule=rule,
        problems=[problem],
        orders=np.random.default_rng(0).integers(0, examples, (STEPS_A_CALL, 1, BATCH)),
        hyperparameters={name: np.array([value]) for name, value in rule.complete(HYPERPARAMETERS).items()},
        schedule=np.ones(STEPS_A_CALL),
        settings=settings,
        randoms=[random],
    )


def kfac_steps(dtype: str, steps: int | None = None) -> ReadyCase:
    """Prepare K-FAC steps of this project's engine on torch, `STEPS_A_CALL` per call.

    Args:
        dtype: float32 or float64.
        steps: planned number of steps, from which the engine decides whether compilation saves time; None for
            a large number.

    Returns:
        A case whose `result` is the vector of all parameters.
    """
    return steps_of(_bundle(), dtype, steps)


def steps_of(bundle: Bundle, dtype: str, steps: int | None) -> ReadyCase:
    """Prepare the steps of a bundle on torch.

    A call takes one step for each entry of the bundle's schedule.

    Args:
        bundle: runs that are computed together.
        dtype: float32 or float64.
        steps: planned number of steps, as in `kfac_steps`.

    Returns:
        A case whose `result` is the vector of all parameters of the last run.
    """
    runtime = engine("torch", dtype)
    with runtime.context():
        loaded = load(bundle, runtime)
        inputs = segment_inputs(bundle, runtime, 0, len(bundle.schedule))
        program, carry, constants = loaded.program, loaded.carry, loaded.constants
        segment = runtime.segment(loaded, inputs, steps)

    def run() -> None:
        nonlocal carry
        carry = segment(carry, constants, inputs)
        runtime.synchronize(carry)

    def result() -> np.ndarray:
        named = program.parameters(carry.coordinates, ())
        order = bundle.problems[0].parameters
        return end_to_end({name: runtime.ops.to_numpy(named[name])[0, -1] for name in order})

    return ReadyCase(run, result, runtime.context)


def curvlinops_steps(dtype: str) -> ReadyCase:
    """Prepare the K-FAC steps of `kfac_steps` with curvlinops.

    Each step computes the Kronecker factors of the minibatch, and multiplies the gradient by their damped
    inverses.
    """
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
        for indices in orders:
            x, y = features[indices], labels[indices]
            gradient = torch.autograd.grad(loss(module(x), y), params)
            # Pass `num_data` and `num_per_example_loss_terms`, which curvlinops would otherwise compute.
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
                factors, damping=HYPERPARAMETERS["damping"], use_heuristic_damping=True
            )
            natural = inverse @ list(gradient)
            with torch.no_grad():
                for param, step in zip(params, natural, strict=True):
                    param.sub_(step, alpha=HYPERPARAMETERS["learning_rate"])

    def result() -> np.ndarray:
        return end_to_end({str(number): param.detach().numpy() for number, param in enumerate(params)})

    return ReadyCase(run, result)


def kfac_contest() -> Contest:
    """Return the pair of K-FAC steps on torch that are timed in turn: of this project, and of curvlinops."""
    name, dtype = f"step.kfac.{WORKLOAD}", "float32"
    ours, theirs = partial(kfac_steps, dtype), partial(curvlinops_steps, dtype)
    return Contest(name, "torch", dtype, "curvlinops", ours, theirs, steps=STEPS_A_CALL)
