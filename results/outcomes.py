"""Classes of outcomes of a run: finished, failed (counts as the worst value) or missing."""

from __future__ import annotations

import polars as pl

FINISHED = ("reached", "budget")
FAILED = ("diverged", "error", "out_of_memory", "out_of_time")  # failures count against the method
MISSING = ("interrupted",)  # a signal or a scheduler ended the run, which says nothing about the method
OUTCOMES = (*FINISHED, *FAILED, *MISSING)
# Outcome that no table contains. Reports assign it to failed runs on a workload on which every method fails.
WORKLOAD_FAULT = "workload_fault"


def finished() -> pl.Expr:
    """Whether a run ended at its budget, its stop or its target."""
    return pl.col("outcome").is_in(FINISHED)


def failed() -> pl.Expr:
    """Whether a run counts as the worst: its method diverged, raised, or exceeded memory or time."""
    return pl.col("outcome").is_in(FAILED)


def missing() -> pl.Expr:
    """Whether a run says nothing about its method; such runs are counted, and left out otherwise."""
    return pl.col("outcome").is_in((*MISSING, WORKLOAD_FAULT))
