"""What follows from the tables of a published set: verdicts, leaderboard, and its pages."""

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
    """The plan of a published set.

    Raises:
        InputError: when the folder holds none.
    """
    plan = read_plan(folder / PLAN)
    if not plan.published:
        raise InputError(f"{folder / PLAN}: the plan of a report, not of a published set; publish it first")
    return plan


def derived(plan: ReportPlan) -> dict[str, pl.DataFrame]:
    """Compute the tables that follow from those of the runs: claims, findings and leaderboard.

    Raises:
        InputError: when a table is missing or damaged.
    """
    found = read_verdicts(plan)
    boards = leaderboard.leaderboards([(study, tables_of(study)) for study in plan.studies])
    board = board_table(boards, plan.scale)
    return {"claims": found.claims, "findings": found.findings, "leaderboard": board}


def texts(board: pl.DataFrame) -> dict[str, str]:
    """Return the files of a set that repeat its table `leaderboard`, by name."""
    flat = [column for column, dtype in board.schema.items() if not dtype.is_nested()]
    return {
        "leaderboard.csv": board.select(flat).write_csv(),
        "leaderboard.json": as_json(json_value(board.to_dicts(), word_of)),
        "leaderboard.schema.json": as_json(json_schema("leaderboard")),
    }


def readme_of(plan: ReportPlan, about: Mapping[str, Any], board: pl.DataFrame) -> str:
    """Write the README of a set from its tables.

    Args:
        plan: the set's.
        about: what `provenance.json` holds.
        board: the table `leaderboard`.

    Raises:
        InputError: when a table is missing or damaged.
    """
    more = {"verdicts": verdicts_of(plan), "points": CURVE_POINTS}
    return page("published.md.jinja", plan, board, about=about, **more)


def json_schema(table: str) -> dict[str, Any]:
    """The JSON Schema of a table's rows: null is missing, and numbers that are not finite are `WORDS`."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": table,
        "description": f"null: not measured, or nothing to measure; {', '.join(WORDS)}: not finite",
        "type": "array",
        "items": _object(TABLES[table].items()),
    }


def _object(fields: Any) -> dict[str, Any]:
    properties = {name: _json_type(dtype) for name, dtype in fields}
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


def _json_type(dtype: Any) -> dict[str, Any]:
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
    """A page in Markdown that shows the leaderboard of the backend that leads.

    Args:
        template: its file.
        plan: the set's.
        board: the table `leaderboard`.
        more: what else the template asks for.
    """
    environment = templates(markdown=True)
    environment.filters["cell"] = _cell  # nothing else escapes names
    lead = plan.studies[0].backends[0] if plan.studies else None
    groups = board.filter(pl.col("backend").eq_missing(pl.lit(lead, pl.String))).group_by(
        "studies", maintain_order=True
    )
    boards = [(studies, rows.to_dicts()) for (studies,), rows in groups]
    return environment.get_template(template).render(plan=plan, lead=lead, boards=boards, **more)


def _cell(text: str) -> str:
    """A name inside a Markdown table, shown as it is."""
    return "".join(f"\\{letter}" if letter in "\\`*_{}[]<>#|&" else letter for letter in text)


# --- the leaderboard as a table -------------------------------------------------------------------


def board_table(boards: Sequence[leaderboard.Board], scale: str) -> pl.DataFrame:
    """The table `leaderboard` of boards at one scale, in their order and the best method first.

    Numbers that a board does not have (no target, too few seeds for an interval, no tuning, nothing timed)
    are null; the column `workloads` is nested, all others are flat.
    """
    rows = [
        _row(board, row, place, scale) for board in boards for place, row in enumerate(board.rows, start=1)
    ]
    return pl.DataFrame(rows, schema=LEADERBOARD)


def _row(board: leaderboard.Board, row: leaderboard.MethodRow, place: int, scale: str) -> dict[str, Any]:
    return {
        "scale": scale,
        "backend": board.backend,
        "studies": ", ".join(board.studies),
        "place": place,
        "method": row.method,
        "basis": Method.of(row.method).basis,
        **_interval(row.score, "score"),
        **_interval(row.rank, "rank"),
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
    metric, threshold = column.target or (None, None)
    return {
        "study": column.study.name,
        "workload": column.workload,
        **{name: getattr(column.study, name) for name in ("metric", "which", "direction")},
        "seeds": entry.value.count,
        **_interval(entry.value, "value"),
        "best": entry.best,
        "target_metric": metric,
        "target": threshold,
        **_outcomes(entry),
        **_interval(entry.evaluations, "evaluations_to_target"),
        **_interval(entry.seconds, "seconds_to_target"),
    }


def _outcomes(of: leaderboard.MethodRow | leaderboard.BoardEntry) -> dict[str, Any]:
    """What a method has on a workload as it has it over all."""
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


def _interval(value: MedianInterval | leaderboard.Overall | None, name: str) -> dict[str, Any]:
    middle = value.median if isinstance(value, MedianInterval) else value and value.value
    return {name: middle, f"{name}_low": value and value.low, f"{name}_high": value and value.high}


def _counts(count: Share | None, successes: str, total: str) -> dict[str, Any]:
    return {successes: count and count.successes, total: count and count.count}
