"""The verdict on every claim of a report, from paired runs or property checks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf, log

import numpy as np
import polars as pl

from reports.formatting import plain
from reports.judged import gains_over_rates, log_linearity, seconds_to_nearly_best, values_at_equal_cost
from reports.measures import steps_to_stop, steps_to_target, study_values
from reports.plan import (
    ChecksPlan,
    ClaimPlan,
    ConditionPlan,
    ReportError,
    ReportPlan,
    SkippedStudy,
    StudyClaim,
    StudyPlan,
)
from reports.repeats import Repeat, repeat_of
from reports.statistics.decisions import Finding, Question, decide, holm, seeds_needed, tells_nothing
from reports.statistics.paired import Effect, paired_values
from reports.statistics.ranks import NEGLIGIBLE
from reports.statistics.shares import share_interval
from reports.stopped import (
    Between,
    EffectBounds,
    both_stopped,
    bounds_of,
    effects_between,
    exponential,
    with_bounds,
)
from reports.tables import Tables
from results.schema import CLAIMS, FINDINGS
from results.verdicts import ALPHA, TO_THRESHOLD, Variant, Verdict, effect_of, verdicts

NEITHER = {"steps_to_stop": "neither stopped", "steps_to_target": "neither reached it"}


@dataclass(frozen=True)
class Verdicts:
    """The tables `claims` (one row a claim, variant and backend) and `findings` (one row a comparison).

    `compared` has the comparisons in the order of `findings`; `repeats`, by claim and backend, what became of
    the claim where it was repeated in another setting.
    """

    claims: pl.DataFrame
    findings: pl.DataFrame
    compared: tuple[Compared, ...]
    repeats: Mapping[tuple[str, str], tuple[Repeat, ...]] = field(default_factory=dict)


@dataclass(frozen=True)
class Pairing:
    """A method on one workload and backend, and what a condition of a claim asks to hold it against.

    Args:
        control: the label of another method, of one on another workload, or of a number.
    """

    claim: str
    study: str
    backend: str
    workload: str
    condition: ConditionPlan
    treated: str
    control: str

    @property
    def sides(self) -> tuple[tuple[str, str], ...]:
        """Workload and method of each side; a number is none."""
        treated, elsewhere = (self.workload, self.treated), self.condition.than_on
        if self.condition.than_value is not None:
            return (treated,)
        method = self.control.removesuffix(f" on {elsewhere}") if elsewhere else self.control
        return (treated, (elsewhere or self.workload, method))


@dataclass(frozen=True)
class Compared(Pairing):
    """A method and what a condition holds it against, seed by seed.

    Args:
        sign: 1 where more of the metric is better, else -1.
        gains: shape (pairs,), above 0 where the treated method is better: of a ratio its logarithm; of a
            trend Kendall's tau. Runs that stopped count with their threshold.
        between: between what each gain lies, which runs that stopped leave open.
        stop: the threshold at which runs stop, or the target; None without, or where it plays no part.
    """

    effect: Effect
    sign: float
    gains: np.ndarray
    between: Between
    stop: float | None = None

    @property
    def margin(self) -> float:
        """The smallest gain that matters, above 0."""
        given = self.condition.smallest_effect
        share = NEGLIGIBLE if given is None else given
        return -log(1 - share) if self.effect == "ratio" else share

    @property
    def question(self) -> Question:
        """What is asked of the gains."""
        return Question(self.condition.relation, self.margin, self.condition.test)

    @property
    def p_value(self) -> float:
        """Of the question, not corrected; 1 without pairs."""
        return self.question.p_value(*self.between) if len(self.gains) else 1.0

    def finding(self, adjusted: float) -> Finding:
        """What the gains say, wherever between their bounds they lie, with a corrected p-value."""
        least, most = self.between
        return decide(self.question, least, adjusted, ALPHA, most)

    def seeds_needed(self, family: int) -> int | None:
        """About how many seeds would decide; None where none would, or more than can be told."""
        least, most = self.between
        return seeds_needed(self.question, least, family, ALPHA, most)

    def shown(self, gain: float) -> float:
        """A gain as the effect that readers see: treated / control, or treated - control."""
        return self._seen(self.sign * gain)

    def _seen(self, effect: float) -> float:
        return effect if self.effect == "difference" else exponential(effect)

    @property
    def bounds(self) -> EffectBounds:
        """The median effect that readers see, with its interval and as far as it is known; needs a pair."""
        effects = self.between if self.sign > 0 else self.between.turned
        told, where = both_stopped(self.stop)
        told = NEITHER.get(self.condition.quantity, told)
        return bounds_of(effects, self.effect, self._seen, (told, where))

    @property
    def beyond_seeds(self) -> bool:
        """Whether no number of seeds like these would decide, for what runs that stopped leave open."""
        return len(self.gains) > 0 and tells_nothing(self.question, *self.between)

    @property
    def left_open(self) -> str:
        """What runs that stopped leave open, in words; empty where that is nothing."""
        unknown, of, where = self.between.unknown, len(self.gains), plain(self.stop or 0)
        if unknown and self.condition.quantity in TO_THRESHOLD:
            told = (
                f"{unknown} of {of} pairs met {where} in neither run, which the steps to it cannot tell apart"
            )
        elif unknown:
            value = f"the {self.condition.which} value"
            told = f"{unknown} of {of} pairs stopped at {where} in both, which {value} cannot tell apart"
        elif self.beyond_seeds:
            told = (
                f"{self.between.bounded} of {of} pairs, of which one run stopped at {where}, are bounds only"
            )
        else:
            return ""
        why_not = "these runs cannot decide it, and more seeds would not either: "
        return (why_not if self.beyond_seeds else "") + told

    @property
    def allowed(self) -> tuple[float, float]:
        """Between what effects the claim holds, as readers see them; infinite without a bound."""
        least = self.margin if self.condition.relation == "better" else -self.margin
        most = self.margin if self.condition.relation == "same" else inf
        low, high = sorted((self.shown(least), self.shown(most)))
        return low, high


def claim_verdicts(plan: ReportPlan, tables: Mapping[str, Tables], checks: pl.DataFrame | None) -> Verdicts:
    """The verdicts on all claims of a plan.

    Args:
        plan: what is shown.
        tables: of each study, by its name.
        checks: the measures of property checks; None where there are none.
    """
    compared = [
        one
        for study in plan.studies
        for backend in study.backends
        for claim in study.claims
        for one in comparisons(study, claim, tables[study.name], backend)
    ]
    findings = decided(compared)
    repeats = repeats_of(plan, tables, compared)
    rows = [
        claim_row(
            study,
            claim,
            backend,
            findings.filter(claim=claim.id, backend=backend),
            [one for one in compared if (one.claim, one.backend) == (claim.id, backend)],
            tables[study.name],
            plan.scale,
            repeats.get((claim.id, backend), ()),
        )
        for study in plan.studies
        for backend in study.backends
        for claim in study.claims
    ]
    rows += [not_run(skipped, claim, plan.scale) for skipped in plan.skipped for claim in skipped.claims]
    if plan.checks is not None and checks is not None:
        rows += property_rows(plan.checks, checks, plan.scale)
    return Verdicts(pl.DataFrame(rows, schema=CLAIMS), findings, tuple(compared), repeats)


def repeats_of(
    plan: ReportPlan, tables: Mapping[str, Tables], compared: Sequence[Compared]
) -> dict[tuple[str, str], tuple[Repeat, ...]]:
    """What became of claims that studies of a plan repeat, by the repeated claim and backend.

    Args:
        compared: all comparisons of the claims that are decided; those of repeated ones decide nothing.
    """
    found: dict[tuple[str, str], tuple[Repeat, ...]] = {}
    for study in plan.studies:
        for claim in study.repeated:
            for backend in study.backends:
                first = [one for one in compared if (one.claim, one.backend) == (claim.repeats, backend)]
                again = comparisons(study, claim, tables[study.name], backend) if first else ()
                repeat = repeat_of(claim.id, claim.changed, study.name, first, again)
                if repeat is not None:
                    found[claim.repeats, backend] = (*found.get((claim.repeats, backend), ()), repeat)
    return found


# --- comparisons of methods ----------------------------------------------------------------------


def comparisons(study: StudyPlan, claim: StudyClaim, tables: Tables, backend: str) -> Iterator[Compared]:
    """Every comparison that a claim asks for, on one backend; without pairs where runs are missing."""
    own = tables.runs.filter(pl.col("backend") == backend)
    final, tuning = own.filter(pl.col("stage") == "final"), own.filter(pl.col("stage") != "final")
    for condition in claim.conditions:
        workloads = [workload for workload in study.workloads if condition.is_about(workload)]
        lacking = condition.than_on not in (None, *(workload.name for workload in study.workloads))
        if (lacking or not workloads) and not claim.repeats:  # which may be on some of its workloads
            absent = condition.than_on if lacking else condition.workload
            where = f"on {absent}" if absent else "on any workload"
            raise ReportError(
                f"study {study.name}: claim {claim.id}: a condition asks for {condition.metric} {where}, "
                "which the plan does not have; give the plan with all workloads of the study"
            )
        for workload in workloads:
            named = pl.col("method").is_in([*condition.methods, *condition.than])
            here = final.filter(named, pl.col("workload") == workload.name)
            tried = tuning.filter(pl.col("workload") == workload.name)
            values = _values(study, tables, here, condition)
            if condition.than_on is not None:
                values = _with_elsewhere(study, tables, final, condition, values)
            for treated, control in condition.contests:
                asked = Pairing(claim.id, study.name, backend, workload.name, condition, treated, control)
                if condition.of_tuning:
                    yield _of_rates(asked, gains_over_rates(study, tried, condition, treated, control))
                    continue
                if condition.at_equal != "steps":
                    values = values_at_equal_cost(study, tables, here, condition, treated, control)
                yield _compared(asked, study, values)


def _values(study: StudyPlan, tables: Tables, final: pl.DataFrame, condition: ConditionPlan) -> pl.DataFrame:
    """What a condition compares of final runs on one workload and backend, at equal steps."""
    if condition.quantity == "steps_to_stop":
        return steps_to_stop(study, final, condition.metric)
    if condition.quantity == "steps_to_target":
        return steps_to_target(final, condition.metric)
    if condition.quantity == "seconds_to_nearly_best":
        return seconds_to_nearly_best(study, tables, final, condition.metric)
    if condition.quantity == "log_linearity":
        return log_linearity(tables, final, condition.metric, condition.down_to or 0.0)
    return study_values(study, final, condition.metric, condition.which)


def _with_elsewhere(
    study: StudyPlan, tables: Tables, final: pl.DataFrame, condition: ConditionPlan, values: pl.DataFrame
) -> pl.DataFrame:
    """Values with those of the methods that they are held against on another workload, under their labels.

    Args:
        final: the final runs of all workloads on one backend.
        values: of one workload.
    """
    columns = [name for name in ("method", "seed", "value", "least", "most") if name in values.columns]
    there = final.filter(pl.col("workload") == condition.than_on, pl.col("method").is_in(condition.than))
    labels = {method: condition.label(method) for method in condition.than}
    others = _values(study, tables, there, condition).select(columns)
    return pl.concat([values.select(columns), others.with_columns(pl.col("method").replace(labels))])


def _with_number(values: pl.DataFrame, asked: Pairing) -> pl.DataFrame:
    """The values of a method, and for each the number that it is held against, which no stop bounds."""
    own = values.filter(pl.col("method") == asked.treated).select("method", "seed", "value", "least", "most")
    number = pl.lit(asked.condition.than_value, pl.Float64)
    return pl.concat(
        [own, own.with_columns(method=pl.lit(asked.control), value=number, least=number, most=number)]
    )


def _of_rates(asked: Pairing, gains: np.ndarray) -> Compared:
    """A condition on learning rates: more of its quantity, a rate, a correlation or a share, is better."""
    effect: Effect = "ratio" if asked.condition.quantity == "best_learning_rate" else "difference"
    return Compared(**vars(asked), effect=effect, sign=1.0, gains=gains, between=Between(gains, gains))


def _compared(asked: Pairing, study: StudyPlan, values: pl.DataFrame) -> Compared:
    condition, treated, control = asked.condition, asked.treated, asked.control
    direction = condition.direction or study.direction_of(condition.metric)
    effect = effect_of(condition.effect, direction)
    where = (
        f"study {asked.study}: claim {asked.claim}: {condition.metric} of {treated} and {control} on "
        f"{asked.workload}"
    )
    stop = _threshold(study, condition)
    if condition.quantity not in TO_THRESHOLD:
        values = with_bounds(values, direction, stop)
    if condition.than_value is not None:
        values = _with_number(values, asked)
    finished = values.drop_nulls("value")
    try:
        value, least, most = (
            paired_values(finished, [], ["seed"], "method", column, treated, control)
            for column in ("value", "least", "most")
        )
    except ValueError as error:
        raise ReportError(
            f"{where}: a seed has more than one final run; merge tables of one plan only"
        ) from error
    seen, at_least, at_most = (
        (pairs["treated"].to_numpy(), pairs["control"].to_numpy()) for pairs in (value, least, most)
    )
    if effect == "ratio" and min(side.min(initial=inf) for side in seen) < 0:
        raise ReportError(f"{where}: a ratio of negative values says nothing; give effect: difference")
    sign = 1.0 if direction == "maximize" else -1.0
    held = effects_between(Between(seen[0], seen[0]), Between(seen[1], seen[1]), effect)
    between = effects_between(Between(at_least[0], at_most[0]), Between(at_least[1], at_most[1]), effect)
    return Compared(
        **vars(asked),
        effect=effect,
        sign=sign,
        gains=sign * held.least,
        between=between if sign > 0 else between.turned,
        stop=stop,
    )


def _threshold(study: StudyPlan, condition: ConditionPlan) -> float | None:
    """What bounds what is known of a run: the stop or the target; None without, or where it plays no part."""
    if condition.quantity == "steps_to_target":
        return study.targets[condition.metric]
    of_values = condition.quantity in ("value", "steps_to_stop")
    return study.stop.get(condition.metric) if of_values else None


def decided(compared: Sequence[Compared]) -> pl.DataFrame:
    """The table `findings`: each comparison's estimate, corrected p-value and what it says.

    Holm's correction goes over the comparisons of a family on one backend; one without pairs counts with a
    p-value of 1.
    """
    families: dict[tuple[str, str], list[int]] = {}
    for number, one in enumerate(compared):
        families.setdefault((one.condition.family, one.backend), []).append(number)
    raw = [one.p_value for one in compared]
    adjusted = list(raw)
    for numbers in families.values():
        for number, value in zip(numbers, holm([raw[number] for number in numbers]), strict=True):
            adjusted[number] = value
    rows = []
    for number, one in enumerate(compared):
        size = len(families[one.condition.family, one.backend])
        rows.append(_finding_row(one, raw[number], adjusted[number], size))
    return pl.DataFrame(rows, schema=FINDINGS)


def _finding_row(one: Compared, p_value: float, adjusted: float, family: int) -> dict[str, object]:
    condition = one.condition
    row: dict[str, object] = {
        "claim": one.claim,
        "backend": one.backend,
        "workload": one.workload,
        "metric": condition.metric,
        "which": condition.read,
        "relation": condition.relation,
        "treated": one.treated,
        "control": one.control,
        "effect": one.effect,
        "margin": one.shown(one.margin if condition.relation == "better" else -one.margin),
        "family": condition.family,
        "seeds": len(one.gains),
        "finding": "open",
    }
    if not len(one.gains):
        return row
    effect, found = one.bounds, one.finding(adjusted)
    needed = one.seeds_needed(family) if found == "open" else None
    return row | {
        "estimate": effect.median,
        "low": effect.low,
        "high": effect.high,
        "level": effect.floor.level,
        "p_value": p_value,
        "holm_p_value": adjusted,
        "finding": found,
        "seeds_needed": needed,
    }


# --- claims --------------------------------------------------------------------------------------


def combined(findings: Sequence[Finding]) -> Verdict:
    """The verdict on a claim all of whose comparisons must hold.

    All hold: reproduced. Some hold and some fail: partly reproduced. All fail: not reproduced. Else some are
    open and further seeds could change the answer: underpowered.
    """
    kinds = set(findings)
    if kinds == {"holds"}:
        return "reproduced"
    if {"holds", "fails"} <= kinds:
        return "partly reproduced"
    return "not reproduced" if kinds == {"fails"} else "underpowered"


def claim_row(
    study: StudyPlan,
    claim: StudyClaim,
    backend: str,
    findings: pl.DataFrame,
    compared: Sequence[Compared],
    tables: Tables,
    scale: str,
    repeats: Sequence[Repeat] = (),
) -> dict[str, object]:
    """A row of the table `claims`.

    Its estimate, interval and p-value are those of the comparison that decides: of those that fail, else of
    those that are open, else of all, the one with the largest corrected p-value. As all must hold, that
    p-value is the claim's own (an intersection-union test).

    Args:
        compared: the comparisons in the order of `findings`.
    """
    row = _empty_row(claim, scale) | {
        "backend": backend,
        "study": study.name,
        "rule_of_runs": rule_of_runs(tables.jobs, claim.id, backend),
    }
    if not findings["seeds"].sum():
        return row | {"verdict": "not run", "reason": f"no pairs of runs on {backend}"}
    verdict = combined(findings["finding"].to_list())
    reason = "; ".join([_reason(findings), *_left_open(findings, compared)])
    if verdict == "reproduced" and study.at_most_partly:
        verdict, reason = "partly reproduced", f"{reason}; partly at most, since {study.at_most_partly}"
    reason = "; ".join([reason, *map(str, repeats)])
    needed = findings.filter(pl.col("finding") == "open")["seeds_needed"]
    weakest = _weakest(findings)
    return row | {
        "verdict": verdict,
        "reason": reason,
        **{name: weakest[name] for name in ("estimate", "low", "high")},
        "p_value": weakest["holm_p_value"],
        "seeds": findings["seeds"].min(),
        "seeds_needed": needed.max() if verdict == "underpowered" and not needed.has_nulls() else None,
    }


def _weakest(findings: pl.DataFrame) -> dict[str, object]:
    for kind in ("fails", "open", "holds"):
        among = findings.filter((pl.col("finding") == kind) & (pl.col("seeds") > 0))
        if len(among):
            return among.sort("holm_p_value", descending=True).row(0, named=True)
    raise AssertionError("a claim without pairs is not run")


def _reason(findings: pl.DataFrame) -> str:
    said = {"holds": ("holds", "hold"), "fails": ("fails", "fail"), "open": ("is open", "are open")}
    if len(findings) == 1:
        return f"its one comparison {said[findings['finding'].item()][0]}"
    counts = {kind: int((findings["finding"] == kind).sum()) for kind in said}
    told = ", ".join(f"{count} {said[kind][count > 1]}" for kind, count in counts.items() if count)
    return f"of {len(findings)} comparisons {told}"


def _left_open(findings: pl.DataFrame, compared: Sequence[Compared]) -> Iterator[str]:
    """What runs that stopped leave open of each comparison that is open, in words."""
    for finding, one in zip(findings["finding"], compared, strict=True):
        if finding == "open" and one.left_open:
            about = f"{one.treated} and {one.control} on {one.workload}: " if len(compared) > 1 else ""
            yield about + one.left_open


def _empty_row(claim: StudyClaim, scale: str) -> dict[str, object]:
    return {
        "claim": claim.id,
        "variant": "",
        "source": claim.source,
        "scale": scale,
        "seeds": 0,
        "rule": claim.rule,
    }


def not_run(skipped: SkippedStudy, claim: StudyClaim, scale: str) -> dict[str, object]:
    """The row of a claim whose study is left out."""
    return _empty_row(claim, scale) | {"study": skipped.name, "verdict": "not run", "reason": skipped.reason}


def rule_of_runs(jobs: pl.DataFrame, claim: str, backend: str) -> str | None:
    """The hash of a claim's rule when its final runs were planned; None where they do not agree or say."""
    found = (
        jobs.filter((pl.col("stage") == "final") & (pl.col("backend") == backend))
        .select(
            pl.col("claim_rules")
            .list.eval(pl.element().filter(pl.element().struct.field("claim") == claim).struct.field("rule"))
            .list.first()
            .alias("rule")
        )["rule"]
        .unique()
    )
    return str(found[0]) if len(found) == 1 and found[0] is not None else None


# --- property checks -----------------------------------------------------------------------------


def property_rows(plan: ChecksPlan, checks: pl.DataFrame, scale: str) -> list[dict[str, object]]:
    """The rows of the claims that property checks decide, of the plan's claims without measures in the end.

    The estimate is the share of instances all of whose measures hold, with an exact interval (Clopper and
    Pearson) for the share of all instances that could be drawn.

    Args:
        plan: which claims there are.
        checks: the table `checks`.
        scale: the plan's.
    """
    about = {claim.id: claim for claim in plan.claims}
    rows: list[dict[str, object]] = []
    for (claim,), own in checks.group_by(["claim"], maintain_order=True):
        parts = own.group_by("part", "variant", maintain_order=True).agg(pl.col("holds").all())
        holding: dict[tuple[str, Variant], bool] = {
            (part, variant): holds for part, variant, holds in parts.rows()
        }
        capped = about[claim].at_most_partly
        for variant, verdict in verdicts(holding, capped).items():
            among = own.filter(
                pl.col("variant").is_in([variant] if variant != "as corrected" else ["", variant])
            )
            instances = among.group_by("part", "instance").agg(pl.col("holds").all())
            held, count = int(instances["holds"].sum()), len(instances)
            share = share_interval(held, count)
            first = own.row(0, named=True)
            rows.append(
                {
                    "claim": claim,
                    "variant": variant,
                    "verdict": verdict,
                    "reason": f"all measures hold on {held} of {count} instances"
                    + (f"; partly at most, since {capped}" if capped and held == count else ""),
                    "source": about[claim].source,
                    "scale": first["scale"],
                    "study": about[claim].file,
                    "estimate": held / count,
                    "low": share.low,
                    "high": share.high,
                    "seeds": count,
                    "rule": first["spec_hash"],
                    "rule_of_runs": first["spec_hash"],
                }
            )
    measured = set(checks["claim"])
    return rows + [_unmeasured(claim, scale) for claim in plan.claims if claim.id not in measured]


def _unmeasured(claim: ClaimPlan, scale: str) -> dict[str, object]:
    """The row of a claim that no measure is there of."""
    return {
        "claim": claim.id,
        "variant": "",
        "verdict": "not run",
        "reason": claim.missing or "the tables hold no measure of it",
        "source": claim.source,
        "scale": scale,
        "study": claim.file,
        "seeds": 0,
    }
