"""Contexts of the pages about studies and runs: the values that the templates show.

A method is an optimizer in a basis (an orthogonal change of coordinates of the parameters). Final runs use
the setting that tuning chose. A study joins another study if it adds methods to the other study. The headline
metric is the metric by which a study compares methods.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import polars as pl

from curvebench.reports import measures, wall_clock
from curvebench.reports.boards.leaderboard import Board
from curvebench.reports.boards.model_comparison import comparison_of
from curvebench.reports.boards.submission import submissions
from curvebench.reports.boards.sweeps import sweeps_of
from curvebench.reports.claims.censoring import effect_by_seed
from curvebench.reports.claims.comparison import OutcomeLookup, outcome_lookup
from curvebench.reports.failures import faults_of
from curvebench.reports.figures.sweeps import titles_of
from curvebench.reports.measures import StudyProblem, complete_interval, reached_share, study_values
from curvebench.reports.pages.comparing import head_to_head
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
RUNS_A_PAGE = 1000  # Maximum number of runs on a page, so that the page is smaller than 2 MB.


def study_page(
    study: StudyPlan, tables: Tables, figures: Rows, answers: Sequence[Answer], boards: Sequence[Board]
) -> dict[str, Any]:
    """Return the context of a study's page.

    Args:
        figures: list of the study's figures.
        answers: recommendation of a method for each workload.
        boards: the boards that rank the study's methods, one for each group of problems. The page of a study
            with several problems and no claim has a heat map, whose methods are in the order of the first.
    """
    parts, outcome_of = [], outcome_lookup(study, tables)
    drawn = {figure["workload"]: figure for figure in figures if figure["kind"] == "sweep"}
    for workload in study.workloads:
        problems = (StudyProblem(study, workload, backend, tables) for backend in study.backends)
        backends = [_backend(problem, figures, outcome_of) for problem in problems]
        with_content = [part for part in backends if part["results"] or part["figures"] or part["fault"]]
        parts.append({"workload": workload, "backends": with_content})
    needs_map = boards and not study.claims and len(answers) > 1
    heat = heat_map(answers, boards[0]).leading if needs_map else None
    other_questions = study.claims or study.repeated or study.joined
    is_of_one_model = len(study.workloads) == 1 and answers and not other_questions
    model = comparison_of(study, tables) if is_of_one_model else None
    joined = [method for joining_study in study.joining for method in joining_study.methods]
    ranked = model.methods if model else boards[0].rows if boards else ()
    return {
        "parts": parts,
        "sweeps": [(sweep, drawn.get(sweep.name)) for sweep in sweeps_of(study, tables)],
        "quantities": titles_of(study),
        "answers": answers,
        "boards": boards,
        "heat": heat if heat and heat.rows else None,
        "model": model,
        "pair": head_to_head(study, tables, [*joined, *(row.method for row in ranked)]),
        "submissions": submissions(study, tables, boards),
        "seconds": job_seconds(tables.jobs),
        "stages": Counter(tables.runs["stage"].to_list()),
    }


def _backend(problem: StudyProblem, figures: Rows, outcome_of: OutcomeLookup) -> dict[str, Any]:
    """Return the section of a study's page about one workload on one backend.

    If the workload is at fault (it fails with every method), the section shows the fault instead of runs.

    Args:
        figures: list of the study's figures.
        outcome_of: function that looks up the tuning outcome of a method, which
            `curvebench.reports.claims.comparison.outcome_lookup` returns.
    """
    faults = faults_of(problem.study.name, problem.final)
    valid_runs = problem.tables.runs.filter(pl.col("outcome") != WORKLOAD_FAULT)
    problem = replace(problem, tables=replace(problem.tables, runs=valid_runs))
    cell = problem.workload.name, problem.backend
    return {
        "name": problem.backend,
        "figures": [figure for figure in figures if (figure["workload"], figure["backend"]) == cell],
        "results": results_rows(problem),
        "settings": settings_rows(problem, outcome_of),
        "pairs": pair_rows(problem),
        "costs": cost_rows(problem),
        "clock": wall_clock.clock_of(problem),
        "fault": next(iter(faults), None),
    }


def final_seeds(tables: Tables, backend: str) -> int:
    """Return the number of seeds of the final runs on a backend."""
    return tables.runs.filter(stage="final", backend=backend)["seed"].n_unique()


def _by_method(frame: pl.DataFrame) -> dict[str, dict[str, Any]]:
    """Return the row of each method in a frame, by method."""
    return {row["method"]: row for row in frame.iter_rows(named=True)}


def results_rows(problem: StudyProblem) -> Rows:
    """Return one row per method with its metrics, targets and failures.

    Methods that joining studies add come first. In a row, `metrics` maps pairs of a metric and "final" or
    "best" to medians, the headline metric first. `targets` maps pairs of a metric and a threshold to the cost
    of reaching this target and the share of runs that reached it.
    """
    study, final = problem.study, problem.final
    headline = study.metric, study.which
    metrics = dict.fromkeys([headline, *((name, "final") for name in problem.workload.metrics)])
    values = {key: study_values(study, final, *(key if key != headline else ())) for key in metrics}
    columns = {key: measures.median_by_method(frame) for key, frame in values.items()}
    costs = {at: measures.evaluations_to_target(final, at[0]) for at in problem.targets.items()}
    totals = _by_method(measures.outcome_counts(final))
    medians = {method: value.median for method, value in columns[headline].items()}
    best = measures.best_methods(study, medians) if measures.can_reject(values[headline]) else set()
    joined = {method for joining_study in study.joining for method in joining_study.methods}
    order = sorted(study.methods, key=lambda method: method not in joined)
    rows = []
    for method in (method for method in order if method in totals):
        counted = totals[method]["count"] - totals[method]["missing"]
        spent = {at: cost.filter(method=method)["value"] for at, cost in costs.items()}
        rows.append(
            {
                **totals[method],
                "best": method in best,
                "failed": share_interval(totals[method]["failed"], counted) if counted else None,
                "metrics": {key: column.get(method) for key, column in columns.items()},
                "targets": {at: (complete_interval(cost), reached_share(cost)) for at, cost in spent.items()},
            }
        )
    return rows


def settings_rows(problem: StudyProblem, outcome_of: OutcomeLookup) -> Rows:
    """Return a row for each method with its setting: the chosen learning rate, the learning rates that were
    tried, the learning rates that tie with the chosen one, and the tuned hyperparameters that change nothing.

    Args:
        outcome_of: function that looks up the tuning outcome of a method, which
            `curvebench.reports.claims.comparison.outcome_lookup` returns.
    """
    study, workload, backend = problem.study, problem.workload.name, problem.backend
    rates, final = _by_method(measures.chosen_rates(problem.runs)), _by_method(problem.final)
    tuning = problem.tables.runs.filter(stage="tuning", workload=workload)
    rows: Rows = []
    for method in [method for method in study.methods if method in rates]:
        tuner, tuned_on = measures.tuning_source(study, method, backend, tuning)
        outcome = outcome_of(workload, tuner, tuned_on, Method.of(method).optimizer)
        hyperparameters = {item["name"]: item["value"] for item in final[method]["hyperparameters"] or []}
        other_settings = hyperparameters | options_of(study, method)
        tied = [rate for rate, *_ in outcome.tied] if outcome else []
        names = study.tuned_names(Method.of(method).optimizer)
        idle = [names[position] for position in outcome.without_effect] if outcome else []
        further = {"others": other_settings, "tuned_on": tuned_on, "tied": tied, "idle": idle}
        rows.append({**rates[method], **further})
    return rows


def options_of(study: StudyPlan, method: str) -> dict[str, Any]:
    """Return the options that a study fixes for a method, by name, without the tuned hyperparameters."""
    options = study.optimizer(Method.of(method).optimizer).chosen
    # Tuned options are removed, because the table shows them in another column.
    options.pop("tuned", None)
    options |= options.pop("arguments", {})
    return {
        name: value
        for name, value in options.items()
        if isinstance(value, bool) or not isinstance(value, (int, float))
    }


def pair_rows(problem: StudyProblem) -> Rows:
    """Return a row for each method in a basis, with its effect compared to the same optimizer in the identity
    basis.
    """
    rows: Rows = []
    for method in problem.study.methods:
        optimizer, basis = Method.of(method)
        if basis != IDENTITY and (effect := effect_by_seed(problem.study, problem.values, method, optimizer)):
            rows.append({"method": method, "control": optimizer, "found": effect})
    return rows


def cost_rows(problem: StudyProblem) -> Rows:
    """Return a row for each method with its costs: gradient evaluations, seconds and memory of a run and of
    the basis.
    """
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
        successful = runs.filter(~failed())
        counted = successful if len(successful) else runs
        took = {at: seconds.filter(method=method)["value"] for at, seconds in spent.items()}
        rows.append(
            {
                "method": method,
                "count": len(runs),
                "evaluations": median_interval(counted["gradient_evaluations"].to_numpy()),
                "basis_evaluations": runs["basis_gradient_evaluations"].fill_null(0).max(),
                "basis_seconds": _basis_seconds(runs["basis_seconds"].drop_nulls()),
                "targets": {at: complete_interval(seconds) for at, seconds in took.items()},
                **{name: rows_of.get(method) for name, rows_of in timed.items()},
                "state_bytes": runs["state_bytes"].max(),
            }
        )
    return rows


def _basis_seconds(seconds: pl.Series) -> MedianInterval | float | None:
    """Return the median over seeds, with its interval, of the seconds for estimating a basis.

    If all seeds have the same value, because one estimate served all seeds, the result is this number. If
    there was nothing to estimate, the result is None.
    """
    distinct = seconds.unique().to_list()
    if distinct in ([], [0.0]):
        return None
    return float(distinct[0]) if len(distinct) == 1 else median_interval(seconds.to_numpy())


def job_seconds(jobs: pl.DataFrame) -> Rows:
    """Return the seconds of jobs by cause: a row for each kind of job, and a last row for all jobs."""
    kinds = {row["stage"]: row for row in seconds_by_cause(jobs, "stage").to_dicts()}
    rows = [kinds[kind] for kind in KINDS if kind in kinds]
    return [*rows, {"stage": "all", **seconds_by_cause(jobs).row(0, named=True)}] if rows else []


def run_pages(study: StudyPlan, runs: pl.DataFrame) -> list[Rows]:
    """Return the rows of a study's final runs, sorted by method and divided into pages.

    If there are no runs, there is one empty page.
    """
    position = {method: number for number, method in enumerate(study.methods)}
    final = runs.filter(pl.col("stage") == "final")
    order = pl.col("method").replace_strict(position, default=len(position), return_dtype=pl.Int64)
    final = final.sort(order, *CELL, "seed", "run")
    rows = [_run_row(study, row) for row in final.iter_rows(named=True)]
    return [rows[start : start + RUNS_A_PAGE] for start in range(0, max(len(rows), 1), RUNS_A_PAGE)]


def _run_row(study: StudyPlan, row: Mapping[str, Any]) -> dict[str, Any]:
    """Return the row of a run, with the final and best value of each metric of `run_metrics`."""
    final = {item["name"]: item["value"] for item in row["final_metrics"] or []}
    best = {item["name"]: item["value"] for item in row["best_metrics"] or []}
    return {**row, "metrics": [(final.get(name), best.get(name)) for name in run_metrics(study)]}


def run_metrics(study: StudyPlan) -> list[str]:
    """Return the names of the metrics that have a column on a page of runs."""
    return list(dict.fromkeys(name for workload in study.workloads for name in workload.metrics))


def provenance_page(jobs: pl.DataFrame) -> dict[str, Any]:
    """Return the context of the page of provenance: machines, environments and all jobs."""
    jobs = jobs.unique(maintain_order=True)
    # The null method, which timing jobs measure, computes the gradient and leaves the parameters unchanged.
    in_words = pl.element().str.replace("^null: ", "the gradient alone: ")
    jobs = jobs.with_columns(pl.col("notes").list.eval(in_words))
    return {
        "machines": machines(jobs).to_dicts(),
        "environments": jobs.unique("environment_hash", keep="first", maintain_order=True).to_dicts(),
        "jobs": jobs.sort("started", "spec_hash").to_dicts(),
        "seconds": job_seconds(jobs),
        "notes": sorted(Counter(jobs["notes"].explode().drop_nulls()).items()),
    }
