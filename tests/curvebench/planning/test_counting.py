"""Operations that are counted of steps, evaluations and bases, against counts by hand."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest

from curvebench.benchmarks.networks_at_speed import vit
from curvebench.engine.execution import Bundle
from curvebench.engine.program import Work
from curvebench.optimizers import rules
from curvebench.optimizers.bases import Group
from curvebench.optimizers.bases.change import SHARED
from curvebench.planning.counting import (
    CHOLESKY,
    EIGH,
    INVERSE,
    QR,
    SOLVE,
    Operations,
    count,
    counted,
    of_basis,
)
from curvebench.registry import find_rule
from curvebench.seeding import WorkloadRandom
from curvebench.workloads import workloads
from curvebench.workloads.networks.vision_transformer import PlainViT

BATCH, STEPS = 6, 10


def bundle_of(rule: str, **changes: Any) -> Bundle:
    """A lane of the digits network in minibatches of 6."""
    workload = workloads()["digits_mlp"]
    settings = workload.complete({"batch_size": BATCH})
    random = WorkloadRandom(workload.name, 0)
    made = rules()[rule]
    return Bundle(
        workload=workload,
        rule=made,
        problems=[workload.problem(settings, random)],
        orders=np.zeros((STEPS, 1, BATCH), int),
        hyperparameters={k: np.array([v]) for k, v in made.complete({"learning_rate": 0.1}).items()},
        schedule=np.ones(STEPS),
        evaluations=1,
        settings=settings,
        randoms=[random],
        **changes,
    )


def test_a_step_of_two_layers_and_their_evaluation():
    """64-32-10 units: forward 2 B (64 32 + 32 10), backward twice that without the input's gradient."""
    bundle = bundle_of("adamw")
    found = count(bundle, "float32")
    first, second = 2 * 64 * 32, 2 * 32 * 10
    assert found.step == found.gradient == Operations(BATCH * (2 * first + 3 * second), 0.0)
    splits = bundle.problems[0].splits
    examples = sum(len(splits[name]["labels"]) for name in ("train", "validation", "test"))
    assert found.evaluation.products == pytest.approx(examples * (first + second))


def test_a_change_of_basis_multiplies_parameters_and_gradients():
    sizes = {"W1": 64, "W2": 32}
    matrices = {(name,): np.broadcast_to(np.float32(0), (1, n, n)) for name, n in sizes.items()}
    plain, turned = (
        count(one, "float32").step.products
        for one in (
            bundle_of("adamw"),
            bundle_of("adamw", matrices=matrices, changes=dict.fromkeys(matrices, SHARED)),
        )
    )
    assert turned - plain == 2 * (2 * 32 * 64 * 64 + 2 * 10 * 32 * 32)


def test_amortized_decompositions_count_as_often_as_they_are_due():
    bundle = bundle_of("soap")
    every = bundle.rule.refresh_every
    assert every == STEPS, "the first step starts with eigendecompositions"
    found = count(
        replace(bundle, schedule=np.ones(2 * STEPS), orders=np.zeros((2 * STEPS, 1, BATCH), int)), "float32"
    )
    cubes = 64**3 + 2 * 32**3 + 10**3
    assert bundle.update.work_of(1) == Work.START
    assert found.step.decompositions == pytest.approx((EIGH + QR) * cubes / (2 * STEPS), rel=0.01)


def test_an_estimate_has_its_gradients_their_products_and_decompositions():
    groups = (Group(("a",), 3), Group(("b",), 5))
    parameters = {"a": np.zeros((7, 3)), "b": np.zeros(5)}
    found = of_basis(groups, parameters, 16, Operations(1000.0))
    assert found.products == 16 * 1000 + 2 * 16 * (21 * 3 + 5 * 5)
    assert found.decompositions == EIGH * (27 + 125)


def test_a_vision_transformer_takes_what_its_layers_do():
    """Two blocks of ViT-B/16: 12 width^2 a token and block, attention, patches (no gradient of images)."""
    network = vit("plain", PlainViT(3 * 16**2, 768, 2, classes=10), side=224, patch=16, heads=12)
    found = count(network.bundle(rules()["adamw"], 2, 2), "mixed")
    tokens, width = 14**2, 768
    blocks = 2 * (12 * width**2 * tokens + 2 * tokens**2 * width)
    forward = blocks + tokens * width * 768 + 10 * width
    assert found.step.products / 2 == pytest.approx(2 * (3 * forward - tokens * width * 768), rel=0.01)


def test_of_another_librarys_optimizer_the_gradient_is_counted():
    foreign = find_rule("torch:torch.optim.NAdam").choose({"arguments": {}, "tuned": ["learning_rate"]})
    bundle = replace(bundle_of("adamw"), rule=foreign, hyperparameters={"learning_rate": np.array([0.1])})
    assert count(bundle, "float32").step == count(bundle_of("adamw"), "float32").step


def test_what_is_no_product_counts_nothing():
    import torch

    assert counted(lambda: torch.ones(3, device="meta") + 1) == Operations()


def test_solutions_count_as_decompositions_do():
    import torch

    square = torch.ones(3, 7, 7, device="meta")
    for function, factor in ((torch.linalg.cholesky, CHOLESKY), (torch.linalg.inv, INVERSE)):
        assert counted(partial(function, square)).decompositions == pytest.approx(factor * 3 * 343, abs=1)
    assert counted(partial(torch.linalg.solve, square, square)).decompositions == pytest.approx(
        SOLVE * 3 * 343, abs=1
    )


def test_rare_work_costs_what_it_does_in_the_whole_run():
    often, rarely = (count(bundle_of("soap"), "float32", steps).step for steps in (10, 1000))
    assert rarely.decompositions < often.decompositions
