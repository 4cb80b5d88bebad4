"""Limits of the searches that chose the settings of the arms of comparisons.

An arm is one of the two methods of a comparison. A finding depends on the search if the setting of an arm
lies at an end of what tuning tried, or if another study found a better setting inside of the search.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import polars as pl

from curvebench.reports.claims.comparison import ClaimComparison
from curvebench.reports.measures import tuning_source
from curvebench.reports.statistics.ranks import NEGLIGIBLE
from curvebench.reports.tables import Tables, tables_of
from curvebench.results.searches import Search, limits_of, searches
from curvebench.spec.method import Method
from curvebench.spec.plan import ReportPlan, StudyPlan

ARMS = ("treated", "control")


def with_limits(
    plan: ReportPlan, tables: Mapping[str, Tables], compared: Sequence[ClaimComparison]
) -> list[ClaimComparison]:
    """Return comparisons with the limits of the searches for the settings of their arms.

    Settings that other studies found are those of the studies of the plan, and of the published sets that the
    report shows.

    Args:
        plan: the studies.
        tables: tables of each study, by the name of the study.
        compared: comparisons of claims of these studies.
    """
    sources = [(one, partial(_runs, tables, one)) for one in plan.studies]
    sources += [(one, partial(_runs, {}, one)) for archived in plan.archive for one in archived.studies]
    found: dict[str, list[Search]] = {}
    for study in plan.studies if compared else ():
        if study.claims:
            found[study.name] = [search for one, read in sources for search in searches(one, read, study)]
    return [
        replace(one, at_edge=tuple(_limits(plan, tables, one, found.get(one.study, ())))) for one in compared
    ]


def _runs(tables: Mapping[str, Tables], study: StudyPlan) -> pl.DataFrame:
    read = tables.get(study.name)
    return (tables_of(study) if read is None else read).runs


def _limits(
    plan: ReportPlan, tables: Mapping[str, Tables], comparison: ClaimComparison, found: Sequence[Search]
) -> Iterator[dict[str, Any]]:
    """Yield the limits of the searches of both arms, items of the column `at_edge` of the table `findings`.

    Args:
        found: searches of the study and of other studies for the same methods on the same problems.
    """
    if not comparison.tuning_outcomes:
        return
    study, share = plan.study(comparison.study), comparison.condition.smallest_effect or NEGLIGIBLE
    for arm, (workload, method) in zip(ARMS, comparison.key.arms, strict=False):
        tuning = tables[study.name].runs.filter(stage="tuning", workload=workload)
        tuner, where = tuning_source(study, method, comparison.backend, tuning)
        for search in found:
            of_arm = (
                search.workload.name,
                Method(search.optimizer.label, search.basis.label),
                search.backend,
            )
            if search.study is study and of_arm == (workload, Method.of(tuner), where):
                for limit in limits_of(search, iter(found), share):
                    yield {"arm": arm, **limit}
