"""Friedman's test and Nemenyi's critical difference: false positives and power."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from reports.statistics.friedman import critical_difference, friedman_test
from reports.statistics.ranks import tolerant_ranks

from .experiment import LEVEL, Experiment, Result

SHARE, POWER_SHARE = 0.2, 0.05  # of the trials: each takes milliseconds
INSTANCES = (5, 8, 20)


def ranked(values: np.ndarray) -> np.ndarray:
    """The ranks of methods, shape (instances, methods), near values sharing theirs."""
    ranks: np.ndarray = np.apply_along_axis(tolerant_ranks, 1, values)
    return ranks


def friedman(random: np.random.Generator, trials: int) -> Iterator[Result]:
    """Of the test that all methods are alike."""
    for methods in (3, 5):
        for name, better, digits, most in (
            ("equal methods", 0.0, 6, LEVEL),
            ("equal methods, many ties", 0.0, 0, LEVEL),
            ("one better by a deviation", 1.0, 6, None),
        ):
            count = max(1, round((SHARE if most else POWER_SHARE) * trials))
            for size in INSTANCES:
                rejected = 0
                for _ in range(count):
                    values = 10 + random.normal(size=(size, methods))
                    values[:, 0] -= better
                    rejected += friedman_test(ranked(values.round(digits))).p_value <= LEVEL
                quantity = "false positives" if most else "power"
                setting = f"{methods} methods, {name}; {size} instances"
                yield Result(quantity, setting, rejected / count, count, None, most)


def pairs(random: np.random.Generator, trials: int) -> Iterator[Result]:
    """Of the critical difference: any two equal methods told apart, and a better one from another."""
    methods = 5
    for name, better in (("equal methods", 0.0), ("one better by a deviation", 1.0)):
        count = max(1, round((POWER_SHARE if better else SHARE) * trials))
        for size in INSTANCES[1:]:
            critical, rejected = critical_difference(methods, size), 0
            for _ in range(count):
                values = 10 + random.normal(size=(size, methods))
                values[:, 0] -= better
                means = ranked(values).mean(axis=0)
                apart = abs(means[1] - means[0]) if better else np.ptp(means)
                rejected += bool(apart >= critical)
            quantity = "power" if better else "false positives"
            setting = f"nemenyi, {methods} methods, {name}; {size} instances"
            yield Result(quantity, setting, rejected / count, count, None, None if better else LEVEL)


EXPERIMENTS: tuple[Experiment, ...] = (
    Experiment(
        "Friedman's test",
        "reports.statistics.friedman.friedman_test",
        "How often it rejects at 0.05, among methods with normal values.",
        friedman,
    ),
    Experiment(
        "Tests of all pairs of methods",
        "reports.statistics.friedman.critical_difference",
        "Among equal methods, how often any pair is called different at 0.05; how often the better one is "
        "told from a given other.",
        pairs,
    ),
)
