"""What is told of one estimate of a network's bases: its parts, its bytes, and angles that are known."""

from __future__ import annotations

import json

import numpy as np
import pytest

from benchmarks import basis_at_speed
from benchmarks.networks_at_speed import NETWORKS
from optimizers.layers import LAYER_KINDS


def test_the_sine_is_that_of_the_largest_angle_behind_a_gap():
    v = np.eye(4)
    cosine, sine = np.cos(0.3), np.sin(0.3)
    turned = v.copy()
    turned[1:3, 1:3] = [[cosine, -sine], [sine, cosine]]
    assert basis_at_speed.largest_sine(turned, v, np.array([9.0, 5.0, 2.0, 1.0])) == pytest.approx(sine)
    assert basis_at_speed.largest_sine(turned, v, np.array([9.0, 5.0, 5.0, 1.0])) == pytest.approx(0.0)
    assert basis_at_speed.largest_sine(turned, v, np.ones(4)) == 0.0


@pytest.mark.parametrize("backend", ["jax", "torch"])
def test_one_estimate_is_told_and_equals_the_hosts(backend, capsys):
    said = ["small_resnet", "--backend", backend, "--batch-size", "2", "--passes", "2", "--host"]
    assert basis_at_speed.main([*said, "--precision", "float32"]) == 0
    row = json.loads(capsys.readouterr().out)
    network = NETWORKS["small_resnet"]
    shapes = {name: value.shape for name, value in network.parameters(np.random.default_rng(0)).items()}
    layers = [name for name, role in network.roles.items() if role.kind in LAYER_KINDS]
    assert row["matrix_bytes"] == 4 * sum(int(np.prod(shapes[name][1:])) ** 2 for name in layers)
    assert row["sine"] < 1e-10
    assert row["seconds"] > row["decomposition_seconds"] > 0 < row["host_decomposition_seconds"]
    assert row["peak_bytes"] > row["matrix_bytes"]
