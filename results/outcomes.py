"""What the outcome of a run counts as: finished, failed (the worst there is) or missing."""

from __future__ import annotations

import polars as pl

FINISHED = ("reached", "budget")
FAILED = ("diverged", "error", "out_of_memory", "out_of_time")  # count against the method
MISSING = ("interrupted",)  # by a signal or a scheduler: no statement about the method
OUTCOMES = (*FINISHED, *FAILED, *MISSING)
WORKLOAD_FAULT = "workload_fault"  # in no table: reports give it to runs that failed whatever their method


def finished() -> pl.Expr:
    """Whether a run came to its budget, its stop or its target."""
    return pl.col("outcome").is_in(FINISHED)


def failed() -> pl.Expr:
    """Whether a run counts as the worst: its method diverged, raised, or ran out of memory or time."""
    return pl.col("outcome").is_in(FAILED)


def missing() -> pl.Expr:
    """Whether a run says nothing of its method; it is left out, and counted."""
    return pl.col("outcome").is_in((*MISSING, WORKLOAD_FAULT))
