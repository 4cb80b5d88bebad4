"""What stands in the way of publishing a set: unknown code, failures, mixed hardware and more."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import polars as pl

from curvebench.results.merging import mixed_hardware
from curvebench.results.schema import TUNING
from curvebench.spec.plan import ReportPlan

Revision = tuple[str | None, bool | None]  # a commit, and whether files differ from it


@dataclass(frozen=True)
class Objection:
    """Something that stands in the way of publishing.

    Args:
        kind: a key of `curvebench.spec.sets.WAIVERS`.
        sentence: what is wrong, and where.
        remedy: what to do about it.
        claim: whose rule changed; empty of other kinds.
    """

    kind: str
    sentence: str
    remedy: str
    claim: str = ""

    @property
    def record(self) -> dict[str, str]:
        """What a set says of it where it was waived."""
        return {"kind": self.kind, "sentence": self.sentence}


def in_short(found: Iterable[Objection]) -> list[str]:
    """What was waived for readers: several changed rules become one sentence, which names their claims."""
    found = list(found)
    claims = list(dict.fromkeys(each.claim for each in found if each.claim))
    if sum(bool(each.claim) for each in found) < 2:
        return [each.sentence for each in found]
    what = "the rule of a claim was" if len(claims) == 1 else f"the rules of {len(claims)} claims were"
    others = [each.sentence for each in found if not each.claim]
    return [*others, f"{what} changed after the runs were planned: {', '.join(claims)}"]


def all_objections(
    code: Revision,
    plan: ReportPlan,
    tables: Mapping[str, Mapping[str, pl.DataFrame]],
    claims: pl.DataFrame,
) -> list[Objection]:
    """What stands in the way of publishing a report.

    Args:
        code: the commit of the code that computes verdicts, and whether files differ from it.
        tables: by folder and name.
        claims: the table `claims`.
    """
    tried = {study.name: study.tuning.tried_in for study in plan.studies}
    found = [each for where, frames in tables.items() for each in objections(where, frames, tried.get(where))]
    return [*unclean(code), *found, *changed_rules(claims)]


def objections(
    study: str, tables: Mapping[str, pl.DataFrame], tried_in: Sequence[str] | None
) -> list[Objection]:
    """What stands in the way of publishing the tables of one study.

    Args:
        tables: `jobs`, and of studies `runs`, `timings` and `memory`.
        tried_in: the bases in which tuning tries settings; None is all of them. The others take the setting
            of the identity basis, and have no budget of their own.
    """
    found = [*_dirty(study, tables["jobs"]), *_failures(study, tables["jobs"])]
    if "runs" in tables:
        where = ["study", "scale", "backend", "machine"]
        measured = pl.concat([tables[name].select(where) for name in ("runs", "timings", "memory")])
        found += [
            Objection("hardware", sentence, "run the study on one of them")
            for sentence in mixed_hardware(measured)
        ]
        runs = tables["runs"]
        tuned = runs if tried_in is None else runs.filter(pl.col("basis").is_in(list(tried_in)))
        found += _unequal_tuning(study, tuned)
    return found


def unclean(code: Revision) -> list[Objection]:
    """One where the code that computes verdicts and leaderboard is not known to be what a commit has.

    Args:
        code: its commit and whether files differ from it, as `curvebench.results.provenance.commit` says.
    """
    revision, dirty = code
    if revision is not None and dirty is False:
        return []
    state = f"differs from its commit ({revision[:12]})" if revision and dirty else "is of no known commit"
    sentence = f"the code that computes verdicts and leaderboard {state}"
    return [Objection("dirty", sentence, "commit, and publish again")]


def _dirty(study: str, jobs: pl.DataFrame) -> list[Objection]:
    unknown = jobs.filter(pl.col("commit").is_null() | pl.col("dirty").is_null())
    changed = jobs.filter(pl.col("commit").is_not_null() & pl.col("dirty"))
    found = []
    if len(changed):
        commits = ", ".join(commit[:12] for commit in changed["commit"].unique().sort())
        found.append(f"{len(changed)} of {len(jobs)} jobs ran code that differs from its commit ({commits})")
    if len(unknown):
        found.append(f"{len(unknown)} of {len(jobs)} jobs do not know the commit of their code")
    remedy = "commit, delete their folders below results/runs (a job is done once), and run snakemake again"
    return [Objection("dirty", f"{study}: {sentence}", remedy) for sentence in found]


def _failures(study: str, jobs: pl.DataFrame) -> list[Objection]:
    """One where parts of jobs failed, with the first of them."""
    failures = [one for own in jobs["failures"].to_list() for one in own or []]
    if not failures:
        return []
    first = f"{failures[0]['what']} ({failures[0]['outcome']})"
    jobs_that_fail = int((jobs["failures"].list.len() > 0).sum())
    sentence = f"{study}: {len(failures)} failures in {jobs_that_fail} of {len(jobs)} jobs, such as {first}"
    return [Objection("failures", sentence, "run snakemake again, which tries what failed")]


def _unequal_tuning(study: str, runs: pl.DataFrame) -> list[Objection]:
    """One for each workload on which methods had different numbers of tuning runs, none counted as 0."""
    method = ["workload", "optimizer", "basis"]
    counts = runs.filter(pl.col("stage").is_in(TUNING)).group_by(*method, "backend").len()
    judged = runs.filter(pl.col("stage") == "final").select(method).unique()
    spent = judged.join(counts, on=method, how="left").with_columns(pl.col("len").fill_null(0))
    found = []
    for (workload,), rows in spent.sort("len", *method).group_by(["workload"], maintain_order=True):
        if rows["len"].n_unique() == 1:
            continue
        least, most = rows.row(0, named=True), rows.row(-1, named=True)
        extremes = [f"{row['optimizer']} @ {row['basis']} {row['len']}" for row in (least, most)]
        found.append(
            Objection(
                "tuning",
                f"{study}: tuning runs on {workload} differ between methods: {' and '.join(extremes)}",
                "give every method the same tuning in the study file",
            )
        )
    return found


def changed_rules(claims: pl.DataFrame) -> list[Objection]:
    """One for each claim that ran and whose rule is not known to be the one of when its runs were planned.

    Args:
        claims: the table `claims`.
    """
    ran = claims.filter(pl.col("verdict").cast(pl.String) != "not run")
    changed = ran.filter(pl.col("rule").ne_missing(pl.col("rule_of_runs")))
    return [
        Objection(
            "rules",
            f"{claim}{f' on {backend}' if backend else ''}: its rule is {rule}, and was "
            f"{before or 'not recorded, or several,'} when the runs were planned",
            "undo the change of the claim, or run it anew with --config results=FOLDER",
            claim,
        )
        for claim, backend, rule, before in changed.select(
            "claim", "backend", "rule", "rule_of_runs"
        ).iter_rows()
    ]
