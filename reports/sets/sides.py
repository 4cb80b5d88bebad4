"""Sides of a comparison: the two published sets or reports that are compared, with tables and verdicts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from curvebench.reports.claims.checked import check_rows
from curvebench.reports.claims.verdicts import Verdicts, claim_verdicts
from curvebench.reports.tables import Tables, tables_of
from curvebench.results.archive import narrowed
from curvebench.spec.errors import InputError
from curvebench.spec.plan import ReportPlan, read_plan
from curvebench.spec.sets import PLAN

# Path of the plan of the site in a checkout, relative to the folder of the checkout.
SITE_PLAN = Path("reports/site/plan.json")


@dataclass(frozen=True)
class Side:
    """One of two results to compare: a set or a report, with the tables of its studies and its verdicts.

    Args:
        name: name that readers see.
        plan: plan of the set or report.
        tables: tables of each study, by the name of the study.
        verdicts: verdicts on the claims of the plan.
    """

    name: str
    plan: ReportPlan
    tables: Mapping[str, Tables]
    verdicts: Verdicts

    @property
    def jobs(self) -> pl.DataFrame:
        """Rows of the table `jobs` for all studies."""
        return pl.concat([tables.jobs for tables in self.tables.values()]).unique(maintain_order=True)


def side_of(plan: ReportPlan, name: str) -> Side:
    """Read the tables of a plan, compute the verdicts on its claims, and return both as a side of a
    comparison.

    Args:
        name: name of the side that readers see.

    Raises:
        InputError: when a table is missing or damaged.
    """
    tables = {study.name: tables_of(study) for study in plan.studies}
    checks = check_rows(plan.checks) if plan.checks else None
    return Side(name, plan, tables, claim_verdicts(plan, tables, checks))


def read_side(folder: Path) -> Side:
    """Read a side of a comparison from the folder of a published set, or from a checkout of curvebench.

    The plan of a checkout is the plan of its site.

    Raises:
        InputError: when the folder is neither a set nor a checkout, or a table is missing or damaged.
    """
    if (folder / PLAN).is_file():
        plan = read_plan(folder / PLAN)
    elif (folder / SITE_PLAN).is_file():
        plan = read_plan(folder / SITE_PLAN, root=folder)
    else:
        raise InputError(
            f"{folder}: neither a published set (with {PLAN}) nor a checkout whose site is rendered (with "
            f"{SITE_PLAN}); name one of these"
        )
    return side_of(plan, plan.published or folder.resolve().name)


def narrowed_to_claim(claim: str, plan: ReportPlan) -> ReportPlan:
    """Return the plan with only the studies and the property checks that decide a claim."""
    studies = {study.name for study in plan.studies if claim in {item.id for item in study.claims}}
    return narrowed(plan, studies, {claim})
