"""The typed tables: of studies, of the parity of backends, of checks, of verdicts and of the leaderboard.

docs/reference/tables.md says what each column means; a test compares the page with these schemas.
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

STAGES = ("tuning", "final", "alternative")  # alternative: final runs at settings not chosen
COMPARISONS = (
    "torch against jax",
    "numpy against torch",
    "float32 against float64 on jax",
    "float32 against float64 on torch",
)

VARIANTS = get_args(Variant)  # empty where the source is printed well
VERDICTS = get_args(Verdict)

PARTS_OF_A_JOB = ("import", "compile", "data", "step", "evaluation", "other", "total")
WITHIN = {"waiting": "data", "basis": "step", "checkpoint": "other"}  # what is among the seconds of a part

NamedValues = pl.List(pl.Struct({"name": pl.String, "value": pl.Float64}))
Target = pl.Struct(
    {
        "metric": pl.String,
        "threshold": pl.Float64,
        "steps": pl.Int64,  # null: not reached
        "seconds": pl.Float64,  # null: not reached, or not known
        "seconds_kind": pl.String,  # modelled or measured
    }
)


class RunColumn(NamedTuple):
    """A column of the table `runs`: its data type, and how the pages of runs show it.

    A column with a label has one on those pages, in the order of the table. The run's name, its method, its
    metrics and its other hyperparameters have columns of their own there. A new column needs an entry of
    `RUN_COLUMNS`, a value in `curvebench.stages.records` and a row of docs/reference/tables.md.

    Args:
        data_type: the type of its values.
        label: the heading; empty for a column that the pages do not show, or only below another one.
        written: the filter of `curvebench.reports.formatting` that writes a value; `str` by default.
        unit: what stands below the heading, in small letters.
        below: the column whose value stands below the value, in small letters.
    """

    data_type: Any
    label: str = ""
    written: str = "string"
    unit: str = ""
    below: str = ""


def _schema(**columns: Any) -> pl.Schema:
    """A schema from data types and their classes, which polars takes and its annotations do not."""
    return pl.Schema(columns)


def _each(data_type: Any, *names: str) -> dict[str, Any]:
    """Columns of the same type."""
    return dict.fromkeys(names, data_type)


def _with_ends(name: str) -> dict[str, Any]:
    """An estimate and the ends of its interval."""
    return _each(pl.Float64, name, f"{name}_low", f"{name}_high")


CELL = _each(pl.String, "study", "scale", "workload", "optimizer", "basis", "backend", "device")
JOB = _each(pl.String, "spec_hash", "machine")
RUN_COLUMNS: dict[str, RunColumn] = {
    "run": RunColumn(pl.String),  # <first 12 of the spec hash>-<number>
    **{name: RunColumn(data_type) for name, data_type in CELL.items()},
    "workload": RunColumn(pl.String, "Workload", below="backend"),
    "dtype": RunColumn(pl.String),
    "stage": RunColumn(pl.Enum(STAGES)),
    "round": RunColumn(pl.Int64),  # of tuning, from 0; of other runs the number of rounds
    "seed": RunColumn(pl.Int64, "Seed"),
    "learning_rate": RunColumn(pl.Float64, "Learning rate", "rate"),
    "hyperparameters": RunColumn(NamedValues),  # the others
    "outcome": RunColumn(pl.Enum(OUTCOMES), "Outcome", "words", below="outcome_step"),
    # that reached, stopped or diverged, or the last known; null otherwise
    "outcome_step": RunColumn(pl.Int64, written="at_step"),
    # of an error, of want of memory or time, of an interruption; null otherwise
    "reason": RunColumn(pl.String),
    "steps": RunColumn(pl.Int64, "Steps", "count"),
    # of the run alone, and of what it estimates anew
    "gradient_evaluations": RunColumn(
        pl.Int64, "Evaluations", "count", "and the basis'", "basis_gradient_evaluations"
    ),
    "basis_gradient_evaluations": RunColumn(pl.Int64, written="added"),  # charged to every run
    # sampling and decomposition, charged likewise; during the run too
    "basis_seconds": RunColumn(pl.Float64),
    "examples": RunColumn(pl.Int64),
    "final_metrics": RunColumn(NamedValues),
    "best_metrics": RunColumn(pl.List(pl.Struct({"name": pl.String, "value": pl.Float64, "step": pl.Int64}))),
    "targets": RunColumn(pl.List(Target)),
    "seconds": RunColumn(pl.Float64),  # null for a lane of a bundle
    "state_bytes": RunColumn(pl.Int64),
    "bundle_lanes": RunColumn(pl.Int64),
    **{name: RunColumn(data_type) for name, data_type in JOB.items()},
}
RUNS = _schema(**{name: column.data_type for name, column in RUN_COLUMNS.items()})

CURVES = _schema(
    run=pl.String,
    **_each(pl.Int64, "step", "gradient_evaluations", "examples"),
    seconds=pl.Float64,  # null for a lane of a bundle
    metric=pl.String,
    value=pl.Float64,  # NaN is a value, never the same as missing
)

TIMINGS = _schema(
    **CELL,
    phase=pl.String,  # data, compile, warm_up, step, null_step, evaluation
    **_each(pl.Int64, "repetition", "steps"),  # how many steps the seconds cover
    seconds=pl.Float64,
    **JOB,
)

MEMORY = _schema(
    **CELL,
    # null where nobody knows: the resident peak cannot be reset, a backend does not count
    **_each(pl.Int64, "host_baseline_bytes", "host_peak_bytes", "device_peak_bytes"),
    **JOB,
)

JOBS = _schema(
    # stage: bases, runs, timing, parity, checks; optimizer: null where a job holds
    # several, of checks the module of claims
    **_each(pl.String, "spec_hash", "study", "scale", "stage", "optimizer", "backend", "device"),
    **{f"{part}_seconds": pl.Float64 for part in (*PARTS_OF_A_JOB, *WITHIN)},
    peak_memory_bytes=pl.Int64,
    gpu_joules=pl.Float64,  # of this process; null where the driver does not tell, or a run went on
    **_each(pl.String, "started", "machine", "cpu"),  # started: UTC, ISO 8601
    **_each(pl.Int64, "cores", "threads"),
    **_each(pl.String, "gpu", "driver", "system", "python"),
    packages=pl.List(pl.Struct({"name": pl.String, "version": pl.String})),
    **_each(pl.String, "environment_hash", "commit"),
    dirty=pl.Boolean,
    claim_rules=pl.List(pl.Struct({"claim": pl.String, "rule": pl.String})),  # hashes, as planned
    failures=pl.List(pl.Struct({"what": pl.String, "outcome": pl.String, "reason": pl.String})),
    notes=pl.List(pl.String),  # named fallbacks, lanes that ran apart, and the like
)

PARITY = _schema(
    # problem: the label of a small one (curvebench/planning/parity_problems.py)
    **_each(pl.String, "optimizer", "problem", "workload", "basis"),
    comparison=pl.Enum(COMPARISONS),
    unit=pl.Enum(("relative", "ulps")),
    **_each(pl.Float64, "first_step", "difference"),  # the largest after one step, and over all steps
    judged=pl.Boolean,  # whether the tolerance applies
    tolerance=pl.Float64,  # null where it does not
    holds=pl.Boolean,  # true where no tolerance applies
    steps=pl.Int64,
    learning_rate=pl.Float64,
    **JOB,
)

CHECKS = _schema(
    **_each(pl.String, "claim", "part"),
    variant=pl.Enum(VARIANTS),
    source=pl.String,  # of the part
    instance=pl.Int64,
    quantity=pl.String,
    value=pl.Float64,  # NaN is a value, and never holds
    relation=pl.Enum(get_args(Relation)),
    **_each(pl.Float64, "limit", "tolerance"),
    holds=pl.Boolean,
    seconds=pl.Float64,  # of the instance, with all its measures
    scale=pl.String,
    **JOB,
)

SERIES = _schema(
    **_each(pl.String, "claim", "part"),
    variant=pl.Enum(VARIANTS),
    instance=pl.Int64,
    # the figure of the source, its panel (empty where it has one), and which of its lines
    **_each(pl.String, "figure", "panel", "label"),
    kind=pl.Enum(get_args(SeriesKind)),
    **_each(pl.String, "x_name", "y_name"),
    log=pl.Enum(get_args(LogAxes)),
    **_each(pl.Float64, "x", "y"),
    scale=pl.String,
    **JOB,
)

# Why a claim has its verdict. A reason has numbers and names only where its comment mentions them.
REASONS = (
    "supported",  # `count` of `of` comparisons; likewise the next two
    "refuted",
    "inconclusive",
    "control_unmet",  # `count` of `of` positive controls are not supported, so that the runs decide nothing
    "held",  # on `count` of `of` random instances
    "undecided",  # `count` of `of` instances, whose intervals contain a limit
    "missed",  # by `count` of `of` parts, whose `names` follow
    "untested",  # `count` parts, of which the bound in `names` takes at most the share `value` of its limit
    "limited_scale",  # a verdict is capped, for the reason in the plan; the next two cap it too
    "settings_not_run",  # up to `count` settings that tuning may have chosen
    "few_tuning_seeds",  # `count` seeds, of which there are `of` different draws
    "not_paired",  # not run: no pairs of runs on the backend
    "left_out",  # not run: the study was left out, for the reason in the plan
    "no_data",  # not run: its data are missing, as the plan says
    "failed",  # not run: its checks failed, as their jobs say
    "unmeasured",  # not run: the tables hold no measure of it
)
REASON = {
    "code": pl.Enum(REASONS),
    **_each(pl.Int64, "count", "of"),
    "value": pl.Float64,
    "names": pl.List(pl.String),
}
CLAIMS = _schema(
    claim=pl.String,
    variant=pl.Enum(VARIANTS),
    verdict=pl.Enum(VERDICTS),
    reasons=pl.List(pl.Struct(REASON)),
    # backend: null of property checks, and where nothing ran; study: of property checks the module
    **_each(pl.String, "source", "scale", "backend", "study"),
    # of the comparison that decides, after Holm's correction; of property checks the share that hold
    **_each(pl.Float64, "estimate", "low", "high", "p_value"),
    # of property checks the instances; null unless underpowered
    **_each(pl.Int64, "seeds", "seeds_needed"),
    # hash of what decides; the hash when the runs were planned, null where it is not known
    **_each(pl.String, "rule", "rule_of_runs"),
)

FINDINGS = _schema(
    **_each(pl.String, "claim", "backend"),
    condition=pl.Int64,  # its place among the claim's conditions, from 0
    **_each(pl.String, "workload", "metric"),
    which=pl.Enum(get_args(Which)),
    quantity=pl.Enum(QUANTITIES),
    at_equal=pl.Enum(("steps", "gradients", "seconds")),
    relation=pl.Enum(get_args(ClaimRelation)),
    positive_control=pl.Boolean,  # whether it is what the source says in passing
    # the last two are null where the treated method is compared with a number
    **_each(pl.String, "treated", "control", "control_workload"),
    effect=pl.Enum(get_args(Effect)),  # treated / control or treated - control
    margin=pl.Float64,  # the smallest effect that matters, in the unit of the estimate
    # between these the claim holds; infinite without a bound
    **_each(pl.Float64, "allowed_low", "allowed_high"),
    # median effect, null where censored pairs leave it open; between the others it lies
    **_each(pl.Float64, "estimate", "at_least", "at_most"),
    **_each(pl.Float64, "low", "high", "level"),
    # for the relation; corrected for all comparisons of the claim; against the relation, corrected too
    **_each(pl.Float64, "p_value", "holm_p_value", "refuting_p_value"),
    seeds=pl.Int64,
    stop=pl.Float64,  # threshold at which pairs are censored; null without
    # pairs of which nothing is known, since both runs stopped, and pairs that are not known exactly
    **_each(pl.Int64, "unknown", "bounded"),
    beyond_seeds=pl.Boolean,  # whether no number of seeds would decide, since pairs are censored
    # pairs in which the method took no step at equal cost
    **_each(pl.Int64, "treated_at_start", "control_at_start"),
    # settings of both sides that tie with the chosen ones: all, those at which the finding is the same,
    # and those at which the median effect has another direction, where it decides
    **_each(pl.Int64, "ties", "ties_agree", "turned"),
    choices_agree=pl.Float64,  # share of the choices by resampled tuning seeds with the same finding
    settings_not_run=pl.Int64,  # of those that tuning may have chosen
    finding=pl.Enum(("supported", "refuted", "inconclusive")),  # null of repeats, which decide nothing
    deciding=pl.Boolean,  # whether the claim's estimate is of it
    # final seeds that would decide it, null unless inconclusive; tuning seeds, where other choices of
    # settings leave it open
    **_each(pl.Int64, "seeds_needed", "tuning_seeds_needed"),
    same_direction=pl.Boolean,  # of a repeat, whether its effect has the direction of the first one
)

# What tuned a method: the method whose runs chose the setting (null: not tuned), and what that took.
TUNED = {"tuned_by": pl.String, **_each(pl.Int64, "tuning_runs", "tuning_gradient_evaluations")}
BOARD_WORKLOAD = {
    # the headline metric, whether it is the final or the best one, and its direction
    **_each(pl.String, "study", "workload", "metric", "which", "direction"),
    "seeds": pl.Int64,
    **_with_ends("value"),  # median; infinite where half of the runs diverged
    "best": pl.Boolean,  # no other median is better
    # diverged: or failed otherwise (curvebench.results.outcomes)
    **_each(pl.Int64, "wins", "instances", "runs", "diverged"),
    "target_metric": pl.String,  # null without a target, as all of the target
    "target": pl.Float64,
    "reached": pl.Int64,
    **_with_ends("evaluations_to_target"),  # median, basis included; infinite where half missed
    **_with_ends("seconds_to_target"),  # likewise; null where steps were not timed
    **_with_ends("nearly_best_decades"),
    **TUNED,
}
LEADERBOARD = _schema(
    **_each(pl.String, "scale", "backend", "studies"),  # studies of the same methods, separated by ", "
    place=pl.Int64,  # in the order of the board
    **_each(pl.String, "method", "basis"),
    **_with_ends("score"),  # area under the performance profile; null without a target, as its rank
    **_with_ends("rank"),  # by score, ties averaged
    **_with_ends("mean_rank"),  # over instances, by the headline metric
    # met: workloads; reached and aimed: runs, null without a target
    **_each(pl.Int64, "wins", "instances", "met", "reached", "aimed", "diverged", "runs"),
    **_with_ends("step_ratio"),  # null of the reference itself, and where steps were not timed
    step_reference=pl.String,
    peak_memory_bytes=pl.Int64,
    memory_of=pl.String,  # device or host
    **_with_ends("nearly_best_decades"),  # mean over workloads
    **TUNED,
    tuned_equally=pl.Boolean,  # by the number of runs, all methods of the board
    workloads=pl.List(pl.Struct(BOARD_WORKLOAD)),
)

# Columns that came after the first tables: where a file lacks one, its values are read as null.
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
