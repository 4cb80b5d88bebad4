"""Two sides compared row by row: what differs, what is inconclusive, what agrees, and what is in one only."""

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
ANSWERS: tuple[Answer, ...] = get_args(Answer)  # in the order of pages
Kind = Literal["verdicts", "comparisons of claims", "runs"]
LEAST_LEVEL = 0.9  # of an interval that may exclude: that of 5 pairs or more
UNDECIDED = ("underpowered", "not run")
SIDES = ("value", "value_right")  # columns of joined runs


@dataclass(frozen=True)
class ComparedRow:
    """One thing that was compared.

    Args:
        what: what it is.
        values: of the one and the other side, as text; empty where a side has none.
        note: how they differ, or why that is not known.
    """

    kind: Kind
    what: str
    values: tuple[str, str]
    answer: Answer
    note: str = ""


def compare(before: Side, after: Side, claim: str | None = None) -> list[ComparedRow]:
    """What two sides say of the same things.

    Verdicts are equal or not; intervals of claims' comparisons overlap or not; the runs of each method are
    paired by seed, and their median change is held against one tolerance. Of a whole set those runs are the
    headline metric's, with a tolerance of 0.1 %. Costs are not compared: two sessions differ in more than
    the code, and `curvebench.benchmarks.gate` times two commits in turn.

    Args:
        claim: the id of a claim to which all is restricted, runs to those that it compares, with its smallest
            effect for a tolerance; None for everything.

    Raises:
        InputError: when the two are of different scales.
    """
    if before.plan.scale != after.plan.scale:
        scales = " and ".join(f"{side.name} of scale {side.plan.scale}" for side in (before, after))
        raise InputError(f"{scales} cannot be compared; name two of one scale")
    sides = (before, after)
    return [*_verdicts(*sides, claim), *_comparisons(*sides, claim), *_runs(*sides, claim)]


def summed_up(answers: Sequence[Answer]) -> Answer:
    """It differs where anything does, and agrees where everything does."""
    found = set(answers)
    return "differs" if "differs" in found else "agrees" if found == {"agrees"} else "inconclusive"


# --- claims --------------------------------------------------------------------------------------


def _verdicts(before: Side, after: Side, claim: str | None) -> Iterator[ComparedRow]:
    """The verdict on each claim; of one that property checks decide, the share of instances that hold too."""
    key = ["claim", "variant", "backend"]
    old, new = (
        side.verdicts.claims.cast({"variant": pl.String, "verdict": pl.String}).filter(
            pl.col("claim") == claim if claim else True
        )
        for side in (before, after)
    )
    both = old.join(new, on=key, how="full", nulls_equal=True, coalesce=True, maintain_order="left_right")
    compared = compared_of(after.plan, after.verdicts.findings)
    for row in both.iter_rows(named=True):
        where = row["backend"] and f"on {row['backend']}"
        what = " ".join(filter(None, (row["claim"], row["variant"], where)))
        verdicts = row["verdict"] or "", row["verdict_right"] or ""
        answer: Answer = "agrees" if verdicts[0] == verdicts[1] else "differs"
        note = ""
        if answer == "differs" and verdicts[1]:
            claim_row = {name: row.get(f"{name}_right", row.get(name)) for name in CLAIMS}
            note = reason(after.plan, claim_row, compared.get((row["claim"], row["backend"]), []))
        if "" in verdicts:
            answer = "only in one"
        elif row["backend"] and row["rule"] != row["rule_right"]:
            answer, note = "inconclusive", "the rule of the claim is another one"
        elif answer == "differs" and set(verdicts) & set(UNDECIDED):
            answer = "inconclusive"
        yield ComparedRow("verdicts", what, verdicts, answer, note)
        if row["backend"] is None and None not in (row["low"], row["low_right"]):
            first, second = (
                MedianInterval(
                    row[f"estimate{side}"], row[f"low{side}"], row[f"high{side}"], LEVEL, count=row["seeds"]
                )
                for side in ("", "_right")
            )
            shares = (_shown(first), _shown(second))
            what = f"{what}: share of instances that hold"
            yield ComparedRow("verdicts", what, shares, overlap(first, second))


def _shown(one: MedianInterval) -> str:
    return f"{formatting.number(one.median)} {formatting.interval(one.low, one.high)}"


def _comparisons(before: Side, after: Side, claim: str | None) -> Iterator[ComparedRow]:
    """The median effect of each comparison that claims ask for; where runs stopped, both of its bounds."""
    old, new = (
        {_key(one): one for one in side.verdicts.comparisons if claim in (None, one.key.claim)}
        for side in (before, after)
    )
    decided = [{(one.key.claim, one.backend) for one in found.values()} for found in (old, new)]
    for key, one in (new | old).items():
        if (one.key.claim, one.backend) not in decided[0] & decided[1]:
            continue  # which the verdicts say
        pair = old.get(key), new.get(key)
        known = [each.bounds for each in pair if each is not None and len(each.gains)]
        if not known:
            continue  # no pairs of runs on either side
        what = (
            f"{one.key.claim}: {say('reading', one.condition)} {formatting.metric_name(one.condition.metric)}"
            f" of {one.key.treated} {'over' if one.effect == 'ratio' else 'less'} {one.control}, "
            f"{one.key.workload} on {one.backend}"
        )
        answer: Answer = "only in one" if None in pair else "inconclusive"
        if len(known) == 2:
            left, right = known
            near = one.margin if one.effect == "ratio" else 0.0
            answer = summed_up(
                [overlap(left.floor, right.floor, near), overlap(left.ceiling, right.ceiling, near)]
            )
        yield ComparedRow("comparisons of claims", what, (_effect(pair[0]), _effect(pair[1])), answer)


def _key(one: ClaimComparison) -> tuple[object, ...]:
    """What a comparison is of: its key, with what its condition asks instead of the condition's place."""
    condition = one.condition
    about = condition.metric, say("reading", condition), condition.relation, condition.number
    return one.backend, one.key._replace(condition=0), *about


def _effect(one: ClaimComparison | None) -> str:
    if one is None:
        return ""
    return " ".join(one.bounds.words) if len(one.gains) else "no pairs of runs"


def overlap(before: MedianInterval, after: MedianInterval, near: float = 0.0) -> Answer:
    """What two estimates of one thing say of each other.

    They agree where each lies in the other's interval, or next to the other; they differ where the intervals
    have nothing in common and both are sure enough to exclude.

    Args:
        near: the logarithm of the ratio of two estimates that is too small to matter.
    """
    first, second = before.median, after.median
    inside = after.low <= first <= after.high and before.low <= second <= before.high
    finite = min(first, second) > 0 and math.isfinite(max(first, second))
    if inside or first == second or (finite and abs(math.log(first / second)) <= near):
        return "agrees"
    disjoint = before.high < after.low or after.high < before.low
    return "differs" if disjoint and min(before.level, after.level) >= LEAST_LEVEL else "inconclusive"


# --- runs, seed by seed --------------------------------------------------------------------------


class JudgedMetric(NamedTuple):
    """A metric of a study's runs, and whether its `final` or `best` value counts."""

    study: str
    metric: str
    which: str


class Tolerance(NamedTuple):
    """The change of a value that does not matter, of a ratio its logarithm.

    Args:
        effect: how values are compared; None where they are to say (`effect_for`).
        limit: what no value counts as better than: a stop or a floor; None without.
    """

    change: float
    effect: Effect | None = None
    limit: float | None = None


Cells = dict[tuple[str, str, str], Tolerance]  # by workload, backend and method


def _runs(before: Side, after: Side, claim: str | None) -> Iterator[ComparedRow]:
    """The values of each method, paired by seed; a study that one side lacks is one row."""
    for name in sorted(before.tables.keys() ^ after.tables.keys()):
        values = name if name in before.tables else "", name if name in after.tables else ""
        yield ComparedRow("runs", f"study {name}", values, "only in one")
    wanted: dict[JudgedMetric, Cells] = {}
    for side in (before, after):
        for judged, cells in (_of_claim(side, claim) if claim else _headlines(side)).items():
            if judged.study in before.tables.keys() & after.tables.keys():
                wanted[judged] = wanted.get(judged, {}) | cells  # where both have a cell, the later side's
    for judged, cells in wanted.items():
        old, new = (_values(side, judged) for side in (before, after))
        both = old.join(new, on=[*CELL, "seed"], how="full", coalesce=True).sort("seed")
        runs = both.partition_by(CELL, as_dict=True)
        direction = before.plan.study(judged.study).direction_of(judged.metric)
        metric = f"{judged.which} {formatting.metric_name(judged.metric)}"
        for cell in (cell for cell in cells if cell in runs):
            workload, backend, method = cell
            named = f" ({judged.study})" if judged.study != workload else ""
            what = f"{metric} of {method}, {workload} on {backend}{named}"
            yield paired_row(what, runs[cell], cells[cell], direction)


def _headlines(side: Side) -> dict[JudgedMetric, Cells]:
    """The headline metric of every method."""
    found = {}
    for study in side.plan.studies:
        workloads = [workload.name for workload in study.workloads]
        cells = product(workloads, study.backends, study.methods)
        tolerance = Tolerance(NEGLIGIBLE, limit=headline_limit(study))
        found[JudgedMetric(study.name, study.metric, study.which)] = dict.fromkeys(cells, tolerance)
    return found


def _of_claim(side: Side, claim: str) -> dict[JudgedMetric, Cells]:
    """What a claim compares of final runs, with the smallest effect that matters to it."""
    found: dict[JudgedMetric, Cells] = {}
    compared = [one for one in side.verdicts.comparisons if one.key.claim == claim]
    for one in sorted(compared, key=lambda each: -each.margin):  # so that the smallest one stays
        if isinstance(one.condition, Value):
            cells = found.setdefault(JudgedMetric(one.study, one.condition.metric, one.condition.which), {})
            for workload, method in one.key.arms:
                cell = workload, one.backend, method
                limit = one.condition.floor
                if limit is None and cell in cells:
                    limit = cells[cell].limit
                cells[cell] = Tolerance(one.margin, one.effect, limit)
    return found


def _values(side: Side, judged: JudgedMetric) -> pl.DataFrame:
    """What final runs have of a metric: columns workload, backend, method, seed and value."""
    final = side.tables[judged.study].runs.filter(pl.col("stage") == "final")
    values = study_values(side.plan.study(judged.study), final, judged.metric, judged.which)
    return values.select(*CELL, "seed", "value").drop_nulls()


def paired_row(what: str, runs: pl.DataFrame, tolerance: Tolerance, direction: Direction) -> ComparedRow:
    """How far the runs of one method end from each other: the median change over seeds, with its interval.

    It agrees where the whole interval lies within the tolerance; it differs where all lies outside, and is
    sure enough to exclude. Values beyond the tolerance's limit count as at it.

    Args:
        runs: columns seed, value and value_right; null where a side has no run of that seed.
        direction: whether less of the metric is better.
    """
    runs = runs.with_columns(clip_at(pl.col(side), direction, tolerance.limit) for side in SIDES)
    first, second = (
        formatting.number(median_interval(values.to_numpy()).median) if len(values) else ""
        for values in (runs[side].drop_nulls() for side in SIDES)
    )
    pairs = runs.drop_nulls()
    if not len(pairs):
        return ComparedRow("runs", what, (first, second), "only in one", "no seed is in both")
    old, new = (pairs[side].to_numpy() for side in SIDES)
    effect = tolerance.effect or effect_for(np.concatenate([old, new]), direction)
    with np.errstate(divide="ignore", invalid="ignore"):
        moved = np.log(new) - np.log(old) if effect == "ratio" else new - old
    change = median_interval(np.where(new == old, 0.0, moved))

    def shown(change: float) -> str:
        with np.errstate(over="ignore"):
            return formatting.signed(float(np.expm1(change)) if effect == "ratio" else change)

    note = (
        f"median {'relative change' if effect == 'ratio' else 'change'} {shown(change.median)} "
        f"[{shown(change.low)}, {shown(change.high)}] over {formatting.counted(change.count, 'seeds')}, "
        f"tolerance {shown(tolerance.change).removeprefix('+')}"
    )
    answer: Answer = "inconclusive"
    if max(-change.low, change.high) <= tolerance.change:
        answer = "agrees"
    elif max(change.low, -change.high) > tolerance.change and change.level >= LEAST_LEVEL:
        answer = "differs"
        note = ("better, " if (change.median < 0) == (direction == "minimize") else "worse, ") + note
    return ComparedRow("runs", what, (first, second), answer, note)


# --- the page ------------------------------------------------------------------------------------


def render(before: Side, after: Side) -> str:
    """The page, complete in itself: its style is inside."""
    rows = sorted(compare(before, after), key=lambda row: ANSWERS.index(row.answer))
    sides = [
        {"name": side.name, "plan": side.plan, **provenance_of(side.jobs, 0)} for side in (before, after)
    ]
    page = templates().get_template("comparison.html.jinja")
    return page.render(
        style=(STATIC / "style.css").read_text(),
        sides=sides,
        other_machines=set(before.jobs["machine"]) != set(after.jobs["machine"]),
        rows={kind: [row for row in rows if row.kind == kind] for kind in get_args(Kind)},
        answers=ANSWERS,
    )
