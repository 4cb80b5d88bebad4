"""Runs whose processes are killed at twenty random moments end as the undisturbed ones, bit for bit."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

from tests.conftest import ROOT
from tests.curvebench.ended_runs import RESULT, STEPS, Moment

KILLS = 20
NEVER = Moment("step", 10 * STEPS, 0, signal.SIGKILL)
CASES = [
    ("soap", "torch", "float32"),
    ("shampoo", "jax", "float32"),
    ("basis anew", "torch", "float64"),
    ("basis anew", "jax", "float64"),
    ("nadam of torch", "torch", "float64"),
    ("nadam of optax", "jax", "float32"),
    ("model state", "torch", "bfloat16"),
    ("model state", "jax", "float32"),
]


def ended_by(case: tuple[str, str, str], folder: Path, moment: Moment) -> int:
    command = (sys.executable, "-m", "tests.curvebench.ended_runs", *case, str(folder), *map(str, moment))
    variables: Mapping[str, str] = {
        **os.environ,
        "JAX_COMPILATION_CACHE_DIR": str(folder.parent / "compiled"),
    }
    return subprocess.run(command, cwd=ROOT, env=variables, check=False).returncode


@pytest.mark.long
@pytest.mark.parametrize("case", CASES, ids=" ".join)
def test_a_run_killed_at_twenty_moments_is_the_undisturbed_one(case: tuple[str, str, str], tmp_path: Path):
    """In a step with its refreshes and changes of basis, an evaluation, or the writing of a checkpoint."""
    undisturbed, killed = (tmp_path / name for name in ("undisturbed", "killed"))
    for folder in (undisturbed, killed):
        folder.mkdir()
    assert ended_by(case, undisturbed, NEVER) == 0
    chance = random.Random(" ".join(case))
    for _ in range(KILLS):
        phase, longest = chance.choice([("step", 3), ("evaluation", 2), ("checkpoint", 6)])
        sent = chance.choice([signal.SIGKILL, signal.SIGKILL, signal.SIGTERM])
        moment = Moment(phase, chance.randint(1, longest), chance.uniform(0, 0.01), sent)
        status = ended_by(case, killed, moment)
        assert status == (-sent if sent == signal.SIGKILL else 128 + sent), f"{moment} ended with {status}"
        assert not (killed / RESULT).exists()
    assert list((killed / "run").glob("*.npz")), "it has come to a checkpoint"
    assert ended_by(case, killed, NEVER) == 0
    with np.load(undisturbed / RESULT) as one, np.load(killed / RESULT) as other:
        assert one.files == other.files
        for name in one.files:
            assert one[name].tobytes() == other[name].tobytes(), name
