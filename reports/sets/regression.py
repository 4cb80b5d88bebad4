"""Two published sets, or two checkouts, side by side as one page: what got better, worse, or neither."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import polars as pl

from documents.errors import InputError
from documents.plan import ReportPlan, StudyPlan
from reports.claims.verdict_list import read_verdicts
from reports.measures import peak_memory, study_values
from reports.plan import read_plan
from reports.rendering import templates
from reports.sets.files import PLAN
from reports.statistics.decisions import holm
from reports.statistics.paired import PairedComparison, compare_pairs, effect_for
from reports.statistics.ranks import NEGLIGIBLE
from reports.statistics.shifts import Shift, shift
from reports.tables import Tables, read_tables
from results.intervals import LEVEL
from results.merging import machines
from results.verdicts import ALPHA

Change = Literal["better", "worse", "undecided", "unchanged", "not comparable"]
CHANGES: tuple[Change, ...] = ("worse", "better", "undecided", "unchanged", "not comparable")
SITE_PLAN = Path("reports/site/plan.json")  # in a checkout: of what its site shows
SMALL_STEP = 0.05  # relative: what sessions on one machine differ by, whatever the code
Rows = list[dict[str, Any]]


@dataclass(frozen=True)
class Side:
    """One of the two.

    Args:
        name: as the page calls it.
        tables: by study.
    """

    name: str
    plan: ReportPlan
    tables: Mapping[str, Tables]

    @property
    def jobs(self) -> pl.DataFrame:
        """The jobs of all studies."""
        return pl.concat([tables.jobs for tables in self.tables.values()]).unique(maintain_order=True)


@dataclass(frozen=True)
class Outcome:
    """The headline metric of a method, after against before, seed by seed.

    Args:
        p_value: two-sided.
        same_machines: whether both sides ran on the same ones.
    """

    study: str
    workload: str
    backend: str
    method: str
    metric: str
    which: str
    before: float
    after: float
    paired: PairedComparison
    p_value: float
    change: Change
    same_machines: bool


@dataclass(frozen=True)
class StepRatio:
    """The step seconds of a method, after against before.

    Args:
        before, after: seconds.
        ratio: after over before, with its interval.
        control: the same ratio of the gradient alone, which no optimizer changes; None where not timed.
        judged: the ratio of what is judged: steps over the gradient alone where that was timed, else steps.
        least: the least estimate that would be worse, if repetitions spread as these do; None where so few
            can decide nothing.
        p_value: two-sided.
    """

    study: str
    workload: str
    backend: str
    method: str
    before: float
    after: float
    ratio: Shift
    control: float | None
    judged: Shift
    least: float | None
    p_value: float
    change: Change


def compare(before: Path, after: Path, out: Path) -> Path:
    """Write the page that sets two sides beside each other.

    Args:
        before, after: folders of published sets, or of checkouts whose site is rendered.
        out: the page.

    Raises:
        InputError: when a side cannot be read, or they have no study in common.
    """
    sides = read_side(before), read_side(after)
    page = render(*sides)
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(page)
    return out


def read_side(folder: Path) -> Side:
    """The tables of a published set, or of a checkout by the plan that its site shows.

    Raises:
        InputError: when the folder is neither, or a table is missing or damaged.
    """
    if (folder / PLAN).is_file():
        plan = read_plan(folder / PLAN)
    elif (folder / SITE_PLAN).is_file():
        plan = read_plan(folder / SITE_PLAN, root=folder)
    else:
        raise InputError(
            f"{folder}: neither a published set (with {PLAN}) nor a checkout whose site is rendered (with "
            f"{SITE_PLAN}); name one of these"
        )
    name = plan.published or folder.resolve().name
    return Side(name, plan, {study.name: read_tables(study.tables) for study in plan.studies})


# --- accuracy ------------------------------------------------------------------------------------


def outcomes(before: Side, after: Side) -> list[Outcome]:
    """The headline metric of every study, workload, backend and method that both sides ran, worst news first.

    P-values are two-sided, twice the smaller of the two exact ones of the sign test, and corrected by Holm's
    method over the methods of a workload on a backend.
    """
    found = [one for left, right in shared(before, after) for one in _outcomes(before, after, left, right)]
    judged = [
        replace(one, p_value=p_value, change=change_of(one.paired, p_value, less_is_better(before, one)))
        for one, p_value in zip(found, adjusted(found), strict=True)
    ]
    return sorted(judged, key=lambda one: CHANGES.index(one.change))


def adjusted(rows: Sequence[Outcome] | Sequence[StepRatio]) -> list[float]:
    """The p-values of rows, corrected by Holm's method inside each study, workload and backend."""
    families: dict[tuple[str, str, str], list[int]] = {}
    for number in range(len(rows)):
        row = rows[number]
        families.setdefault((row.study, row.workload, row.backend), []).append(number)
    found = [0.0] * len(rows)
    for numbers in families.values():
        for number, value in zip(numbers, holm([rows[number].p_value for number in numbers]), strict=True):
            found[number] = value
    return found


def less_is_better(side: Side, one: Outcome) -> bool:
    """Whether less of the metric is better."""
    return side.plan.study(one.study).direction == "minimize"


def change_of(paired: PairedComparison, p_value: float, less: bool) -> Change:
    """What a comparison says: unchanged where all of the interval is negligible, decided where p allows.

    Args:
        less: whether less of the metric is better.
    """
    null = 1.0 if paired.effect == "ratio" else 0.0
    if max(abs(paired.low - null), abs(paired.high - null)) <= NEGLIGIBLE:
        return "unchanged"
    if p_value > ALPHA or paired.median == null:
        return "undecided"
    return "better" if (paired.median < null) == less else "worse"


def shared(before: Side, after: Side) -> list[tuple[StudyPlan, StudyPlan]]:
    """The studies that both sides have, judged by the same metric.

    Raises:
        InputError: when there is none.
    """
    others = {study.name: study for study in after.plan.studies}
    pairs = [(study, others[study.name]) for study in before.plan.studies if study.name in others]
    pairs = [
        (left, right) for left, right in pairs if (left.metric, left.which) == (right.metric, right.which)
    ]
    if not pairs or before.plan.scale != after.plan.scale:
        raise InputError(
            f"{before.name} (scale {before.plan.scale}) and {after.name} (scale {after.plan.scale}) have no "
            "study in common that is judged by the same metric at the same scale"
        )
    return pairs


def _outcomes(before: Side, after: Side, left: StudyPlan, right: StudyPlan) -> Iterator[Outcome]:
    sides = []
    for side, study in ((before, left), (after, right)):
        runs = side.tables[study.name].runs.filter(pl.col("stage") == "final")
        sides.append(study_values(study, runs).drop_nulls("value"))
    key = ["workload", "backend", "method", "seed"]
    columns = [*key, "value", "machine"]
    both = sides[0].select(columns).join(sides[1].select(columns), on=key).sort(key)
    for (workload, backend, method), rows in both.group_by(key[:-1], maintain_order=True):
        old, new = rows["value"].to_numpy(), rows["value_right"].to_numpy()
        effect = effect_for(np.concatenate([old, new]), left.direction)
        paired = compare_pairs(new, old, left.direction, effect, NEGLIGIBLE)
        worse = compare_pairs(old, new, left.direction, effect, NEGLIGIBLE).p_value
        yield Outcome(
            left.name,
            workload,
            backend,
            method,
            left.metric,
            left.which,
            float(np.median(old)),
            float(np.median(new)),
            paired,
            min(1.0, 2 * min(paired.p_value, worse)),
            "undecided",
            set(rows["machine"]) == set(rows["machine_right"]),
        )


# --- cost ----------------------------------------------------------------------------------------


def steps(before: Side, after: Side) -> list[StepRatio]:
    """The step seconds of every method that both sides timed, worst news first.

    Sessions differ in more than the code, so that a step is judged over the gradient alone, timed beside it.
    Ratios are Hodges and Lehmann's, and p-values Mann and Whitney's, two-sided and exact (repetitions of two
    sessions are not paired), corrected by Holm's method over the methods of a workload on a backend. Seconds
    of different machines are not comparable.
    """
    found = [one for left, _ in shared(before, after) for one in _steps(before, after, left.name)]
    judged = [
        replace(
            one,
            p_value=p_value,
            change=one.change if one.change != "undecided" else step_change(one.judged, p_value),
        )
        for one, p_value in zip(found, adjusted(found), strict=True)
    ]
    return sorted(judged, key=lambda one: CHANGES.index(one.change))


def step_change(judged: Shift, p_value: float) -> Change:
    """What a comparison says: unchanged where all of a 95 % interval is small, decided where p allows.

    A p-value that allows it lies with an interval that excludes 1; the estimate must then be more than small.
    """
    most = 1 + SMALL_STEP
    if judged.level >= LEVEL and judged.low >= 1 / most and judged.high <= most:
        return "unchanged"
    if p_value > ALPHA or 1 / most <= judged.estimate <= most:
        return "undecided"
    return "better" if judged.estimate < 1 else "worse"


def _steps(before: Side, after: Side, study: str) -> Iterator[StepRatio]:
    key = ["workload", "backend", "method"]
    left, right = (_repetitions(side.tables[study].timings) for side in (before, after))
    left = left.join(right, on=key, how="semi", maintain_order="left")
    families = {place: rows["method"].n_unique() for place, rows in left.group_by(key[:-1])}
    for (workload, backend, method), old in left.group_by(key, maintain_order=True):
        new = right.filter(workload=workload, backend=backend, method=method)
        timed = not (old["null"].has_nulls() or new["null"].has_nulls())
        judged = [(rows["step"] / rows["null"] if timed else rows["step"]).to_numpy() for rows in (old, new)]
        ratio = ratio_of(judged[1], judged[0])
        yield StepRatio(
            study,
            workload,
            backend,
            method,
            float(np.median(old["step"].to_numpy())),
            float(np.median(new["step"].to_numpy())),
            ratio_of(new["step"].to_numpy(), old["step"].to_numpy()),
            float(np.median(new["null"].to_numpy()) / np.median(old["null"].to_numpy())) if timed else None,
            ratio,
            least_worse(judged[1], judged[0], families[workload, backend]),
            ratio.p_value,
            _before_the_test(old, new, judged),
        )


def _before_the_test(old: pl.DataFrame, new: pl.DataFrame, judged: Sequence[np.ndarray]) -> Change:
    """What needs no test: other machines do not compare, and the same repetitions are unchanged."""
    if set(old["machine"]) != set(new["machine"]) or old["machine"].n_unique() != 1:
        return "not comparable"
    return "unchanged" if np.array_equal(np.sort(judged[0]), np.sort(judged[1])) else "undecided"


def _repetitions(timings: pl.DataFrame) -> pl.DataFrame:
    """Seconds of a step and of the gradient alone, by repetition; `null` is null where that was not timed."""
    key = ["workload", "backend", "machine", "repetition"]
    each = timings.filter(pl.col("steps") > 0).with_columns(
        (pl.col("seconds") / pl.col("steps")).alias("each")
    )
    null = (
        each.filter(pl.col("phase") == "null_step").group_by(key).agg(pl.col("each").median().alias("null"))
    )
    return (
        each.filter(pl.col("phase") == "step")
        .select(*key, "method", pl.col("each").alias("step"))
        .join(null, on=key, how="left", nulls_equal=True, maintain_order="left")
    )


def ratio_of(after: np.ndarray, before: np.ndarray, level: float = LEVEL) -> Shift:
    """The ratio of two independent samples of positive values: the shift of their logarithms."""
    found = shift(np.log(after), np.log(before), level)
    low, estimate, high = (float(np.exp(value)) for value in (found.low, found.estimate, found.high))
    return replace(found, estimate=estimate, low=low, high=high)


def least_worse(after: np.ndarray, before: np.ndarray, family: int) -> float | None:
    """The least estimated ratio that would be worse, whatever Holm's correction over `family` methods.

    Were all of `after` slower by one factor, estimate and interval would be so too: the interval at the most
    severe level of the correction excludes 1 from the estimate over its lower end on.

    Returns:
        The ratio, more than the small one; None where so few repetitions do not reach that level.
    """
    level = 1 - ALPHA / family
    found = ratio_of(after, before, level)
    return max(found.estimate / found.low, 1 + SMALL_STEP) if found.level >= level else None


def memories(before: Side, after: Side) -> Rows:
    """The peak memory of every method that both sides measured, once each, so that nothing is judged."""
    rows: Rows = []
    for left, _ in shared(before, after):
        old, new = (peak_memory(side.tables[left.name].memory) for side in (before, after))
        both = old.join(new, on=["workload", "backend", "method"], maintain_order="left")
        for row in both.iter_rows(named=True):
            kind = "device" if None not in (row["device"], row["device_right"]) else "host"
            if None not in (row[kind], row[f"{kind}_right"]):
                rows.append(
                    {
                        **{name: row[name] for name in ("workload", "backend", "method")},
                        "study": left.name,
                        "kind": kind,
                        "before": row[kind],
                        "after": row[f"{kind}_right"],
                        "ratio": row[f"{kind}_right"] / row[kind] if row[kind] > 0 else None,
                    }
                )
    return rows


# --- verdicts and machines -----------------------------------------------------------------------


def changed_verdicts(before: Side, after: Side) -> Rows:
    """Claims whose verdict differs, with both; None where one side does not have the claim."""
    key = ["claim", "variant", "backend"]
    old, new = (
        read_verdicts(side.plan).claims.with_columns(pl.col("variant", "verdict").cast(pl.String))
        for side in (before, after)
    )
    both = old.join(new, on=key, how="full", nulls_equal=True, coalesce=True, maintain_order="left_right")
    changed = both.filter(pl.col("verdict").ne_missing(pl.col("verdict_right")))
    on_both = pl.col("verdict").is_not_null() & pl.col("verdict_right").is_not_null()
    rule = on_both & pl.col("rule").ne_missing(pl.col("rule_right")) & pl.col("backend").is_not_null()
    return changed.select(
        *key,
        pl.col("verdict").alias("before"),
        pl.col("verdict_right").alias("after"),
        pl.coalesce("reason_right", "reason").alias("reason"),
        rule.alias("other_rule"),
    ).to_dicts()


def other_machines(before: Side, after: Side) -> bool:
    """Whether the two sides ran on different machines."""
    return set(before.jobs["machine"]) != set(after.jobs["machine"])


# --- the page ------------------------------------------------------------------------------------


def render(before: Side, after: Side) -> str:
    """The page, complete in itself: its style is inside."""
    from reports.pages.site import STATIC

    accuracy, speed = outcomes(before, after), steps(before, after)
    page = templates().get_template("regression.html.jinja")
    return page.render(
        style=(STATIC / "style.css").read_text(),
        sides=[
            {
                "name": side.name,
                "plan": side.plan,
                "machines": machines(side.jobs).to_dicts(),
                "commits": side.jobs.select("commit", "dirty").unique().sort("commit", "dirty").to_dicts(),
                "started": side.jobs["started"].max(),
            }
            for side in (before, after)
        ],
        outcomes=accuracy,
        steps=speed,
        memories=memories(before, after),
        verdicts=changed_verdicts(before, after),
        counts={
            kind: {change: sum(one.change == change for one in rows) for change in CHANGES}
            for kind, rows in (("Accuracy", accuracy), ("Seconds of a step", speed))
        },
        changes=CHANGES,
        other_machines=other_machines(before, after),
        missing=_missing(before, after),
        negligible=NEGLIGIBLE,
        small_step=SMALL_STEP,
        alpha=ALPHA,
    )


def _missing(before: Side, after: Side) -> list[str]:
    """What only one side has, in sentences."""
    found = []
    common = {left.name for left, _ in shared(before, after)}
    for side, other in ((before, after), (after, before)):
        for study in side.plan.studies:
            if study.name not in common:
                found.append(
                    f"study {study.name}: {side.name} alone, or judged by another metric in {other.name}"
                )
                continue
            theirs = set(other.plan.study(study.name).methods)
            alone: Sequence[str] = [method for method in study.methods if method not in theirs]
            if alone:
                found.append(f"study {study.name}: {side.name} alone has {', '.join(alone)}")
    return found
