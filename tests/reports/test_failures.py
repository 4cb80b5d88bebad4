"""What failed, as a report lists it."""

from __future__ import annotations

import polars as pl

from curvebench.reports.failures import failures_of

SCHEMA = dict.fromkeys(("study", "stage", "backend", "spec_hash"), pl.String)


def jobs(*failed: tuple[str, str, str, str]) -> pl.DataFrame:
    """One job of a study a failure: hash, what, outcome, reason."""
    rows = [
        ("convex", "sweep", "jax", job, [{"what": what, "outcome": outcome, "reason": reason}])
        for job, what, outcome, reason in failed
    ]
    failures = pl.List(pl.Struct(dict.fromkeys(("what", "outcome", "reason"), pl.String)))
    return pl.DataFrame(rows, schema=SCHEMA | {"failures": failures}, orient="row")


def test_what_fails_at_several_learning_rates_is_one_line():
    told = failures_of(
        jobs(
            ("a", "sgd on w at learning_rate 0.1, 3 of 9 runs", "error", "no such file"),
            ("a", "sgd on w at learning_rate 1e-05, 2 of 9 runs", "error", "no such file"),
            ("b", "sgd on w at learning_rate 1, 1 of 4 runs", "error", "no such file"),
            ("b", "sgd on w, 4 of 4 runs", "out_of_memory", "too large"),
            ("b", "basis egop of w", "error", "singular"),
        )
    )
    assert [(one["what"], one["outcome"], one["reason"]) for one in told] == [
        ("sgd on w, 6 of 13 runs", "error", "no such file"),
        ("sgd on w, 4 of 4 runs", "out_of_memory", "too large"),
        ("basis egop of w", "error", "singular"),
    ]
    assert failures_of(jobs().clear()) == []
