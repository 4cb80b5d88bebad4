"""The verdict on every claim of a report, from paired runs or property checks."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import Any, get_args

import numpy as np
import polars as pl

from curvebench.reports.claims.censoring import Interval
from curvebench.reports.claims.comparison import Alternative, ClaimComparison, comparisons, tried_in
from curvebench.reports.claims.repeats import Repeat, repeats_of
from curvebench.reports.failures import failed_check, reasons_of
from curvebench.reports.formatting import counted, listed, metric_name, percent
from curvebench.reports.plan import reading
from curvebench.reports.statistics.decisions import (
    POWER,
    RESAMPLED,
    SEEDS,
    Finding,
    Question,
    decide,
    holm,
    seeds_needed,
)
from curvebench.reports.statistics.shares import share_interval
from curvebench.reports.tables import Tables
from curvebench.results.intervals import median
from curvebench.results.schema import CLAIMS, FINDINGS
from curvebench.results.tuning import Setting, different_draws, shares_of_choices
from curvebench.results.verdicts import (
    ALPHA,
    KEPT,
    TESTED,
    Variant,
    Verdict,
    bound_shares,
    least_tested,
    verdicts,
)
from curvebench.spec.claim import Claim, ComparisonKey
from curvebench.spec.plan import ChecksPlan, ClaimPlan, Deciding, ReportPlan, SkippedStudy, StudyPlan

NAMED_PARTS = 2  # of those that miss, in a sentence
FEWEST_TUNING_SEEDS = 5  # of fewer a single draw weighs more than the 5 % that may disagree


@dataclass(frozen=True)
class Verdicts:
    """The tables `claims` (one row a claim, variant and backend) and `findings` (one row a comparison).

    `comparisons` are in the order of `findings`, as are `tuning_seeds`, about how many would do where a
    comparison is inconclusive for the settings that others choose; by claim and backend, `deciding` is the
    one whose estimate a claim has, and `repeats` what became of the claim where it was repeated in another
    setting.
    """

    claims: pl.DataFrame
    findings: pl.DataFrame
    comparisons: tuple[ClaimComparison, ...]
    tuning_seeds: tuple[int | None, ...]
    deciding: Mapping[tuple[str, str], ComparisonKey] = field(default_factory=dict)
    repeats: Mapping[tuple[str, str], tuple[Repeat, ...]] = field(default_factory=dict)


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
        if study.claims
        for tried_of in (tried_in(study, tables[study.name]),)
        for backend in study.backends
        for claim in study.claims
        for one in comparisons(study, claim, tables[study.name], backend, tried_of)
    ]
    findings = decided(compared)
    repeats = repeats_of(plan, tables, compared)
    places: dict[tuple[str, str], list[int]] = {}
    for place, one in enumerate(compared):
        places.setdefault((one.key.claim, one.backend), []).append(place)
    rows, deciding = [], {}
    for study in plan.studies:
        for backend, claim in product(study.backends, study.claims):
            about = (claim.id, backend)
            own, of_claim = findings[places.get(about, [])], [compared[at] for at in places.get(about, [])]
            rule = rule_of_runs(tables[study.name].jobs, claim.id, backend)
            row = _empty_row(study, claim, plan.scale) | {"backend": backend, "study": study.name}
            row |= {"rule_of_runs": rule}
            if weakest := _weakest(own):
                place, finding = weakest
                deciding[about] = of_claim[place].key
                row |= _decided_row(study, own, of_claim, finding)
            else:
                row |= {"verdict": "not run", "reason": f"no pairs of runs on {backend}"}
            rows.append(row)
    rows += [not_run(skipped, claim, plan.scale) for skipped in plan.skipped for claim in skipped.claims]
    if plan.checks is not None and checks is not None:
        rows += property_rows(plan.checks, checks, plan.scale)
    seeds = tuple(tuning_seeds_needed(compared, findings))
    return Verdicts(pl.DataFrame(rows, schema=CLAIMS), findings, tuple(compared), seeds, deciding, repeats)


def decided(compared: Sequence[ClaimComparison]) -> pl.DataFrame:
    """The table `findings`: each comparison's estimate, its p-values and what it says.

    All comparisons of a claim must hold, so that each is supported by its own p-value (an intersection-union
    test), and one that is refuted refutes the claim, so that refutations are corrected by Holm's method. His
    correction of the p-values for the relation says which comparisons hold together.
    """
    claims: dict[tuple[str, str, bool], list[ClaimComparison]] = {}
    for one in compared:
        claims.setdefault(_of_relations(one), []).append(one)
    rows = {
        id(one): _finding_row(one, together, refuting, len(own))
        for own in claims.values()
        for one, together, refuting in zip(
            own, holm([one.p_value for one in own]), holm([one.refuting_p_value for one in own]), strict=True
        )
    }
    return pl.DataFrame([rows[id(one)] for one in compared], schema=FINDINGS)


def _finding_row(one: ClaimComparison, together: float, refuting: float, relations: int) -> dict[str, object]:
    condition = one.condition
    row: dict[str, object] = {
        "claim": one.key.claim,
        "backend": one.backend,
        "workload": one.key.workload,
        "metric": condition.metric,
        "which": reading(condition),
        "relation": condition.relation,
        "treated": one.key.treated,
        "control": one.control,
        "effect": one.effect,
        "margin": one.as_effect(one.margin if condition.relation == "better" else -one.margin),
        "seeds": len(one.gains),
        "finding": "inconclusive",
        "positive_control": condition.positive_control,
    }
    if not len(one.gains):
        return row
    effect = one.bounds
    found, tuned = finding_of(one, refuting, relations)
    undecided = found == "inconclusive" and _tuning_seeds(one, tuned, refuting, relations) is None
    return row | {
        "estimate": effect.median,
        "low": effect.low,
        "high": effect.high,
        "level": effect.floor.level,
        "p_value": one.p_value,
        "holm_p_value": together,
        "refuting_p_value": refuting,
        "finding": found,
        "seeds_needed": _seeds(one, relations) if undecided else None,
        **tuned,
    }


def finding_of(one: ClaimComparison, refuting: float, relations: int) -> tuple[Finding, dict[str, Any]]:
    """What a comparison says, and how often other settings say the same as the chosen ones.

    Args:
        refuting: its p-value against the relation, corrected.
        relations: how many comparisons the claim rests on.
    """
    found = _at_chosen(one, refuting)
    tuned = _over_settings(one, found, relations)
    return ("inconclusive" if _flips(tuned) else found), tuned


def _at_chosen(one: ClaimComparison, refuting: float) -> Finding:
    """What a comparison says at the chosen settings."""
    low, high = one.interval
    return decide(one.question, low, one.p_value, refuting, ALPHA, high)


def _over_settings(one: ClaimComparison, found: Finding, relations: int) -> dict[str, Any]:
    """How often a comparison has the same finding at other settings that tuning may have chosen.

    Where none of them was run, nothing is known of that; where some were, the others count as disagreeing.
    Refutations are corrected by Bonferroni's method, since the other comparisons keep their settings.
    """
    others = one.alternatives
    not_run = sum(other.interval is None for other in others)
    tuned: dict[str, Any] = {"ties": sum(other.tied for other in others), "settings_not_run": not_run}
    matter = tuned["ties"] or sum(other.share for other in others) > 1 - KEPT
    if matter and not_run == len(others):
        return tuned
    same = _agreeing(one, found, relations)
    differing = sum(other.share for other in others) - sum(other.share for other in same)
    return tuned | {"ties_agree": sum(other.tied for other in same), "choices_agree": 1 - differing}


def _agreeing(one: ClaimComparison, found: Finding, relations: int) -> list[Alternative]:
    """The other settings at which a comparison says the same."""
    return [other for other in one.alternatives if _finding_at(other, one.question, relations) == found]


def _finding_at(other: Alternative, question: Question, relations: int) -> Finding | None:
    """What a comparison says at other settings; None where they were not run."""
    if other.interval is None:
        return None
    low, high = other.interval
    refuting = min(1.0, relations * question.refuting_p_value(low, high))
    return decide(question, low, question.p_value(low, high), refuting, ALPHA, high)


def _flips(tuned: Mapping[str, Any]) -> bool:
    """Whether what the chosen settings say depends on the choice too much to be said."""
    agree = tuned.get("ties_agree")
    return agree is not None and (agree < tuned["ties"] or tuned["choices_agree"] < KEPT)


def _seeds(one: ClaimComparison, relations: int) -> int | None:
    """About how many pairs would decide an inconclusive comparison, at all settings that may be chosen.

    Studies are drawn from the pairs with replacement, the same pairs at all settings; the answer is the least
    size of `SEEDS` of which at least `POWER` are decided. None where no size would do, or settings have other
    pairs.
    """
    pairs = {len(other.interval.low) for other in one.alternatives if other.interval is not None}
    if not pairs:  # nothing is known of other settings
        low, high = one.interval
        return seeds_needed(one.question, low, relations, ALPHA, high)
    count = len(one.gains)
    if one.beyond_seeds or pairs != {count}:
        return None

    def decides(size: int) -> bool:
        drawn = np.random.default_rng(size).choice(count, (RESAMPLED, size))
        return bool(np.mean([_is_decided(one.of_pairs(places), relations) for places in drawn]) >= POWER)

    sizes = [size for size in SEEDS if size > count]
    least = bisect_left(sizes, True, key=decides)
    return sizes[least] if least < len(sizes) else None


def _is_decided(one: ClaimComparison, relations: int) -> bool:
    refuting = min(1.0, relations * one.refuting_p_value)  # as severe as Holm's method may be
    if _at_chosen(one, refuting) == "inconclusive":
        return False  # whatever the other settings say, which takes longer to find
    return finding_of(one, refuting, relations)[0] != "inconclusive"


def tuning_seeds_needed(compared: Sequence[ClaimComparison], findings: pl.DataFrame) -> Iterator[int | None]:
    """About how many tuning seeds would do where those that there are would choose what says otherwise.

    It is the least size of `SEEDS` of which 95 % of the draws choose settings that agree, if further seeds
    are like those that are there; None of a comparison that is not inconclusive for its choices alone, whose
    ties disagree, or for which no size would do.

    Args:
        findings: of `compared`, as `decided` gives them.
    """
    relations = Counter(map(_of_relations, compared))
    for one, row in zip(compared, findings.iter_rows(named=True), strict=True):
        yield _tuning_seeds(one, row, row["refuting_p_value"], relations[_of_relations(one)])


def _tuning_seeds(
    one: ClaimComparison, tuned: Mapping[str, Any], refuting: float, relations: int
) -> int | None:
    """`tuning_seeds_needed` of one comparison, of which `tuned` says how often other settings agree."""
    if not one.tried or not _flips(tuned) or tuned["ties_agree"] < tuned["ties"]:
        return None
    if (found := _at_chosen(one, refuting)) == "inconclusive":
        return None  # however often they choose these settings again
    same = _agreeing(one, found, relations)
    agreeing = {tuple(each.chosen for each in one.tried), *(other.settings for other in same)}
    sizes = (size for size in SEEDS if size > max(each.seeds for each in one.tried))
    return next((size for size in sizes if _share_of_draws(one, agreeing, size) >= KEPT), None)


def _of_relations(one: ClaimComparison) -> tuple[str, str, bool]:
    """What has the same of comparisons that are corrected together."""
    return one.key.claim, one.backend, one.condition.positive_control is not None


def _share_of_draws(one: ClaimComparison, among: set[tuple[Setting, ...]], size: int) -> float:
    """The share of draws of `size` tuning seeds that choose settings among these."""
    drawn = shares_of_choices(one.tried, size)
    return sum(share for settings, share in drawn.items() if settings in among)


# --- claims --------------------------------------------------------------------------------------


def combined(findings: Sequence[Finding]) -> Verdict:
    """The verdict on a claim all of whose comparisons must hold.

    All supported: reproduced. One refuted: not reproduced. Else some are inconclusive: underpowered.
    """
    if "refuted" in findings:
        return "not reproduced"
    return "reproduced" if set(findings) == {"supported"} else "underpowered"


def _decided_row(
    study: StudyPlan,
    findings: pl.DataFrame,
    compared: Sequence[ClaimComparison],
    weakest: Mapping[str, object],
) -> dict[str, object]:
    """Verdict, reason and numbers of a claim with pairs of runs, for a row of the table `claims`.

    Args:
        findings: of the claim on a backend.
        compared: its comparisons, in the order of `findings`.
        weakest: the finding whose estimate, interval and p-value are the claim's.
    """
    own = findings.filter(pl.col("positive_control").is_null())
    verdict, limits = combined(own["finding"].to_list()), _limits(study, findings)
    unmet = list(_unmet(findings))
    if unmet:
        verdict = "underpowered"
    stand, stopped = _at_start(compared), _censoring(findings, compared)
    reasons = [*unmet, _reason(own), *stand, *stopped, *_tuning(findings, compared)]
    if verdict == "reproduced" and limits:
        verdict = "partly reproduced"
    if limited := _limited(verdict, " and ".join(limits)):
        reasons.append(limited)
    needed = own.filter(pl.col("finding") == "inconclusive")["seeds_needed"]
    decidable = verdict == "underpowered" and not unmet and not needed.has_nulls()
    return {
        "verdict": verdict,
        "reason": "; ".join(reasons),
        **{name: weakest[name] for name in ("estimate", "low", "high")},
        "p_value": weakest["refuting_p_value" if weakest["finding"] == "refuted" else "p_value"],
        "seeds": findings["seeds"].min(),
        "seeds_needed": needed.max() if decidable else None,
    }


def _weakest(findings: pl.DataFrame) -> tuple[int, dict[str, object]] | None:
    """Place and finding of the comparison that decides; None where none has a pair.

    Of those that are refuted it is the one with the smallest corrected p-value of that; else of those that
    are inconclusive, else of all, the one with the largest p-value, which is the claim's own.
    """
    own = pl.col("positive_control").is_null()
    known = findings.with_row_index("place").filter(own, pl.col("seeds") > 0)
    for kind in ("refuted", "inconclusive", "supported"):
        by = pl.col("refuting_p_value") if kind == "refuted" else -pl.col("p_value")
        for row in known.filter(finding=kind).sort(by).head(1).to_dicts():
            return row.pop("place"), row
    return None


def _reason(findings: pl.DataFrame) -> str:
    if len(findings) == 1:
        return f"its one comparison is {findings['finding'].item()}"
    counts = {kind: int((findings["finding"] == kind).sum()) for kind in get_args(Finding)}
    words = ", ".join(f"{count} {kind}" for kind, count in counts.items() if count)
    return f"of {len(findings)} comparisons {words}"


def _at_start(compared: Sequence[ClaimComparison]) -> Iterator[str]:
    """Which methods took no step at equal cost, and beside which others, in words."""
    cheaper: dict[tuple[str, str, str, str], dict[str, None]] = {}
    for one in compared:
        treated, control = one.key.treated, one.control
        both = ((treated, control, one.treated_at_start), (control, treated, one.control_at_start))
        for method, other, still in both:
            about = (method, f"{still} of {len(one.gains)} pairs", one.key.workload, one.condition.at_equal)
            if still:
                cheaper.setdefault(about, {})[other] = None
    for (method, pairs, workload, cost), others in cheaper.items():
        yield (
            f"{method} on {workload} is read at its start in {pairs}, since its basis and a first step take "
            f"more {cost} than a run of {listed(list(others), last='or')}"
        )


def _censoring(findings: pl.DataFrame, compared: Sequence[ClaimComparison]) -> Iterator[str]:
    """What runs that stopped keep from deciding, of each comparison that is inconclusive, in words."""
    controls: dict[tuple[str, str, str], list[str]] = {}
    said = pl.Series([one.censoring for one in compared], dtype=pl.String)
    of_all = _quantities(findings.with_columns(said=said), "said")
    for finding, one, of in zip(findings["finding"], compared, of_all, strict=True):
        if finding == "inconclusive" and one.censoring:
            where = f"{one.key.workload}{of}"
            controls.setdefault((one.key.treated, where, one.censoring), []).append(one.control)
    for (treated, where, words), against in controls.items():
        yield (f"{treated} and {', '.join(against)} on {where}: " if len(compared) > 1 else "") + words


def _quantities(findings: pl.DataFrame, *columns: str) -> list[str]:
    """What each comparison is of, in words, where more than one has its methods, workload and `columns`."""
    same = findings.select("treated", "control", "workload", *columns).rows()
    times, of = Counter(same), findings.select("which", "metric").rows()
    return [
        f" ({which} {metric_name(metric)})" if times[row] > 1 else ""
        for row, (which, metric) in zip(same, of, strict=True)
    ]


def _unmet(findings: pl.DataFrame) -> Iterator[str]:
    """What the source says in passing and these runs do not bear out, so that they decide nothing."""
    for row in findings.filter(pl.col("positive_control").is_not_null()).iter_rows(named=True):
        if row["finding"] != "supported":
            yield (
                f"the positive control is {row['finding']} on {row['workload']} ({row['positive_control']}), "
                "so that these runs are not the source's setting and decide nothing"
            )


def _limits(study: StudyPlan, findings: pl.DataFrame) -> list[str]:
    """Why what these runs say is not the last word."""
    said = findings.filter(pl.col("finding") != "inconclusive")
    unknown = said.filter(pl.col("ties_agree").is_null())["settings_not_run"].drop_nulls()
    not_run = max(unknown.to_list(), default=0)
    unchecked = (
        f"up to {not_run} settings that tuning may have chosen as well were not run" if not_run else ""
    )
    few = ""
    chooses = study.tuning.trials > 1 and study.seeds.tuning < FEWEST_TUNING_SEEDS
    if chooses and findings["ties"].is_not_null().any():
        seeds = counted(study.seeds.tuning, "tuning seeds")
        draws = counted(different_draws(study.seeds.tuning), "different draws")
        few = f"rates were chosen by {seeds} ({draws}), too few to show that others would choose alike"
    return [why for why in (study.at_most_partly, unchecked, few) if why]


def _limited(verdict: Verdict, why: str) -> str:
    """What limits keep a verdict from saying, in words; empty without any, and of what is underpowered."""
    if not why or verdict == "underpowered":
        return ""
    return f"{'at this scale' if verdict == 'not reproduced' else 'partly at most'}, since {why}"


def _tuning(findings: pl.DataFrame, compared: Sequence[ClaimComparison]) -> Iterator[str]:
    """What other settings that tuning may have chosen keep from being said, in words."""
    of_all = _quantities(findings)
    for row, one, of in zip(findings.iter_rows(named=True), compared, of_all, strict=True):
        turned = _turned(one, row["refuting_p_value"]) if row["seeds"] else ""
        if words := ", and ".join(filter(None, (choices_in_words(row), turned))):
            yield f"{row['treated']} and {row['control']} on {row['workload']}{of}: {words}"


def _turned(one: ClaimComparison, refuting: float) -> str:
    """At how many settings that tie the effect of an open comparison has another direction, in words.

    Effects whose direction is not known, because runs stopped, are not counted; empty where none is turned,
    and of what the chosen settings decide.
    """
    if _at_chosen(one, refuting) != "inconclusive":
        return ""
    chosen, ties = _direction(one.interval), [other.interval for other in one.alternatives if other.tied]
    known = [_direction(interval) for interval in ties if interval is not None]
    turned = sum(chosen is not None and each not in (chosen, None) for each in known)
    tied = f"{turned} of {len(ties)} settings that tie with the chosen one"
    return f"at {tied} the median effect does not have the same direction" if turned else ""


def _direction(gains: Interval) -> float | None:
    """The sign of the median gain; None where it is not known."""
    low, high = (float(np.sign(median(end))) for end in gains)
    return low if low == high else None


def choices_in_words(row: Mapping[str, Any]) -> str:
    """Where other settings than the chosen ones do not say the same of a comparison; empty where few do."""
    if not _flips(row):
        return ""
    words = []
    if row["ties_agree"] < row["ties"]:
        against = row["ties"] - row["ties_agree"]
        words.append(f"at {against} of {row['ties']} settings that tie with the chosen one")
    if row["choices_agree"] < KEPT:
        share, allowed = 1 - row["choices_agree"], 1 - KEPT
        words.append(f"in {percent(share, 1)} of the draws of tuning seeds ({percent(allowed)} may)")
    not_run = row["settings_not_run"]
    without = f" (settings without runs count as such: {not_run})" if not_run else ""
    return f"{' and '.join(words)} the same is not found{without}"


def _empty_row(study: Deciding, claim: Claim, scale: str) -> dict[str, object]:
    return {
        "claim": claim.id,
        "variant": "",
        "source": claim.source,
        "scale": scale,
        "seeds": 0,
        "rule": study.rules[claim.id],
    }


def not_run(skipped: SkippedStudy, claim: Claim, scale: str) -> dict[str, object]:
    """The row of a claim whose study is left out."""
    return _empty_row(skipped, claim, scale) | {
        "study": skipped.name,
        "verdict": "not run",
        "reason": skipped.reason,
    }


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
        checks: as `curvebench.reports.claims.page.check_rows` gives them.
        scale: the plan's.
    """
    about = {claim.id: claim for claim in plan.claims}
    rows: list[dict[str, object]] = []
    for (claim,), own in checks.group_by(["claim"], maintain_order=True):
        parts = own.group_by("part", "variant", maintain_order=True).agg(
            pl.col("holds").all(ignore_nulls=False)
        )
        holding: dict[tuple[str, Variant], bool | None] = {
            (part, variant): holds for part, variant, holds in parts.rows()
        }
        capped, weak = about[claim].at_most_partly, untested(about[claim], own)
        drawn = own.join(_searched(about[claim]), on=["part", "variant"], how="left", maintain_order="left")
        drawn = drawn.filter(pl.col("drawn").is_null() | (pl.col("instance") < pl.col("drawn")))
        for variant, verdict in verdicts(holding, capped, weak).items():
            judged = [variant] if variant != "as corrected" else ["", variant]
            among = drawn.filter(pl.col("variant").is_in(judged))
            loose = [least for (_, one), least in weak.items() if one in judged]
            instances = among.group_by("part", "instance").agg(pl.col("holds").all(ignore_nulls=False))
            held, count = int(instances["holds"].sum()), len(instances)
            undecided = instances["holds"].null_count()
            share = share_interval(held, count)
            first = own.row(0, named=True)
            misprint = variant == "as printed" and verdict == "not reproduced"  # which no scale would save
            limited = "" if misprint else _limited(verdict, capped)
            rows.append(
                {
                    "claim": claim,
                    "variant": variant,
                    "verdict": verdict,
                    "reason": f"all measures hold on {held} of {count} instances"
                    + (
                        f", and {undecided} {'is' if undecided == 1 else 'are'} inconclusive"
                        if undecided
                        else ""
                    )
                    + _missed(own.filter(pl.col("variant").is_in(judged)))
                    + _loose(loose)
                    + (f"; {limited}" if limited else ""),
                    "source": about[claim].source,
                    "scale": first["scale"],
                    "study": about[claim].file,
                    "estimate": held / count,
                    "low": share.low,
                    "high": share.high,
                    "seeds": count,
                    "rule": about[claim].rule or first["spec_hash"],
                    "rule_of_runs": first["rule_of_runs"] if about[claim].rule else first["spec_hash"],
                }
            )
    unmeasured = [claim for claim in plan.claims if claim.id not in set(checks["claim"])]
    reasons = {} if all(claim.missing for claim in unmeasured) else reasons_of(plan)
    return rows + [_unmeasured(claim, scale, reasons) for claim in unmeasured]


def _missed(measures: pl.DataFrame) -> str:
    """The parts of a claim with a measure that does not hold, in words, the first of them by name."""
    parts = [f'"{part}"' for part in measures.filter(~pl.col("holds"))["part"].unique(maintain_order=True)]
    among = counted(measures["part"].n_unique(), "parts")
    return f"; {len(parts)} of {among} missed: {listed(parts, NAMED_PARTS)}" if parts else ""


def _loose(least: Collection[tuple[str, float]]) -> str:
    """How many parts have a bound that nothing came near, in words, and which came least near its limit."""
    if not least:
        return ""
    quantity, share = min(least, key=lambda one: one[1])
    parts = f"{counted(len(least), 'parts')} {'is' if len(least) == 1 else 'are'} held, not tested"
    return f'; {parts} (the least, "{quantity}": at most {share:.2g} of its limit)'


def _searched(claim: ClaimPlan) -> pl.DataFrame:
    """From which instance on those lie that searches found, of each part that is a bound."""
    found = [(one.part, one.variant, one.instances) for one in claim.parts if one.bound]
    schema = {"part": pl.String, "variant": pl.String, "drawn": pl.Int64}
    return pl.DataFrame(found, schema=schema, orient="row")


def untested(claim: ClaimPlan, rows: pl.DataFrame) -> dict[tuple[str, str], tuple[str, float]]:
    """The parts of a claim that hold and have a bound that no instance in `rows` came near.

    By part and variant, of each the quantity that came least near its limit, and the greatest share that it
    took of that.
    """
    found = {}
    for one in claim.parts:
        own = rows.filter(part=one.part, variant=one.variant) if one.bound else rows.clear()
        about = own.select("quantity", "value", pl.col("relation").cast(pl.String), "limit", "tolerance")
        least = least_tested(bound_shares(about.iter_rows()))
        if len(own) and own["holds"].all(ignore_nulls=False) and least[1] < TESTED:
            found[one.part, one.variant] = least
    return found


def _unmeasured(claim: ClaimPlan, scale: str, reasons: Mapping[str, str]) -> dict[str, object]:
    """The row of a claim that no measure is there of; `reasons` are those of claims and their modules."""
    failed = failed_check(claim, reasons)
    return {
        "claim": claim.id,
        "variant": "",
        "verdict": "not run",
        "reason": claim.missing or failed or "the tables hold no measure of it",
        "source": claim.source,
        "scale": scale,
        "study": claim.file,
        "seeds": 0,
    }
