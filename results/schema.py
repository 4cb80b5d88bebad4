"""Columns and data types of the tables: runs, parity of backends, property checks, verdicts, leaderboards.

docs/reference/tables.md explains each column; a test compares the page with these schemas. A basis is a
change of coordinates of the parameters; a method is an optimizer in a basis. Tuning runs choose the setting
of a method, final runs use it on other seeds. A subclaim is a sentence of a claim with a verdict of its own.
"""

from __future__ import annotations

from typing import Any, NamedTuple, get_args

import polars as pl

from curvebench.results.outcomes import OUTCOMES
from curvebench.results.verdicts import LogAxes, Relation, SeriesKind, TurnsIn, Variant, Verdict
from curvebench.spec.claim import QUANTITIES, Cause
from curvebench.spec.conditions.condition import Effect
from curvebench.spec.conditions.condition import Relation as ClaimRelation
from curvebench.spec.document import Which

# Kinds of runs. Alternative runs are final runs with settings that other tuning seeds might have chosen.
STAGES = ("tuning", "final", "alternative")
COMPARISONS = (
    "torch against jax",
    "numpy against torch",
    "float32 against float64 on jax",
    "float32 against float64 on torch",
)

# Variants of a claim whose source has a misprint. Claims without a misprint have the empty variant.
VARIANTS = get_args(Variant)
VERDICTS = get_args(Verdict)

# Causes to which the seconds of a job are attributed, and `total`, which has all seconds of the job.
PARTS_OF_A_JOB = ("import", "compile", "data", "step", "evaluation", "other", "total")
# Seconds that are stored in two columns: their own (the key), and the column of a cause (the value).
# For example, `data_seconds` includes `waiting_seconds`.
WITHIN = {"waiting": "data", "basis": "step", "checkpoint": "other"}

NamedValues = pl.List(pl.Struct({"name": pl.String, "value": pl.Float64}))
Target = pl.Struct(
    {
        "metric": pl.String,
        "threshold": pl.Float64,
        "steps": pl.Int64,  # steps until the threshold was first reached; null if the run never reached it
        "seconds": pl.Float64,  # seconds to the threshold; null if unknown, or if it was never reached
        "seconds_kind": pl.String,  # "measured", or "modelled" from the number of steps and a step's time
    }
)


class RunColumn(NamedTuple):
    """A column of the table `runs`: its data type, and how the pages of runs show it.

    A page of runs shows the columns that have a label, in the order of `RUN_COLUMNS`. Name, method, metrics
    and the other hyperparameters of a run are shown separately. A new column needs an entry in `RUN_COLUMNS`,
    a value in `curvebench.stages.records` and a row in docs/reference/tables.md.

    Args:
        data_type: data type of the values.
        label: heading on the pages; empty for a column that is not shown, or is shown only below another
            column's value.
        written: name of the filter of `curvebench.reports.formatting` that formats a value.
        unit: text that is printed small below the heading.
        below: name of another column, whose value is printed small below the value of this column.
    """

    data_type: Any
    label: str = ""
    written: str = "string"
    unit: str = ""
    below: str = ""


def _schema(**columns: Any) -> pl.Schema:
    """Return the schema of a table.

    Args:
        columns: data type by column, an instance or a class. Polars accepts both, but the type annotations of
            `pl.Schema` accept only instances.
    """
    return pl.Schema(columns)


def _each(data_type: Any, *names: str) -> dict[str, Any]:
    """Return columns with the given names and the same data type."""
    return dict.fromkeys(names, data_type)


def _with_ends(name: str) -> dict[str, Any]:
    """Return three columns: an estimate, and the lower and the upper end of its confidence interval."""
    return _each(pl.Float64, name, f"{name}_low", f"{name}_high")


# Columns that identify a method (an optimizer in a basis) on a workload.
# `backend` and `device` say where the runs of the method were computed.
CELL = _each(pl.String, "study", "scale", "workload", "optimizer", "basis", "backend", "device")
JOB = _each(pl.String, "spec_hash", "machine")
RUN_COLUMNS: dict[str, RunColumn] = {
    # Name of the run: first 12 digits of the job's hash, a hyphen, and the number of the run in the job
    "run": RunColumn(pl.String),
    **{name: RunColumn(data_type) for name, data_type in CELL.items()},
    "workload": RunColumn(pl.String, "Workload", below="backend"),
    "dtype": RunColumn(pl.String),
    "stage": RunColumn(pl.Enum(STAGES)),
    # Number of the tuning round, from 0. In a final run, the column has the number of all tuning rounds.
    "round": RunColumn(pl.Int64),
    "seed": RunColumn(pl.Int64, "Seed"),
    "learning_rate": RunColumn(pl.Float64, "Learning rate", "rate"),
    "hyperparameters": RunColumn(NamedValues),  # values of all hyperparameters except the learning rate
    "outcome": RunColumn(pl.Enum(OUTCOMES), "Outcome", "words", below="outcome_step"),
    # Step at which the run reached its goal, stopped or diverged; the last known step of a failed run
    "outcome_step": RunColumn(pl.Int64, written="at_step"),
    "reason": RunColumn(pl.String),  # reason of a failure or an interruption, null otherwise
    "steps": RunColumn(pl.Int64, "Steps", "count"),
    # Gradient evaluations of the run. Evaluations that estimated the basis again during the run are included.
    # Evaluations that estimated the basis before the run are not included.
    "gradient_evaluations": RunColumn(
        pl.Int64, "Evaluations", "count", "and the basis'", "basis_gradient_evaluations"
    ),
    # Gradient evaluations that estimated the basis before the run
    "basis_gradient_evaluations": RunColumn(pl.Int64, written="added"),
    # Seconds in which the basis was estimated, before the run and again during the run.
    # Several runs may share the estimate from before the run, and each of them has all of its seconds.
    "basis_seconds": RunColumn(pl.Float64),
    "examples": RunColumn(pl.Int64),
    "final_metrics": RunColumn(NamedValues),
    "best_metrics": RunColumn(pl.List(pl.Struct({"name": pl.String, "value": pl.Float64, "step": pl.Int64}))),
    "targets": RunColumn(pl.List(Target)),
    "seconds": RunColumn(pl.Float64),  # null for runs that were computed together with other runs
    "state_bytes": RunColumn(pl.Int64),
    "bundle_lanes": RunColumn(pl.Int64),
    **{name: RunColumn(data_type) for name, data_type in JOB.items()},
}
RUNS = _schema(**{name: column.data_type for name, column in RUN_COLUMNS.items()})

CURVES = _schema(
    run=pl.String,
    **_each(pl.Int64, "step", "gradient_evaluations", "examples"),
    seconds=pl.Float64,  # null for runs that were computed together with other runs
    metric=pl.String,
    value=pl.Float64,  # NaN is a value of the metric; missing values are null
)

TIMINGS = _schema(
    **CELL,
    phase=pl.String,  # the timed phase: data, compile, warm_up, step, null_step or evaluation
    **_each(pl.Int64, "repetition", "steps"),  # `steps`: number of steps that took `seconds`
    seconds=pl.Float64,
    **JOB,
)

MEMORY = _schema(
    **CELL,
    # A peak is null if the system cannot reset the peak of resident memory.
    # A peak is also null if the backend does not count bytes.
    **_each(pl.Int64, "host_baseline_bytes", "host_peak_bytes", "device_peak_bytes"),
    **JOB,
)

JOBS = _schema(
    # The stage is bases, runs, timing, parity or checks.
    # The optimizer is null in a job of several optimizers.
    # In a checks job, the column `optimizer` has the name of the module of claims.
    **_each(pl.String, "spec_hash", "study", "scale", "stage", "optimizer", "backend", "device"),
    **{f"{part}_seconds": pl.Float64 for part in (*PARTS_OF_A_JOB, *WITHIN)},
    peak_memory_bytes=pl.Int64,
    # Energy that the GPU used during the job; null if the driver does not report it, or a run was resumed
    gpu_joules=pl.Float64,
    **_each(pl.String, "started", "machine", "cpu"),  # `started` is a time in UTC in ISO 8601
    **_each(pl.Int64, "cores", "threads"),
    **_each(pl.String, "gpu", "driver", "system", "python"),
    packages=pl.List(pl.Struct({"name": pl.String, "version": pl.String})),
    **_each(pl.String, "environment_hash", "commit"),
    dirty=pl.Boolean,
    claim_rules=pl.List(pl.Struct({"claim": pl.String, "rule": pl.String})),  # hashes of decision rules
    failures=pl.List(pl.Struct({"what": pl.String, "outcome": pl.String, "reason": pl.String})),
    notes=pl.List(pl.String),  # remarks, such as on runs that had to be computed separately
)

PARITY = _schema(
    # `problem` is the label of a problem in curvebench/planning/parity_problems.py.
    **_each(pl.String, "optimizer", "problem", "workload", "basis"),
    comparison=pl.Enum(COMPARISONS),
    unit=pl.Enum(("relative", "ulps")),
    # Largest difference between the two compared computations: after the first step, and over all steps.
    **_each(pl.Float64, "first_step", "difference"),
    judged=pl.Boolean,  # whether the difference must be within a tolerance
    tolerance=pl.Float64,  # null if there is no tolerance
    holds=pl.Boolean,  # whether the difference is within the tolerance; true if there is no tolerance
    steps=pl.Int64,
    learning_rate=pl.Float64,
    **JOB,
)

CHECKS = _schema(
    **_each(pl.String, "claim", "part"),
    variant=pl.Enum(VARIANTS),
    source=pl.String,  # number of the source document, and place in it
    instance=pl.Int64,
    quantity=pl.String,
    value=pl.Float64,  # NaN never satisfies a limit
    relation=pl.Enum(get_args(Relation)),
    **_each(pl.Float64, "limit", "tolerance"),
    holds=pl.Boolean,
    seconds=pl.Float64,  # seconds in which the whole instance was drawn and measured
    scale=pl.String,
    **JOB,
)

SERIES = _schema(
    **_each(pl.String, "claim", "part"),
    variant=pl.Enum(VARIANTS),
    instance=pl.Int64,
    # Figure of the source, panel (empty if the figure has only one panel), and label of the line.
    **_each(pl.String, "figure", "panel", "label"),
    kind=pl.Enum(get_args(SeriesKind)),
    **_each(pl.String, "x_name", "y_name"),
    log=pl.Enum(get_args(LogAxes)),
    **_each(pl.Float64, "x", "y"),
    scale=pl.String,
    **JOB,
)

# Codes of the reasons of verdicts.
# `count`, `of`, `value` and `names` in the comments are fields of a reason.
# Fields that the comment on a reason does not mention are null or empty.
REASONS = (
    "supported",  # `count` of `of` comparisons support the claim
    "refuted",  # `count` of `of` comparisons refute the claim
    "inconclusive",  # `count` of `of` comparisons are inconclusive
    "control_unmet",  # `count` of `of` positive controls are not supported, so that the runs decide nothing
    "held",  # all measured numbers are within their limits on `count` of `of` random instances
    "undecided",  # `count` of `of` instances are undecided, since a confidence interval contains a limit
    "missed",  # `count` of `of` subclaims are violated; `names` has their names
    "untested",  # `count` subclaims have an untested bound; the quantity `names` reaches `value` of its bound
    # With one of the next three reasons, a verdict is at most `partly reproduced`.
    "limited_scale",  # results at this scale allow no better verdict, for the reason in the plan
    "settings_not_run",  # up to `count` settings that tuning may have chosen were not run
    "few_tuning_seeds",  # `count` tuning seeds have only `of` different resamples
    # With one of the next five reasons, the claim was not run.
    "not_paired",  # the backend has no runs that can be compared in pairs
    "left_out",  # the study was left out, for the reason in the plan
    "no_data",  # data is missing, as the plan says
    "failed",  # property checks raised an error, which their jobs report
    "unmeasured",  # the tables contain no measured value for the claim
    # The next three reasons go with the verdict `reproduced where`.
    "holds_where",  # the claim is reproduced in the domains `names`
    "fails_where",  # the claim is not reproduced in the domains `names`
    "open_where",  # it is undecided whether the claim is reproduced in the domains `names`
    "saturated",  # in `count` of `of` comparisons, most pairs meet the target within two evaluations
    "at_edge",  # `count` of `of` comparisons may depend on the search for the settings of their arms
    "unreached",  # in `count` of `of` comparisons, no run meets the target
    "other_hardware",  # the claim was not run on the kind of machine `names` that the source timed
)
NUMBERS = {**_each(pl.Int64, "count", "of"), "value": pl.Float64}
REASON = {"code": pl.Enum(REASONS), **NUMBERS, "names": pl.List(pl.String)}
CLAIMS = _schema(
    claim=pl.String,
    variant=pl.Enum(VARIANTS),
    verdict=pl.Enum(VERDICTS),
    reasons=pl.List(pl.Struct(REASON)),
    # `backend` is null for property checks, and for a claim of which nothing ran.
    # For property checks, `study` is the name of their module.
    **_each(pl.String, "source", "scale", "backend", "study"),
    # Effect, ends of its confidence interval, and p-value of the comparison that decides the claim.
    # For property checks, the estimate is the share of instances that satisfy the claim.
    **_each(pl.Float64, "estimate", "low", "high", "p_value"),
    # For property checks, `seeds` is the number of instances.
    # `seeds_needed` is null unless the claim is underpowered.
    **_each(pl.Int64, "seeds", "seeds_needed"),
    # `rule` is the hash that the claim's decision rule had when the verdict was computed.
    # `rule_of_runs` is the hash of the rule when the runs were planned; null if it is not known.
    **_each(pl.String, "rule", "rule_of_runs"),
    # `cause` says why the verdict on the claim is not a better one; null for verdicts without a cause.
    # `turns_in` is the kind of number that would have to change for another verdict, such as a margin.
    # `turns_at` is the margin, target or limit at which the verdict changes; null if there is no such number.
    cause=pl.Enum(get_args(Cause)),
    turns_in=pl.Enum(get_args(TurnsIn)),
    turns_at=pl.Float64,
)

# Limits of a search. The chosen value may be at the lower or the upper end of the values that were tried.
# `missed` says that another study found a better setting. If this setting was not tried, `hyperparameter` and
# `value` name a value of it outside of the search.
LIMITS = ("lowest", "highest", "missed")
EDGE = {
    **_each(pl.String, "arm", "hyperparameter"),
    "value": pl.Float64,
    "limit": pl.Enum(LIMITS),
    "study": pl.String,
}
FINDINGS = _schema(
    **_each(pl.String, "claim", "backend"),
    condition=pl.Int64,  # index of the condition among the claim's conditions, from 0
    **_each(pl.String, "workload", "metric"),
    which=pl.Enum(get_args(Which)),
    quantity=pl.Enum(QUANTITIES),
    at_equal=pl.Enum(("steps", "gradients", "seconds")),
    relation=pl.Enum(get_args(ClaimRelation)),
    # Whether the source takes the condition for granted, so that the condition is a check of the runs
    positive_control=pl.Boolean,
    # `control` and `control_workload` are null if the treated method is compared with a number.
    **_each(pl.String, "treated", "control", "control_workload"),
    effect=pl.Enum(get_args(Effect)),  # ratio (treated / control) or difference (treated - control)
    margin=pl.Float64,  # smallest effect that matters, in the unit of the estimate
    # Smallest and largest effect that the claim allows; infinite if the claim has no such bound
    **_each(pl.Float64, "allowed_low", "allowed_high"),
    # Median effect, and lower and upper bound of the median effect.
    # The median is null if censored pairs leave it unknown.
    **_each(pl.Float64, "estimate", "at_least", "at_most"),
    # Ends of the confidence interval of the median effect, and the coverage of the interval
    **_each(pl.Float64, "low", "high", "level"),
    # P-value for the asserted relation, and the same p-value corrected for all comparisons of the claim.
    # `refuting_p_value` is the corrected p-value against the asserted relation.
    **_each(pl.Float64, "p_value", "holm_p_value", "refuting_p_value"),
    seeds=pl.Int64,
    unanimous=pl.Boolean,  # whether each pair by itself satisfies the relation, or each pair violates it
    stop=pl.Float64,  # threshold at which pairs are censored; null if there is no threshold
    # Number of pairs whose effect is unknown because both runs are censored, and number of all censored pairs
    **_each(pl.Int64, "unknown", "bounded"),
    # Whether the comparison would stay inconclusive with any number of seeds, because pairs are censored
    beyond_seeds=pl.Boolean,
    # For a comparison at equal cost: number of pairs in which a method could make no step within the cost.
    # `treated_at_start` counts the pairs for the treated method, `control_at_start` for the control.
    **_each(pl.Int64, "treated_at_start", "control_at_start"),
    # A tie is a pair of settings, one per method, that were as good in tuning as the chosen settings.
    # `ties` is the number of ties.
    # `ties_agree` counts the ties at which the comparison has the same finding as at the chosen settings.
    # `turned` counts the ties at which the median effect has the opposite direction.
    # `turned` is 0 unless the comparison is inconclusive at the chosen settings.
    **_each(pl.Int64, "ties", "ties_agree", "turned"),
    # Share of the resamples of tuning seeds in which tuning would choose settings with the same finding
    choices_agree=pl.Float64,
    settings_not_run=pl.Int64,  # number of settings that tuning may have chosen and that were not run
    # The finding is null for a claim that repeats another claim, since its comparisons decide nothing.
    finding=pl.Enum(("supported", "refuted", "inconclusive")),
    deciding=pl.Boolean,  # whether the claim's estimate is the estimate of this comparison
    # `seeds_needed` estimates how many final seeds would decide an inconclusive comparison.
    # `tuning_seeds_needed` estimates how many tuning seeds would decide an inconclusive comparison.
    # `tuning_seeds_needed` is null unless the finding depends on the choice of settings.
    # At least one of `seeds_needed` and `tuning_seeds_needed` is null.
    **_each(pl.Int64, "seeds_needed", "tuning_seeds_needed"),
    # Whether the effect has the same direction as in the repeated claim; null if the claim repeats no claim
    same_direction=pl.Boolean,
    # Why a target decides nothing: most pairs meet it within two evaluations, or no run meets it.
    # `reach` is null for a comparison whose target may decide it.
    reach=pl.Enum(("saturated", "unreached")),
    # Limits of the searches for the settings of the two arms (`treated` and `control`).
    # A limit is a hyperparameter whose chosen value is the lowest or highest value tried.
    # A better setting that another study found is a limit too.
    # A finding depends on the search if the search of one of the two arms has a limit.
    at_edge=pl.List(pl.Struct(EDGE)),
)

# `tuned_by` is the method whose tuning runs chose the setting; null if nothing was tuned.
# The other columns are the number of the tuning runs, and the number of their gradient evaluations.
TUNED = {"tuned_by": pl.String, **_each(pl.Int64, "tuning_runs", "tuning_gradient_evaluations")}
BOARD_WORKLOAD = {
    # Methods are ranked by `metric`. `which` says whether the final or the best value of the metric counts.
    # `direction` says whether the metric is minimized or maximized.
    **_each(pl.String, "study", "workload", "metric", "which", "direction"),
    "seeds": pl.Int64,
    **_with_ends("value"),  # median over final runs; infinite if half of the runs diverged
    "best": pl.Boolean,  # whether no other method has a better median
    "at_edge": pl.Boolean,  # whether tuning chose an end of the range of learning rates that it tried
    "acts_as": pl.String,  # known method that the method is on this workload; null if it is itself
    # `diverged` counts all failed runs (curvebench.results.outcomes).
    **_each(pl.Int64, "wins", "instances", "runs", "diverged"),
    # Metric of the target. Without a target, this column and the following columns on the target are null.
    "target_metric": pl.String,
    "target": pl.Float64,
    "reached": pl.Int64,
    # Median number of gradient evaluations to the target, including the estimation of the basis.
    # The median is infinite if half of the runs missed the target.
    **_with_ends("evaluations_to_target"),
    # Median seconds to the target, including the estimation of the basis; null if steps were not timed
    **_with_ends("seconds_to_target"),
    **_with_ends("nearly_best_decades"),
    **TUNED,
}
LEADERBOARD = _schema(
    **_each(pl.String, "scale", "backend", "studies"),  # names of studies with equal methods, joined by ", "
    group=pl.String,  # group of problems that are ranked together; empty if the studies have no groups
    place=pl.Int64,  # position of the method on the leaderboard
    **_each(pl.String, "method", "basis"),
    # `score` is the area under the method's performance profile.
    # Score and rank are null for a method that acts as another method.
    **_with_ends("score"),
    **_with_ends("rank"),  # rank by score; methods with equal scores have the average of their ranks
    rank_by_target=pl.List(pl.Float64),  # rank at each target by itself, the easiest target first
    # Lowest and highest rank if one problem is left out, and on a single problem.
    **_each(pl.Float64, "rank_without_low", "rank_without_high", "rank_new_low", "rank_new_high"),
    **_with_ends("mean_rank"),  # mean over instances of the rank by the metric of the leaderboard
    # `met` is the number of workloads on which the method ran.
    # `aimed` is the number of final runs with a target, and `reached` the number of runs that reached it.
    # `reached` and `aimed` are null if there is no target.
    **_each(pl.Int64, "wins", "instances", "met", "reached", "aimed", "diverged", "runs"),
    # Seconds per step, divided by the seconds per step of the method `step_reference`.
    # `step_ratio` is null for the method `step_reference` itself, and if steps were not timed.
    **_with_ends("step_ratio"),
    step_reference=pl.String,
    peak_memory_bytes=pl.Int64,
    memory_of=pl.String,  # kind of the peak memory: "device" or "host"
    # Decades (factors of 10) of learning rates that do nearly as well as the best rate; mean over workloads.
    **_with_ends("nearly_best_decades"),
    **TUNED,
    tuned_equally=pl.Boolean,  # whether all methods of the leaderboard were tuned with equally many runs
    workloads=pl.List(pl.Struct(BOARD_WORKLOAD)),
)

# Columns added after the first tables were published. If a file lacks such a column, its values are null.
OPTIONAL = {
    "jobs": {*(f"{part}_seconds" for part in WITHIN), "gpu_joules"},
    "claims": {"cause", "turns_in", "turns_at"},
    "findings": {"reach", "unanimous", "at_edge"},
}

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
