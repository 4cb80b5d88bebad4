"""Publishing a report's tables as a set: `python -m reports publish`, and what a set says, computed anew."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import zip_longest
from pathlib import Path
from typing import Any

import polars as pl

from reports import formatting
from reports.leaderboard import Board, leaderboards
from reports.parity import jobs_of
from reports.plan import ReportError, ReportPlan, StudyPlan, read_plan
from reports.rendering import templates
from reports.series import series_rows
from reports.tables import read_tables
from reports.verdict_list import read_verdicts
from results.checking import unfounded
from results.provenance import PROJECT, commit
from results.publishing import (
    CURVE_POINTS,
    LICENCE,
    NOTICE,
    PLAN,
    PROVENANCE,
    STUDY_TABLES,
    Objection,
    Revision,
    all_jobs,
    as_json,
    between_markers,
    changed_rules,
    check_page,
    in_short,
    new_set,
    objections,
    provenance_of,
    seal,
    thinned,
    unclean,
    write_text,
)
from results.reading import naming_damage, read, scan, table_files, with_method
from results.schema import TABLES
from results.sentences import differences, likewise, row_of
from results.set_names import WAIVERS, check_name, check_waivers
from results.verdicts import RULE_VERSION, rule_hash
from results.writing import write_table

Frames = Mapping[str, pl.DataFrame]
OTHERS = ("parity", "checks")  # what belongs to no study; folders of a set
EQUAL = 1e-6  # relative: what another processor's rounding may change of a number that is computed anew
BOARD_VERSIONS = (
    1,
    2,
    3,
)  # of the leaderboard: 1, without a name in older sets, has null for what is not finite in leaderboard.json
COMPARED_SINCE = 3  # before, learning rates did nearly as well by the metric that tuning judges by
SHOWN = 60  # letters of a line that is not what it should be


@dataclass(frozen=True)
class Contents:
    """What goes into a set.

    Args:
        frames: tables by the folder in the set that holds them.
        thinned: the studies whose curves hold some of the checkpoints only.
        whole: those of them of which the curves that claims are decided by hold all.
    """

    frames: Mapping[str, Frames]
    thinned: tuple[str, ...]
    whole: tuple[str, ...] = ()

    @property
    def jobs(self) -> pl.DataFrame:
        """The jobs of all folders."""
        return all_jobs(frames["jobs"] for frames in self.frames.values())

    @property
    def runs(self) -> int:
        """How many runs there are."""
        return sum(len(frames["runs"]) for frames in self.frames.values() if "runs" in frames)


def publish(
    plan: ReportPlan,
    name: object,
    folder: Path,
    waive: Sequence[str] = (),
    readme: Path | None = None,
    code: Revision | None = None,
) -> Path:
    """Write a report's tables and what follows from them as a published set.

    A set that is published already is computed anew from its own tables, under another name, such as after a
    change of the statistics.

    Args:
        plan: what is published.
        name: the set's; the folder of that name below `folder` must not be there.
        waive: kinds of objections that are let pass, and told in the set.
        readme: the page whose leaderboard becomes the set's; None to leave all pages alone.
        code: the commit of the code that computes verdicts and leaderboard, and whether files differ from
            it; None to ask git.

    Returns:
        The set's folder.

    Raises:
        ReportError, TableError: when something stands in the way, or a table is missing or damaged.
    """
    name, waive = check_name(name, folder), check_waivers(waive)
    code = commit(PROJECT) if code is None else code
    if readme is not None:
        check_page(readme)
        if not (folder / name).resolve().is_relative_to(readme.resolve().parent):
            raise ReportError(
                f"{readme}: cannot link to {folder / name}, which does not lie below its folder"
            )
    contents = gather(plan)
    claims = read_verdicts(plan).claims
    raw = _by_todays_rule(json.loads(plan.path.read_text()))
    rules = {claim["id"]: claim["rule"] for study in _studies(raw) for claim in study.get("claims") or []}
    tried = {study["name"]: study["tuning"].get("tried_in") for study in raw["studies"]}
    today = pl.col("claim").replace_strict(rules, default=pl.col("rule"), return_dtype=pl.String)
    found = [
        *unclean(code),
        *(
            each
            for where, frames in contents.frames.items()
            for each in objections(where, frames, tried.get(where))
        ),
        *changed_rules(claims.with_columns(rule=today)),
    ]
    if refused := [each for each in found if each.kind not in waive]:
        raise ReportError("\n".join(_refusal(name, refused)))
    with new_set(folder, name) as stage:
        board = _write(stage, _moved(raw, name, found), plan, name, contents, found, code)
        if flaws := unfounded(stage):
            raise ReportError(
                "\n".join([f"{name}: not published; whoever checks it would refuse it:", *flaws])
            )
    if readme is not None:
        text = readme.read_text()
        link = (folder / name).resolve().relative_to(readme.resolve().parent)
        write_text(readme, between_markers(text, readme, readme_lines(board, name, link, plan, found)))
    return folder / name


def _refusal(name: str, found: Sequence[Objection]) -> Iterator[str]:
    yield f"{name}: not published"
    for kind in WAIVERS:
        own = [each for each in found if each.kind == kind]
        yield from (f"  {each.sentence}" for each in own)
        for remedy in dict.fromkeys(each.remedy for each in own):
            yield f"    remedy: {remedy}; or publish with waive={kind}, which the set then says"


def gather(plan: ReportPlan) -> Contents:
    """The tables that a report shows, the curves of final runs only.

    Raises:
        TableError: when a table is missing or damaged.
    """
    frames: dict[str, Frames] = {}
    about = plan.path.parent / PROVENANCE
    before = json.loads(about.read_text())["thinned_curves"] if plan.published else []
    cut = []
    for study in plan.studies:
        if study.name in OTHERS:
            raise ReportError(
                f"study {study.name}: a set keeps a folder of that name; rename the study's file"
            )
        own = {table: read(study.tables, table) for table in STUDY_TABLES if table != "curves"}
        final = own["runs"].filter(pl.col("stage") == "final").select("run").lazy()
        with naming_damage(table_files(study.tables, "curves")):
            every = scan(study.tables, "curves").join(final, on="run", how="semi", maintain_order="left")
            curves = every.collect(engine="streaming")
        own["curves"] = thinned(curves, curves_of_claims(study, own["runs"]))
        cut += [study.name] * (study.name in before or len(own["curves"]) < len(curves))
        frames[study.name] = own
    for where, part in zip(OTHERS, (plan.parity, plan.checks), strict=True):
        if part is not None:
            rows = read([folder / f"{where}.parquet" for folder in part.tables], where)
            frames[where] = {where: rows, "jobs": jobs_of(part)}
    if plan.checks is not None:
        frames["checks"] = {**frames["checks"], "series": series_rows(plan.checks)}
    if not any("runs" in own and len(own["runs"]) for own in frames.values()) and "checks" not in frames:
        raise ReportError(f"{plan.path}: has neither runs nor checks to publish; run snakemake")
    return Contents(frames, tuple(cut), tuple(name for name in cut if _has_long(frames[name]["curves"])))


def _has_long(curves: pl.DataFrame) -> bool:
    """Whether curves have more checkpoints of a run and metric than thinned ones."""
    return bool((curves.group_by("run", "metric").len()["len"] > CURVE_POINTS).any())


def curves_of_claims(study: StudyPlan, runs: pl.DataFrame) -> pl.DataFrame:
    """The runs and metrics whose curves claims of a study are decided by, columns run and metric.

    Args:
        runs: with optimizer and basis.
    """
    named = with_method(runs).select("run", "workload", "method")
    found = [
        named.filter(workload=workload.name)
        .filter(pl.col("method").is_in([*condition.methods, *condition.than]))
        .select("run", metric=pl.lit(condition.metric))
        for claim in (*study.claims, *study.repeated)
        for condition in claim.conditions
        for workload in study.workloads
        if condition.of_curves and condition.reads(workload)
    ]
    return pl.concat([pl.DataFrame(schema={"run": pl.String, "metric": pl.String}), *found]).unique()


# --- what follows from the tables ----------------------------------------------------------------


def boards_of(plan: ReportPlan, version: int = BOARD_VERSIONS[-1]) -> list[Board]:
    """The leaderboards of a plan, from its tables, as a version of them counts."""
    studies = [(study, read_tables(study.tables)) for study in plan.studies]
    return leaderboards(studies, "compared" if version >= COMPARED_SINCE else "tuning")


def derived(plan: ReportPlan, version: int = BOARD_VERSIONS[-1]) -> dict[str, pl.DataFrame]:
    """The tables that follow from those of the runs: claims, findings and leaderboard.

    Raises:
        ReportError, TableError: when a table is missing or damaged.
    """
    from reports.board_table import board_table

    found = read_verdicts(plan)
    board = board_table(boards_of(plan, version), plan.scale)
    return {"claims": found.claims, "findings": found.findings, "leaderboard": board}


def disagreements(folder: Path) -> list[str]:
    """Where the claims, findings and leaderboard of a set are not those that its tables give; none is right.

    Raises:
        ReportError, TableError: when the set cannot be read.
    """
    plan = read_set(folder)
    about = json.loads((folder / PROVENANCE).read_text())
    if about.get("rule_version") != RULE_VERSION:
        made_by = f"version {about.get('rule_version')} of the rules, and here is version {RULE_VERSION}"
        anew = f"python -m reports publish --plan {folder / PLAN} --name NAME --waive rules"
        own = f"check it with its own commit, {about.get('commit')}"
        return [f"{PROVENANCE}: verdicts by {made_by}; {own}, or compute it anew: {anew}"]
    found = []
    version = about.get("board_version", BOARD_VERSIONS[0])
    known_version = version if version in BOARD_VERSIONS else BOARD_VERSIONS[-1]
    for table, right in derived(plan, known_version).items():
        given = read([folder / f"{table}.parquet"], table)
        if len(given) != len(right):
            found.append(f"{table}.parquet: has {len(given)} rows, and the tables give {len(right)}")
            continue
        found += _differences(table, given, right)
    if version not in BOARD_VERSIONS:
        known = ", ".join(map(str, BOARD_VERSIONS))
        found.append(
            f"{PROVENANCE}: board_version is {version!r}, and here are {known}; check the set with its own "
            f"commit, {about.get('commit')}"
        )
    if not found:  # of the leaderboard as it is given, so that rounding makes no other text
        follow = texts(plan, about, read([folder / "leaderboard.parquet"], "leaderboard"))
        found += [
            f"{file}: is not what is written from the set's tables: {_first_difference(said, text)}; if this "
            f"checkout writes it otherwise, check the set with its own commit, {about.get('commit')}"
            for file, text in follow.items()
            if (said := (folder / file).read_text()) != text
        ]
    return found


def _differences(table: str, given: pl.DataFrame, right: pl.DataFrame) -> list[str]:
    """A sentence on each column that is not what the tables give: its first row, and how many more."""
    by_column: dict[str, list[str]] = {}
    for said, computed in zip(given.to_dicts(), right.to_dicts(), strict=True):
        for what, value, wanted in differences(said, computed, alike):
            sentence = f"{row_of(table, computed)}: {what} is {value}, and the tables give {wanted}"
            by_column.setdefault(what, []).append(sentence)
    return [
        f"{table}.parquet: {sentences[0]}" + likewise(len(sentences) - 1) for sentences in by_column.values()
    ]


def _first_difference(said: str, right: str) -> str:
    """The first line of a text that is not what it should be, from shortly before where it differs."""
    pairs = enumerate(zip_longest(said.splitlines(), right.splitlines(), fillvalue=""), start=1)
    for number, (one, other) in pairs:
        if one != other:
            same = next(
                (at for at, (a, b) in enumerate(zip(one, other, strict=False)) if a != b),
                min(len(one), len(other)),
            )
            start = max(0, same - SHOWN // 3)
            return f"line {number} has {one[start : start + SHOWN]!r}, for {other[start : start + SHOWN]!r}"
    return "its last line ends otherwise"


def alike(left: Any, right: Any) -> bool:
    """Whether two values of a table are equal but for rounding; NaN is like NaN."""
    if isinstance(left, float) and isinstance(right, float):
        return (
            left == right
            or (math.isnan(left) and math.isnan(right))
            or math.isclose(left, right, rel_tol=EQUAL)
        )
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(alike(left[key], right[key]) for key in left)
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(map(alike, left, right))
    return bool(left == right)


# --- a set ---------------------------------------------------------------------------------------


def read_set(folder: Path) -> ReportPlan:
    """The plan of a published set.

    Raises:
        ReportError: when the folder holds none.
    """
    plan = read_plan(folder / PLAN)
    if not plan.published:
        raise ReportError(f"{folder / PLAN}: the plan of a report, not of a published set; publish it first")
    return plan


def drawn(plan: ReportPlan, folder: Path, tell: Callable[[str], None]) -> ReportPlan:
    """A set's plan with the figures, which a set does not hold, drawn into a folder.

    Args:
        tell: is told what is done next.

    Raises:
        ReportError, TableError: when a table is missing or damaged, or has no measure of a claim.
    """
    from reports.claim_figures import draw_claims
    from reports.claims import check_measured, check_rows
    from reports.drawing import draw_figures

    rows = check_rows(plan.checks) if plan.checks else None
    check_measured(plan, rows)
    studies = []
    for number, study in enumerate(plan.studies, start=1):
        tell(f"figures of {study.name}, study {number} of {len(plan.studies)}")
        figures = folder / "studies" / formatting.slug(study.name)
        tables = read_tables(study.tables)
        draw_figures(study, tables, figures)
        studies.append(replace(study, figures=figures))
    checks = plan.checks
    if checks is not None and rows is not None:
        tell("figures of property checks")
        checks = replace(checks, figures=folder / "claims")
        draw_claims(checks, rows, series_rows(checks), checks.figures)
    return replace(plan, studies=tuple(studies), checks=checks)


def _write(
    stage: Path,
    raw: Mapping[str, Any],
    plan: ReportPlan,
    name: str,
    contents: Contents,
    found: Sequence[Objection],
    code: Revision,
) -> pl.DataFrame:
    """Write everything, the plan as it stands in `raw`; returns the leaderboard."""
    for where, frames in contents.frames.items():
        for table, frame in frames.items():
            write_table(stage / where / f"{table}.parquet", frame, TABLES[table])
    write_text(stage / PLAN, as_json(raw))
    own = read_set(stage)
    tables = derived(own)  # from the set as it lies there, as whoever checks it computes them
    for table, frame in tables.items():
        write_table(stage / f"{table}.parquet", frame, TABLES[table])
    provenance = _provenance(name, plan, contents, found, code)
    write_text(stage / PROVENANCE, as_json(provenance))
    for file, text in texts(own, provenance, tables["leaderboard"]).items():
        write_text(stage / file, text)
    seal(stage)
    return tables["leaderboard"]


def texts(plan: ReportPlan, about: Mapping[str, Any], board: pl.DataFrame) -> dict[str, str]:
    """The files of a set that follow word by word from its plan, its provenance and its leaderboard.

    Args:
        plan: the set's.
        about: what `provenance.json` holds.
        board: the table `leaderboard`.
    """
    flat = [column for column, dtype in board.schema.items() if not dtype.is_nested()]
    version = about.get("board_version", BOARD_VERSIONS[0])
    return {
        "leaderboard.csv": board.select(flat).write_csv(),
        "leaderboard.json": as_json(records(board, version)),
        "leaderboard.schema.json": as_json(json_schema("leaderboard", version)),
        "LICENSE": NOTICE,
        "README.md": _page(about, plan, board),
    }


def _studies(raw: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return [*raw["studies"], *raw.get("skipped", [])]


def _by_todays_rule(raw: Mapping[str, Any]) -> dict[str, Any]:
    """A plan with the hash of each claim of a study as the rule stands today; an older set's has another."""

    def renewed(study: Mapping[str, Any]) -> dict[str, Any]:
        claims = study.get("claims")
        if not claims:
            return dict(study)
        cap = study.get("at_most_partly", "")
        return {**study, "claims": [{**claim, "rule": rule_hash(claim, claims, cap)} for claim in claims]}

    kinds = [kind for kind in ("studies", "skipped") if kind in raw]
    return {**raw, **{kind: [renewed(study) for study in raw[kind]] for kind in kinds}}


def _moved(raw: Mapping[str, Any], name: str, found: Sequence[Objection]) -> dict[str, Any]:
    """The plan with its folders as they are called in the set."""
    studies = [
        {**study, "tables": study["name"], "figures": f"figures/{study['name']}"} for study in raw["studies"]
    ]
    parts: dict[str, Any] = {key: {**raw[key], "tables": [key]} if raw.get(key) else None for key in OTHERS}
    if parts["checks"]:
        parts["checks"]["figures"] = "figures/claims"
    waived = [each.sentence for each in found]
    kept = {key: value for key, value in raw.items() if key != "folders"}  # of the publisher's machine
    return {**kept, **parts, "studies": studies, "kernels": None, "published": name, "waived": waived}


def _provenance(
    name: str, plan: ReportPlan, contents: Contents, found: Sequence[Objection], code: Revision
) -> dict[str, Any]:
    revision, dirty = code
    return {
        "name": name,
        "scale": plan.scale,
        "published": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": revision,
        "dirty": dirty,
        "licence": LICENCE,
        "rule_version": RULE_VERSION,
        "board_version": BOARD_VERSIONS[-1],
        "waived": [each.told for each in found],
        "thinned_curves": list(contents.thinned),
        **({"whole_curves": list(contents.whole)} if contents.whole else {}),
        **provenance_of(contents.jobs, contents.runs),
    }


WORDS = ("Infinity", "-Infinity", "NaN")  # which float() reads, in Python and pandas


def records(frame: pl.DataFrame, version: int) -> list[dict[str, Any]]:
    """The rows as JSON can say them: null is missing, and numbers that are not finite are `WORDS`.

    In version 1 both are null.
    """
    say = formatting.json_value if version == 1 else _with_words
    return [say(row) for row in frame.to_dicts()]


def _with_words(value: Any) -> Any:
    """A value as JSON can say it, with words for what is infinite or not a number, inside it too."""
    if isinstance(value, dict):
        return {key: _with_words(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_with_words(each) for each in value]
    if not isinstance(value, float) or math.isfinite(value):
        return value
    infinity, minus_infinity, nan = WORDS
    return nan if math.isnan(value) else infinity if value > 0 else minus_infinity


def json_schema(table: str, version: int) -> dict[str, Any]:
    """The JSON Schema of a table's rows, as `records` gives them."""
    head = {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": table}
    if version == 1:
        described = {"description": "null: missing, not a number, or infinite (the Parquet file tells which)"}
        number: dict[str, Any] = {"type": ["number", "null"]}
    else:
        told = f"null: not measured, or nothing to measure; {', '.join(WORDS)}: numbers that are not finite"
        described = {"description": told, "version": str(version)}
        number = {"anyOf": [{"type": ["number", "null"]}, {"enum": list(WORDS)}]}
    return {**head, **described, "type": "array", "items": _object(TABLES[table].items(), number)}


def _object(fields: Any, number: dict[str, Any]) -> dict[str, Any]:
    properties = {name: _json_type(dtype, number) for name, dtype in fields}
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


def _json_type(dtype: Any, number: dict[str, Any]) -> dict[str, Any]:
    if isinstance(dtype, pl.List):
        return {"type": ["array", "null"], "items": _json_type(dtype.inner, number)}
    if isinstance(dtype, pl.Struct):
        return _object(((field.name, field.dtype) for field in dtype.fields), number)
    if isinstance(dtype, pl.Enum):
        return {"enum": [*dtype.categories, None]}
    if dtype == pl.Float64:
        return number
    kinds = {pl.String: "string", pl.Int64: "integer", pl.Boolean: "boolean"}
    return {"type": [kinds[dtype], "null"]}


# --- pages ---------------------------------------------------------------------------------------

HEADS = ("method", "score", "mean rank", "wins", "diverged")


def board_lines(board: pl.DataFrame, plan: ReportPlan) -> list[str]:
    """The boards of the backend that leads, in Markdown, a table for each set of studies.

    Args:
        board: the table `leaderboard`.
    """
    lead = plan.studies[0].backends[0] if plan.studies else None
    lines: list[str] = []
    for (studies,), rows in board.filter(pl.col("backend") == lead).group_by(
        ["studies"], maintain_order=True
    ):
        lines += ["", f"{_cell(studies)}, scale {plan.scale}, on {lead}:", ""]
        lines += [f"| {' | '.join(HEADS)} |", f"|{' --- |' * len(HEADS)}"]
        for row in rows.iter_rows(named=True):
            cells = (
                _cell(row["method"]),
                _estimate(row, "score"),
                _estimate(row, "mean_rank"),
                _share(row["wins"], row["instances"]),
                _share(row["diverged"], row["runs"]),
            )
            lines.append(f"| {' | '.join(cells)} |")
    return lines or ["", "The set has no final runs, and so no leaderboard."]


LEGEND = (
    "Score: area under the performance profile of gradient evaluations to the target, 1 at most; none "
    "without a target. Mean rank: over problem instances, 1 is best. In brackets 95 % intervals. Wins: "
    "instances on which the method is best or ties. Diverged: of all final runs."
)


def _estimate(row: Mapping[str, Any], name: str) -> str:
    value, low, high = (row[f"{name}{end}"] for end in ("", "_low", "_high"))
    interval = f" {formatting.interval(low, high)}" if low is not None and high is not None else ""
    return formatting.number(value) + interval


def _share(successes: int | None, count: int | None) -> str:
    return formatting.NONE if count is None else f"{successes} of {count}"


def _cell(text: str) -> str:
    """A name inside a Markdown table, shown as it is."""
    return "".join(f"\\{letter}" if letter in "\\`*_{}[]<>#|&" else letter for letter in text)


def _waived_lines(sentences: Sequence[str]) -> list[str]:
    if not sentences:
        return []
    return ["", "**Published although:**", "", *(f"- {_cell(sentence)}" for sentence in sentences)]


def readme_lines(
    board: pl.DataFrame, name: str, folder: Path, plan: ReportPlan, found: Sequence[Objection]
) -> list[str]:
    """What stands between the markers of the project's README."""
    where = f"[{name}]({folder.as_posix()}/README.md)"
    return [
        "",
        f"From the published set {where}.",
        *board_lines(board, plan),
        "",
        LEGEND,
        *_waived_lines(in_short(each.sentence for each in found)),
        "",
    ]


def _page(about: Mapping[str, Any], plan: ReportPlan, board: pl.DataFrame) -> str:
    """The set's README."""
    environment = templates(markdown=True)
    environment.filters["cell"] = _cell  # nothing else escapes names
    return environment.get_template("published.md.jinja").render(
        about=about,
        plan=plan,
        board=board_lines(board, plan),
        legend=LEGEND,
        waived=_waived_lines(plan.waived),
        points=CURVE_POINTS,
    )
