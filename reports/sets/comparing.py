"""Comparison of two sets or reports row by row: rows that differ, are inconclusive, agree, or are in one
only.
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

Answer = Literal["differs", "inconclusive", "agrees", "only in one"]
ANSWERS: tuple[Answer, ...] = get_args(Answer)  # pages list answers in this order
Kind = Literal["verdicts", "comparisons of claims", "runs"]
# Two values differ only if their intervals have at least this coverage, which 5 pairs reach.
MIN_LEVEL = 0.9
UNDECIDED = ("underpowered", "not run")
SIDES = ("value", "value_right")  # columns of runs of both sides after a join


@dataclass(frozen=True)
class ComparedRow:
    """One comparison between two sides: of a verdict, an effect or the runs of a method.

    Args:
        subject: description of the verdict, the effect or the method.
        values: value on the earlier and on the later side, as text; empty where a side has none.
        note: how the values differ, or why this is not known.
    """

    kind: Kind
    subject: str
    values: tuple[str, str]
    answer: Answer
    note: str = ""


def compare(earlier: Side, later: Side, claim: str | None = None) -> list[ComparedRow]:
    """Compare verdicts, effects and runs of two sets or reports.

    Verdicts are equal or not. The intervals of median effects overlap or not. The runs of each method are
    paired by seed, and their median change is compared with a tolerance; for a whole set these are the values
    of the headline metric, with a tolerance of 0.1 %. Costs are not compared, since two sessions differ in
    more than the code; `curvebench.benchmarks.gate` times two commits alternately.

    Args:
        claim: id of a claim, to compare only its verdict, its effects and its runs, with the claim's smallest
            effect as the tolerance; None to compare everything.

    Raises:
        InputError: when the two have different scales.
    """
    if earlier.plan.scale != later.plan.scale:
        scales = " and ".join(f"{side.name} of scale {side.plan.scale}" for side in (earlier, later))
        raise InputError(f"{scales} cannot be compared; name two of one scale")
    sides = (earlier, later)
    return [*_verdicts(*sides, claim), *_comparisons(*sides, claim), *_runs(*sides, claim)]


def overall_answer(answers: Sequence[Answer]) -> Answer:
    """Return "differs" if any answer differs, "agrees" if all agree, otherwise "inconclusive"."""
    distinct = set(answers)
    return "differs" if "differs" in distinct else "agrees" if distinct == {"agrees"} else "inconclusive"


# --- claims --------------------------------------------------------------------------------------


def _verdicts(earlier: Side, later: Side, claim: str | None) -> Iterator[ComparedRow]:
    """Compare the verdicts on each claim, and for property checks also the share of instances that hold."""
    key = ["claim", "variant", "backend"]
    text, selected = pl.col("variant", "verdict").cast(pl.String), pl.col("claim") == claim if claim else True
    old, new = (side.verdicts.claims.with_columns(text).filter(selected) for side in (earlier, later))
    both = old.join(new, on=key, how="full", nulls_equal=True, coalesce=True, maintain_order="left_right")
    compared = compared_of(later.plan, later.verdicts.findings)
    for row in both.iter_rows(named=True):
        suffix = row["backend"] and f"on {row['backend']}"
        subject = " ".join(filter(None, (row["claim"], row["variant"], suffix)))
        verdicts = row["verdict"] or "", row["verdict_right"] or ""
        answer: Answer = "agrees" if verdicts[0] == verdicts[1] else "differs"
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
        yield ComparedRow("verdicts", subject, verdicts, answer, note)
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
    """Compare the median effect of each comparison of claims; where runs are censored, both of its bounds."""
    both = [side.verdicts.comparisons for side in (earlier, later)]
    both = [tuple(item for item in items if claim in (None, item.key.claim)) for items in both]
    decided = [{(item.key.claim, item.backend) for item in items} for items in both]
    old, new = ({_key(item): item for item in items} for items in both)
    for key, comparison in (new | old).items():
        if (comparison.key.claim, comparison.backend) not in decided[0] & decided[1]:
            continue  # the rows of verdicts already show claims that only one side decides
        pair = old.get(key), new.get(key)
        effects = [item.bounds for item in pair if item is not None and len(item.gains)]
        if not effects:
            continue  # neither side has pairs of runs
        answer: Answer = "only in one" if None in pair else "inconclusive"
        if len(effects) == 2:
            first, second = effects
            near = comparison.margin if comparison.effect == "ratio" else 0.0
            ends = (first.floor, second.floor), (first.ceiling, second.ceiling)
            answer = overall_answer([overlap(*pair, near) for pair in ends])
        texts = _effect(pair[0]), _effect(pair[1])
        yield ComparedRow("comparisons of claims", _subject(comparison), texts, answer)


def _subject(comparison: ClaimComparison) -> str:
    """Return a description of a comparison for its row."""
    key, condition = comparison.key, comparison.condition
    metric = f"{say('reading', condition)} {formatting.metric_name(condition.metric)}"
    arms = f"{key.treated} {'over' if comparison.effect == 'ratio' else 'less'} {comparison.control}"
    return f"{key.claim}: {metric} of {arms}, {key.workload} on {comparison.backend}"


def _key(comparison: ClaimComparison) -> tuple[object, ...]:
    """Return the identity of a comparison across sides.

    It is the comparison's key, with the contents of its condition in place of the condition's index, which
    may change.
    """
    condition = comparison.condition
    contents = condition.metric, say("reading", condition), condition.relation, condition.number
    return comparison.backend, comparison.key._replace(condition=0), *contents


def _effect(comparison: ClaimComparison | None) -> str:
    """Return the median effect of a comparison as text; empty if a side does not have it."""
    if comparison is None:
        return ""
    return " ".join(comparison.bounds.words) if len(comparison.gains) else "no pairs of runs"


def overlap(earlier: MedianInterval, later: MedianInterval, near: float = 0.0) -> Answer:
    """Compare two estimates of the same quantity by their intervals.

    They agree if each lies in the interval of the other, or if they nearly equal each other. They differ if
    the intervals are disjoint and both have a sufficient coverage.

    Args:
        near: logarithm of the ratio of two estimates that is too small to matter.
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
    """A metric of a study's runs, and whether its `final` or `best` value counts."""

    study: str
    metric: str
    which: str


class Tolerance(NamedTuple):
    """Largest change of a value that does not matter; for a ratio, the logarithm of it.

    Args:
        effect: how values are compared; None to decide by the values (`effect_for`).
        limit: stop or floor, at which values are clipped; None without.
    """

    change: float
    effect: Effect | None = None
    limit: float | None = None


Cells = dict[tuple[str, str, str], Tolerance]  # tolerance by workload, backend and method


def _runs(earlier: Side, later: Side, claim: str | None) -> Iterator[ComparedRow]:
    """Compare the values of each method, paired by seed; a study that one side lacks is one row."""
    for name in sorted(earlier.tables.keys() ^ later.tables.keys()):
        values = name if name in earlier.tables else "", name if name in later.tables else ""
        yield ComparedRow("runs", f"study {name}", values, "only in one")
    cells_of: dict[JudgedMetric, Cells] = {}
    for side in (earlier, later):
        for judged, cells in (_of_claim(side, claim) if claim else _headlines(side)).items():
            if judged.study in earlier.tables.keys() & later.tables.keys():
                # The later side decides about the tolerance of a cell that both have.
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
    """Return the cells of the headline metric of every study."""
    cells_of = {}
    for study in side.plan.studies:
        workloads = [workload.name for workload in study.workloads]
        cells = product(workloads, study.backends, study.methods)
        tolerance = Tolerance(NEGLIGIBLE, limit=headline_limit(study))
        cells_of[JudgedMetric(study.name, study.metric, study.which)] = dict.fromkeys(cells, tolerance)
    return cells_of


def _of_claim(side: Side, claim: str) -> dict[JudgedMetric, Cells]:
    """Return the cells of final runs that a claim compares, with the smallest effect that matters to it."""
    cells_of: dict[JudgedMetric, Cells] = {}
    compared = [comparison for comparison in side.verdicts.comparisons if comparison.key.claim == claim]
    # Later entries replace earlier ones, so that the smallest margin of a cell remains.
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
    """Return the values of a metric in final runs: columns workload, backend, method, seed and value."""
    final = side.tables[judged.study].runs.filter(pl.col("stage") == "final")
    values = study_values(side.plan.study(judged.study), final, judged.metric, judged.which)
    return values.select(*CELL, "seed", "value").drop_nulls()


def paired_row(subject: str, runs: pl.DataFrame, tolerance: Tolerance, direction: Direction) -> ComparedRow:
    """Compare the runs of one method: the median change over seeds, with its interval.

    The runs agree if the whole interval lies within the tolerance. They differ if the whole interval lies
    outside and has a sufficient coverage. Values beyond the tolerance's limit are clipped.

    Args:
        subject: text that names the compared runs.
        runs: columns seed, value and value_right; null where a side has no run of the seed.
        tolerance: largest change that does not matter.
        direction: whether less of the metric is better.
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
    answer: Answer = "inconclusive"
    if max(-change.low, change.high) <= tolerance.change:
        answer = "agrees"
    elif max(change.low, -change.high) > tolerance.change and change.level >= MIN_LEVEL:
        answer = "differs"
        note = ("better, " if (change.median < 0) == (direction == "minimize") else "worse, ") + note
    return ComparedRow("runs", subject, (first, second), answer, note)


# --- the page ------------------------------------------------------------------------------------


def render(earlier: Side, later: Side) -> str:
    """Return the page of a comparison, complete in itself: its style sheet is included."""
    rows = sorted(compare(earlier, later), key=lambda row: ANSWERS.index(row.answer))
    sides = [{**vars(side), **provenance_of(side.jobs, 0)} for side in (earlier, later)]
    page = templates().get_template("comparison.html.jinja")
    return page.render(
        style=(STATIC / "style.css").read_text(),
        sides=sides,
        other_machines=set(earlier.jobs["machine"]) != set(later.jobs["machine"]),
        rows={kind: [row for row in rows if row.kind == kind] for kind in get_args(Kind)},
        answers=ANSWERS,
    )
