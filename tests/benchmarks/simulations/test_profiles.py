"""The simulated times are those that the cases tell of."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from benchmarks.simulations.profiles import PAIRED_CASES, SUBMISSIONS, _held


def test_pairs_of_equals_are_six_methods_and_the_rest_five():
    counts = {case.name: case.distinct * case.copies for case in PAIRED_CASES}
    assert {count for name, count in counts.items() if "pairs" in name} == {6}
    assert {count for name, count in counts.items() if "pairs" not in name} == {SUBMISSIONS}


def test_without_noise_every_score_and_rank_is_held():
    random = np.random.default_rng(0)
    for case in PAIRED_CASES:
        still = replace(case, within=0.0, missed=0.0)
        assert _held(random, still, 5, paired=True) == (1.0, 1.0)
