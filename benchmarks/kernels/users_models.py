"""Steps of users' models of PyTorch with AdamW, by this project and by a plain loop of PyTorch."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import numpy as np

from curvebench.engine.bundle import Bundle
from curvebench.optimizers import rules
from curvebench.registry import find_workload
from curvebench.seeding import WorkloadRandom

from . import torch_models
from .case import ReadyCase
from .networks import steps_of
from .peers import Contest
from .steps import LEARNING_RATE, end_to_end

# By the name of a model, the names of the functions that compute its loss and its training data.
MODELS = {"DenseNetwork": ("classification", "labelled"), "Recurrent": ("regression", "sequences")}
# By the name of a model, the numbers of runs (lanes) that are computed together when it is timed.
LANES = {"DenseNetwork": (1, 16), "Recurrent": (1,)}
STEPS_A_CALL = 20
BATCH = 32
DTYPE = "float32"


def bundle_of(model: str, lanes: int) -> Bundle:
    """Return runs of a model with equal settings, which take the steps of one call on equal minibatches."""
    loss, train = MODELS[model]
    workload = find_workload(f"torch:{Path(torch_models.__file__).resolve()}:{model}")
    settings = workload.complete({"loss": loss, "train": train, "batch_size": BATCH})
    bound, random, rule = workload.at(settings), WorkloadRandom(model, 0), rules()["adamw"]
    hyper = rule.complete({"learning_rate": LEARNING_RATE})
    return Bundle(
        workload=bound,
        rule=rule,
        problems=[bound.problem(settings, random)],
        orders=np.random.default_rng(0).integers(0, 2_000, (STEPS_A_CALL, 1, BATCH)),
        hyperparameters={name: np.full(lanes, value) for name, value in hyper.items()},
        schedule=np.ones(STEPS_A_CALL),
        settings=settings,
        randoms=[random],
    )


def steps_as_workload(model: str, lanes: int) -> ReadyCase:
    """Prepare steps of this project's engine on torch, `STEPS_A_CALL` per call and lane.

    Returns:
        A case whose `result` is the vector of all parameters of the last lane.
    """
    return steps_of(bundle_of(model, lanes), DTYPE, STEPS_A_CALL)


def steps_in_a_loop(model: str, lanes: int) -> ReadyCase:
    """Prepare the steps of `steps_as_workload` in a loop of PyTorch, one run after another."""
    import torch

    bundle, (loss, train) = bundle_of(model, 1), MODELS[model]
    calculated, data = getattr(torch_models, loss), getattr(torch_models, train)()
    assert bundle.orders is not None
    orders = torch.tensor(bundle.orders[:, 0])
    modules = [getattr(torch_models, model)() for _ in range(lanes)]
    start = {name: torch.tensor(value) for name, value in bundle.problems[0].parameters.items()}
    for module in modules:
        module.load_state_dict(start)
    optimizers = [torch.optim.AdamW(module.parameters(), lr=LEARNING_RATE) for module in modules]

    def run() -> None:
        for module, optimizer in zip(modules, optimizers, strict=True):
            for indices in orders:
                optimizer.zero_grad()
                calculated(module, [array[indices] for array in data]).backward()
                optimizer.step()

    def result() -> np.ndarray:
        parameters = modules[-1].named_parameters()
        return end_to_end({name: param.detach().numpy() for name, param in parameters})

    return ReadyCase(run, result)


def model_contests() -> Iterator[Contest]:
    """Yield pairs of steps that are timed in turn: of this project and of a plain loop, for each model.

    Step times are for one step of one run.
    """
    for model, numbers in LANES.items():
        for lanes in numbers:
            ours, theirs = (
                partial(prepare, model, lanes) for prepare in (steps_as_workload, steps_in_a_loop)
            )
            name = f"step.adamw.{model.lower()}, {lanes} lanes"
            yield Contest(name, "torch", DTYPE, "plain loop", ours, theirs, steps=STEPS_A_CALL * lanes)
