"""Running one claim again beside a published set: `curvebench sets reproduce CLAIM`."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Literal

import numpy as np
import polars as pl

from documents.claim import Condition
from documents.errors import InputError
from documents.plan import ChecksPlan, ReportPlan, StudyPlan
from reports import formatting
from reports.claims.comparison import ClaimComparison, comparisons
from reports.claims.page import check_measured, check_rows
from reports.claims.rerun import command_of
from reports.claims.verdict_list import read_verdicts
from reports.measures import study_values
from reports.plan import read_plan, reading
from reports.sets.derived import read_set
from reports.sets.files import PLAN, PROVENANCE
from reports.statistics.paired import Effect
from reports.tables import read_tables
from results.intervals import median_interval

Values = Callable[[str, str], pl.DataFrame]  # of a metric, final or best
Answer = Literal["agrees", "differs", "cannot be told"]
STATUS: dict[Answer, int] = {"agrees": 0, "differs": 1, "cannot be told": 3}
ORDER: tuple[Answer, ...] = ("differs", "cannot be told", "agrees")
FOLDER = Path(".cache/reproduced")
SHOWN = 3  # of the seeds or instances that differ most
UNDECIDED = ("underpowered", "not run")
STEPS = {"steps_to_stop": "steps to the stop", "steps_to_target": "steps to the target"}


@dataclass(frozen=True)
class Line:
    """One thing that was compared.

    Args:
        what: what it is.
        published, again: both values as text.
        answer: what they say of each other.
        note: why, where that is not plain.
    """

    what: str
    published: str
    again: str
    answer: Answer
    note: str = ""


# --- which set, and the run ----------------------------------------------------------------------


def choose_set(claim: str, folder: Path, scale: str | None, say: Callable[[str], None]) -> Path:
    """The newest published set that has a claim, at the scale asked for; hidden folders are none.

    Args:
        say: is told of sets that cannot be read, which are passed over.

    Raises:
        InputError: when there is none; says what there is, and what to do without a set.
    """
    found = []
    claims: dict[str, list[str]] = {}  # the scales at which sets have each claim
    for path in sorted(folder.glob(f"*/{PLAN}")):
        if path.parent.name.startswith("."):
            continue  # being written, or left behind
        try:
            plan = read_set(path.parent)
            published = str(json.loads((path.parent / PROVENANCE).read_text())["published"])
        except (InputError, OSError, ValueError, KeyError, TypeError, RecursionError) as error:
            say(f"passed over: {path.parent}: {error}")
            continue
        for each in claims_of(plan):
            claims.setdefault(each, []).append(plan.scale)
        if scale in (None, plan.scale) and claim in claims_of(plan):
            found.append((published, path.parent))
    if not found:
        raise InputError("\n".join(_without_set(claim, folder, scale, claims)))
    return max(found)[1]


def _without_set(
    claim: str, folder: Path, scale: str | None, claims: Mapping[str, Sequence[str]]
) -> Iterator[str]:
    """What to do about a claim that no set has, at the scale asked for; `claims` are those that sets have."""
    if claim in claims:
        yield (
            f"{folder}: no published set has the claim {claim!r} at scale {scale}; there is one at scale "
            f"{', '.join(dict.fromkeys(claims[claim]))}: leave --scale out"
        )
    else:
        near = get_close_matches(claim, claims, n=1)
        meant = (
            f"; did you mean {near[0]!r}?" if near else f" (they have: {', '.join(sorted(claims)) or 'none'})"
        )
        yield f"{folder}: no published set has the claim {claim!r}{meant}"
    yield f"  to run it with nothing to set it beside: {command_of(claim, scale or 'quick')}"
    yield "  to set it beside somebody else's run: curvebench sets reproduce CLAIM --published FOLDER"
    yield "  all claims, published or not: curvebench list"


def check_asked(claim: str, scale: str | None, published: ReportPlan) -> None:
    """Check, before anything runs, that a set has what is asked for.

    Raises:
        InputError: when it has not the claim, no measure of it, or is of another scale.
        InputError: when a table is missing or damaged.
    """
    if claim not in claims_of(published):
        raise InputError(
            f"{published.path}: has no claim {claim!r} (it has: {', '.join(claims_of(published)) or 'none'})"
        )
    if scale not in (None, published.scale):
        raise InputError(
            f"{published.path}: a set of scale {published.scale}, which runs of scale {scale} do not "
            "reproduce; leave --scale out, or name another set"
        )
    if published.checks and claim in {each.id for each in published.checks.claims}:
        own = published.model_copy(update={"checks": only(claim, published.checks)})
        check_measured(own, check_rows(published.checks))


def only(claim: str, checks: ChecksPlan) -> ChecksPlan:
    """The checks of one claim."""
    kept = tuple(each for each in checks.claims if each.id == claim)
    return checks.model_copy(update={"claims": kept})


def claims_of(plan: ReportPlan) -> list[str]:
    """The ids of the claims that a plan decides."""
    ids = [claim.id for study in plan.studies for claim in study.claims]
    return ids + [claim.id for claim in plan.checks.claims] if plan.checks else ids


def result_folder(claim: str) -> Path:
    """Where a claim is run again, apart from other results; to run it anew, delete the folder."""
    return FOLDER / formatting.slug(claim)


def backends_of(claim: str, plan: ReportPlan) -> tuple[str, ...]:
    """The backends on which a plan decides a claim; none of a claim that property checks decide."""
    return next((study.backends for study in plan.studies if claim in {each.id for each in study.claims}), ())


def configuration(claim: str, published: ReportPlan, results: Path) -> list[str]:
    """What narrows a run to a claim, on the backends of a set; its results folder has a site of its own."""
    backends = backends_of(claim, published)
    own = [f"backends={','.join(backends)}"] if backends else []
    folders = [f"results={results}", f"site={results / 'site'}"]
    return [f"studies={claim}", f"scale={published.scale}", *own, "parity=false", *folders]


def command(cores: str, config: Sequence[str]) -> list[str]:
    """What runs a configuration."""
    return ["snakemake", "--cores", cores, "reports", "--config", *config]


def planned(config: Sequence[str], folder: Path) -> tuple[ReportPlan, int]:
    """The plan of what would be run, and its number of jobs; nothing is computed.

    Args:
        folder: where the plan may be written.

    Raises:
        InputError: when the harness does not plan it, such as where a study lacks the scale.
    """
    asked = [sys.executable, "-m", "curvebench", "plan", *config, "--json"]
    done = subprocess.run(asked, check=False, capture_output=True, text=True)
    if done.returncode:
        raise InputError(done.stderr.strip().replace("error: ", ""))
    (folder / "plan.json").write_text(done.stdout)
    return read_plan(folder / "plan.json"), json.loads(done.stdout)["jobs"]


def announced(claim: str, published: ReportPlan, now: ReportPlan, jobs: int) -> Iterator[str]:
    """What is said before a claim is run again: the set, what will run, and what of it can be compared.

    Args:
        published: the set's plan.
        now: the plan of what would be run.
        jobs: how many jobs that has.

    Raises:
        InputError: when what would be run does not decide the claim, and why.
    """
    backends = backends_of(claim, published)
    where = f" on {' and '.join(backends)}" if backends else ""
    yield f"{claim}: set {published.path.parent}, scale {published.scale}{where}: {jobs} jobs"
    if claim not in claims_of(now):
        reasons = [f"{study.name}: {study.reason}" for study in now.skipped] or ["nothing decides it here"]
        raise InputError(f"{claim}: cannot be run again: {'; '.join(reasons)}")
    if backends:
        options = "".join(f" --backend {name}" for name in backends)
        yield f"how long that takes: curvebench estimate {claim} --scale {published.scale}{options}"
    before, after = (_rule(claim, plan) for plan in (published, now))
    if before != after:
        asked, today = (_asked(claim, plan) for plan in (published, now))
        both = sum(key in today for key in asked)
        yield (
            "the claim's rule changed since the set was published: verdicts cannot be compared, "
            f"{both} of {len(asked)} comparisons can"
        )


def _rule(claim: str, plan: ReportPlan) -> str:
    """The hash of a claim's rule; empty of a claim that property checks decide."""
    return next((study.rules[claim] for study in plan.studies if claim in study.rules), "")


def run_again(called: Sequence[str], results: Path) -> ReportPlan:
    """Run the command, in this Python's environment, and return the plan of what came out.

    Raises:
        InputError: when Snakemake ends with an error.
    """
    # Snakemake starts jobs by the name python; where a link leads is another environment
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])
    done = subprocess.run([sys.executable, "-m", *called], check=False, env={**os.environ, "PATH": path})
    if done.returncode:
        raise InputError("snakemake ended with an error, which stands above; mend it and try again")
    return read_plan(results / "site" / "plan.json")


# --- the comparison ------------------------------------------------------------------------------


def compared(claim: str, published: ReportPlan, again: ReportPlan) -> list[Line]:
    """Everything that a claim rests on, as published and as it came out again.

    Raises:
        InputError: when a table is missing or damaged, or the claim is in neither.
    """
    lines = list(_verdicts(claim, published, again))
    if not lines:
        raise InputError(f"{claim}: has no verdict in {published.path} and {again.path}; check its name")
    lines += _comparisons(claim, published, again)
    if published.checks and again.checks:
        lines += _instances(claim, published, again)
    return lines


def summed_up(lines: Sequence[Line]) -> Answer:
    """It differs where anything does, and agrees where everything does."""
    answers = {line.answer for line in lines}
    return (
        "differs" if "differs" in answers else "cannot be told" if "cannot be told" in answers else "agrees"
    )


def _verdicts(claim: str, published: ReportPlan, again: ReportPlan) -> Iterator[Line]:
    key = ["claim", "variant", "backend"]
    before, after = (
        read_verdicts(plan)
        .claims.filter(claim=claim)
        .with_columns(pl.col("variant", "verdict").cast(pl.String))
        for plan in (published, again)
    )
    both = before.join(
        after, on=key, how="full", nulls_equal=True, coalesce=True, maintain_order="left_right"
    )
    for row in both.iter_rows(named=True):
        of = " ".join(["verdict", *([row["variant"]] if row["variant"] else [])])
        what = f"{of} on {row['backend']}" if row["backend"] else of
        verdicts = row["verdict"] or "none", row["verdict_right"] or "none"
        answer: Answer = "agrees" if verdicts[0] == verdicts[1] else "differs"
        note = ""
        if row["backend"] and row["rule"] != row["rule_right"] and "none" not in verdicts:
            answer, note = "cannot be told", "the claim's rule is another one here than in the set"
        elif answer == "differs" and ("none" in verdicts or set(verdicts) & set(UNDECIDED)):
            answer, note = "cannot be told", "one of the two is not decided"
        yield Line(what, verdicts[0], verdicts[1], answer, note)
        if row["backend"] is None and "none" not in verdicts:
            ends = [(row[f"low{side}"], row[f"high{side}"]) for side in ("", "_right")]
            yield _intervals(
                "share of instances that hold", (row["estimate"], row["estimate_right"]), ends, 0.0
            )


def _comparisons(claim: str, published: ReportPlan, again: ReportPlan) -> Iterator[Line]:
    """The estimates of a claim's comparisons, and the values of each method seed by seed."""
    before, after = (_by_comparison(claim, plan) for plan in (published, again))
    for key, one in before.items():
        other = after.get(key)
        if other is None:
            yield Line(_called(one), "", "", "cannot be told", _not_asked(one, after.values()))
            continue
        if not len(one.gains) or not len(other.gains):
            if len(one.gains) or len(other.gains):
                yield Line(_called(one), "", "", "cannot be told", "one of the two has no pairs of runs")
            continue
        near = one.margin if one.effect == "ratio" else 0.0
        left, right = one.bounds, other.bounds
        exact = left.exact and right.exact  # else each bound is held against its like
        sides = [("", left.floor, right.floor)] if exact else [
            (", at least", left.floor, right.floor), (", at most", left.ceiling, right.ceiling)
        ]  # fmt: skip
        for bound, first, second in sides:
            ends = [(first.low, first.high), (second.low, second.high)]
            yield _intervals(_called(one) + bound, (first.median, second.median), ends, near)
    both = [one for key, one in before.items() if key in after]
    yield from _runs(both, _values(both, published), _values(both, again))


def _values(asked: Sequence[ClaimComparison], plan: ReportPlan) -> dict[str, Values]:
    """What gives the values of final runs, by study."""

    def of(study: StudyPlan) -> Values:
        final = read_tables(study.tables).runs.filter(pl.col("stage") == "final")
        return lambda metric, which: study_values(study, final, metric, which)

    return {name: of(plan.study(name)) for name in dict.fromkeys(one.study for one in asked)}


def _by_comparison(claim: str, plan: ReportPlan) -> dict[tuple[str, ...], ClaimComparison]:
    """What a claim compares, by backend, workload, metric, relation and methods."""
    found: dict[tuple[str, ...], ClaimComparison] = {}
    for study in plan.studies:
        for asked in study.claims:
            if asked.id != claim:
                continue
            tables = read_tables(study.tables)
            for backend in study.backends:
                for one in comparisons(study, asked, tables, backend):
                    found[_key(backend, one.workload, one.condition, one.key.treated, one.key.control)] = one
    return found


def _asked(claim: str, plan: ReportPlan) -> set[tuple[str, ...]]:
    """What a claim compares as its plan has it, without tables; keys as of `_by_comparison`."""
    return {
        _key(backend, workload.name, condition, treated, control)
        for study in plan.studies
        for asked in study.claims
        if asked.id == claim
        for condition in asked.conditions
        for workload in study.workloads
        if condition.is_about(workload)
        for backend in study.backends
        for treated, control in condition.contests
    }


def _key(
    backend: str, workload: str, condition: Condition, treated: str, control: str | None
) -> tuple[str, ...]:
    what = (condition.metric, reading(condition), condition.relation)
    held_against = control or str(condition.number), condition.than_on or workload
    return (backend, workload, *what, treated, *held_against)


def _not_asked(one: ClaimComparison, others: Iterable[ClaimComparison]) -> str:
    """What is asked here of a comparison's methods instead, as the reason why it has no counterpart."""
    same = (one.backend, one.workload, one.condition.metric, one.treated, one.control)
    for other in others:
        if (other.backend, other.workload, other.condition.metric, other.treated, other.control) == same:
            before, after = (_quantity(each.condition) for each in (one, other))
            if before == after:
                before, after = (f"{each.condition.relation!r}" for each in (one, other))
            return f"asks something else here ({after} instead of {before})"
    return "is not among the claim's comparisons here, or did not run"


def _quantity(condition: Condition) -> str:
    """What a condition reads of runs, in words."""
    values = condition.quantity == "value"
    return STEPS.get(condition.quantity, f"the {reading(condition)} value" if values else reading(condition))


def _called(one: ClaimComparison) -> str:
    sign = "over" if one.effect == "ratio" else "less"
    metric = f"{reading(one.condition)} {formatting.metric_name(one.condition.metric)}"
    return f"{metric} of {one.treated} {sign} {one.control}, {one.workload} on {one.backend}"


def _intervals(
    what: str, estimates: Sequence[float], ends: Sequence[tuple[float, float]], near: float
) -> Line:
    """Two estimates of one thing: they agree where each lies in the other's interval, or next to the other.

    Args:
        near: the logarithm of the ratio of two effects that is too small to matter.
    """
    (low, high), (other_low, other_high) = ends
    inside = other_low <= estimates[0] <= other_high and low <= estimates[1] <= high
    close = estimates[0] == estimates[1] or (
        min(estimates) > 0
        and math.isfinite(max(estimates))
        and abs(math.log(estimates[0] / estimates[1])) <= near
    )
    apart = high < other_low or other_high < low
    answer: Answer = "agrees" if inside or close else "differs" if apart else "cannot be told"
    note = {"agrees": "", "differs": "the intervals have nothing in common"}.get(
        answer, "the intervals meet, but an estimate lies outside the other's"
    )
    texts = [
        f"{formatting.number(estimate)} {formatting.interval(*end)}"
        for estimate, end in zip(estimates, ends, strict=True)
    ]
    return Line(what, texts[0], texts[1], answer, note)


# --- runs, seed by seed --------------------------------------------------------------------------


def _runs(
    asked: Sequence[ClaimComparison], published: Mapping[str, Values], again: Mapping[str, Values]
) -> Iterator[Line]:
    """The values of each method that a claim names, paired by seed: published against run again."""
    wanted: dict[tuple[str, str, str, str, str, str], ClaimComparison] = {}
    of_values = (one for one in asked if one.condition.quantity == "value")  # whose margins are of values
    for one in sorted(of_values, key=lambda each: each.margin):  # of several margins the smallest
        for workload, method in one.key.sides:
            key = (one.study, workload, one.backend, one.condition.metric, one.condition.which, method)
            wanted.setdefault(key, one)
    for (study, workload, backend, metric, which, method), one in wanted.items():
        sides = [
            values[study](metric, which).filter(pl.col("workload") == workload, pl.col("method") == method)
            for values in (published, again)
        ]
        what = f"{which} {formatting.metric_name(metric)} of {method}, {workload} on {backend}: runs by seed"
        line = _paired(what, sides, backend, one)
        if line is not None:
            yield line


def _paired(what: str, sides: Sequence[pl.DataFrame], backend: str, one: ClaimComparison) -> Line | None:
    """How far runs of one seed ended from each other, published and again; None without a seed in common."""
    before, after = (side.filter(pl.col("backend") == backend).select("seed", "value") for side in sides)
    pairs = before.join(after, on="seed").drop_nulls().sort("seed")
    if not len(pairs):
        return None
    moved = changes(one.effect, pairs["value_right"].to_numpy(), pairs["value"].to_numpy())
    tolerance = max(one.margin, between_backends(one.effect, sides[0]))
    interval = median_interval(moved)
    within = -tolerance <= interval.low and interval.high <= tolerance
    outside = interval.high < -tolerance or tolerance < interval.low
    answer: Answer = "agrees" if within else "differs" if outside else "cannot be told"
    medians = [formatting.number(pairs[column].median()) for column in ("value", "value_right")]

    def shown(change: float) -> str:
        return formatting.signed(math.expm1(min(change, 700.0)) if one.effect == "ratio" else change)

    allowed = (
        formatting.percent(math.expm1(tolerance), 2)
        if one.effect == "ratio"
        else formatting.number(tolerance)
    )
    measured = "relative change" if one.effect == "ratio" else "change"
    note = (
        f"median {measured} {shown(interval.median)} [{shown(interval.low)}, {shown(interval.high)}] over "
        f"{len(pairs)} seeds, tolerance {allowed} ({_source(tolerance, one)})"
    )
    if moved.any():
        worst = np.argsort(-np.abs(moved), kind="stable")[:SHOWN]
        note += "; most: " + ", ".join(f"seed {pairs['seed'][int(at)]} {shown(moved[at])}" for at in worst)
    return Line(what, medians[0], medians[1], answer, note)


def _source(tolerance: float, one: ClaimComparison) -> str:
    """Where a tolerance comes from, in words."""
    if tolerance > one.margin:
        return "the median change between the set's backends"
    stated = one.condition.smallest_effect is not None
    return "the claim's smallest effect" if stated else "the claim states no smallest effect"


def between_backends(effect: Effect, values: pl.DataFrame) -> float:
    """What rounding, amplified by training, does to a value: the median change between two backends.

    Both backends start from the same numbers and differ only in how they round, as two machines do.

    Args:
        values: of one method and workload, columns seed, backend, learning_rate and value.

    Returns:
        The size of the change, of a ratio its logarithm; 0 where backends share no seed and learning rate.
    """
    names = sorted(values["backend"].unique())
    if len(names) < 2:
        return 0.0
    left, right = (
        values.filter(pl.col("backend") == name).select("seed", "learning_rate", "value")
        for name in names[:2]
    )
    both = left.join(right, on=["seed", "learning_rate"]).drop_nulls()
    moved = np.abs(changes(effect, both["value_right"].to_numpy(), both["value"].to_numpy()))
    moved = moved[np.isfinite(moved)]
    return float(np.median(moved)) if len(moved) else 0.0


def changes(effect: Effect, after: np.ndarray, before: np.ndarray) -> np.ndarray:
    """What became of values: logarithms of ratios, or differences; 0 where both are equal or infinite."""
    with np.errstate(divide="ignore", invalid="ignore"):
        moved = np.log(after) - np.log(before) if effect == "ratio" else after - before
    return np.where(after == before, 0.0, moved)


# --- property checks -----------------------------------------------------------------------------


def _instances(claim: str, published: ReportPlan, again: ReportPlan) -> Iterator[Line]:
    """The measures of a property claim, instance by instance."""
    assert published.checks is not None
    assert again.checks is not None
    key = ["part", "variant", "instance", "quantity"]
    before, after = (check_rows(plan).filter(claim=claim) for plan in (published.checks, again.checks))
    for (part, variant), rows in before.group_by(["part", "variant"], maintain_order=True):
        both = rows.join(after, on=key, how="left")
        missing = both["holds_right"].null_count()
        changed = both.filter(pl.col("holds") != pl.col("holds_right"))
        held = [
            f"{int(both[column].sum())} of {len(both)} measures hold" for column in ("holds", "holds_right")
        ]
        note = f"{missing} measures are not there again" if missing else ""
        answer: Answer = "cannot be told" if missing else "agrees"
        if len(changed):
            first = ", ".join(map(str, changed["instance"].unique(maintain_order=True)[:SHOWN]))
            note = f"{len(changed)} measures hold in one of the two only, such as of instance {first}"
            answer = "differs" if changed["holds"].all() or not changed["holds"].any() else "cannot be told"
        yield Line(
            " ".join(["part", f"{part!r}", *([variant] if variant else [])]), held[0], held[1], answer, note
        )


# --- what is printed -----------------------------------------------------------------------------


def as_text(claim: str, published: ReportPlan, lines: Sequence[Line]) -> str:
    """The comparison for people: the answer first, then what does not agree, then the rest."""
    answer = summed_up(lines)
    said = {"agrees": "agrees with", "differs": "differs from"}.get(answer, "cannot be told beside")
    told = [f"{claim}: {said} {published.published} (scale {published.scale})"]
    for line in sorted(lines, key=lambda line: ORDER.index(line.answer)):
        values = f"{line.published} | {line.again}" if line.published or line.again else ""
        told.append(f"  {line.answer}: {line.what}" + (f": {values}" if values else ""))
        if line.note:
            told.append(f"      {line.note}")
    return "\n".join([*told, "  (published | run again)"])
