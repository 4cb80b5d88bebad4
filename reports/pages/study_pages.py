"""What each page of the site shows, as plain data: the templates only lay it out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import polars as pl

from curvebench.reports import measures, wall_clock
from curvebench.reports.boards.leaderboard import Board
from curvebench.reports.boards.newcomer import newcomers
from curvebench.reports.claims.censoring import effect_by_seed
from curvebench.reports.claims.comparison import OutcomeLookup, outcome_lookup
from curvebench.reports.failures import faults_of
from curvebench.reports.measures import StudyProblem, complete_interval, reached_share, study_values
from curvebench.reports.pages.overview import Answer, heat_map
from curvebench.reports.statistics.shares import share_interval
from curvebench.reports.tables import CELL, Tables
from curvebench.results.intervals import MedianInterval, median_interval
from curvebench.results.merging import machines
from curvebench.results.outcomes import WORKLOAD_FAULT, failed
from curvebench.results.seconds import seconds_by_cause
from curvebench.spec.method import IDENTITY, Method
from curvebench.spec.plan import StudyPlan

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
    parts, outcome_of = [], outcome_lookup(study, tables)
    for workload in study.workloads:
        problems = (StudyProblem(study, workload, backend, tables) for backend in study.backends)
        backends = [_backend(problem, figures, outcome_of) for problem in problems]
        shown = [part for part in backends if part["results"] or part["figures"] or part["fault"]]
        parts.append({"workload": workload, "backends": shown})
    several = board and not study.claims and len(answers) > 1
    heat = heat_map(answers, board).leading if several else None
    return {
        "parts": parts,
        "answers": answers,
        "board": board,
        "heat": heat if heat and heat.rows else None,
        "newcomers": newcomers(study, tables),
        "seconds": job_seconds(tables.jobs),
        "stages": Counter(tables.runs["stage"].to_list()),
    }


def _backend(problem: StudyProblem, figures: Rows, outcome_of: OutcomeLookup) -> dict[str, Any]:
    """What a study's page shows of one workload on one backend; of one that is at fault, that alone."""
    faults = faults_of(problem.study.name, problem.final)
    sound = problem.tables.runs.filter(pl.col("outcome") != WORKLOAD_FAULT)
    problem = replace(problem, tables=replace(problem.tables, runs=sound))
    where = problem.workload.name, problem.backend
    return {
        "name": problem.backend,
        "figures": [figure for figure in figures if (figure["workload"], figure["backend"]) == where],
        "results": results_rows(problem),
        "settings": settings_rows(problem, outcome_of),
        "pairs": pair_rows(problem),
        "costs": cost_rows(problem),
        "clock": wall_clock.clock_of(problem),
        "fault": next(iter(faults), None),
    }


def final_seeds(tables: Tables, backend: str) -> int:
    """The number of seeds of the final runs on a backend."""
    return tables.runs.filter(stage="final", backend=backend)["seed"].n_unique()


def _by_method(frame: pl.DataFrame) -> dict[str, dict[str, Any]]:
    return {row["method"]: row for row in frame.iter_rows(named=True)}


def results_rows(problem: StudyProblem) -> Rows:
    """One row a method, those that join first: its metrics, the headline first, targets and failures.

    `metrics` are by name and which value it is, `targets` by metric and threshold: what it took, and the runs
    that reached it.
    """
    study, final = problem.study, problem.final
    headline = study.metric, study.which
    shown = dict.fromkeys([headline, *((name, "final") for name in problem.workload.metrics)])
    values = {one: study_values(study, final, *(one if one != headline else ())) for one in shown}
    columns = {one: measures.median_by_method(found) for one, found in values.items()}
    costs = {at: measures.evaluations_to_target(final, at[0]) for at in problem.targets.items()}
    totals = _by_method(measures.outcome_counts(final))
    medians = {method: value.median for method, value in columns[headline].items()}
    best = measures.best_methods(study, medians) if measures.can_reject(values[headline]) else set()
    joined = {method for one in study.joining for method in one.methods}
    order = sorted(study.methods, key=lambda method: method not in joined)
    rows = []
    for method in (method for method in order if method in totals):
        counted = totals[method]["count"] - totals[method]["missing"]
        took = {at: cost.filter(method=method)["value"] for at, cost in costs.items()}
        rows.append(
            {
                **totals[method],
                "best": method in best,
                "failed": share_interval(totals[method]["failed"], counted) if counted else None,
                "metrics": {one: found.get(method) for one, found in columns.items()},
                "targets": {at: (complete_interval(own), reached_share(own)) for at, own in took.items()},
            }
        )
    return rows


def settings_rows(problem: StudyProblem, outcome_of: OutcomeLookup) -> Rows:
    """The chosen learning rate of each method, where it lies among those tried, and the rates that tie.

    Args:
        outcome_of: as `curvebench.reports.claims.comparison.outcome_lookup` gives it.
    """
    study, workload, backend = problem.study, problem.workload.name, problem.backend
    rates, final = _by_method(measures.chosen_rates(problem.runs)), _by_method(problem.final)
    tuning = problem.tables.runs.filter(stage="tuning", workload=workload)
    rows: Rows = []
    for method in [method for method in study.methods if method in rates]:
        tuner, tuned_on = measures.tuning_source(study, method, backend, tuning)
        tried = outcome_of(workload, tuner, tuned_on, Method.of(method).optimizer)
        hyperparameters = {item["name"]: item["value"] for item in final[method]["hyperparameters"] or []}
        others = hyperparameters | options_of(study, method)
        tied = [rate for rate, *_ in tried.tied] if tried else []
        rows.append({**rates[method], "others": others, "tuned_on": tuned_on, "tied": tied})
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


def pair_rows(problem: StudyProblem) -> Rows:
    """Each method in a basis against the same optimizer in the identity basis, seed by seed."""
    rows: Rows = []
    for method in problem.study.methods:
        optimizer, basis = Method.of(method)
        if basis != IDENTITY and (found := effect_by_seed(problem.study, problem.values, method, optimizer)):
            rows.append({"method": method, "control": optimizer, "found": found})
    return rows


def cost_rows(problem: StudyProblem) -> Rows:
    """What a run of each method costs: gradient evaluations and seconds, the basis apart and with it."""
    final, timings = problem.final, problem.of(problem.tables.timings)
    of_steps = {
        "step": wall_clock.step_seconds(timings),
        "ratio": wall_clock.step_ratios(timings, wall_clock.references(problem.study.methods)),
        "own": wall_clock.optimizer_overhead_seconds(timings),
        "memory": wall_clock.peak_memory(problem.of(problem.tables.memory)),
    }
    timed = {name: _by_method(frame) for name, frame in of_steps.items()}
    spent = {at: measures.seconds_to_target(final, at[0]) for at in problem.targets.items()}
    rows = []
    for method in problem.study.methods:
        runs = final.filter(method=method)
        if not len(runs):
            continue
        whole = runs.filter(~failed())
        kept = whole if len(whole) else runs
        took = {at: seconds.filter(method=method)["value"] for at, seconds in spent.items()}
        rows.append(
            {
                "method": method,
                "count": len(runs),
                "evaluations": median_interval(kept["gradient_evaluations"].to_numpy()),
                "basis_evaluations": runs["basis_gradient_evaluations"].fill_null(0).max(),
                "basis_seconds": _basis_seconds(runs["basis_seconds"].drop_nulls()),
                "targets": {at: complete_interval(own) for at, own in took.items()},
                **{name: found.get(method) for name, found in timed.items()},
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
    final = final.sort(order, *CELL, "seed", "run")
    rows = [_run_row(study, row) for row in final.iter_rows(named=True)]
    return [rows[start : start + RUNS_A_PAGE] for start in range(0, max(len(rows), 1), RUNS_A_PAGE)]


def _run_row(study: StudyPlan, row: Mapping[str, Any]) -> dict[str, Any]:
    final = {item["name"]: item["value"] for item in row["final_metrics"] or []}
    best = {item["name"]: item["value"] for item in row["best_metrics"] or []}
    return {**row, "metrics": [(final.get(name), best.get(name)) for name in run_metrics(study)]}


def run_metrics(study: StudyPlan) -> list[str]:
    """The metric columns of a page of runs."""
    return list(dict.fromkeys(name for workload in study.workloads for name in workload.metrics))


def provenance_page(jobs: pl.DataFrame) -> dict[str, Any]:
    """Machines, environments and all jobs; a warning where hardware is mixed."""
    jobs = jobs.unique(maintain_order=True)
    said = pl.element().str.replace("^null: ", "the gradient alone: ")  # the step without an optimizer
    jobs = jobs.with_columns(pl.col("notes").list.eval(said))
    return {
        "machines": machines(jobs).to_dicts(),
        "environments": jobs.unique("environment_hash", keep="first", maintain_order=True).to_dicts(),
        "jobs": jobs.sort("started", "spec_hash").to_dicts(),
        "seconds": job_seconds(jobs),
        "notes": sorted(Counter(jobs["notes"].explode().drop_nulls()).items()),
    }
