"""Whether a published set is whole, holds what its plan asks, and says what its own tables give."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from itertools import product, zip_longest
from pathlib import Path
from typing import Any

import polars as pl
from polars.exceptions import PolarsError
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from documents.errors import InputError
from documents.method import IDENTITY, Method
from documents.plan import ReportPlan, StudyPlan
from documents.sets import SUMS, WAIVERS
from documents.study import FIRST_FINAL_SEED
from reports.sets.contents import all_jobs, provenance_of
from reports.sets.derived import derived, read_set, texts
from reports.sets.files import (
    CURVE_POINTS,
    LICENCE,
    PLAN,
    PROVENANCE,
    SPECIAL,
    STUDY_TABLES,
    TOP,
    files_of,
    sha256,
)
from reports.sets.objections import changed_rules, in_short, objections, unclean
from results.merging import KEYS, model_seconds, unmodelled
from results.outcomes import FINISHED
from results.parity import is_within, unit_of
from results.reading import read, with_method
from results.schema import COMPARISONS, TABLES, TUNING
from results.tuning import chosen_setting, setting_of
from results.verdicts import RULE_VERSION, rules, share_of_limit

# the backend of each, as harness.interop.foreign has them (tests/reports/sets/test_checking.py compares)
LIBRARIES = {"torch": "torch", "optax": "jax"}

EQUAL = 1e-6  # relative: what another processor's rounding may change of a number that is computed anew
LINE = re.compile(r"(?P<digest>[0-9a-f]{64})  (?P<name>.+)")
CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")  # what a terminal would obey
ROWS = {  # what names a row
    **KEYS,
    "parity": ["optimizer", "problem", "comparison"],
    "checks": ["claim", "part", "variant", "instance", "quantity"],
    "claims": ["claim", "variant", "backend"],
    "findings": ["claim", "backend", "workload", "metric", "treated", "control"],
    "leaderboard": ["backend", "studies", "method"],
}
CELL = ["backend", "workload", "method", "seed"]

Tables = Mapping[str, Mapping[str, pl.DataFrame]]
Row = Mapping[str, Any]


class Revision(BaseModel):
    """A commit, and whether files differed from it; None where that is not known."""

    model_config = ConfigDict(strict=True, extra="allow")

    commit: str | None = Field(pattern="^[0-9a-f]{40}$")
    dirty: bool | None


class Provenance(Revision):
    """What `provenance.json` holds; jobs, machines and environments are compared with the tables."""

    rule_version: int
    published: str
    waived: list[dict[str, str]]
    thinned_curves: list[str]
    whole_curves: list[str]


def check(folder: Path) -> list[str]:
    """All reasons to refuse a set, each naming its file; none where nothing is wrong.

    Files are those of the checksums, tables have their schema, the cells of the plan are all there and no
    others, and what follows from tables is what they give: metrics and steps to targets from curves, chosen
    settings from tuning, verdicts and leaderboard from runs. Nothing from the folder is executed, and what
    its results say plays no part. Whether the runs happened is for `curvebench.rerun` to find.
    """
    found = flaws(folder) or disagreements(folder)
    return [CONTROL.sub(lambda match: f"\\x{ord(match[0]):02x}", told) for told in found]


def flaws(folder: Path) -> list[str]:
    """The reasons that need no verdict to be computed."""
    if not folder.is_dir():
        return [f"{folder}: no such folder"]
    if found := list(_checksums(folder)):
        return found  # what lies there is not what was written: nothing else can be relied on
    try:
        plan = read_set(folder)
        about = read_provenance(folder)
        found = list(_layout(folder, plan))
        tables = _read(folder, found)
        if found:
            return found
        return [
            *(told for where, frames in tables.items() for told in _rows(where, frames, plan.scale)),
            *(told for study in plan.studies for told in _study(study, tables[study.name], about)),
            *(_parity(plan, tables["parity"]["parity"]) if plan.parity else ()),
            *(_checks(plan, tables["checks"]["checks"]) if plan.checks else ()),
            *_provenance(about, plan, tables),
            *_rule_hashes(plan),
            *_waived(about, plan, tables, read([folder / "claims.parquet"], "claims")),
        ]
    except InputError as error:
        return [str(error).removeprefix(f"{folder}/")]
    except (KeyError, TypeError, AttributeError, ValueError, RecursionError, PolarsError) as error:
        return [f"{PLAN}: not the plan of a set ({type(error).__name__}: {error})"]


# --- files ---------------------------------------------------------------------------------------


def _checksums(folder: Path) -> Iterator[str]:
    """Missing, changed and further files."""
    if (folder / SUMS).is_symlink() or ((folder / SUMS).exists() and not (folder / SUMS).is_file()):
        yield f"{SUMS}: a link, or no file; a set holds files"
        return
    try:
        lines = (folder / SUMS).read_text().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        yield f"{SUMS}: cannot be read ({error}); get the set's folder again, or write it with sha256sum"
        return
    said = {}
    for line in lines:
        match = LINE.fullmatch(line)
        if match is None:
            yield f"{SUMS}: not a checksum and a file's name: {line!r}"
            continue
        said[match["name"]] = match["digest"]
    there = files_of(folder)
    for name in there:
        if (folder / name).is_symlink():
            yield f"{name}: a link; a set holds files"
        elif not (folder / name).is_file():
            yield f"{name}: neither a file nor a folder; remove it"
        elif name not in said:
            yield f"{name}: is not among the checksums; remove it"
        elif (digest := sha256(folder / name)) != said[name]:
            yield (
                f"{name}: is not the file that the checksum is of: its SHA-256 begins with {digest[:12]}, "
                f"and {SUMS} has {said[name][:12]}; it was changed or damaged since the set was published"
            )
    yield from (f"{name}: is missing; {SUMS} names it" for name in sorted(set(said) - set(there)))


def read_provenance(folder: Path) -> Provenance:
    """What a set says of its jobs, machines and versions.

    Raises:
        InputError: when it does not say it, or its verdicts are by other rules than those of this code.
    """
    try:
        about = Provenance.model_validate_json((folder / PROVENANCE).read_text())
    except (OSError, ValidationError, UnicodeDecodeError) as error:
        raise InputError(f"{PROVENANCE}: not that of a set ({error})") from error
    if about.rule_version != RULE_VERSION:
        raise InputError(
            f"{PROVENANCE}: verdicts by version {about.rule_version} of the rules, and here is version "
            f"{RULE_VERSION}; check it with its own commit, {about.commit}, or publish its {PLAN} anew"
        )
    return about


def _layout(folder: Path, plan: ReportPlan) -> Iterator[str]:
    """Files that a set has or may not have, and folders that the plan calls otherwise."""
    special = {name: part.tables for name in SPECIAL if (part := getattr(plan, name)) is not None}
    places = [*special.items(), *((study.name, (study.tables,)) for study in plan.studies)]
    names = [name for name, _ in places]
    for name, given in places:
        if names.count(name) > 1 or tuple(given) != (folder / name,):
            yield f"{PLAN}: the tables of {name} should lie in the folder {name}, and no others"
    needed = TOP | {f"{name}/{table}.parquet" for name in special for table in SPECIAL[name]}
    needed |= {f"{study.name}/{table}.parquet" for study in plan.studies for table in STUDY_TABLES}
    there = set(files_of(folder))
    yield from (f"{name}: a set needs this file" for name in sorted(needed - there))
    yield from (f"{name}: a set has no such file; remove it" for name in sorted(there - needed))


def _read(folder: Path, found: list[str]) -> Tables:
    """The tables by folder; what cannot be read, or has another schema, is added to `found`."""
    tables: dict[str, dict[str, pl.DataFrame]] = {}
    for name in files_of(folder):
        path = folder / name
        if path.suffix == ".parquet" and path.stem in TABLES:
            try:
                frame = read([path], path.stem)
            except InputError as error:
                found.append(str(error).removeprefix(f"{folder}/"))
                continue
            if path.parent != folder:
                tables.setdefault(path.parent.relative_to(folder).as_posix(), {})[path.stem] = frame
    return tables


# --- rows ----------------------------------------------------------------------------------------


def _told(where: str, table: str, rows: pl.DataFrame, flaw: Callable[[Row], str]) -> Iterator[str]:
    """One sentence on rows with the same flaw: on the first, and how many more there are."""
    if len(rows):
        row = rows.row(0, named=True)
        more = f"; {len(rows) - 1} more likewise" if len(rows) > 1 else ""
        yield f"{where}/{table}.parquet: {_named(table, row)}: {flaw(row)}{more}"


def _named(table: str, row: Row) -> str:
    names = [name for name in ROWS[table] if row.get(name) not in (None, "")]
    return ", ".join(f"{name} {row[name]}" for name in names)


def _rows(where: str, frames: Mapping[str, pl.DataFrame], scale: str) -> Iterator[str]:
    """Rows that are there twice, of no job, or of another study or scale."""
    for table, frame in frames.items():
        if table in KEYS or table == "parity":
            again = frame.filter(pl.struct(ROWS[table]).is_duplicated())
            yield from _told(where, table, again, lambda _: "has more than one row; one is wanted")
        if table != "jobs" and "spec_hash" in frame.columns:
            key = ["spec_hash", "machine", *(["optimizer"] if table == "runs" else [])]
            lost = frame.join(frames["jobs"], on=key, how="anti", nulls_equal=True)
            yield from _told(
                where, table, lost, lambda row: f"jobs.parquet has no job {row['spec_hash']} of it"
            )
        if where not in SPECIAL and "study" in frame.columns:
            others = frame.filter((pl.col("study") != where) | (pl.col("scale") != scale))
            yield from _told(where, table, others, lambda row: f"is of {row['study']}, scale {row['scale']}")


def _study(study: StudyPlan, frames: Mapping[str, pl.DataFrame], about: Provenance) -> Iterator[str]:
    runs = with_method(frames["runs"])
    yield from _cells(study, runs)
    yield from _settings(study, runs)
    whole = pl.col("outcome").is_in([*FINISHED, "diverged"])  # of others nothing was recorded
    final = runs.filter((pl.col("stage") == "final") & whole)
    yield from _records(study, final, frames["curves"], study.name in about.thinned_curves)
    modelled = model_seconds(unmodelled(frames["runs"]), frames["timings"])
    yield from _differences(study.name, "runs", frames["runs"].select("run", "targets"), modelled)
    points = frames["curves"].group_by("run", "metric").len()["len"]
    if study.name in about.thinned_curves and (
        CURVE_POINTS not in points if study.name in about.whole_curves else points.max() != CURVE_POINTS
    ):
        yield (
            f"{study.name}/curves.parquet: {PROVENANCE} says that it is thinned to {CURVE_POINTS} "
            f"checkpoints of long runs, and the longest has {max(points, default=0)}"
        )


def _only_backend(study: StudyPlan, optimizer: str) -> str | None:
    """The one backend that a method of another library runs on, and is tuned on; None for our own."""
    library, colon, _ = study.optimizer(optimizer).locator.partition(":")
    return LIBRARIES.get(library) if colon else None


def _tuner(study: StudyPlan, optimizer: str, backend: str) -> str:
    return _only_backend(study, optimizer) or study.tuned_on[backend]


def _planned(study: StudyPlan) -> tuple[pl.DataFrame, pl.DataFrame]:
    """The cells of final runs; and those of tuning runs, with the number of settings of each as `len`."""
    trials = study.tuning.trials
    workloads = [workload.name for workload in study.workloads]
    methods = [(method, *Method.of(method)) for method in study.methods]
    final, tuning = [], {}
    for backend, workload, (method, optimizer, basis) in product(study.backends, workloads, methods):
        if _only_backend(study, optimizer) not in (None, backend):
            continue
        count = study.runs_on[backend].final_seeds
        seeds = range(FIRST_FINAL_SEED, FIRST_FINAL_SEED + count)
        final += [(backend, workload, method, seed) for seed in seeds]
        if study.tuning.tries(basis):
            for seed in range(study.seeds.tuning):
                tuning[_tuner(study, optimizer, backend), workload, method, seed] = trials
    schema = {**dict.fromkeys(CELL[:3], pl.String), "seed": pl.Int64}
    return (
        pl.DataFrame(final, schema=schema, orient="row"),
        pl.DataFrame(
            [(*cell, count) for cell, count in tuning.items()],
            schema={**schema, "len": pl.Int64},
            orient="row",
        ),
    )


def _cells(study: StudyPlan, runs: pl.DataFrame) -> Iterator[str]:
    """Cells of the plan that have no run or several, and runs of no cell."""
    final, tuning = _planned(study)
    settings = pl.struct("learning_rate", pl.col("hyperparameters").hash()).n_unique().cast(pl.Int64)
    for kind, planned, there in (
        ("final", final.with_columns(len=pl.lit(1, pl.Int64)), pl.len().cast(pl.Int64)),
        ("tuning", tuning, settings),
    ):
        own = runs.filter(pl.col("stage").is_in(TUNING if kind == "tuning" else ["final"]))
        counts = own.group_by(CELL).agg(there.alias("there"))
        both = planned.join(counts, on=CELL, how="full", coalesce=True).with_columns(
            pl.col("len", "there").fill_null(0)
        )
        wrong = both.filter(pl.col("len") != pl.col("there")).sort(CELL)
        for (cell_backend, workload, method), rows in wrong.group_by(CELL[:3], maintain_order=True):
            row = rows.row(0, named=True)
            yield (
                f"{study.name}/runs.parquet: {kind} runs of {method} on {workload}, {cell_backend}: seed "
                f"{row['seed']} has {row['there']}, and the plan asks for {row['len']}"
                + (f"; {len(rows) - 1} more seeds likewise" if len(rows) > 1 else "")
            )


def _settings(study: StudyPlan, runs: pl.DataFrame) -> Iterator[str]:
    """Final runs at other settings than those that tuning chose: the best, of those that tie the least."""
    tuning = dict(runs.filter(pl.col("stage").is_in(TUNING)).group_by(CELL[:3]))
    final = runs.filter(pl.col("stage") == "final")
    for (backend, workload, method), judged in final.sort(CELL).group_by(CELL[:3], maintain_order=True):
        optimizer, basis = Method.of(str(method))
        tuner = _tuner(study, optimizer, str(backend))
        chooser = Method(optimizer, IDENTITY if study.shares_rates else basis).label
        tried = tuning.get((tuner, workload, chooser))
        if tried is None:
            continue  # said already: cells without runs
        own = study.optimizer(optimizer).space
        names = sorted(own, key=lambda name: name != "learning_rate") or list(study.tuning.names)
        metric, which = study.tuning.choose.metric, study.tuning.choose.which
        criterion = (metric, which, study.direction_of(metric))
        right = chosen_setting(tried, names, *criterion)
        wrong = {setting_of(row, names) for row in judged.iter_rows(named=True)} - {right}
        if wrong:
            yield (
                f"{study.name}/runs.parquet: final runs of {method} on {workload}, {backend}: "
                f"{', '.join(names)} are {min(wrong)}, and tuning on {tuner} chose {right}"
            )


def _records(study: StudyPlan, final: pl.DataFrame, curves: pl.DataFrame, thinned: bool) -> Iterator[str]:
    """Final and best metrics and steps to targets that are not those of the curves.

    Args:
        final: the final runs that reached an end, if by divergence.
        thinned: whether some checkpoints were left out: best values and first steps may lie between those
            that stayed.
    """
    about = pl.DataFrame(
        [
            (workload.name, name, 1.0 if metric.direction == "minimize" else -1.0, study.targets.get(name))
            for workload in study.workloads
            for name, metric in workload.metrics.items()
        ],
        schema={"workload": pl.String, "metric": pl.String, "sign": pl.Float64, "threshold": pl.Float64},
        orient="row",
    )
    asked = final.select("run", "workload", "steps").join(about, on="workload")
    points = (
        curves.join(asked, on=["run", "metric"])
        .sort("step")
        .with_columns(cost=pl.when(pl.col("value").is_not_nan()).then(pl.col("sign") * pl.col("value")))
    )
    met = pl.col("cost") <= pl.col("sign") * pl.col("threshold")
    best = pl.col("cost") == pl.col("cost").min()
    given = points.group_by("run", "metric").agg(
        pl.col("step").first().alias("first"),
        pl.col("step").last().alias("last"),
        pl.col("value").last().alias("final"),
        pl.col("value").filter(best).first().fill_null(math.nan).alias("best"),
        pl.coalesce(pl.col("step").filter(best).first(), pl.col("step").first()).alias("best step"),
        pl.col("step").filter(met).first().alias("steps to target"),
    )
    said = asked
    for column, fields in (
        ("final_metrics", {"name": "metric", "value": "final"}),
        ("best_metrics", {"name": "metric", "value": "best", "step": "best step"}),
        ("targets", {"metric": "metric", "threshold": "target", "steps": "steps to target"}),
    ):
        rows = final.select("run", column).explode(column).drop_nulls(column).unnest(column)
        rows = rows.select("run", *(pl.col(old).alias(new) for old, new in fields.items()))
        strange = rows.join(asked, on=["run", "metric"], how="anti")
        yield from _told(
            study.name, "runs", strange, lambda row: f"{row['metric']} is no metric of the workload"
        )
        said = said.join(rows, on=["run", "metric"], how="left")
    both = said.join(given, on=["run", "metric"], how="left", suffix=" of curve")
    whole = (pl.col("first") == 0) & (pl.col("last") == pl.col("steps"))
    yield from _told(
        study.name,
        "runs",
        both.filter(~whole.fill_null(value=False)),
        lambda row: f"{row['metric']} needs a curve from step 0 to {row['steps']}",
    )
    for name, wrong in _contradictions(thinned).items():
        yield from _told(
            study.name,
            "runs",
            both.filter(whole & wrong),
            lambda row, name=name: (  # type: ignore[misc]
                f"{name} of {row['metric']} is {row[name]}, and should be "
                f"{row['threshold' if name == 'target' else f'{name} of curve']}, by "
                f"{PLAN if name == 'target' else 'its curve'}"
            ),
        )


def _contradictions(thinned: bool) -> dict[str, pl.Expr]:
    """By what a run says of a metric, whether its curve or the plan says otherwise."""
    found = {
        "target": pl.col("target").ne_missing(pl.col("threshold")),
        "final": pl.col("final").ne_missing(pl.col("final of curve")),
    }
    names = ("best", "best step", "steps to target")
    if not thinned:
        return found | {name: pl.col(name).ne_missing(pl.col(f"{name} of curve")) for name in names}
    best, met = (pl.col(name) for name in ("best", "steps to target"))
    late = (met <= pl.col("steps to target of curve")).fill_null(value=False)
    return found | {
        "best": ~(pl.col("sign") * best <= pl.col("sign") * pl.col("best of curve")) & best.is_not_nan(),
        "steps to target": pl.col("steps to target of curve").is_not_null() & ~late,
    }


def _parity(plan: ReportPlan, rows: pl.DataFrame) -> Iterator[str]:
    """Comparisons of backends that were left out, or do not say what differences and tolerance give."""
    assert plan.parity is not None
    problems = [problem.label for problem in plan.parity.problems]
    planned = rows.select("optimizer", "problem").unique()
    whole = planned.join(pl.DataFrame({"comparison": COMPARISONS}), how="cross")
    there = rows.with_columns(pl.col("comparison", "unit").cast(pl.String))
    missing = whole.join(there, on=ROWS["parity"], how="anti").sort(ROWS["parity"])
    yield from _told("parity", "parity", missing, lambda _: "is missing")
    unknown = there.filter(~pl.col("problem").is_in(problems))
    yield from _told("parity", "parity", unknown, lambda row: f"the plan has no problem {row['problem']}")
    for row in there.iter_rows(named=True):
        right = {
            "unit": unit_of(row["comparison"]),
            "tolerance": plan.parity.tolerance if row["judged"] else None,
            "steps": plan.parity.steps,
            "holds": is_within(row["judged"], row["difference"], plan.parity.tolerance),
        }
        for name, value in right.items():
            if row[name] != value:
                yield f"parity/parity.parquet: {_named('parity', row)}: {name} is {row[name]}, not {value}"


def _checks(plan: ReportPlan, rows: pl.DataFrame) -> Iterator[str]:
    """Measures that do not say what follows from their numbers, and instances that are not the plan's."""
    assert plan.checks is not None
    measure = ("value", "relation", "limit", "tolerance")
    for row in rows.with_columns(pl.col("relation").cast(pl.String)).iter_rows(named=True):
        if row["holds"] != (share_of_limit(*(row[name] for name in measure)) <= 1):
            yield f"checks/checks.parquet: {_named('checks', row)}: holds is {row['holds']}, and is not so"
    parts = rows.group_by("claim", "part", pl.col("variant").cast(pl.String))
    drawn = parts.agg(pl.col("instance").unique().sort()).iter_rows()
    there = {(claim, part, variant): instances for claim, part, variant, instances in drawn}
    planned = {
        (claim.id, part.part, part.variant): list(range(part.instances))
        for claim in plan.checks.claims
        if not claim.missing
        for part in claim.parts
    }
    for key in sorted(planned.keys() | there.keys()):
        if there.get(key) != planned.get(key):
            counts = [len(each.get(key) or []) for each in (there, planned)]
            yield (
                f"checks/checks.parquet: {', '.join(filter(None, key))}: {counts[0]} instances, and the plan "
                f"asks for {counts[1]}"
            )


# --- provenance, and what was waived -------------------------------------------------------------


def _provenance(about: Provenance, plan: ReportPlan, tables: Tables) -> Iterator[str]:
    """What provenance.json says otherwise than plan and tables."""
    runs = sum(len(tables[study.name]["runs"]) for study in plan.studies)
    right = {
        "name": plan.published,
        "scale": plan.scale,
        "licence": LICENCE,
        **provenance_of(all_jobs(frames["jobs"] for frames in tables.values()), runs),
    }
    said = about.model_dump()
    for key, value in right.items():
        if said.get(key) != value:
            yield f"{PROVENANCE}: {key} is {said.get(key)}, and plan and tables give {value}"
    try:
        datetime.fromisoformat(about.published)
    except ValueError:
        yield f"{PROVENANCE}: published is {about.published!r}, and should be a date like 2026-11-21"
    for name in {*about.thinned_curves, *about.whole_curves} - set(tables):
        yield f"{PROVENANCE}: thinned_curves names {name}, and the set has no such study"


def _rule_hashes(plan: ReportPlan) -> Iterator[str]:
    """Claims of studies whose rule is not the one that its hash is of."""
    for study in (*plan.studies, *plan.skipped):
        right = rules(study)
        for claim in (*study.claims, *study.repeated):
            if (said := study.rules.get(claim.id)) != right[claim.id]:
                yield (
                    f"{PLAN}: claim {claim.id}: its rule is not the one whose hash stands beside it: "
                    f"{said}, and the hash of what stands there is {right[claim.id]}"
                )


def _waived(about: Provenance, plan: ReportPlan, tables: Tables, claims: pl.DataFrame) -> Iterator[str]:
    """What stands in the way of publishing and is not told as waived, and what is told and is not so."""
    tried = {study.name: study.tuning.tried_in for study in plan.studies}
    found = [
        *unclean((about.commit, about.dirty)),
        *(each for where, frames in tables.items() for each in objections(where, frames, tried.get(where))),
        *changed_rules(claims),
    ]
    for each in found:
        if each.told not in about.waived:
            yield f"{each.sentence}; remedy: {each.remedy}, or publish with waive={each.kind}"
    said = "; ".join(each.sentence for each in found) or "nothing does"
    wanted = f"is not the list of what stands in the way of publishing: {said} (kinds: {', '.join(WAIVERS)})"
    if about.waived != [each.told for each in found]:
        yield f"{PROVENANCE}: waived {wanted}"
    if list(plan.waived) != in_short(found):
        yield f"{PLAN}: waived {wanted}"


# --- what follows from the tables ----------------------------------------------------------------


def disagreements(folder: Path) -> list[str]:
    """Where claims, findings, leaderboard and pages of a set are not those that its tables give.

    Raises:
        InputError: when the set cannot be read.
    """
    plan, about = read_set(folder), read_provenance(folder)
    found: list[str] = []
    for table, computed in derived(plan).items():
        given = read([folder / f"{table}.parquet"], table)
        found += _differences("", table, given, computed)
    if found:
        return found
    # of the leaderboard as it is given, so that rounding makes no other text
    follow = texts(plan, about.model_dump(), read([folder / "leaderboard.parquet"], "leaderboard"))
    for name, text in follow.items():
        pairs = zip_longest((folder / name).read_text().splitlines(), text.splitlines(), fillvalue="")
        for number, (said, right) in enumerate(pairs, start=1):
            if said != right:
                found.append(
                    f"{name}: is not what is written from the set's tables: line {number} has {said[:60]!r}, "
                    f"for {right[:60]!r}; if this checkout writes it otherwise, see commit {about.commit}"
                )
                break
    return found


def _differences(where: str, table: str, given: pl.DataFrame, right: pl.DataFrame) -> Iterator[str]:
    """A sentence on each column that is not what the tables give: its first row, and how many more."""
    file = f"{where}/{table}.parquet".removeprefix("/")
    if len(given) != len(right):
        yield f"{file}: has {len(given)} rows, and the tables give {len(right)}"
        return
    for name in given.columns:
        pairs = zip(given[name].to_list(), right[name].to_list(), strict=True)
        wrong = [number for number, pair in enumerate(pairs) if not alike(*pair)]
        if wrong:
            said, wanted = (frame[name][wrong[0]] for frame in (given, right))
            values = f" is {said}, and the tables give {wanted}"
            if given.schema[name].is_nested():
                values = " are not what the tables give"
            more = f"; {len(wrong) - 1} more rows likewise" if len(wrong) > 1 else ""
            yield f"{file}: {_named(table, given.row(wrong[0], named=True))}: {name}{values}{more}"


def alike(left: Any, right: Any) -> bool:
    """Whether two values of a table are equal but for rounding; NaN is like NaN."""
    if isinstance(left, float) and isinstance(right, float):
        both_nan = math.isnan(left) and math.isnan(right)
        return left == right or both_nan or math.isclose(left, right, rel_tol=EQUAL)
    if isinstance(left, Mapping) and isinstance(right, Mapping):
        return left.keys() == right.keys() and all(alike(left[key], right[key]) for key in left)
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(map(alike, left, right))
    return bool(left == right)
