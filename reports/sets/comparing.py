"""Comparison of two published sets or reports, an earlier and a later side, row by row.

A row compares a verdict, the median effect of one of a claim's comparisons, or the runs of a method. The
answer of a row says whether the sides differ or agree, whether this cannot be decided (inconclusive), or
whether only one side has the value. A claim's comparison sets a treated method against a control on runs with
the same seeds.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Literal, NamedTuple, get_args

import numpy as np
import polars as pl

from curvebench.reports import formatting
from curvebench.reports.claims.comparison import ClaimComparison
from curvebench.reports.claims.verdict_list import compared_of
from curvebench.reports.claims.wording import reason, say
from curvebench.reports.measures import clip_at, headline_limit, study_values
from curvebench.reports.pages.site import STATIC
from curvebench.reports.rendering import templates
from curvebench.reports.sets.contents import provenance_of
from curvebench.reports.sets.sides import Side
from curvebench.reports.statistics.paired import Direction, Effect, effect_for
from curvebench.reports.statistics.ranks import NEGLIGIBLE
from curvebench.reports.tables import CELL
from curvebench.results.intervals import LEVEL, MedianInterval, median_interval
from curvebench.results.schema import CLAIMS
from curvebench.spec.conditions.value import Value
from curvebench.spec.errors import InputError

RowAnswer = Literal["differs", "inconclusive", "agrees", "only in one"]
ANSWERS: tuple[RowAnswer, ...] = get_args(RowAnswer)  # answers in the order in which pages list them
RowKind = Literal["verdicts", "comparisons of claims", "runs", "by the clock"]
# Two values count as different only if their intervals have at least this coverage.
# The interval of a median over 5 pairs of runs has the coverage 0.94.
MIN_LEVEL = 0.9
UNDECIDED = ("underpowered", "not run")
SIDES = ("value", "value_right")  # columns with the values of the earlier and the later side after a join


@dataclass(frozen=True)
class ComparedRow:
    """One comparison between two sides: of a verdict, an effect or the runs of a method.

    Args:
        kind: kind of the compared values. Values "by the clock" depend on seconds, which differ between
            sessions and machines, so that they do not count for the overall answer.
        subject: description of the verdict, the effect or the method.
        values: value on the earlier and on the later side, as text; empty for a side without the value.
        answer: result of the comparison.
        note: explanation of how the values differ, or why the answer is inconclusive.
    """

    kind: RowKind
    subject: str
    values: tuple[str, str]
    answer: RowAnswer
    note: str = ""


def compare(earlier: Side, later: Side, claim: str | None = None) -> list[ComparedRow]:
    """Compare verdicts, effects and runs of two sets or reports.

    Verdicts agree if they are equal. Median effects are compared by their intervals (`overlap`). The runs of
    each method are paired by seed, and their median change is compared with a tolerance. If whole sets are
    compared, the metric is the headline metric (the metric by which a study compares methods), and the
    tolerance is 0.1 %. Seconds are not compared, since two sessions differ in more than the code;
    `curvebench.benchmarks.gate` times two commits alternately.

    Args:
        earlier, later: the sets or reports.
        claim: id of a claim, to compare only its verdict, its effects and its runs. The tolerance is then the
            smallest effect that matters to the claim. None to compare everything.

    Raises:
        InputError: when the two sides have different scales.
    """
    if earlier.plan.scale != later.plan.scale:
        scales = " and ".join(f"{side.name} of scale {side.plan.scale}" for side in (earlier, later))
        raise InputError(f"{scales} cannot be compared; name two of one scale")
    sides = (earlier, later)
    return [*_verdicts(*sides, claim), *_comparisons(*sides, claim), *_runs(*sides, claim)]


def answer_of(rows: Sequence[ComparedRow]) -> RowAnswer:
    """Return the overall answer of a comparison, from the rows that do not depend on the clock."""
    return overall_answer([row.answer for row in rows if row.kind != "by the clock"])


def overall_answer(answers: Sequence[RowAnswer]) -> RowAnswer:
    """Return "differs" if any answer differs, "agrees" if all agree, otherwise "inconclusive"."""
    distinct = set(answers)
    return "differs" if "differs" in distinct else "agrees" if distinct == {"agrees"} else "inconclusive"


# --- claims --------------------------------------------------------------------------------------


def _verdicts(earlier: Side, later: Side, claim: str | None) -> Iterator[ComparedRow]:
    """Compare the verdicts on each claim, and for property checks also the share of instances that hold.

    An instance holds if all its measured values satisfy the limits of the claim.
    """
    key = ["claim", "variant", "backend"]
    text, selected = pl.col("variant", "verdict").cast(pl.String), pl.col("claim") == claim if claim else True
    old, new = (side.verdicts.claims.with_columns(text).filter(selected) for side in (earlier, later))
    both = old.join(new, on=key, how="full", nulls_equal=True, coalesce=True, maintain_order="left_right")
    compared = compared_of(later.plan, later.verdicts.findings)
    claims = (claim for side in (earlier, later) for study in side.plan.studies for claim in study.claims)
    by_clock = {claim.id for claim in claims if all(item.by_clock for item in claim.conditions)}
    for row in both.iter_rows(named=True):
        suffix = row["backend"] and f"on {row['backend']}"
        subject = " ".join(filter(None, (row["claim"], row["variant"], suffix)))
        verdicts = row["verdict"] or "", row["verdict_right"] or ""
        answer: RowAnswer = "agrees" if verdicts[0] == verdicts[1] else "differs"
        note = ""
        if answer == "differs" and verdicts[1]:
            claim_row = {name: row.get(f"{name}_right", row.get(name)) for name in CLAIMS}
            note = reason(later.plan, claim_row, compared.get((row["claim"], row["backend"]), []))
        if "" in verdicts:
            answer = "only in one"
        elif row["backend"] and row["rule"] != row["rule_right"]:
            answer, note = "inconclusive", "the rule of the claim is another one"
        elif answer == "differs" and set(verdicts) & set(UNDECIDED):
            answer = "inconclusive"
        kind: RowKind = "by the clock" if row["claim"] in by_clock else "verdicts"
        yield ComparedRow(kind, subject, verdicts, answer, note)
        if row["backend"] is None and None not in (row["low"], row["low_right"]):
            ends = (
                (row[f"estimate{side}"], row[f"low{side}"], row[f"high{side}"]) for side in ("", "_right")
            )
            first, second = (MedianInterval(*numbers, LEVEL, row["seeds"]) for numbers in ends)
            shares = (_shown(first), _shown(second))
            subject = f"{subject}: share of instances that hold"
            yield ComparedRow("verdicts", subject, shares, overlap(first, second))


def _shown(estimate: MedianInterval) -> str:
    """Return an estimate with its interval as text."""
    return f"{formatting.number(estimate.median)} {formatting.interval(estimate.low, estimate.high)}"


def _comparisons(earlier: Side, later: Side, claim: str | None) -> Iterator[ComparedRow]:
    """Compare the median effects of the comparisons that claims require.

    If runs are censored (stopped before their value was known), only bounds of a median are known. Then both
    bounds are compared.
    """
    both = [side.verdicts.comparisons for side in (earlier, later)]
    both = [tuple(item for item in items if claim in (None, item.key.claim)) for items in both]
    decided = [{(item.key.claim, item.backend) for item in items} for items in both]
    old, new = ({_key(item): item for item in items} for items in both)
    for key, comparison in (new | old).items():
        if (comparison.key.claim, comparison.backend) not in decided[0] & decided[1]:
            continue  # skip claims that only one side decides, since the rows of verdicts show them already
        pair = old.get(key), new.get(key)
        effects = [item.bounds for item in pair if item is not None and len(item.gains)]
        if not effects:
            continue  # skip comparisons for which neither side has pairs of runs
        answer: RowAnswer = "only in one" if None in pair else "inconclusive"
        if len(effects) == 2:
            first, second = effects
            near = comparison.margin if comparison.effect == "ratio" else 0.0
            ends = (first.floor, second.floor), (first.ceiling, second.ceiling)
            answer = overall_answer([overlap(*pair, near) for pair in ends])
        texts = _effect(pair[0]), _effect(pair[1])
        kind: RowKind = "by the clock" if comparison.condition.by_clock else "comparisons of claims"
        yield ComparedRow(kind, _subject(comparison), texts, answer)


def _subject(comparison: ClaimComparison) -> str:
    """Return the text that names the comparison of two methods in a row."""
    key, condition = comparison.key, comparison.condition
    metric = f"{say('reading', condition)} {formatting.metric_name(condition.metric)}"
    arms = f"{key.treated} {'over' if comparison.effect == 'ratio' else 'less'} {comparison.control}"
    return f"{key.claim}: {metric} of {arms}, {key.workload} on {comparison.backend}"


def _key(comparison: ClaimComparison) -> tuple[object, ...]:
    """Return a key that is equal for the same comparison on both sides.

    The key contains the comparison's condition itself instead of the condition's index, because the order of
    a claim's conditions may differ between the sides.
    """
    condition = comparison.condition
    contents = condition.metric, say("reading", condition), condition.relation, condition.number
    return comparison.backend, comparison.key._replace(condition=0), *contents


def _effect(comparison: ClaimComparison | None) -> str:
    """Return the median effect of a comparison as text; empty if `comparison` is None."""
    if comparison is None:
        return ""
    return " ".join(comparison.bounds.words) if len(comparison.gains) else "no pairs of runs"


def overlap(earlier: MedianInterval, later: MedianInterval, near: float = 0.0) -> RowAnswer:
    """Compare two estimates of the same quantity by their intervals.

    The estimates agree if each is in the interval of the other, or if the estimates are nearly equal. The
    estimates differ if the intervals are disjoint, and both intervals have a coverage of at least
    `MIN_LEVEL`. Otherwise the result is inconclusive.

    Args:
        near: the estimates are nearly equal if the absolute logarithm of their ratio is at most this number.
    """
    first, second = earlier.median, later.median
    inside = later.low <= first <= later.high and earlier.low <= second <= earlier.high
    finite = min(first, second) > 0 and math.isfinite(max(first, second))
    if inside or first == second or (finite and abs(math.log(first / second)) <= near):
        return "agrees"
    disjoint = earlier.high < later.low or later.high < earlier.low
    return "differs" if disjoint and min(earlier.level, later.level) >= MIN_LEVEL else "inconclusive"


# --- runs, seed by seed --------------------------------------------------------------------------


class JudgedMetric(NamedTuple):
    """A metric by which the runs of a study on one side are compared with its runs on the other side.

    Args:
        study: name of the study.
        metric: name of the metric.
        which: "final" for the value at the end of a run, "best" for the best value during the run.
    """

    study: str
    metric: str
    which: str


class Tolerance(NamedTuple):
    """Largest change from the earlier to the later side that does not matter.

    Args:
        change: largest change: a difference, or the logarithm of a ratio if values are compared by ratio.
        effect: whether values are compared by ratio or by difference; None to decide by the values
            (`effect_for`).
        limit: value at which values are clipped, such as the threshold at which runs stop; None for no limit.
    """

    change: float
    effect: Effect | None = None
    limit: float | None = None


Cells = dict[tuple[str, str, str], Tolerance]  # tolerance by workload, backend and method


def _runs(earlier: Side, later: Side, claim: str | None) -> Iterator[ComparedRow]:
    """Compare the runs of each method, paired by seed; yield a single row for a study that one side lacks."""
    for name in sorted(earlier.tables.keys() ^ later.tables.keys()):
        values = name if name in earlier.tables else "", name if name in later.tables else ""
        yield ComparedRow("runs", f"study {name}", values, "only in one")
    cells_of: dict[JudgedMetric, Cells] = {}
    for side in (earlier, later):
        for judged, cells in (_of_claim(side, claim) if claim else _headlines(side)).items():
            if judged.study in earlier.tables.keys() & later.tables.keys():
                # If both sets have a tolerance for a method on a workload, the later tolerance counts.
                cells_of[judged] = cells_of.get(judged, {}) | cells
    for judged, cells in cells_of.items():
        old, new = (_values(side, judged) for side in (earlier, later))
        both = old.join(new, on=[*CELL, "seed"], how="full", coalesce=True).sort("seed")
        runs = both.partition_by(CELL, as_dict=True)
        direction = earlier.plan.study(judged.study).direction_of(judged.metric)
        metric = f"{judged.which} {formatting.metric_name(judged.metric)}"
        for cell in (cell for cell in cells if cell in runs):
            workload, backend, method = cell
            named = f" ({judged.study})" if judged.study != workload else ""
            subject = f"{metric} of {method}, {workload} on {backend}{named}"
            yield paired_row(subject, runs[cell], cells[cell], direction)


def _headlines(side: Side) -> dict[JudgedMetric, Cells]:
    """Return, for each study's headline metric, a tolerance for each workload, backend and method.

    The headline metric is the metric by which a study compares methods.
    """
    cells_of = {}
    for study in side.plan.studies:
        workloads = [workload.name for workload in study.workloads]
        cells = product(workloads, study.backends, study.methods)
        tolerance = Tolerance(NEGLIGIBLE, limit=headline_limit(study))
        cells_of[JudgedMetric(study.name, study.metric, study.which)] = dict.fromkeys(cells, tolerance)
    return cells_of


def _of_claim(side: Side, claim: str) -> dict[JudgedMetric, Cells]:
    """Return, for each metric that a claim compares, a tolerance for each workload, backend and method.

    The tolerance is the smallest effect that matters to the claim.
    """
    cells_of: dict[JudgedMetric, Cells] = {}
    compared = [comparison for comparison in side.verdicts.comparisons if comparison.key.claim == claim]
    # Of several comparisons with the same workload, backend and method, the last one sets the tolerance.
    # The comparisons are sorted by descending margin, so that the smallest margin remains.
    for comparison in sorted(compared, key=lambda item: -item.margin):
        condition = comparison.condition
        if isinstance(condition, Value):
            judged = JudgedMetric(comparison.study, condition.metric, condition.which)
            cells = cells_of.setdefault(judged, {})
            for workload, method in comparison.key.arms:
                cell = workload, comparison.backend, method
                limit = condition.floor
                if limit is None and cell in cells:
                    limit = cells[cell].limit
                cells[cell] = Tolerance(comparison.margin, comparison.effect, limit)
    return cells_of


def _values(side: Side, judged: JudgedMetric) -> pl.DataFrame:
    """Return a metric's values in the final runs of a side.

    Returns:
        Columns workload, backend, method, seed and value.
    """
    final = side.tables[judged.study].runs.filter(pl.col("stage") == "final")
    values = study_values(side.plan.study(judged.study), final, judged.metric, judged.which)
    return values.select(*CELL, "seed", "value").drop_nulls()


def paired_row(subject: str, runs: pl.DataFrame, tolerance: Tolerance, direction: Direction) -> ComparedRow:
    """Compare the runs of one method by the median change over seeds and its confidence interval.

    The runs agree if the whole interval is within the tolerance. The runs differ if the whole interval is
    outside of the tolerance and has a coverage of at least `MIN_LEVEL`. Otherwise the row is inconclusive.
    Values that are better than `tolerance.limit`, beyond which differences mean nothing, are clipped at it.

    Args:
        subject: text that names the compared runs.
        runs: columns seed, value (earlier side) and value_right (later side), null if a side has no run with
            the seed.
        tolerance: largest change that does not matter.
        direction: whether less or more of the metric is better.
    """
    runs = runs.with_columns(clip_at(pl.col(side), direction, tolerance.limit) for side in SIDES)
    first, second = (
        formatting.number(median_interval(values.to_numpy()).median) if len(values) else ""
        for values in (runs[side].drop_nulls() for side in SIDES)
    )
    pairs = runs.drop_nulls()
    if not len(pairs):
        return ComparedRow("runs", subject, (first, second), "only in one", "no seed is in both")
    old, new = (pairs[side].to_numpy() for side in SIDES)
    effect = tolerance.effect or effect_for(np.concatenate([old, new]), direction)
    with np.errstate(divide="ignore", invalid="ignore"):
        changes = np.log(new) - np.log(old) if effect == "ratio" else new - old
    change = median_interval(np.where(new == old, 0.0, changes))

    def as_text(change: float) -> str:
        with np.errstate(over="ignore"):
            return formatting.signed(float(np.expm1(change)) if effect == "ratio" else change)

    note = (
        f"median {'relative change' if effect == 'ratio' else 'change'} {as_text(change.median)} "
        f"[{as_text(change.low)}, {as_text(change.high)}] over {formatting.counted(change.count, 'seeds')}, "
        f"tolerance {as_text(tolerance.change).removeprefix('+')}"
    )
    answer: RowAnswer = "inconclusive"
    if max(-change.low, change.high) <= tolerance.change:
        answer = "agrees"
    elif max(change.low, -change.high) > tolerance.change and change.level >= MIN_LEVEL:
        answer = "differs"
        note = ("better, " if (change.median < 0) == (direction == "minimize") else "worse, ") + note
    return ComparedRow("runs", subject, (first, second), answer, note)


# --- the page ------------------------------------------------------------------------------------


def render(earlier: Side, later: Side) -> str:
    """Return the HTML page of a comparison, with the style sheet included, so that the page needs no other
    file.
    """
    rows = sorted(compare(earlier, later), key=lambda row: ANSWERS.index(row.answer))
    sides = [{**vars(side), **provenance_of(side.jobs, 0)} for side in (earlier, later)]
    page = templates().get_template("comparison.html.jinja")
    return page.render(
        style=(STATIC / "style.css").read_text(),
        sides=sides,
        other_machines=set(earlier.jobs["machine"]) != set(later.jobs["machine"]),
        rows={kind: [row for row in rows if row.kind == kind] for kind in get_args(RowKind)},
        answers=ANSWERS,
    )
