"""Networks as the papers describe them: units, layers, minibatches, numbers of parameters, and distributions
of initial parameters.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import pytest

from curvebench.workloads import workloads
from curvebench.workloads.workload import Role

# From numbers of inputs and outputs to the law: normal with its deviation, or uniform.
Law = Callable[[int, int], tuple[str, float]]


class Paper(NamedTuple):
    """A network of fully-connected layers, with biases where these have a law."""

    widths: tuple[int, ...]
    batch_size: int | None
    weight: Law
    bias: Law | None = None


def xavier(inputs: int, outputs: int) -> tuple[str, float]:
    return "normal", math.sqrt(2 / (inputs + outputs))


def as_torch(inputs: int, outputs: int) -> tuple[str, float]:
    return "uniform", inputs**-0.5


TEACHER = Paper((100, 70, 40), None, lambda inputs, outputs: ("normal", inputs**-0.5))
PAPERS = {
    "digits_mlp": Paper((64, 32, 10), 300, xavier, lambda *fans: ("uniform", sum(fans) ** -0.5)),  # 000 C.6
    "fashion_small": Paper((196, 20, 4), 300, as_torch, as_torch),  # 001 D.4
    "fashion_large": Paper((784, 100, 10), 300, as_torch, as_torch),  # 000 C.2
    "linear_network": Paper((10, 50, 30, 10), 500, xavier),  # 000 C.1
    "teacher_student_linear": TEACHER,  # 004 Sec. 4
    "teacher_student_tanh": TEACHER,
}
COUNT = re.compile(r"d = (\d+)")
COUNTED = {name: found[1] for name, one in workloads().items() if (found := COUNT.search(one.description))}


@pytest.mark.parametrize("name", PAPERS)
def test_layers_and_minibatches_are_those_of_the_paper(name: str):
    paper, workload = PAPERS[name], workloads()[name]
    settings, roles = workload.complete({}), {}
    shapes: dict[str, tuple[int, ...]] = {}
    for layer, (inputs, outputs) in enumerate(pairwise(paper.widths)):
        is_head = paper.bias is not None and layer == len(paper.widths) - 2
        shapes[f"W{layer + 1}"] = outputs, inputs
        roles[f"W{layer + 1}"] = Role("head" if is_head else "weight", layer)
        if paper.bias is not None:
            shapes[f"b{layer + 1}"], roles[f"b{layer + 1}"] = (outputs,), Role("bias", layer)
    assert workload.shapes_at(settings) == shapes
    assert workload.roles(settings) == roles
    assert settings["batch_size"] == paper.batch_size


@pytest.mark.parametrize("name", COUNTED)
def test_a_description_counts_the_parameters(name: str):
    workload = workloads()[name]
    given = {"classes": 10} if "10 classes" in workload.description else {}
    shapes = workload.shapes_at(workload.complete(given))
    assert sum(map(math.prod, shapes.values())) == int(COUNTED[name])


@pytest.mark.parametrize("name", PAPERS)
def test_starts_have_the_law_of_the_paper(name: str):
    paper, workload = PAPERS[name], workloads()[name]
    settings = workload.complete({})
    draws = [workload.sample_parameters(settings, np.random.default_rng(seed)) for seed in range(60)]
    for layer, fans in enumerate(pairwise(paper.widths), start=1):
        for kind, law in (("W", paper.weight), ("b", paper.bias)):
            if law is None:
                continue
            (shape, size), values = law(*fans), np.stack([draw[f"{kind}{layer}"] for draw in draws])
            spread = size if shape == "normal" else size / math.sqrt(3)
            assert abs(values.mean()) < 5 * spread / math.sqrt(values.size)
            assert values.std() == pytest.approx(spread, rel=5 / math.sqrt(2 * values.size))
            greatest = np.abs(values).max() / size
            assert 0.97 < greatest <= 1 + 1e-12 if shape == "uniform" else greatest > 2.5
