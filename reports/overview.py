"""Which method to use for what: on every workload the first at the target and the one that ends best."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import isfinite
from typing import Any, Literal

import polars as pl

from reports.formatting import metric_name, number, plain
from reports.measures import complete_interval, evaluations_to_target, seconds_to_target, study_values
from reports.plan import StudyPlan, WorkloadPlan
from reports.setting import apart, repeated
from reports.statistics.medians import MedianInterval, median_interval, medians
from reports.statistics.paired import Direction
from reports.statistics.ranks import NEGLIGIBLE, tied
from reports.statistics.selection import best_set
from reports.statistics.shares import Share, share_interval
from reports.stopped import PairedEffect, effect_by_seed
from reports.tables import Tables
from results.verdicts import ALPHA

Asked = Literal["target", "end"]
NAMED = 3  # methods of a set that a sentence names


@dataclass(frozen=True)
class Leading:
    """The methods that may be the best by one measure, the one with the best median first.

    Args:
        beaten: how many others are out of the question.
        least: the smallest p-value that the number of seeds permits.
    """

    methods: tuple[str, ...]
    beaten: int
    least: float

    @property
    def method(self) -> str:
        """The one with the best median."""
        return self.methods[0]

    @property
    def others(self) -> str:
        """The others that may be the best, in words; empty where there are none."""
        return listed(self.methods[1:]) if len(self.methods) > 1 else ""


@dataclass(frozen=True)
class Standing:
    """How a method ends on a workload, and what the target took it, the sampling of its basis charged.

    Args:
        asked: what it is the best at: getting to the target, or the end after equal steps.
        value: the headline metric.
        effect: beside the baseline, seed by seed; None for the baseline itself.
        evaluations, seconds: to the target; None without a target, or where steps were not timed.
        basis: gradient evaluations before the first step; 0 without a basis.
        reached: runs that reached the target; None without one.
    """

    asked: Asked
    leading: Leading
    value: MedianInterval
    stopped: bool
    effect: PairedEffect | None
    evaluations: MedianInterval | None
    seconds: MedianInterval | None
    basis: int
    reached: Share | None

    @property
    def own(self) -> str:
        """The median of the headline metric, or where its run stopped."""
        return f"stopped at {plain(self.value.median)}" if self.stopped else number(self.value.median)


@dataclass(frozen=True)
class Answer:
    """What may be said of one workload.

    Args:
        backend: the study's first.
        seeds: of the method that ends best.
        baseline: the study's first method, with which losses are compared.
        target: the metric and threshold; None where the study has none.
        ends: the method that ends best after equal steps.
        use: the method to use: the first at the target, its sampling charged; without a target, or where half
            of the runs of every method miss it, the one that ends best.
        shared: whether other studies have the workload too.
        apart: how its study differs from those, in a phrase; empty where nothing is to be said.
        claimed: whether a claim on this workload, which asks for fewer comparisons, is borne out.
    """

    study: StudyPlan
    workload: WorkloadPlan
    backend: str
    seeds: int
    baseline: str
    target: tuple[str, float] | None
    use: Standing
    ends: Standing
    shared: bool = False
    apart: str = ""
    claimed: bool = False

    @property
    def agree(self) -> bool:
        """Whether the method to use is the one that ends best."""
        return self.use.leading.method == self.ends.leading.method

    @property
    def standings(self) -> tuple[Standing, ...]:
        """The method to use and, where it is another one, the one that ends best."""
        return (self.use,) if self.agree else (self.use, self.ends)

    @property
    def certain(self) -> bool:
        """Whether the method to use is told from anything."""
        return self.use.leading.beaten > 0

    @property
    def metric(self) -> str:
        """The headline metric in words."""
        return f"{self.study.which} {metric_name(self.study.metric)}"

    @property
    def aim(self) -> str:
        """The target in words; empty without one."""
        return f"{metric_name(self.target[0])} {plain(self.target[1])}" if self.target else ""

    @property
    def told(self) -> str:
        """What the tables say, with its evidence, in plain sentences."""
        return sentence(self)


def answers(studies: Sequence[tuple[StudyPlan, Tables]], borne_out: Collection[str] = ()) -> list[Answer]:
    """One answer a workload of a study, on the study's first backend; none where there are no final runs.

    Args:
        borne_out: ids of claims that are reproduced, or partly.
    """
    found = [
        answer
        for study, tables in studies
        for workload in study.workloads
        for answer in [_answer(study, workload, study.backends[0], tables)]
        if answer is not None
    ]
    return [replace(answer, **_among(answer, found), claimed=_claimed(answer, borne_out)) for answer in found]


def _claimed(answer: Answer, borne_out: Collection[str]) -> bool:
    return any(
        condition.is_about(answer.workload)
        for claim in answer.study.claims
        if claim.id in borne_out
        for condition in claim.conditions
    )


def borne_out(claims: Iterable[Mapping[str, Any]]) -> frozenset[str]:
    """The ids of claims of which a comparison holds.

    Args:
        claims: verdicts, as `reports.verdict_list.listed` gives them.
    """
    held = ("reproduced", "partly reproduced")
    return frozenset(claim["id"] for claim in claims if claim["verdict"] in held)


def _among(answer: Answer, found: Sequence[Answer]) -> dict[str, Any]:
    """Whether the workload is shared, and how the answer's study differs from the others that have it.

    A study that only repeats claims says what it repeats and how, and the others are not compared with it.
    """
    others = [
        (other.study, other.workload)
        for other in found
        if other is not answer and other.workload.name == answer.workload.name
    ]
    if answer.study.only_repeats:
        told = repeated(answer.study) if others else ""
    else:
        first = [(study, workload) for study, workload in others if not study.only_repeats]
        told = apart((answer.study, answer.workload), first)
    return {"shared": bool(others), "apart": told}


def _answer(study: StudyPlan, workload: WorkloadPlan, backend: str, tables: Tables) -> Answer | None:
    final = tables.runs.filter(
        pl.col("workload") == workload.name, pl.col("backend") == backend, pl.col("stage") == "final"
    )
    values = study_values(study, final).drop_nulls("value")
    if not len(values):
        return None
    there = set(values["method"])
    baseline = next(method for method in study.methods if method in there)
    target = next(((name, at) for name, at in study.targets.items() if name in workload.metrics), None)
    sign = 1 if study.direction == "minimize" else -1
    at_end = {
        name: sign * value
        for name, value in medians(values, ["method"], "value").select("method", "median").rows()
    }
    ends = _standing(
        study, "end", leading(values, study.direction, study.methods), baseline, target, final, values
    )
    first = _first(
        final,
        target,
        sorted((name for name in study.methods if name in at_end), key=lambda name: at_end[name]),
    )
    use = _standing(study, "target", first, baseline, target, final, values) if first else ends
    return Answer(study, workload, backend, ends.value.count, baseline, target, use, ends)


def _first(final: pl.DataFrame, target: tuple[str, float] | None, order: Sequence[str]) -> Leading | None:
    """The methods that may need the fewest gradients to the target; None where half of all runs miss it.

    Args:
        order: methods, the one that ends best first: of two that are as soon it leads.
    """
    times = evaluations_to_target(final, target[0]) if target else final.clear()
    if not len(times):
        return None
    found = leading(times, "minimize", order)
    fewest = median_interval(times.filter(pl.col("method") == found.method)["value"].to_numpy())
    reached = set(times.filter(pl.col("value").is_finite())["method"])  # never there is never first
    may_be = tuple(name for name in found.methods if name in reached)
    return replace(found, methods=may_be) if isfinite(fewest.median) else None


def leading(values: pl.DataFrame, direction: Direction, order: Sequence[str]) -> Leading:
    """The methods that may be the best; of medians that tie, the one that is named first leads.

    Args:
        values: columns method, seed, value.
        order: names of methods.
    """
    chosen = best_set(values, ["seed"], "method", "value", direction, ALPHA, NEGLIGIBLE)
    # of a ring in which each beats the next nobody is kept, and all may be the best
    kept = set(chosen.filter("kept")["method"]) or set(chosen["method"])
    found = dict(medians(values, ["method"], "value").select("method", "median").iter_rows())
    sign = 1 if direction == "minimize" else -1
    best = sorted((name for name in order if name in kept), key=lambda name: sign * found[name])
    lead = next(name for name in order if name in kept and tied(found[name], found[best[0]]))
    methods = (lead, *(name for name in best if name != lead))
    return Leading(methods, len(found) - len(methods), float(chosen["least"].max()))  # type: ignore[arg-type]


def _standing(
    study: StudyPlan,
    asked: Asked,
    chosen: Leading,
    baseline: str,
    target: tuple[str, float] | None,
    final: pl.DataFrame,
    values: pl.DataFrame,
) -> Standing:
    method = chosen.method
    runs = final.filter(pl.col("method") == method)
    own = values.filter(pl.col("method") == method)
    value = median_interval(own["value"].to_numpy())
    evaluations = (
        evaluations_to_target(runs, target[0])["value"] if target else pl.Series([], dtype=pl.Float64)
    )
    reached = int(evaluations.is_finite().sum())
    return Standing(
        asked=asked,
        leading=chosen,
        value=value,
        stopped=value.median == study.stop.get(study.metric),
        effect=None if method == baseline else effect_by_seed(study, values, method, baseline),
        evaluations=complete_interval(evaluations),
        seconds=complete_interval(seconds_to_target(runs, target[0])["value"]) if target else None,
        basis=int(runs["basis_gradient_evaluations"].fill_null(0).max()),  # type: ignore[arg-type]
        reached=share_interval(reached, len(evaluations)) if len(evaluations) else None,
    )


# --- in words ------------------------------------------------------------------------------------


def sentence(answer: Answer) -> str:
    """What the tables say of a workload as a few plain sentences."""
    use, ends = answer.use, answer.ends
    seeds = f"{answer.seeds} {'seed' if answer.seeds == 1 else 'seeds'}"
    total = len(ends.leading.methods) + ends.leading.beaten
    if total == 1:
        return f"No other method ran on it ({seeds})."
    if not isfinite(ends.value.median):
        return (
            f"Nothing can be told: half of the runs of every method that may be the best diverged ({seeds})."
        )
    told = _choice(answer)
    if answer.certain:
        return told
    why = _why(use.leading)
    if answer.claimed:
        why += ": all are compared, with a correction, and a claim asks for one comparison"
    return f"Uncertain: {seeds} do not tell any of {total} methods from another{why}. {told}"


def _choice(answer: Answer) -> str:
    """Which method leads by which of the two measures."""
    use, ends = answer.use, answer.ends
    least = "lowest" if answer.study.direction == "minimize" else "highest"
    at_end = f"{least} {metric_name(answer.study.metric)} after equal steps"
    if use.asked == "end":
        missed = f"Half of the runs of every method miss {answer.aim}. " if answer.target else ""
        return f"{missed}{at_end.capitalize()}: {ends.leading.method}."
    if answer.agree:
        basis = ", its sampling charged," if use.basis else ""
        open_ = f"; there {ends.leading.others} cannot be told from it" if ends.leading.others else ""
        return f"{use.leading.method} is first to the target{basis} and has the {at_end}{open_}."
    charged = ", sampling charged" if use.basis or ends.basis else ""
    price = _price(use, ends)
    return (
        f"{at_end.capitalize()}: {ends.leading.method}{f' ({price})' if price else ''}; "
        f"first to the target{charged}: {use.leading.method}."
    )


def _price(use: Standing, ends: Standing) -> str:
    """What the better end costs to the target beside the method to use; empty where it is not known."""
    if use.evaluations is None or ends.evaluations is None:
        return ""
    if not isfinite(ends.evaluations.median):
        return "half of its runs miss the target"
    if use.evaluations.median <= 0:
        return ""  # a target that the start has met
    prices = [f"gradients × {_factor(ends.evaluations.median / use.evaluations.median)}"]
    if use.seconds and ends.seconds and use.seconds.median > 0:
        prices.append(f"seconds × {_factor(ends.seconds.median / use.seconds.median)}")
    return ", ".join(prices)


def _factor(value: float) -> str:
    """A number to two digits: 8.3, 4,900."""
    return number(float(f"{value:.2g}"), 2)


def _why(leading: Leading) -> str:
    """Why nothing could be told, where the seeds are too few for it."""
    return f", and so few cannot (least corrected p {number(leading.least)})" if leading.least > ALPHA else ""


def listed(methods: Sequence[str]) -> str:
    """Methods in words, the first few by name."""
    shown = list(methods[:NAMED])
    if len(methods) > NAMED:
        shown.append(f"{len(methods) - NAMED} more")
    return shown[0] if len(shown) == 1 else f"{', '.join(shown[:-1])} and {shown[-1]}"
