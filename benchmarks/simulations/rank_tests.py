"""Friedman's test and tests of all pairs of methods: false positives and power."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import polars as pl

from reports.statistics.friedman import PairTest, friedman_test, pairwise_tests

from .experiment import LEVEL, Experiment, Result

SHARE, POWER_SHARE = 0.2, 0.05  # of the trials: each takes milliseconds
TESTS_OF_PAIRS: tuple[PairTest, ...] = ("nemenyi", "sign")
INSTANCES = (5, 8, 20)


def table(values: np.ndarray) -> pl.DataFrame:
    """A row for each instance and method, from shape (instances, methods)."""
    instance, method = (index.ravel() for index in np.indices(values.shape))
    return pl.DataFrame({"instance": instance, "method": method.astype(str), "value": values.ravel()})


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
                    found = friedman_test(
                        table(values.round(digits)), ["instance"], "method", "value", "minimize"
                    )
                    rejected += found.p_value <= LEVEL
                quantity = "false positives" if most else "power"
                setting = f"{methods} methods, {name}; {size} instances"
                yield Result(quantity, setting, rejected / count, count, None, most)


def pairs(random: np.random.Generator, trials: int) -> Iterator[Result]:
    """Of tests of all pairs: any rejection among equal methods, and that of a better one against another."""
    methods = 5
    for test in TESTS_OF_PAIRS:
        for name, better in (("equal methods", 0.0), ("one better by a deviation", 1.0)):
            count = max(1, round((POWER_SHARE if better else SHARE) * trials))
            for size in INSTANCES[1:]:
                rejected = 0
                for _ in range(count):
                    values = 10 + random.normal(size=(size, methods))
                    values[:, 0] -= better
                    found = pairwise_tests(
                        table(values), ["instance"], "method", "value", "minimize", test
                    ).filter(pl.col("p_value") <= LEVEL)
                    if better:
                        both = [{"0", "1"} == set(pair) for pair in found.select("first", "second").rows()]
                        rejected += any(both)
                    else:
                        rejected += len(found) > 0
                quantity = "power" if better else "false positives"
                setting = f"{test}, {methods} methods, {name}; {size} instances"
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
        "reports.statistics.friedman.pairwise_tests",
        "Among equal methods, how often any pair is called different at 0.05; how often the better one is "
        "told from a given other. With 8 instances no sign test of 10 can reject after Holm's.",
        pairs,
    ),
)
