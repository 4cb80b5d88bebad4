"""What each page of the site shows, as plain data: the templates only lay it out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import polars as pl

from curvebench.reports import measures
from curvebench.reports.boards.leaderboard import Board
from curvebench.reports.boards.newcomer import newcomers
from curvebench.reports.claims.censoring import effect_by_seed
from curvebench.reports.claims.comparison import TriedOf, tried_in
from curvebench.reports.failures import faults_of
from curvebench.reports.figures.all_figures import MOST_DRAWN
from curvebench.reports.pages.heat_map import heat_map
from curvebench.reports.pages.overview import Answer
from curvebench.reports.statistics.shares import share_interval
from curvebench.reports.tables import Tables
from curvebench.reports.wall_clock import clock_of
from curvebench.results.intervals import MedianInterval, median_interval
from curvebench.results.merging import machines
from curvebench.results.outcomes import WORKLOAD_FAULT, failed
from curvebench.results.seconds import seconds_by_cause
from curvebench.spec.method import IDENTITY, Method
from curvebench.spec.plan import StudyPlan, WorkloadPlan

Rows = list[dict[str, Any]]
KINDS = ("bases", "runs", "timing", "parity", "checks")
RUNS_A_PAGE = 1000  # keeps a page of runs below 2 MB


def study_page(
    study: StudyPlan, tables: Tables, figures: Rows, answers: Sequence[Answer], board: Board | None
) -> dict[str, Any]:
    """Everything on the page of a study.

    Args:
        board: the one that it is on, if it is on one; of several problems without a claim, it answers.
    """
    parts, tried_of = [], tried_in(study, tables)
    for workload in study.workloads:
        backends = [
            _backend(study, workload, backend, tables, figures, tried_of) for backend in study.backends
        ]
        shown = [part for part in backends if part["results"] or part["figures"] or part["fault"]]
        parts.append({"workload": workload, "backends": shown})
    several = board and not study.claims and len(answers) > 1
    heat = heat_map(answers, board).leading if several else None
    return {
        "study": study,
        "parts": parts,
        "answers": answers,
        "board": board,
        "heat": heat if heat and heat.rows else None,
        "most_drawn": MOST_DRAWN,
        "newcomers": newcomers(study, tables),
        "headline": headline(study, figures),
        "seconds": job_seconds(tables.jobs),
        "stages": Counter(tables.runs["stage"].to_list()),
        "seeds": {name: final_seeds(tables, name) for name in tables.runs["backend"].unique().sort()},
        "warnings": tables.warnings,
    }


def headline(study: StudyPlan, figures: Rows) -> dict[str, Any] | None:
    """The curve that heads the page: the metric that is compared, on the first workload and backend."""
    about = (study.metric, "charged_evaluations", study.workloads[0].name, study.backends[0])
    keys = ("metric", "axis", "workload", "backend")
    return next((one for one in figures if tuple(one[key] for key in keys) == about), None)


def _backend(
    study: StudyPlan,
    workload: WorkloadPlan,
    backend: str,
    tables: Tables,
    figures: Rows,
    tried_of: TriedOf,
) -> dict[str, Any]:
    """What a study's page shows of one workload on one backend; of one that is at fault, that alone."""
    faults = faults_of(study.name, measures.final_runs(tables.runs, workload.name, backend))
    tables = replace(tables, runs=tables.runs.filter(pl.col("outcome") != WORKLOAD_FAULT))
    return {
        "name": backend,
        "figures": [
            figure
            for figure in figures
            if figure["workload"] == workload.name and figure["backend"] == backend
        ],
        "results": results_rows(study, workload, backend, tables.runs),
        "settings": settings_rows(study, workload.name, backend, tables.runs, tried_of),
        "pairs": pair_rows(study, workload.name, backend, tables.runs),
        "costs": cost_rows(study, workload, backend, tables),
        "clock": clock_of(study, workload, backend, tables),
        "fault": next(iter(faults), None),
    }


def final_seeds(tables: Tables, backend: str) -> int:
    """The number of seeds of the final runs on a backend."""
    return tables.runs.filter(stage="final", backend=backend)["seed"].n_unique()


def _by_method(frame: pl.DataFrame) -> dict[str, dict[str, Any]]:
    return {row["method"]: row for row in frame.iter_rows(named=True)}


def results_rows(study: StudyPlan, workload: WorkloadPlan, backend: str, runs: pl.DataFrame) -> Rows:
    """One row a method, those that join first: its metrics, the headline first, targets and failures."""
    final = measures.final_runs(runs, workload.name, backend)
    headline = study.metric, study.which
    shown = dict.fromkeys([headline, *((name, "final") for name in workload.metrics)])
    values = {one: measures.study_values(study, final, *(one if one != headline else ())) for one in shown}
    columns = {which: measures.median_by_method(found) for which, found in values.items()}
    costs = {at: measures.evaluations_to_target(final, at[0]) for at in study.targets_on(workload).items()}
    totals = _by_method(measures.outcome_counts(final))
    medians = {method: value.median for method, value in columns[headline].items()}
    best = measures.best_methods(study, medians) if measures.enough_seeds(values[headline]) else set()
    joined = {method for one in study.joining for method in one.methods}
    rows = []
    for method in sorted(
        totals.keys() & study.methods, key=lambda one: (one not in joined, study.methods.index(one))
    ):
        total = totals[method]
        counted = total["count"] - total["missing"]
        rows.append(
            {
                "method": method,
                "best": method in best,
                "count": total["count"],
                "missing": total["missing"],
                "failed": share_interval(total["failed"], counted) if counted else None,
                "metrics": [
                    {
                        "name": name,
                        "which": which,
                        "value": found.get(method),
                        "stop": study.training.stop.get(name),
                    }
                    for (name, which), found in columns.items()
                ],
                "targets": [
                    {
                        "name": name,
                        "at": at,
                        "value": measures.complete_interval(own),
                        "reached": measures.reached_share(own),
                    }
                    for (name, at), cost in costs.items()
                    for own in [cost.filter(method=method)["value"]]
                ],
            }
        )
    return rows


def settings_rows(
    study: StudyPlan, workload: str, backend: str, runs: pl.DataFrame, tried_of: TriedOf
) -> Rows:
    """The chosen learning rate of each method, where it lies among those tried, and how many of them tie.

    Args:
        tried_of: as `curvebench.reports.claims.comparison.tried_in` gives it.
    """
    rates = _by_method(measures.chosen_rates(runs.filter(workload=workload, backend=backend)))
    tuning = runs.filter(stage="tuning", workload=workload)
    final = _by_method(measures.final_runs(runs, workload, backend))
    rows: Rows = []
    for method in [method for method in study.methods if method in rates]:
        tuner, tuned_on = measures.tuned_as(study, method, backend, tuning)
        tried = tried_of(workload, tuner, tuned_on, Method.of(method).optimizer)
        hyperparameters = {item["name"]: item["value"] for item in final[method]["hyperparameters"] or []}
        rows.append(
            {
                **rates[method],
                "others": hyperparameters | options_of(study, method),
                "tuned_on": tuned_on,
                "tied": None if tried is None else len(tried.tied),
                "tied_rates": [] if tried is None else [rate for rate, *_ in tried.tied],
            }
        )
    return rows


def options_of(study: StudyPlan, method: str) -> dict[str, Any]:
    """What was chosen for a method besides hyperparameters, by name."""
    given = study.optimizer(Method.of(method).optimizer).chosen
    given.pop("tuned", None)  # they stand beside, as hyperparameters
    given |= given.pop("arguments", {})
    return {
        name: value
        for name, value in given.items()
        if isinstance(value, bool) or not isinstance(value, (int, float))
    }


def pair_rows(study: StudyPlan, workload: str, backend: str, runs: pl.DataFrame) -> Rows:
    """Each method in a basis against the same optimizer in the identity basis, seed by seed."""
    values = measures.study_values(study, measures.final_runs(runs, workload, backend))
    rows: Rows = []
    for method in study.methods:
        optimizer, basis = Method.of(method)
        found = None if basis == IDENTITY else effect_by_seed(study, values, method, optimizer)
        if found is not None:
            rows.append({"method": method, "control": optimizer, "found": found})
    return rows


def cost_rows(study: StudyPlan, workload: WorkloadPlan, backend: str, tables: Tables) -> Rows:
    """What a run of each method costs: gradient evaluations and seconds, the basis apart and with it."""
    final = measures.final_runs(tables.runs, workload.name, backend)
    timings = tables.timings.filter(workload=workload.name, backend=backend)
    step, own = _by_method(measures.step_seconds(timings)), _by_method(measures.own_seconds(timings))
    ratio = _by_method(measures.step_ratios(timings, measures.references(study.methods)))
    memory = _by_method(measures.peak_memory(tables.memory.filter(workload=workload.name, backend=backend)))
    spent = {at: measures.seconds_to_target(final, at[0]) for at in study.targets_on(workload).items()}
    rows = []
    for method in study.methods:
        runs = final.filter(pl.col("method") == method)
        if not len(runs):
            continue
        whole = runs.filter(~failed())
        kept = whole if len(whole) else runs
        rows.append(
            {
                "method": method,
                "count": len(runs),
                "evaluations": median_interval(kept["gradient_evaluations"].to_numpy()),
                "basis_evaluations": runs["basis_gradient_evaluations"].fill_null(0).max(),
                "basis_seconds": _basis_seconds(runs["basis_seconds"].drop_nulls()),
                "targets": [
                    {
                        "name": name,
                        "at": at,
                        "seconds": measures.complete_interval(own.filter(method=method)["value"]),
                    }
                    for (name, at), own in spent.items()
                ],
                "step": step.get(method),
                "ratio": ratio.get(method),
                "own": own.get(method),
                "memory": memory.get(method),
                "state_bytes": runs["state_bytes"].max(),
            }
        )
    return rows


def _basis_seconds(seconds: pl.Series) -> MedianInterval | float | None:
    """The interval over seeds, one number where all are the same (one measurement), None without a basis."""
    distinct = seconds.unique().to_list()
    if distinct in ([], [0.0]):
        return None
    return float(distinct[0]) if len(distinct) == 1 else median_interval(seconds.to_numpy())


def job_seconds(jobs: pl.DataFrame) -> Rows:
    """Seconds of all jobs by kind and cause, with a last row for all kinds."""
    kinds = {row["stage"]: row for row in seconds_by_cause(jobs, "stage").to_dicts()}
    rows = [kinds[kind] for kind in KINDS if kind in kinds]
    return [*rows, {"stage": "all", **seconds_by_cause(jobs).row(0, named=True)}] if rows else []


def run_pages(study: StudyPlan, runs: pl.DataFrame) -> list[Rows]:
    """The final runs of a study, ordered by method and cut into pages; one empty page where none ran."""
    place = {method: number for number, method in enumerate(study.methods)}
    final = runs.filter(pl.col("stage") == "final")
    order = pl.col("method").replace_strict(place, default=len(place), return_dtype=pl.Int64)
    final = final.sort(order, *measures.CELL, "seed", "run")
    rows = [_run_row(study, row) for row in final.iter_rows(named=True)]
    return [rows[start : start + RUNS_A_PAGE] for start in range(0, max(len(rows), 1), RUNS_A_PAGE)]


def _run_row(study: StudyPlan, row: Mapping[str, Any]) -> dict[str, Any]:
    final = {item["name"]: item["value"] for item in row["final_metrics"] or []}
    best = {item["name"]: item["value"] for item in row["best_metrics"] or []}
    return {**row, "metrics": [(final.get(name), best.get(name)) for name in run_metrics(study)]}


def run_metrics(study: StudyPlan) -> list[str]:
    """The metric columns of a page of runs."""
    return list(dict.fromkeys(name for workload in study.workloads for name in workload.metrics))


def provenance_page(jobs: pl.DataFrame, warnings: Sequence[str]) -> dict[str, Any]:
    """Machines, environments and all jobs; a warning where hardware is mixed."""
    jobs = jobs.unique(maintain_order=True)
    said = pl.element().str.replace("^null: ", "the gradient alone: ")  # the step without an optimizer
    jobs = jobs.with_columns(pl.col("notes").list.eval(said))
    environments = {row["environment_hash"]: row for row in jobs.iter_rows(named=True)}
    notes = Counter(note for row in jobs["notes"].to_list() for note in row or [])
    return {
        "machines": machines(jobs).to_dicts(),
        "warnings": warnings,
        "environments": list(environments.values()),
        "jobs": jobs.sort("started", "spec_hash").to_dicts(),
        "seconds": job_seconds(jobs),
        "notes": sorted(notes.items()),
    }


def machine_warnings(studies: Sequence[tuple[StudyPlan, Tables]]) -> list[str]:
    """What readers must know of the machines of every study."""
    return [f"{study.name}: {sentence}" for study, tables in studies for sentence in tables.warnings]


def when_and_where(jobs: pl.DataFrame) -> dict[str, Any]:
    """First and last start of a job (UTC), hardware, and the commits, for the overview."""
    if jobs.is_empty():
        return {}
    return {
        "first": jobs["started"].min(),
        "last": jobs["started"].max(),
        "hardware": jobs.select("cpu", "cores", "gpu", "system").unique(maintain_order=True).to_dicts(),
        "commits": jobs.select("commit", "dirty").unique(maintain_order=True).drop_nulls("commit").to_dicts(),
    }
