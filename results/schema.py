"""The typed tables: of studies, of the parity of backends, of checks, of verdicts and of the leaderboard."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, get_args

import polars as pl

from curvebench.results.outcomes import OUTCOMES
from curvebench.spec.claim import Effect, Quantity
from curvebench.spec.document import Which

STAGES = ("sweep", "refine", "final", "alternative")  # alternative: final runs at settings not chosen
TUNING = ("sweep", "refine")
COMPARISONS = (
    "torch against jax",
    "numpy against torch",
    "float32 against float64 on jax",
    "float32 against float64 on torch",
)

RELATIONS = ("<=", ">=", "==")
VARIANTS = ("", "as printed", "as corrected")
SERIES_KINDS = ("line", "fit", "reference", "contour", "path")
LOG_AXES = ("", "x", "y", "x y")
VERDICTS = ("reproduced", "partly reproduced", "not reproduced", "underpowered", "not run")
CLAIM_RELATIONS = ("better", "no_worse", "same")

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


def _schema(columns: Mapping[str, Any]) -> pl.Schema:
    """A schema from data types and their classes, which polars takes and its annotations do not."""
    return pl.Schema(columns)


def _with_ends(name: str) -> dict[str, Any]:
    """An estimate and the ends of its interval."""
    return dict.fromkeys((name, f"{name}_low", f"{name}_high"), pl.Float64)


CELL = dict.fromkeys(("study", "scale", "workload", "optimizer", "basis", "backend", "device"), pl.String)
JOB = dict.fromkeys(("spec_hash", "machine"), pl.String)
RUNS = _schema(
    {
        "run": pl.String,  # <first 12 of the spec hash>-<number>
        **CELL,
        "dtype": pl.String,
        "stage": pl.Enum(STAGES),
        "seed": pl.Int64,
        "learning_rate": pl.Float64,
        "hyperparameters": NamedValues,  # the others
        "outcome": pl.Enum(OUTCOMES),
        "outcome_step": pl.Int64,  # that reached, stopped or diverged, or the last known; null otherwise
        "reason": pl.String,  # of an error, of want of memory or time, of an interruption; null otherwise
        "steps": pl.Int64,
        "gradient_evaluations": pl.Int64,  # of the run alone, and of what it estimates anew
        "basis_gradient_evaluations": pl.Int64,  # charged to every run that uses the basis
        "basis_seconds": pl.Float64,  # sampling and decomposition, charged likewise; during the run too
        "examples": pl.Int64,
        "final_metrics": NamedValues,
        "best_metrics": pl.List(pl.Struct({"name": pl.String, "value": pl.Float64, "step": pl.Int64})),
        "targets": pl.List(Target),
        "seconds": pl.Float64,  # null for a lane of a bundle
        "state_bytes": pl.Int64,
        "bundle_lanes": pl.Int64,
        "spec_hash": pl.String,
        "machine": pl.String,  # short hash of CPU, cores and GPU: two machines stay apart
    }
)

CURVES = _schema(
    {
        "run": pl.String,
        "step": pl.Int64,
        "gradient_evaluations": pl.Int64,
        "examples": pl.Int64,
        "seconds": pl.Float64,  # null for a lane of a bundle
        "metric": pl.String,
        "value": pl.Float64,  # NaN is a value, never the same as missing
    }
)

TIMINGS = _schema(
    {
        **CELL,
        "phase": pl.String,  # data, compile, warm_up, step, null_step, evaluation
        "repetition": pl.Int64,
        "steps": pl.Int64,  # how many steps the seconds cover
        "seconds": pl.Float64,
        **JOB,
    }
)

MEMORY = _schema(
    {
        **CELL,
        "host_baseline_bytes": pl.Int64,  # resident before the method's arrays were loaded; null: not known
        "host_peak_bytes": pl.Int64,  # the most resident while its steps ran; null: cannot be reset
        "device_peak_bytes": pl.Int64,  # the most bytes of arrays; null where nobody counts them
        **JOB,
    }
)

JOBS = _schema(
    {
        "spec_hash": pl.String,
        "study": pl.String,
        "scale": pl.String,
        "stage": pl.String,  # bases, sweep, refine, final, timing, parity, checks
        "optimizer": pl.String,  # null where a job holds several; of checks the module of claims
        "backend": pl.String,
        "device": pl.String,
        **{f"{part}_seconds": pl.Float64 for part in (*PARTS_OF_A_JOB, *WITHIN)},
        "peak_memory_bytes": pl.Int64,
        "gpu_joules": pl.Float64,  # of this process; null where the driver does not tell, or a run went on
        "started": pl.String,  # UTC, ISO 8601
        "machine": pl.String,
        "cpu": pl.String,
        "cores": pl.Int64,
        "threads": pl.Int64,
        "gpu": pl.String,
        "driver": pl.String,
        "system": pl.String,
        "python": pl.String,
        "packages": pl.List(pl.Struct({"name": pl.String, "version": pl.String})),
        "environment_hash": pl.String,
        "commit": pl.String,
        "dirty": pl.Boolean,
        "claim_rules": pl.List(pl.Struct({"claim": pl.String, "rule": pl.String})),  # hashes, as planned
        "failures": pl.List(pl.Struct({"what": pl.String, "outcome": pl.String, "reason": pl.String})),
        "notes": pl.List(pl.String),  # named fallbacks, lanes that ran apart, and the like
    }
)

PARITY = _schema(
    {
        "optimizer": pl.String,
        "problem": pl.String,  # the label of a small problem (curvebench/stages/parity_problems.py)
        "workload": pl.String,
        "basis": pl.String,
        "comparison": pl.Enum(COMPARISONS),
        "unit": pl.Enum(("relative", "ulps")),
        "first_step": pl.Float64,  # largest difference after one step
        "difference": pl.Float64,  # largest difference over all steps
        "judged": pl.Boolean,  # whether the tolerance applies
        "tolerance": pl.Float64,  # null where it does not
        "holds": pl.Boolean,  # true where no tolerance applies
        "steps": pl.Int64,
        "learning_rate": pl.Float64,
        **JOB,
    }
)

CHECKS = _schema(
    {
        "claim": pl.String,
        "part": pl.String,
        "variant": pl.Enum(VARIANTS),  # empty where the source is printed well
        "source": pl.String,  # of the part
        "instance": pl.Int64,
        "quantity": pl.String,
        "value": pl.Float64,  # NaN is a value, and never holds
        "relation": pl.Enum(RELATIONS),
        "limit": pl.Float64,
        "tolerance": pl.Float64,
        "holds": pl.Boolean,
        "seconds": pl.Float64,  # of the instance, with all its measures
        "scale": pl.String,
        **JOB,
    }
)

SERIES = _schema(
    {
        "claim": pl.String,
        "part": pl.String,
        "variant": pl.Enum(VARIANTS),
        "instance": pl.Int64,
        "figure": pl.String,  # of the source
        "panel": pl.String,  # empty where the figure has one
        "label": pl.String,  # which of its lines
        "kind": pl.Enum(SERIES_KINDS),
        "x_name": pl.String,
        "y_name": pl.String,
        "log": pl.Enum(LOG_AXES),
        "x": pl.Float64,
        "y": pl.Float64,
        "scale": pl.String,
        **JOB,
    }
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
CLAIMS = _schema(
    {
        "claim": pl.String,
        "variant": pl.Enum(VARIANTS),  # empty where the source is printed well
        "verdict": pl.Enum(VERDICTS),
        "reasons": pl.List(
            pl.Struct(
                {
                    "code": pl.Enum(REASONS),
                    "count": pl.Int64,
                    "of": pl.Int64,
                    "value": pl.Float64,
                    "names": pl.List(pl.String),
                }
            )
        ),
        "source": pl.String,
        "scale": pl.String,
        "backend": pl.String,  # null of property checks, and where nothing ran
        "study": pl.String,  # of property checks the module
        "estimate": pl.Float64,  # of the comparison that decides; of property checks the share that hold
        "low": pl.Float64,
        "high": pl.Float64,
        "p_value": pl.Float64,  # after Holm's correction; null of property checks
        "seeds": pl.Int64,  # of property checks the instances
        "seeds_needed": pl.Int64,  # null unless underpowered
        "rule": pl.String,  # hash of what decides
        "rule_of_runs": pl.String,  # the hash when the runs were planned; null where it is not known
    }
)

FINDINGS = _schema(
    {
        "claim": pl.String,
        "backend": pl.String,
        "condition": pl.Int64,  # its place among the claim's conditions, from 0
        "workload": pl.String,
        "metric": pl.String,
        "which": pl.Enum(get_args(Which)),
        "quantity": pl.Enum(get_args(Quantity)),
        "at_equal": pl.Enum(("steps", "gradients", "seconds")),
        "relation": pl.Enum(CLAIM_RELATIONS),
        "positive_control": pl.Boolean,  # whether it is what the source says in passing
        "treated": pl.String,
        "control": pl.String,  # null where the treated method is compared with a number; likewise the next
        "control_workload": pl.String,
        "effect": pl.Enum(get_args(Effect)),  # treated / control or treated - control
        "margin": pl.Float64,  # the smallest effect that matters, in the unit of the estimate
        "allowed_low": pl.Float64,  # between these the claim holds; infinite without a bound
        "allowed_high": pl.Float64,
        "estimate": pl.Float64,  # median effect; null where censored pairs leave it open
        "at_least": pl.Float64,  # between these it lies; equal where it is known
        "at_most": pl.Float64,
        "low": pl.Float64,
        "high": pl.Float64,
        "level": pl.Float64,
        "p_value": pl.Float64,  # for the relation
        "holm_p_value": pl.Float64,  # corrected for all comparisons of the claim: which of them hold together
        "refuting_p_value": pl.Float64,  # against the relation, corrected for all comparisons of the claim
        "seeds": pl.Int64,
        "stop": pl.Float64,  # threshold at which pairs are censored; null without
        "unknown": pl.Int64,  # pairs of which nothing is known, since both runs stopped
        "bounded": pl.Int64,  # pairs that are not known exactly
        "beyond_seeds": pl.Boolean,  # whether no number of seeds would decide, since pairs are censored
        "treated_at_start": pl.Int64,  # pairs in which the method took no step at equal cost
        "control_at_start": pl.Int64,
        "ties": pl.Int64,  # settings of both sides that tie with the chosen ones
        "ties_agree": pl.Int64,  # those at which the finding is the same
        "turned": pl.Int64,  # those at which the median effect has another direction, where it decides
        "choices_agree": pl.Float64,  # share of the choices by resampled tuning seeds with the same finding
        "settings_not_run": pl.Int64,  # of those that tuning may have chosen
        "finding": pl.Enum(("supported", "refuted", "inconclusive")),  # null of repeats, which decide nothing
        "deciding": pl.Boolean,  # whether the claim's estimate is of it
        "seeds_needed": pl.Int64,  # final seeds that would decide it; null unless inconclusive
        "tuning_seeds_needed": pl.Int64,  # tuning seeds, where other choices of settings leave it open
        "same_direction": pl.Boolean,  # of a repeat, whether its effect has the direction of the first one
    }
)

BOARD_WORKLOADS = pl.List(
    pl.Struct(
        {
            "study": pl.String,
            "workload": pl.String,
            "metric": pl.String,  # the headline metric
            "which": pl.String,  # final or best
            "direction": pl.String,
            "seeds": pl.Int64,
            **_with_ends("value"),  # median; infinite where half of the runs diverged
            "best": pl.Boolean,  # no other median is better
            "wins": pl.Int64,
            "instances": pl.Int64,
            "runs": pl.Int64,
            "diverged": pl.Int64,  # or failed otherwise (curvebench.results.outcomes)
            "target_metric": pl.String,  # null without a target, as all of the target
            "target": pl.Float64,
            "reached": pl.Int64,
            **_with_ends("evaluations_to_target"),  # median, basis included; infinite where half missed
            **_with_ends("seconds_to_target"),  # likewise; null where steps were not timed
            **_with_ends("nearly_best_decades"),
            "tuned_by": pl.String,  # the method whose runs chose the setting; null: not tuned
            "tuning_runs": pl.Int64,
            "tuning_gradient_evaluations": pl.Int64,
        }
    )
)

LEADERBOARD = _schema(
    {
        "scale": pl.String,
        "backend": pl.String,
        "studies": pl.String,  # of the same methods, separated by ", "
        "place": pl.Int64,  # in the order of the board
        "method": pl.String,
        "basis": pl.String,
        **_with_ends("score"),  # area under the performance profile; null without a target, as its rank
        **_with_ends("rank"),  # by score, ties averaged
        **_with_ends("mean_rank"),  # over instances, by the headline metric
        "wins": pl.Int64,
        "instances": pl.Int64,
        "met": pl.Int64,  # workloads
        "reached": pl.Int64,  # runs; null without a target, as `aimed`
        "aimed": pl.Int64,
        "diverged": pl.Int64,
        "runs": pl.Int64,
        **_with_ends("step_ratio"),  # null of the reference itself, and where steps were not timed
        "step_reference": pl.String,
        "peak_memory_bytes": pl.Int64,
        "memory_of": pl.String,  # device or host
        **_with_ends("nearly_best_decades"),  # mean over workloads
        "tuned_by": pl.String,
        "tuning_runs": pl.Int64,
        "tuning_gradient_evaluations": pl.Int64,
        "tuned_equally": pl.Boolean,  # by the number of runs, all methods of the board
        "workloads": BOARD_WORKLOADS,
    }
)

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
