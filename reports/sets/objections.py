"""What stands in the way of publishing a set: unknown code, failures, mixed hardware and more."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import polars as pl

from curvebench.results.merging import several_machines
from curvebench.spec.plan import Objection, ReportPlan

Revision = tuple[str | None, bool | None]  # a commit, and whether files differ from it


def all_objections(
    code: Revision, plan: ReportPlan, tables: Mapping[str, Mapping[str, pl.DataFrame]], claims: pl.DataFrame
) -> list[Objection]:
    """What stands in the way of publishing a report.

    Args:
        code: the commit of the code that computes verdicts, and whether files differ from it.
        tables: by folder and name.
        claims: the table `claims`.
    """
    tried = {study.name: study.tuning.tuned_bases for study in plan.studies}
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
            Objection(kind="hardware", where=study, backend=backend, names=tuple(names))
            for _, _, backend, names in several_machines(measured)
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
    return [Objection(kind="dirty", names=(revision[:12],) if revision and dirty else ())]


def _dirty(study: str, jobs: pl.DataFrame) -> list[Objection]:
    unknown = jobs.filter(pl.col("commit").is_null() | pl.col("dirty").is_null())
    changed = jobs.filter(pl.col("commit").is_not_null() & pl.col("dirty"))
    commits = tuple(commit[:12] for commit in changed["commit"].unique().sort())
    return [
        Objection(kind="dirty", where=study, names=names, count=len(own), of=len(jobs))
        for own, names in ((changed, commits), (unknown, ()))
        if len(own)
    ]


def _failures(study: str, jobs: pl.DataFrame) -> list[Objection]:
    """One where parts of jobs failed, with the first of them."""
    failed = jobs.filter(pl.col("failures").list.len() > 0)
    if failed.is_empty():
        return []
    first = failed["failures"][0][0]
    names = first["what"], first["outcome"]
    return [Objection(kind="failures", where=study, names=names, count=len(failed), of=len(jobs))]


def _unequal_tuning(study: str, runs: pl.DataFrame) -> list[Objection]:
    """One for each workload on which methods had different numbers of tuning runs, none counted as 0."""
    method = ["workload", "optimizer", "basis"]
    counts = runs.filter(stage="tuning").group_by(*method, "backend").len()
    judged = runs.filter(stage="final").select(method).unique()
    spent = judged.join(counts, on=method, how="left").with_columns(pl.col("len").fill_null(0))
    found = []
    for (workload,), rows in spent.sort("len", *method).group_by(["workload"], maintain_order=True):
        if rows["len"].n_unique() == 1:
            continue
        least, most = rows.row(0, named=True), rows.row(-1, named=True)
        names = (str(workload), *(f"{row['optimizer']} @ {row['basis']}" for row in (least, most)))
        found.append(Objection(kind="tuning", where=study, names=names, count=least["len"], of=most["len"]))
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
            kind="rules", where=claim, backend=backend or "", names=(rule, before) if before else (rule,)
        )
        for claim, backend, rule, before in changed.select(
            "claim", "backend", "rule", "rule_of_runs"
        ).iter_rows()
    ]
