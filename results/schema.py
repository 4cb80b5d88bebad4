"""Schemas of the tables: of studies, parity of backends, property checks, verdicts and leaderboards.

docs/reference/tables.md explains each column; a test compares the page with these schemas.
"""

from __future__ import annotations

from typing import Any, NamedTuple, get_args

import polars as pl

from curvebench.results.outcomes import OUTCOMES
from curvebench.results.verdicts import LogAxes, Relation, SeriesKind, Variant, Verdict
from curvebench.spec.claim import QUANTITIES
from curvebench.spec.conditions.condition import Effect
from curvebench.spec.conditions.condition import Relation as ClaimRelation
from curvebench.spec.document import Which

STAGES = ("tuning", "final", "alternative")  # alternative runs are final runs at settings not chosen
COMPARISONS = (
    "torch against jax",
    "numpy against torch",
    "float32 against float64 on jax",
    "float32 against float64 on torch",
)

VARIANTS = get_args(Variant)  # the empty variant is of sources without a misprint
VERDICTS = get_args(Verdict)

# Parts into which the seconds of a job are divided, and their total.
PARTS_OF_A_JOB = ("import", "compile", "data", "step", "evaluation", "other", "total")
WITHIN = {"waiting": "data", "basis": "step", "checkpoint": "other"}  # the part that contains these seconds

NamedValues = pl.List(pl.Struct({"name": pl.String, "value": pl.Float64}))
Target = pl.Struct(
    {
        "metric": pl.String,
        "threshold": pl.Float64,
        "steps": pl.Int64,  # null if not reached
        "seconds": pl.Float64,  # null if not reached or not known
        "seconds_kind": pl.String,  # "modelled" or "measured"
    }
)


class RunColumn(NamedTuple):
    """A column of the table `runs`: its data type, and how the pages of runs show it.

    The pages of runs have a column for each column here with a label, in this order. Name, method, metrics
    and the other hyperparameters of a run are shown separately. A new column needs an entry in `RUN_COLUMNS`,
    a value in `curvebench.stages.records` and a row in docs/reference/tables.md.

    Args:
        data_type: type of the values.
        label: heading on the pages; empty for a column that is not shown, or only below another one.
        written: filter of `curvebench.reports.formatting` that formats a value; `str` by default.
        unit: text below the heading, in small letters.
        below: column whose value is shown below the value, in small letters.
    """

    data_type: Any
    label: str = ""
    written: str = "string"
    unit: str = ""
    below: str = ""


def _schema(**columns: Any) -> pl.Schema:
    """Return a schema from data types and their classes.

    Polars accepts both, but the type annotations of `pl.Schema` accept only instances.
    """
    return pl.Schema(columns)


def _each(data_type: Any, *names: str) -> dict[str, Any]:
    """Return columns of the same type."""
    return dict.fromkeys(names, data_type)


def _with_ends(name: str) -> dict[str, Any]:
    """Return the columns of an estimate and of the ends of its interval."""
    return _each(pl.Float64, name, f"{name}_low", f"{name}_high")


CELL = _each(pl.String, "study", "scale", "workload", "optimizer", "basis", "backend", "device")
JOB = _each(pl.String, "spec_hash", "machine")
RUN_COLUMNS: dict[str, RunColumn] = {
    "run": RunColumn(pl.String),  # first 12 digits of the spec hash, "-", number
    **{name: RunColumn(data_type) for name, data_type in CELL.items()},
    "workload": RunColumn(pl.String, "Workload", below="backend"),
    "dtype": RunColumn(pl.String),
    "stage": RunColumn(pl.Enum(STAGES)),
    "round": RunColumn(pl.Int64),  # tuning round, from 0; for other runs the number of tuning rounds
    "seed": RunColumn(pl.Int64, "Seed"),
    "learning_rate": RunColumn(pl.Float64, "Learning rate", "rate"),
    "hyperparameters": RunColumn(NamedValues),  # hyperparameters except the learning rate
    "outcome": RunColumn(pl.Enum(OUTCOMES), "Outcome", "words", below="outcome_step"),
    # Step at which the run reached its goal, stopped or diverged, or the last known one of a failed run.
    "outcome_step": RunColumn(pl.Int64, written="at_step"),
    "reason": RunColumn(pl.String),  # reason of a failure or an interruption, null otherwise
    "steps": RunColumn(pl.Int64, "Steps", "count"),
    # Gradients of the run, with re-estimates of its basis, but without the estimate before the run.
    "gradient_evaluations": RunColumn(
        pl.Int64, "Evaluations", "count", "and the basis'", "basis_gradient_evaluations"
    ),
    "basis_gradient_evaluations": RunColumn(pl.Int64, written="added"),  # estimate before the run
    # Sampling and decomposition of the basis, before and during the run, charged to every run that uses it.
    "basis_seconds": RunColumn(pl.Float64),
    "examples": RunColumn(pl.Int64),
    "final_metrics": RunColumn(NamedValues),
    "best_metrics": RunColumn(pl.List(pl.Struct({"name": pl.String, "value": pl.Float64, "step": pl.Int64}))),
    "targets": RunColumn(pl.List(Target)),
    "seconds": RunColumn(pl.Float64),  # null for runs that shared a program
    "state_bytes": RunColumn(pl.Int64),
    "bundle_lanes": RunColumn(pl.Int64),
    **{name: RunColumn(data_type) for name, data_type in JOB.items()},
}
RUNS = _schema(**{name: column.data_type for name, column in RUN_COLUMNS.items()})

CURVES = _schema(
    run=pl.String,
    **_each(pl.Int64, "step", "gradient_evaluations", "examples"),
    seconds=pl.Float64,  # null for runs that shared a program
    metric=pl.String,
    value=pl.Float64,  # may be NaN, which is not the same as missing
)

TIMINGS = _schema(
    **CELL,
    phase=pl.String,  # data, compile, warm_up, step, null_step or evaluation
    **_each(pl.Int64, "repetition", "steps"),  # steps: number of steps that the seconds cover
    seconds=pl.Float64,
    **JOB,
)

MEMORY = _schema(
    **CELL,
    # Null where a peak is not known: the resident peak cannot be reset, or a backend does not count bytes.
    **_each(pl.Int64, "host_baseline_bytes", "host_peak_bytes", "device_peak_bytes"),
    **JOB,
)

JOBS = _schema(
    # The stage is bases, runs, timing, parity or checks. The optimizer is null in a job of several
    # optimizers; in a checks job it is the module of claims.
    **_each(pl.String, "spec_hash", "study", "scale", "stage", "optimizer", "backend", "device"),
    **{f"{part}_seconds": pl.Float64 for part in (*PARTS_OF_A_JOB, *WITHIN)},
    peak_memory_bytes=pl.Int64,
    gpu_joules=pl.Float64,  # energy of this process; null if the driver does not report it, or a run resumed
    **_each(pl.String, "started", "machine", "cpu"),  # started: UTC in ISO 8601
    **_each(pl.Int64, "cores", "threads"),
    **_each(pl.String, "gpu", "driver", "system", "python"),
    packages=pl.List(pl.Struct({"name": pl.String, "version": pl.String})),
    **_each(pl.String, "environment_hash", "commit"),
    dirty=pl.Boolean,
    claim_rules=pl.List(pl.Struct({"claim": pl.String, "rule": pl.String})),  # hashes of decision rules
    failures=pl.List(pl.Struct({"what": pl.String, "outcome": pl.String, "reason": pl.String})),
    notes=pl.List(pl.String),  # departures such as fallbacks, and lanes that had to run separately
)

PARITY = _schema(
    # The problem is the label of a small parity problem (curvebench/planning/parity_problems.py).
    **_each(pl.String, "optimizer", "problem", "workload", "basis"),
    comparison=pl.Enum(COMPARISONS),
    unit=pl.Enum(("relative", "ulps")),
    **_each(pl.Float64, "first_step", "difference"),  # largest difference after one step, and over all steps
    judged=pl.Boolean,  # whether the tolerance applies
    tolerance=pl.Float64,  # null if no tolerance applies
    holds=pl.Boolean,  # true if no tolerance applies
    steps=pl.Int64,
    learning_rate=pl.Float64,
    **JOB,
)

CHECKS = _schema(
    **_each(pl.String, "claim", "part"),
    variant=pl.Enum(VARIANTS),
    source=pl.String,  # place in the source document
    instance=pl.Int64,
    quantity=pl.String,
    value=pl.Float64,  # NaN never satisfies a limit
    relation=pl.Enum(get_args(Relation)),
    **_each(pl.Float64, "limit", "tolerance"),
    holds=pl.Boolean,
    seconds=pl.Float64,  # seconds of the whole instance, with all its measures
    scale=pl.String,
    **JOB,
)

SERIES = _schema(
    **_each(pl.String, "claim", "part"),
    variant=pl.Enum(VARIANTS),
    instance=pl.Int64,
    # Figure of the source, panel (empty if the figure has only one), and label of the line.
    **_each(pl.String, "figure", "panel", "label"),
    kind=pl.Enum(get_args(SeriesKind)),
    **_each(pl.String, "x_name", "y_name"),
    log=pl.Enum(get_args(LogAxes)),
    **_each(pl.Float64, "x", "y"),
    scale=pl.String,
    **JOB,
)

# Reasons of verdicts. A reason has numbers and names only where its comment mentions them.
REASONS = (
    "supported",  # `count` of `of` comparisons; the next two have the same numbers
    "refuted",
    "inconclusive",
    "control_unmet",  # `count` of `of` positive controls are not supported, so that the runs decide nothing
    "held",  # `count` of `of` random instances satisfy all measures
    "undecided",  # `count` of `of` instances, whose intervals contain a limit
    "missed",  # `count` of `of` subclaims miss, and have these `names`
    "untested",  # `count` subclaims have an untested bound; the one in `names` takes the share `value`
    "limited_scale",  # this and the next two cap a verdict at partly reproduced; the plan says why
    "settings_not_run",  # up to `count` settings that tuning may have chosen were not run
    "few_tuning_seeds",  # `count` tuning seeds have only `of` different resamples
    "not_paired",  # not run, since the backend has no pairs of runs
    "left_out",  # not run, since the study was left out, for the reason in the plan
    "no_data",  # not run, since data are missing, as the plan says
    "failed",  # not run, since property checks failed, as their jobs say
    "unmeasured",  # not run, since the tables have no measure
)
NUMBERS = {**_each(pl.Int64, "count", "of"), "value": pl.Float64}
REASON = {"code": pl.Enum(REASONS), **NUMBERS, "names": pl.List(pl.String)}
CLAIMS = _schema(
    claim=pl.String,
    variant=pl.Enum(VARIANTS),
    verdict=pl.Enum(VERDICTS),
    reasons=pl.List(pl.Struct(REASON)),
    # The backend is null for property checks, and if nothing ran. The study of property checks is their
    # module.
    **_each(pl.String, "source", "scale", "backend", "study"),
    # Numbers of the comparison that decides. For property checks, the share of instances that hold.
    **_each(pl.Float64, "estimate", "low", "high", "p_value"),
    # Seeds of property checks are instances. seeds_needed is null unless the claim is underpowered.
    **_each(pl.Int64, "seeds", "seeds_needed"),
    # Hash of the decision rule, and the hash when the runs were planned, null if it is not known.
    **_each(pl.String, "rule", "rule_of_runs"),
)

FINDINGS = _schema(
    **_each(pl.String, "claim", "backend"),
    condition=pl.Int64,  # index of the condition among the claim's conditions, from 0
    **_each(pl.String, "workload", "metric"),
    which=pl.Enum(get_args(Which)),
    quantity=pl.Enum(QUANTITIES),
    at_equal=pl.Enum(("steps", "gradients", "seconds")),
    relation=pl.Enum(get_args(ClaimRelation)),
    positive_control=pl.Boolean,  # whether the condition is an aside of the source, as a check of the runs
    # Control and its workload are null if the treated method is compared with a number.
    **_each(pl.String, "treated", "control", "control_workload"),
    effect=pl.Enum(get_args(Effect)),  # treated / control or treated - control
    margin=pl.Float64,  # smallest effect that matters, in the unit of the estimate
    # The claim accepts effects between these; infinite without a bound.
    **_each(pl.Float64, "allowed_low", "allowed_high"),
    # Median effect, null if censored pairs leave it open, and bounds of the median effect.
    **_each(pl.Float64, "estimate", "at_least", "at_most"),
    **_each(pl.Float64, "low", "high", "level"),
    # P-value for the relation, the same corrected for all comparisons of the claim, and the corrected p-value
    # against the relation.
    **_each(pl.Float64, "p_value", "holm_p_value", "refuting_p_value"),
    seeds=pl.Int64,
    stop=pl.Float64,  # threshold at which pairs are censored; null without a threshold
    # Number of pairs of which nothing is known, since both runs stopped, and number of all censored pairs.
    **_each(pl.Int64, "unknown", "bounded"),
    beyond_seeds=pl.Boolean,  # whether no number of seeds would decide, since pairs are censored
    # Number of pairs in which this method took no step at equal cost.
    **_each(pl.Int64, "treated_at_start", "control_at_start"),
    # Number of settings of both methods that tie with the chosen ones, and how many of them have the same
    # finding; if the comparison is inconclusive, how many have a median effect of the other direction.
    **_each(pl.Int64, "ties", "ties_agree", "turned"),
    choices_agree=pl.Float64,  # share of the resamples of tuning seeds whose choices have the same finding
    settings_not_run=pl.Int64,  # number of settings that tuning may have chosen and that were not run
    finding=pl.Enum(("supported", "refuted", "inconclusive")),  # null for repeats, which decide nothing
    deciding=pl.Boolean,  # whether the claim's estimate is the estimate of this comparison
    # Final seeds that would decide an inconclusive comparison, otherwise null; tuning seeds that would, if
    # the finding depends on the choice of settings.
    **_each(pl.Int64, "seeds_needed", "tuning_seeds_needed"),
    same_direction=pl.Boolean,  # whether a repeat has an effect of the same direction; null otherwise
)

# Method whose runs chose the setting (null: not tuned), and the cost of these runs.
TUNED = {"tuned_by": pl.String, **_each(pl.Int64, "tuning_runs", "tuning_gradient_evaluations")}
BOARD_WORKLOAD = {
    # Headline metric, whether its final or best value counts, and its direction.
    **_each(pl.String, "study", "workload", "metric", "which", "direction"),
    "seeds": pl.Int64,
    **_with_ends("value"),  # median; infinite if half of the runs diverged
    "best": pl.Boolean,  # whether no other median is better
    # Diverged runs include runs that failed otherwise (curvebench.results.outcomes).
    **_each(pl.Int64, "wins", "instances", "runs", "diverged"),
    "target_metric": pl.String,  # null without a target, like the following columns on the target
    "target": pl.Float64,
    "reached": pl.Int64,
    **_with_ends("evaluations_to_target"),  # median, basis included; infinite if half of the runs missed it
    **_with_ends("seconds_to_target"),  # median, basis included; null if steps were not timed
    **_with_ends("nearly_best_decades"),
    **TUNED,
}
LEADERBOARD = _schema(
    **_each(pl.String, "scale", "backend", "studies"),  # studies with the same methods, joined by ", "
    place=pl.Int64,  # position on the board
    **_each(pl.String, "method", "basis"),
    **_with_ends("score"),  # area under the performance profile; score and rank are null without a target
    **_with_ends("rank"),  # rank by score, ties averaged
    **_with_ends("mean_rank"),  # mean over instances of the rank by the headline metric
    # met counts workloads; reached and aimed count runs, null without a target.
    **_each(pl.Int64, "wins", "instances", "met", "reached", "aimed", "diverged", "runs"),
    **_with_ends("step_ratio"),  # null for the reference itself, and if steps were not timed
    step_reference=pl.String,
    peak_memory_bytes=pl.Int64,
    memory_of=pl.String,  # "device" or "host"
    **_with_ends("nearly_best_decades"),  # mean over workloads
    **TUNED,
    tuned_equally=pl.Boolean,  # whether all methods of the board were tuned with equally many runs
    workloads=pl.List(pl.Struct(BOARD_WORKLOAD)),
)

# Columns added after the first tables were published. If a file lacks one, its values are read as null.
OPTIONAL = {"jobs": {*(f"{part}_seconds" for part in WITHIN), "gpu_joules"}}

TABLES = {
    "runs": RUNS,
    "curves": CURVES,
    "timings": TIMINGS,
    "memory": MEMORY,
    "jobs": JOBS,
    "parity": PARITY,
    "checks": CHECKS,
    "series": SERIES,
    "claims": CLAIMS,
    "findings": FINDINGS,
    "leaderboard": LEADERBOARD,
}
