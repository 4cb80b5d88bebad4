"""Objections to publishing a set: uncommitted code, failures, mixed hardware, unequal tuning, changed rules.

An objection has a kind. Whoever publishes a set can waive objections by their kind, and the set then lists
the waived objections.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import polars as pl

from curvebench.results.merging import several_machines
from curvebench.spec.plan import Objection, ReportPlan

# A commit, and whether files differ from the commit. Each of the two values is None if it is not known.
Revision = tuple[str | None, bool | None]


def all_objections(
    code: Revision, plan: ReportPlan, tables: Mapping[str, Mapping[str, pl.DataFrame]], claims: pl.DataFrame
) -> list[Objection]:
    """Return all objections to publishing a report.

    Args:
        code: commit of the code that computes verdicts, and whether files differ from the commit, as
            `curvebench.results.provenance.commit` returns them.
        plan: plan of the report.
        tables: tables by their folder in the set, then by their name.
        claims: the table `claims`.
    """
    tuned_bases = {study.name: study.tuning.tuned_bases for study in plan.studies}
    settings = {
        study.name: {spec.label: sum(study.tuning.for_optimizer(spec).rounds) for spec in study.optimizers}
        for study in plan.studies
    }
    revision, dirty = code
    raised = []
    if revision is None or dirty is not False:
        raised.append(Objection(kind="dirty", names=(revision[:12],) if revision and dirty else ()))
    for folder, frames in tables.items():
        raised += objections(folder, frames, tuned_bases.get(folder), settings.get(folder, {}))
    return raised + changed_rules(claims)


def objections(
    study: str,
    tables: Mapping[str, pl.DataFrame],
    tuned_bases: Sequence[str] | None,
    settings: Mapping[str, int],
) -> list[Objection]:
    """Return the objections to publishing the tables of one study.

    Args:
        study: name of the study.
        tables: `jobs`, and for studies also `runs`, `timings` and `memory`.
        tuned_bases: labels of the bases (coordinate systems of the parameters) in which tuning tries
            settings; None for all bases. The other bases use the setting of the identity basis, so that they
            have no tuning runs.
        settings: a mapping from labels of optimizers to the numbers of settings that the study's protocol
            prescribes for them. An optimizer with more tuned hyperparameters has more settings.
    """
    raised = [*_dirty(study, tables["jobs"]), *_failures(study, tables["jobs"])]
    if "runs" in tables:
        columns = ["study", "scale", "backend", "machine"]
        measured = pl.concat([tables[name].select(columns) for name in ("runs", "timings", "memory")])
        raised += [
            Objection(kind="hardware", where=study, backend=backend, names=tuple(names))
            for _, _, backend, names in several_machines(measured)
        ]
        runs = tables["runs"]
        tuned = runs if tuned_bases is None else runs.filter(pl.col("basis").is_in(list(tuned_bases)))
        raised += _unequal_tuning(study, tuned, settings)
    return raised


def _dirty(study: str, jobs: pl.DataFrame) -> list[Objection]:
    """Return objections to jobs that ran uncommitted code, and to jobs whose commit is not known."""
    unknown = jobs.filter(pl.col("commit").is_null() | pl.col("dirty").is_null())
    changed = jobs.filter(pl.col("commit").is_not_null() & pl.col("dirty"))
    commits = tuple(commit[:12] for commit in changed["commit"].unique().sort())
    return [
        Objection(kind="dirty", where=study, names=names, count=len(affected), of=len(jobs))
        for affected, names in ((changed, commits), (unknown, ()))
        if len(affected)
    ]


def _failures(study: str, jobs: pl.DataFrame) -> list[Objection]:
    """Return an objection if a run or a check of a job failed; the objection names the first failure."""
    failed = jobs.filter(pl.col("failures").list.len() > 0)
    if failed.is_empty():
        return []
    first = failed["failures"][0][0]
    names = first["what"], first["outcome"]
    return [Objection(kind="failures", where=study, names=names, count=len(failed), of=len(jobs))]


def _unequal_tuning(study: str, runs: pl.DataFrame, settings: Mapping[str, int]) -> list[Objection]:
    """Return an objection for each workload on which methods had different numbers of runs for a setting."""
    method = ["workload", "optimizer", "basis"]
    counts = runs.filter(stage="tuning").group_by(*method, "backend").len()
    judged = runs.filter(stage="final").select(method).unique()
    prescribed = pl.col("optimizer").replace_strict(settings, default=1, return_dtype=pl.Int64)
    spent = judged.join(counts, on=method, how="left").with_columns(pl.col("len").fill_null(0))
    spent = spent.with_columns(for_a_setting=pl.col("len") / prescribed)
    raised = []
    for (workload,), rows in spent.sort("for_a_setting", *method).group_by(["workload"], maintain_order=True):
        if rows["for_a_setting"].n_unique() == 1:
            continue
        fewest, most = rows.row(0, named=True), rows.row(-1, named=True)
        names = (str(workload), *(f"{row['optimizer']} @ {row['basis']}" for row in (fewest, most)))
        raised.append(Objection(kind="tuning", where=study, names=names, count=fewest["len"], of=most["len"]))
    return raised


def changed_rules(claims: pl.DataFrame) -> list[Objection]:
    """Return an objection for each claim whose decision rule may have changed since its runs were planned.

    Args:
        claims: the table `claims`.
    """
    ran = claims.filter(pl.col("verdict").cast(pl.String) != "not run")
    changed = ran.filter(pl.col("rule").ne_missing(pl.col("rule_of_runs")))
    columns = ("claim", "backend", "rule", "rule_of_runs")
    return [
        Objection(kind="rules", where=claim, backend=backend or "", names=(rule, *[planned] * bool(planned)))
        for claim, backend, rule, planned in changed.select(columns).iter_rows()
    ]
