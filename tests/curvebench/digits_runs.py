"""What the tests of rules that leave the project share: the digits network, what is refused."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from curvebench.backends.engine import engine
from curvebench.engine.execution import Bundle, execute
from curvebench.optimizers import rules
from curvebench.seeding import WorkloadRandom, batch_order
from curvebench.workloads.digits import DIGITS_MLP

STEPS = 50
KINDS = {name: role.kind for name, role in DIGITS_MLP.roles({}).items()}
METRICS = ("train_loss", "validation_loss")


@dataclass(frozen=True)
class Run:
    """A training of the digits network: a rule, its options and its hyperparameters."""

    optimizer: str
    hyper: Mapping[str, float]
    options: Mapping[str, Any] = field(default_factory=dict)


RUNS = {
    "sgd": Run("sgd", {"learning_rate": 0.5}),
    "adam": Run("adam", {"learning_rate": 0.01}),
    "adamw": Run("adamw", {"learning_rate": 0.01, "weight_decay": 0.1}),
    "shampoo": Run("shampoo", {"learning_rate": 0.1, "epsilon": 0.01}, {"refresh_every": 3}),
    "muon": Run("muon", {"learning_rate": 0.02, "others_learning_rate": 0.01}),
}


def bundle(run: Run, schedule: np.ndarray | None = None) -> Bundle:
    """The one lane of a run, evaluated after every step."""
    settings = DIGITS_MLP.complete({})
    random = WorkloadRandom("digits_mlp", 0)
    problem = DIGITS_MLP.problem(settings, random)
    rule = rules()[run.optimizer].choose(run.options)
    values = rule.complete(run.hyper)
    order = batch_order(random, len(problem.splits["train"]["labels"]), settings["batch_size"], STEPS)
    return Bundle(
        workload=DIGITS_MLP,
        rule=rule,
        problems=[problem],
        orders=order[:, None],
        hyperparameters={name: np.array([value]) for name, value in values.items()},
        schedule=np.ones(STEPS) if schedule is None else schedule,
        evaluations=STEPS,
        settings=settings,
    )


def losses(given: Bundle) -> dict[str, np.ndarray]:
    """The engine's losses before the first and after every step, (STEPS + 1,) by metric, in float64.

    On PyTorch, for both libraries: it is the quicker one to start, and JAX takes the same steps.
    """
    found = execute(given, engine("torch", "float64"))
    return {name: found.metrics[name][:, 0, 0] for name in METRICS}


def assert_trained(found: Mapping[str, np.ndarray], given: Bundle) -> None:
    """The losses are those of the engine, and they fall."""
    expected = losses(given)
    for name in METRICS:
        np.testing.assert_allclose(found[name], expected[name], rtol=1e-12, atol=0, err_msg=name)
    assert expected["train_loss"][-1] < 0.8 * expected["train_loss"][0]
