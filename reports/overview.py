"""Which method to use for what: on every workload those that may be the best, and what they cost."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import isfinite

import polars as pl

from reports.formatting import MINUS, NONE, count, metric_name, number, plain, size
from reports.measures import (
    compared_by_seed,
    evaluations_to_target,
    peak_memory,
    references,
    step_ratios,
    study_values,
)
from reports.plan import StudyPlan, WorkloadPlan
from reports.statistics.medians import MedianInterval, median_interval, medians
from reports.statistics.paired import Direction, PairedComparison
from reports.statistics.ranks import NEGLIGIBLE, tied
from reports.statistics.selection import best_set
from reports.tables import Tables
from results.verdicts import ALPHA

NAMED = 3  # methods of a set that a sentence names


@dataclass(frozen=True)
class Cost:
    """What a method costs beside the plain choice; None where it was not measured.

    Args:
        step: seconds of a step over those of the plain choice.
        basis: gradient evaluations before the first step, for its basis; 0 without one.
        run: gradient evaluations of the whole run, the basis apart.
        memory: peak bytes while steps run, less those of the plain choice.
    """

    step: MedianInterval | None
    basis: int
    run: float | None
    memory: int | None

    @property
    def gradients(self) -> str:
        """The gradient evaluations of a basis beside those of the run."""
        run = NONE if self.run is None else count(self.run)
        return f"{count(self.basis)} + {run}" if self.basis else run

    @property
    def more_memory(self) -> str:
        """The memory beside the plain choice with its sign."""
        if self.memory is None:
            return NONE
        return f"{'+' if self.memory >= 0 else MINUS}{size(abs(self.memory))}"


@dataclass(frozen=True)
class Answer:
    """What may be said of one workload.

    Args:
        backend: the study's first.
        best: the methods that may be the best, the one with the best median first.
        beaten: how many methods are out of the question.
        reached: whether the best median is the threshold at which runs stop.
        least: the smallest p-value that the number of seeds permits.
        plain: what `best[0]` is set beside: its optimizer without a basis, else the study's first method;
            None where it is that itself.
        target: the metric and threshold that methods of the set race to; None where the study has none.
        fastest: of several, those that may need the fewest gradient evaluations to the target, the one with
            the least median first; empty where the medians are infinite.
        evaluations: of `fastest[0]` until the target, its basis charged.
        effect: `best[0]` against the plain choice, seed by seed.
    """

    study: StudyPlan
    workload: WorkloadPlan
    backend: str
    best: tuple[str, ...]
    beaten: int
    seeds: int
    value: MedianInterval
    reached: bool
    least: float
    plain: str | None
    effect: PairedComparison | None
    cost: Cost
    target: tuple[str, float] | None
    fastest: tuple[str, ...]
    evaluations: MedianInterval | None

    @property
    def certain(self) -> bool:
        """Whether anything is told from anything."""
        return self.beaten > 0

    @property
    def metric(self) -> str:
        """The headline metric in words."""
        return f"{self.study.which} {metric_name(self.study.metric)}"

    @property
    def own(self) -> str:
        """The first method's own median."""
        return f"stopped at {plain(self.value.median)}" if self.reached else number(self.value.median)

    @property
    def told(self) -> str:
        """What the tables say, with its evidence, in plain sentences."""
        return sentence(self)

    @property
    def others(self) -> str:
        """The other methods that may be the best, in words; empty where there are none."""
        return listed(self.best[1:]) if len(self.best) > 1 else ""


def answers(studies: Sequence[tuple[StudyPlan, Tables]]) -> list[Answer]:
    """One answer a workload of a study, on the study's first backend; none where there are no final runs."""
    return [
        answer
        for study, tables in studies
        for workload in study.workloads
        for answer in [_answer(study, workload, study.backends[0], tables)]
        if answer is not None
    ]


def _answer(study: StudyPlan, workload: WorkloadPlan, backend: str, tables: Tables) -> Answer | None:
    here = (pl.col("workload") == workload.name) & (pl.col("backend") == backend)
    final = tables.runs.filter(here & (pl.col("stage") == "final"))
    values = study_values(study, final).drop_nulls("value")
    if not len(values):
        return None
    summary = {
        row.pop("method"): MedianInterval(**row) for row in medians(values, ["method"], "value").to_dicts()
    }
    order, least = _leading(study, values, study.direction)
    lead = order[0]
    target = next(iter(study.targets.items()), None)
    times = evaluations_to_target(final.filter(pl.col("method").is_in(order)), target[0]) if target else None
    fastest, to_target = _fastest(study, times) if times is not None and len(order) > 1 else ((), None)
    reference = references(study.methods).get(lead)
    reference = reference if reference in summary else None
    return Answer(
        study=study,
        workload=workload,
        backend=backend,
        best=tuple(order),
        beaten=len(summary) - len(order),
        seeds=summary[lead].count,
        value=summary[lead],
        reached=summary[lead].median == study.stop.get(study.metric),
        least=least,
        plain=reference,
        effect=_effect(study, values, lead, reference) if reference else None,
        cost=_cost(final, tables, here, lead, reference),
        target=target,
        fastest=fastest,
        evaluations=to_target,
    )


def _leading(study: StudyPlan, values: pl.DataFrame, direction: Direction) -> tuple[tuple[str, ...], float]:
    """The methods that may be the best, best median first, and the least p-value that could be had.

    Of medians that tie, the one that the study names first leads.
    """
    chosen = best_set(values, ["seed"], "method", "value", direction, ALPHA, NEGLIGIBLE)
    # of a ring in which each beats the next nobody is kept, and all may be the best
    kept = set(chosen.filter("kept")["method"]) or set(chosen["method"])
    found = dict(medians(values, ["method"], "value").select("method", "median").iter_rows())
    sign = 1 if direction == "minimize" else -1
    order = sorted((name for name in study.methods if name in kept), key=lambda name: sign * found[name])
    lead = next(name for name in study.methods if name in kept and tied(found[name], found[order[0]]))
    return (lead, *(name for name in order if name != lead)), float(chosen["least"].max())  # type: ignore[arg-type]


def _fastest(study: StudyPlan, times: pl.DataFrame) -> tuple[tuple[str, ...], MedianInterval | None]:
    """The methods that may need the fewest evaluations, and those of the first; none where few get there."""
    if not len(times):
        return (), None
    order, _ = _leading(study, times, "minimize")
    value = median_interval(times.filter(pl.col("method") == order[0])["value"].to_numpy())
    return (order, value) if isfinite(value.median) else ((), None)


def _effect(study: StudyPlan, values: pl.DataFrame, method: str, reference: str) -> PairedComparison | None:
    compared = compared_by_seed(study, values, method, reference)
    return PairedComparison(**compared.drop("workload").row(0, named=True)) if len(compared) else None


def _cost(final: pl.DataFrame, tables: Tables, here: pl.Expr, method: str, reference: str | None) -> Cost:
    runs = final.filter(pl.col("method") == method)
    ratios = step_ratios(tables.timings.filter(here), {method: reference} if reference else {})
    steps = ratios.select("median", "low", "high", "level", "count").to_dicts()
    peaks = {row["method"]: row for row in peak_memory(tables.memory.filter(here)).to_dicts()}
    mine, other = peaks.get(method), peaks.get(reference or "")
    memory = None
    if mine and other:
        kind = "device" if mine["device"] is not None and other["device"] is not None else "host"
        if mine[kind] is not None and other[kind] is not None:
            memory = mine[kind] - other[kind]
    return Cost(
        step=MedianInterval(**steps[0]) if steps else None,
        basis=int(runs["basis_gradient_evaluations"].fill_null(0).max()),  # type: ignore[arg-type]
        run=runs["gradient_evaluations"].median(),  # type: ignore[arg-type]
        memory=memory,
    )


# --- in words ------------------------------------------------------------------------------------


def sentence(answer: Answer) -> str:
    """What the tables say of a workload, with its evidence, as one or two plain sentences."""
    others = len(answer.best) + answer.beaten - 1
    seeds = f"{answer.seeds} {'seed' if answer.seeds == 1 else 'seeds'}"
    if not others:
        return f"No other method ran on it ({seeds})."
    if not isfinite(answer.value.median):
        return (
            f"Nothing can be told: half of the runs of every method that may be the best diverged ({seeds})."
        )
    if not answer.certain:
        told = f"Uncertain: {seeds} do not tell any of {others + 1} methods from another{_why(answer)}."
    elif len(answer.best) == 1:
        whom = "The other method" if others == 1 else f"Each of the {others} others"
        told = f"{whom} is beaten, seed by seed on {seeds}."
    else:
        open_ = len(answer.best) - 1
        told = f"On {seeds} {open_} {'other' if open_ == 1 else 'others'} cannot be told from it; "
        told += f"{answer.beaten} {'is' if answer.beaten == 1 else 'are'} beaten."
    return f"{told}{_race(answer)}"


def _why(answer: Answer) -> str:
    """Why nothing could be told, where the seeds are too few for it."""
    if answer.least > ALPHA:
        return f", and so few cannot (least corrected p {number(answer.least)})"
    return ""


def _race(answer: Answer) -> str:
    """Who of several gets to the target with the least work."""
    if answer.target is None or answer.evaluations is None or len(answer.fastest) > NAMED:
        return ""
    metric, threshold = answer.target
    value = answer.evaluations
    told = (
        f" Of these, {answer.fastest[0]} gets to a {metric_name(metric)} of {plain(threshold)} with the "
        f"fewest gradients, {count(value.median)} [{count(value.low)}, {count(value.high)}] basis included"
    )
    if len(answer.fastest) > 1:
        told += f"; {listed(answer.fastest[1:])} cannot be told from it"
    return f"{told}."


def listed(methods: Sequence[str]) -> str:
    """Methods in words, the first few by name."""
    shown = list(methods[:NAMED])
    if len(methods) > NAMED:
        shown.append(f"{len(methods) - NAMED} more")
    return shown[0] if len(shown) == 1 else f"{', '.join(shown[:-1])} and {shown[-1]}"
