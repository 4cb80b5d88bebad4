"""Guard of the verdicts of published sets: recomputed from the sets' tables, and frozen as codes and numbers.

The frozen tables have no sentences, so that wording may change.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import polars as pl
import polars.selectors as cs
import pytest

from curvebench.paths import PUBLISHED
from curvebench.reports.claims.verdict_list import read_verdicts
from curvebench.results.archive import read_archive

HERE = Path(__file__).parent
CLAIM = (
    *("claim", "variant", "backend", "set", "scale", "verdict"),
    *("estimate", "low", "high", "p_value", "seeds", "seeds_needed", "cause", "turns_in", "turns_at"),
)
COMPARISON = (
    *("claim", "backend", "workload", "metric", "which", "quantity", "at_equal", "relation"),
    *("treated", "control", "control_workload", "finding", "reach"),
    *("estimate", "low", "high", "p_value", "refuting_p_value", "seeds", "seeds_needed"),
)


def as_csv(frames: list[pl.DataFrame], columns: tuple[str, ...]) -> str:
    """Return these columns as sorted CSV, with numbers to six significant digits."""
    numbers = cs.float().map_elements("{:.6g}".format, return_dtype=pl.String)
    frame = pl.concat(frames).select(columns).with_columns(numbers)
    return frame.with_columns(pl.all().cast(pl.String)).sort(columns, nulls_last=True).write_csv()


@pytest.mark.long
def test_verdicts_are_unchanged(frozen: Callable[[Path, str], None]):
    plans = read_archive(PUBLISHED)
    found = [read_verdicts(plan) for plan in plans]
    claims = [
        each.claims.with_columns(set=pl.lit(plan.published)) for plan, each in zip(plans, found, strict=True)
    ]
    frozen(HERE / "claims.csv", as_csv(claims, CLAIM))
    decided = [each.findings.drop_nulls("finding") for each in found]  # repeats decide nothing
    frozen(HERE / "comparisons.csv", as_csv(decided, COMPARISON))
