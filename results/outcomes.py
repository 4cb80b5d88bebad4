"""Outcomes of runs in three classes.

A finished run has a result. A failed run counts as the worst possible value of a metric. A missing run says
nothing about its method.
"""

from __future__ import annotations

import polars as pl

FINISHED = ("reached", "budget")
FAILED = ("diverged", "error", "out_of_memory", "out_of_time")  # failures count against the method
MISSING = ("interrupted",)  # a signal or a scheduler ended the run, which says nothing about the method
OUTCOMES = (*FINISHED, *FAILED, *MISSING)
# Outcome that reports assign to failed runs on a workload on which every method fails.
# No table contains the outcome `workload_fault`.
WORKLOAD_FAULT = "workload_fault"


def finished() -> pl.Expr:
    """Return an expression that is true for runs that reached their full length or their goal."""
    return pl.col("outcome").is_in(FINISHED)


def failed() -> pl.Expr:
    """Return an expression that is true for failed runs, which count as the worst value.

    In a failed run, the method diverged, raised an exception, or exceeded memory or time.
    """
    return pl.col("outcome").is_in(FAILED)


def missing() -> pl.Expr:
    """Return an expression that is true for runs that say nothing about their method.

    Reports give the number of missing runs, and leave missing runs out of all other results.
    """
    return pl.col("outcome").is_in((*MISSING, WORKLOAD_FAULT))
