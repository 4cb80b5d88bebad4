"""Draw the runs of a published set that `curvebench sets check --rerun` recomputes.

A verdict depends on few runs of a set, which a draw from all runs rarely contains. Therefore runs of the
*deciding comparisons* are drawn first. A comparison is deciding if forging its runs alone can change the
verdict of its claim. An arm is one of the methods that a comparison compares; tuning runs choose the setting
of its final runs.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass

import polars as pl

from curvebench.reports.claims.findings import DEPENDS_ON_SEARCH
from curvebench.reports.formatting import counted
from curvebench.reports.measures import tuning_source
from curvebench.results.outcomes import FINISHED
from curvebench.results.reading import read, with_method
from curvebench.results.tuning import by_setting, settings_of
from curvebench.results.verdicts import ALPHA
from curvebench.spec.conditions.condition import ComparisonKey, Condition
from curvebench.spec.method import Method
from curvebench.spec.plan import ReportPlan, StudyPlan

Place = tuple[int, int]  # index of a study in the plan, and index of a run in the study's table `runs`
Places = frozenset[Place]
CONFIDENCE = 0.95  # Probability with which a sample must contain an invented run (`detectable_share`)
CELLS = 3  # number of runs that are drawn from a deciding comparison


@dataclass(frozen=True)
class Deciding:
    """A deciding comparison, with the runs on which it depends.

    Args:
        arms: for each arm, the runs that are compared.
        tuning: for each arm, the tuning runs with the setting of the compared runs.
    """

    arms: tuple[Places, ...]
    tuning: tuple[Places, ...]

    @property
    def compared(self) -> Places:
        """The runs of all arms."""
        return frozenset[Place]().union(*self.arms)


@dataclass(frozen=True)
class Sample:
    """Runs of a set that are recomputed.

    Args:
        comparisons: the deciding comparisons.
        places: the drawn runs, in the order in which they were drawn.
        directed: number of runs drawn for comparisons; the runs after them are drawn from all runs.
        enough: two numbers of runs. A sample of the first number contains a run of every comparison. A sample
            of the second number contains a run of every arm of every comparison.
    """

    comparisons: tuple[Deciding, ...]
    places: tuple[Place, ...]
    directed: int
    enough: tuple[int, int]

    def power(self, computed: Collection[Place]) -> Iterator[str]:
        """Yield sentences on the forgeries that the sample detects.

        Args:
            computed: the runs of the sample that could be recomputed.
        """
        drawn = {*computed}
        arms = {arm for comparison in self.comparisons for arm in comparison.arms}
        whole = sum(bool(comparison.compared & drawn) for comparison in self.comparisons)
        single = sum(bool(arm & drawn) for arm in arms)
        if self.comparisons and drawn:
            counts = counted(len(self.comparisons), "comparisons"), counted(len(arms), "methods")
            yield (
                f"the sample has runs of {whole} of {counts[0]} that decide claims, and of {single} of "
                f"{counts[1]} in them: if all runs of one of these were invented, it would contain one"
            )
            if single < len(arms):
                always = f"--rerun {self.enough[0]} has a run of each comparison"
                yield f"{always}, and --rerun {self.enough[1]} a run of each method"
        if free := len(drawn - {*self.places[: self.directed]}):
            share = f"if {detectable_share(free):.0%} of all runs of the set were invented"
            yield f"{share}, a sample of {free} would contain one with a probability of {CONFIDENCE:.0%}"


def detectable_share(count: int) -> float:
    """Return the smallest share of invented runs that a random sample detects with probability `CONFIDENCE`.

    If a share p of all runs is invented, a sample of `count` independent draws contains no invented run with
    probability (1 - p)^count. For example, a sample of 29 runs detects a share of 10 %.

    Args:
        count: number of runs in the sample.
    """
    return 1.0 if count < 1 else 1.0 - (1.0 - CONFIDENCE) ** (1.0 / count)


def draw(comparisons: Sequence[Deciding], runs: Sequence[Place], count: int | None, seed: int) -> Sample:
    """Draw runs without replacement: first runs of comparisons, then any runs of the set.

    First, runs are drawn until each comparison has one, then until each arm has one, then until each arm has
    a tuning run, and then until each comparison has `CELLS`. In the first three steps, the next run is drawn
    from the runs that belong to the most comparisons (or arms) without a drawn run.

    Args:
        comparisons: the deciding comparisons.
        runs: runs from which the rest of the sample is drawn: all runs of a set; or no runs, if only runs of
            the comparisons are drawn.
        count: number of runs to draw; None to draw only the runs for comparisons.
        seed: seed of the random sample.
    """
    generator, drawn = random.Random(seed), dict[Place, None]()

    def cover(parts: Iterable[Places]) -> int:
        lacking = [part for part in parts if not part & drawn.keys()]
        while lacking:
            shared = Counter(place for part in lacking for place in part)
            most = max(shared.values())
            place = generator.choice(sorted(place for place, number in shared.items() if number == most))
            drawn[place] = None
            lacking = [part for part in lacking if place not in part]
        return len(drawn)

    def fill(number: int, part: Places) -> None:
        candidates = sorted(part - drawn.keys())
        lacking = min(number - len(part & drawn.keys()), len(candidates))
        drawn.update(dict.fromkeys(generator.sample(candidates, max(lacking, 0))))

    enough = (
        cover(comparison.compared for comparison in comparisons),
        cover(arm for comparison in comparisons for arm in comparison.arms),
    )
    cover(tuned for comparison in comparisons for tuned in comparison.tuning)
    for comparison in comparisons:
        fill(CELLS, comparison.compared.union(*comparison.tuning))
    directed = len(drawn)
    if count is not None:
        fill(count, frozenset(runs))
        directed = min(directed, count)
    return Sample(tuple(comparisons), tuple(drawn)[:count], directed, enough)


def places(tables: Sequence[pl.DataFrame]) -> list[Place]:
    """Return the place of each run: the index of its study, and the index of its row in the table `runs`."""
    return [(study, at) for study, runs in enumerate(tables) for at in range(len(runs))]


def drawable(plan: ReportPlan) -> list[pl.DataFrame]:
    """Return, for each study of a set, the runs that can be drawn, with the column `method`.

    Runs that failed, for example because memory or time ran out, are not drawn, because a repetition could
    not confirm the failure.
    """
    ended = pl.col("outcome").is_in([*FINISHED, "diverged"])
    return [with_method(read(study.tables, "runs").filter(ended)) for study in plan.studies]


def deciding(plan: ReportPlan, tables: Sequence[pl.DataFrame], claim: str | None = None) -> list[Deciding]:
    """Return the deciding comparisons of a set, on the first backend of each study, which gives the verdicts.

    The verdict "not reproduced" is correct if a single refuted comparison of the claim is correct and does
    not depend on a search. For this verdict, one such comparison of each condition is therefore enough. An
    underpowered claim changes by a comparison with enough pairs to be refuted, or by its only comparison that
    is not supported. For any other verdict, every comparison of the claim may change it.

    Args:
        plan: plan of the set.
        tables: runs of each study, as `drawable` returns them.
        claim: id of the only claim whose comparisons are returned; None for all claims.
    """
    folder, found = plan.path.parent, list[Deciding]()
    claims, findings = (read([folder / f"{table}.parquet"], table) for table in ("claims", "findings"))
    for number, study in enumerate(plan.studies):
        runs, backend = tables[number].with_row_index("place"), study.backends[0]
        conditions = {item.id: item.conditions for item in study.claims if claim in (None, item.id)}
        decided = claims.filter(pl.col("claim").is_in([*conditions]), backend=backend)
        for name, verdict in decided.select("claim", "verdict").iter_rows():
            for row in _deciding(findings.filter(claim=name, backend=backend), verdict).iter_rows(named=True):
                key = ComparisonKey(**{field: row[field] for field in ComparisonKey._fields})
                arms = [*_arms(study, runs, backend, conditions[name][row["condition"]], key)]
                compared, tuning = (
                    tuple(frozenset((number, at) for at in arm[kind]) for arm in arms if arm[kind])
                    for kind in ("compared", "tuning")
                )
                if compared:
                    found.append(Deciding(compared, tuning))
    return found


def _deciding(findings: pl.DataFrame, verdict: str) -> pl.DataFrame:
    """Return the deciding comparisons of a claim on one backend.

    Args:
        findings: the claim's rows of the table `findings`.
        verdict: the verdict on the claim.
    """
    if verdict == "not reproduced":
        decides = ~(pl.col("positive_control") | DEPENDS_ON_SEARCH)
        refuted = findings.filter(decides, finding="refuted").sort("refuting_p_value")
        return refuted.unique("condition", keep="first", maintain_order=True)
    paired = findings.filter(pl.col("seeds") > 0)
    if verdict != "underpowered":
        return paired
    relations, is_open = ~pl.col("positive_control"), pl.col("finding") != "supported"
    refutable = relations & (relations.sum() * pl.lit(2.0).pow(-pl.col("seeds")) <= ALPHA)
    return paired.filter(refutable | (is_open & (is_open.sum() == 1)))


def _arms(
    study: StudyPlan, runs: pl.DataFrame, backend: str, condition: Condition, key: ComparisonKey
) -> Iterator[dict[str, list[int]]]:
    """Yield, for each arm, the places of the compared runs and of the tuning runs with the same setting.

    Args:
        study: the study of the comparison.
        runs: runs of the study, with the columns `method` and `place`.
        backend: backend of the comparison.
        condition: the condition that requires the comparison.
        key: key of the comparison.
    """
    for workload, method in condition.arms(key):
        tuning = runs.filter(stage="tuning", workload=workload)
        if condition.of_tuning:
            yield {"compared": tuning.filter(method=method, backend=backend)["place"].to_list(), "tuning": []}
            continue
        final = runs.filter(stage="final", workload=workload, method=method, backend=backend)
        tuner, where = tuning_source(study, method, backend, tuning)
        names = study.tuned_names(Method.of(method).optimizer)
        tuned = by_setting(tuning.filter(method=tuner, backend=where), names)
        chosen = set(settings_of(final, names)) & tuned.keys()
        tuning_places = [at for setting in chosen for at in tuned[setting]["place"]]
        yield {"compared": final["place"].to_list(), "tuning": tuning_places}
