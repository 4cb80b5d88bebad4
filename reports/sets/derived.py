"""Files that are computed from the tables of a published set: verdicts, leaderboard, README and JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import polars as pl

from curvebench.reports.boards import leaderboard
from curvebench.reports.claims.verdict_list import read_verdicts, verdicts_of
from curvebench.reports.formatting import WORDS, json_value, word_of
from curvebench.reports.rendering import templates
from curvebench.reports.sets.files import CURVE_POINTS, as_json
from curvebench.reports.statistics.shares import Share
from curvebench.reports.tables import tables_of
from curvebench.results.intervals import MedianInterval
from curvebench.results.schema import LEADERBOARD, TABLES
from curvebench.spec.errors import InputError
from curvebench.spec.method import Method
from curvebench.spec.plan import ReportPlan, read_plan
from curvebench.spec.sets import PLAN


def read_set(folder: Path) -> ReportPlan:
    """Read the plan of a published set.

    Raises:
        InputError: when the folder contains no plan of a set.
    """
    plan = read_plan(folder / PLAN)
    if not plan.published:
        raise InputError(f"{folder / PLAN}: the plan of a report, not of a published set; publish it first")
    return plan


def derived(plan: ReportPlan) -> dict[str, pl.DataFrame]:
    """Compute the tables claims, findings and leaderboard from the tables of a set.

    Raises:
        InputError: when a table is missing or damaged.
    """
    verdicts = read_verdicts(plan)
    boards = leaderboard.leaderboards([(study, tables_of(study)) for study in plan.studies])
    board = board_table(boards, plan.scale)
    return {"claims": verdicts.claims, "findings": verdicts.findings, "leaderboard": board}


def leaderboard_texts(board: pl.DataFrame) -> dict[str, str]:
    """Return the texts of the CSV and JSON files of a set's leaderboard, by file name."""
    flat = [column for column, dtype in board.schema.items() if not dtype.is_nested()]
    return {
        "leaderboard.csv": board.select(flat).write_csv(),
        "leaderboard.json": as_json(json_value(board.to_dicts(), word_of)),
        "leaderboard.schema.json": as_json(json_schema("leaderboard")),
    }


def readme_of(plan: ReportPlan, provenance: Mapping[str, Any], board: pl.DataFrame) -> str:
    """Return the README of a set, written from its tables.

    Args:
        plan: plan of the set.
        provenance: contents of `provenance.json`.
        board: the table `leaderboard`.

    Raises:
        InputError: when a table is missing or damaged.
    """
    verdicts = verdicts_of(plan)
    return page("published.md.jinja", plan, board, about=provenance, verdicts=verdicts, points=CURVE_POINTS)


def json_schema(table: str) -> dict[str, Any]:
    """Return the JSON Schema of a table's rows.

    In the JSON files, a missing value is null, and an infinite number or NaN is one of the texts in `WORDS`.
    """
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": table,
        "description": f"null: not measured, or nothing to measure; {', '.join(WORDS)}: not finite",
        "type": "array",
        "items": _object(TABLES[table].items()),
    }


def _object(fields: Any) -> dict[str, Any]:
    """Return the JSON Schema of an object, in which all fields are required.

    Args:
        fields: pairs of a name and a data type of Polars.
    """
    types = {name: _json_type(dtype) for name, dtype in fields}
    return {"type": "object", "properties": types, "required": list(types), "additionalProperties": False}


def _json_type(dtype: Any) -> dict[str, Any]:
    """Return the JSON Schema of values that are null or of a data type of Polars."""
    if isinstance(dtype, pl.List):
        return {"type": ["array", "null"], "items": _json_type(dtype.inner)}
    if isinstance(dtype, pl.Struct):
        return _object((field.name, field.dtype) for field in dtype.fields)
    if isinstance(dtype, pl.Enum):
        return {"enum": [*dtype.categories, None]}
    if dtype == pl.Float64:
        return {"anyOf": [{"type": ["number", "null"]}, {"enum": list(WORDS)}]}
    kinds = {pl.String: "string", pl.Int64: "integer", pl.Boolean: "boolean"}
    return {"type": [kinds[dtype], "null"]}


# --- pages ---------------------------------------------------------------------------------------


def page(template: str, plan: ReportPlan, board: pl.DataFrame, **more: Any) -> str:
    """Render a page in Markdown with the leaderboard of the first study's first backend.

    Args:
        template: file name of the template.
        plan: plan of the set.
        board: the table `leaderboard`.
        more: further values that the template needs.
    """
    lead = plan.studies[0].backends[0] if plan.studies else None
    on_lead = board.filter(pl.col("backend").eq_missing(pl.lit(lead, pl.String)))
    groups = on_lead.group_by("studies", "group", maintain_order=True)
    boards = [(*of_board, rows.to_dicts()) for of_board, rows in groups]
    rendered = templates(markdown=True).get_template(template)
    return rendered.render(plan=plan, lead=lead, boards=boards, **more)


# --- the leaderboard as a table -------------------------------------------------------------------


def board_table(boards: Sequence[leaderboard.Board], scale: str) -> pl.DataFrame:
    """Return the table `leaderboard`: a row for each method of each board, the best method of a board first.

    A number that the board does not have is null, for example because a study has no target, too few seeds
    for an interval, no tuning or no timings. The column `workloads` is nested, all other columns are flat.

    Args:
        boards: boards in the order of the table. A board compares methods that ran on the same problems.
        scale: scale of the report, for the column of this name.
    """
    rows = [_row(scale, board, *place) for board in boards for place in enumerate(board.rows, start=1)]
    return pl.DataFrame(rows, schema=LEADERBOARD)


def _row(scale: str, board: leaderboard.Board, number: int, row: leaderboard.MethodRow) -> dict[str, Any]:
    """Return the row of the table `leaderboard` for a method.

    Args:
        number: place of the method on the board, from 1.
        row: row of the method on the board.
    """
    return {
        "scale": scale,
        "backend": board.backend,
        "studies": ", ".join(board.studies),
        "group": board.group,
        "place": number,
        "method": row.method,
        "basis": Method.of(row.method).basis,
        **_interval(row.score, "score"),
        **_interval(row.rank, "rank"),
        **_ranges(row.ranges),
        **_interval(row.mean_rank, "mean_rank"),
        "met": sum(entry is not None for entry in row.entries),
        **_outcomes(row),
        **_interval(row.step, "step_ratio"),
        "step_reference": board.reference,
        "peak_memory_bytes": row.memory,
        "memory_of": board.memory,
        "tuned_equally": board.tuned_equally,
        "workloads": [
            _workload(column, entry)
            for column, entry in zip(board.columns, row.entries, strict=True)
            if entry is not None
        ],
    }


def _workload(column: leaderboard.Column, entry: leaderboard.BoardEntry) -> dict[str, Any]:
    """Return the results of a method on one workload, for the nested column `workloads`."""
    metric, threshold = column.target or (None, None)
    return {
        "study": column.study.name,
        "workload": column.workload,
        **{name: getattr(column.study, name) for name in ("metric", "which", "direction")},
        "seeds": entry.value.count,
        **_interval(entry.value, "value"),
        "best": entry.best,
        "at_edge": entry.at_edge,
        "acts_as": entry.acts_as,
        "target_metric": metric,
        "target": threshold,
        **_outcomes(entry),
        **_interval(entry.evaluations, "evaluations_to_target"),
        **_interval(entry.seconds, "seconds_to_target"),
    }


def _outcomes(of: leaderboard.MethodRow | leaderboard.BoardEntry) -> dict[str, Any]:
    """Return the columns that a method has on each workload, and once more in total over all workloads."""
    tuning: leaderboard.TuningBudget | None = of.tuning
    return {
        **_counts(of.wins, "wins", "instances"),
        **_counts(of.reached, "reached", "aimed"),
        **_counts(of.diverged, "diverged", "runs"),
        **_interval(of.decades, "nearly_best_decades"),
        "tuned_by": tuning and tuning.tuner,
        "tuning_runs": tuning and tuning.runs,
        "tuning_gradient_evaluations": tuning and tuning.evaluations,
    }


def _ranges(ranges: leaderboard.RankRanges | None) -> dict[str, Any]:
    """Return the columns of ranks by parts of a board; all are null if there are no ranks."""
    without, new = (ranges.without, ranges.new) if ranges else (None, None)
    return {
        "rank_by_target": ranges and list(ranges.by_target),
        "rank_without_low": without and without[0],
        "rank_without_high": without and without[1],
        "rank_new_low": new and new[0],
        "rank_new_high": new and new[1],
    }


def _interval(value: MedianInterval | leaderboard.Overall | None, name: str) -> dict[str, Any]:
    """Return three columns: an estimate, and the lower and upper end of its confidence interval.

    Args:
        value: the estimate; if it is None, all columns are null.
        name: name of the estimate's column, and prefix of the other columns.
    """
    middle = value.median if isinstance(value, MedianInterval) else value and value.value
    return {name: middle, f"{name}_low": value and value.low, f"{name}_high": value and value.high}


def _counts(count: Share | None, successes: str, total: str) -> dict[str, Any]:
    """Return two columns: the number of successes, and the total number. Both are null if `count` is None.

    Args:
        successes, total: names of the columns.
    """
    return {successes: count and count.successes, total: count and count.count}
