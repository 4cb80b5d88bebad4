"""Checking claims: in the terminal with progress, and as a job of the stage `checks`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import polars as pl

from curvebench.progress import Progress
from curvebench.property_checks.check_rules import check_rule
from curvebench.property_checks.checks import PropertyClaim, Row, Trace, claims_of, part_results, verdicts
from curvebench.registry import at_defaults, missing_of
from curvebench.results import schema
from curvebench.results.verdicts import Variant, share_of_limit, together
from curvebench.spec.errors import by_reason
from curvebench.stages.job import Job
from curvebench.stages.supervision import failure_of


@dataclass(frozen=True)
class Checked:
    """What checking gave: rows and series of all parts, and the error of each that could not be measured."""

    rows: list[Row] = field(default_factory=list)
    traces: list[Trace] = field(default_factory=list)
    errors: dict[tuple[str, str, Variant], Exception] = field(default_factory=dict)

    def raise_errors(self) -> None:
        """Raise what went wrong, if anything.

        Raises:
            ExceptionGroup: naming each claim and part.
        """
        if self.errors:
            said = [
                f"{claim}: {_name(part, variant)} ({type(error).__name__}: {error})"
                for (claim, part, variant), error in self.errors.items()
            ]
            raise ExceptionGroup(f"not measured: {'; '.join(said)}", list(self.errors.values()))


def check(claims: Iterable[PropertyClaim], scale: str, title: str) -> Checked:
    """Measure every part of every claim; one that raises does not keep the others from being measured."""
    parts = [(claim.id, part, check_rule(claim)) for claim in claims for part in claim.checks]
    progress = Progress(title, sum(part.count(scale) + part.bound for _, part, _ in parts), even=False)
    found = Checked()
    for claim, part, rule in parts:
        total, begun = part.count(scale) + part.bound, 0
        try:
            for row in part_results(claim, part, scale, rule):
                if isinstance(row, Trace):
                    found.traces.append(row)
                    continue
                found.rows.append(row)
                done = min(row.instance, part.count(scale))  # a part's searches count as one instance
                if done > begun:
                    progress.advance(done - begun, f"({claim})")
                    begun = done
        except Exception as error:  # whatever a check raises
            error.add_note(f"while checking {claim}: {_name(part.part, part.variant)}")
            found.errors[claim, part.part, part.variant] = error
        progress.advance(total - begun, f"({claim})")
    return found


def _name(part: str, variant: Variant) -> str:
    return f"{part} ({variant})" if variant else part


def check_claims(job: Job) -> None:
    """Check the claims of the spec's module whose data are there and write their measures.

    A claim of which a part could not be measured has failed, and no rows.
    """
    spec = job.spec
    (module,) = (optimizer.name for optimizer in spec.optimizers)
    claims, skipped = with_data(claims_of(module))
    with job.clock.phase("evaluation"):
        found = check(claims, spec.scale, f"claims of {module}")
    for (claim, part, variant), error in found.errors.items():
        job.trace(error)
        failure = failure_of(error)
        job.fail(claim, failure._replace(reason=f"{_name(part, variant)}: {failure.reason}"))
    failed = {claim for claim, _, _ in found.errors}
    sources = {(claim.id, part.part, part.variant): part.source for claim in claims for part in claim.checks}
    about = {"scale": spec.scale, "spec_hash": spec.hash, "machine": job.machine}
    table = [
        {**columns(row), "source": sources[row.claim, row.part, row.variant], **about}
        for row in found.rows
        if row.claim not in failed
    ]
    series = series_table(trace for trace in found.traces if trace.claim not in failed)
    job.write("series", series.with_columns(**{name: pl.lit(value) for name, value in about.items()}))
    job.write("checks", table)
    job.own_notes.extend(f"not checked: {claims} ({reason})" for claims, reason in by_reason(skipped))


def with_data(claims: Iterable[PropertyClaim]) -> tuple[list[PropertyClaim], dict[str, str]]:
    """The claims whose data are there; and what the others lack and how to get it, by their ids."""
    lacking = {claim.id: (claim, missing_of(at_defaults(claim.workloads))) for claim in claims}
    there = [claim for claim, reason in lacking.values() if reason is None]
    return there, {name: reason for name, (_, reason) in lacking.items() if reason is not None}


def columns(row: Row) -> dict[str, Any]:
    """What a row says, as columns of the table `checks`."""
    found = {**vars(row), **asdict(row.measure), "holds": row.measure.holds}
    return {name: value for name, value in found.items() if name not in ("measure", "sampled")}


def series_table(traces: Iterable[Trace]) -> pl.DataFrame:
    """A row a point, with the columns of the table `series` but for those of the job."""
    job = ("scale", "spec_hash", "machine")
    columns = {name: dtype for name, dtype in schema.SERIES.items() if name not in job}
    parts = [pl.DataFrame(schema=columns)]
    for trace in traces:
        about = {**vars(trace), **vars(trace.series)}
        about |= zip(("x_name", "y_name"), trace.series.axes, strict=True)
        points = pl.DataFrame({"x": about.pop("x"), "y": about.pop("y")})
        said = points.with_columns(pl.lit(about[name]).alias(name) for name in columns.keys() - {"x", "y"})
        parts.append(said.select(pl.col(name).cast(dtype) for name, dtype in columns.items()))
    return pl.concat(parts)


# --- the command ---------------------------------------------------------------------------------


def summary(claim: PropertyClaim, scale: str, found: Checked) -> dict[str, Any]:
    """What was found of a claim, in plain JSON types: verdicts by variant, and the worst measure by part.

    There are no verdicts where a part could not be measured.
    """
    own = [row for row in found.rows if row.claim == claim.id]
    parts = []
    for part in claim.checks:
        measured = [row for row in own if (row.part, row.variant) == (part.part, part.variant)]
        failed = (claim.id, part.part, part.variant) in found.errors
        parts.append(
            {
                "part": part.part,
                "variant": part.variant,
                "source": part.source,
                "instances": len({row.instance for row in measured}),
                "seconds": sum({row.instance: row.seconds for row in measured}.values()),
                "failed": failed,
                "holds": None if failed else together([row.measure.holds for row in measured]),
                "worst": _measure(max(measured, key=_share)) if measured else None,
            }
        )
    return {
        "claim": claim.id,
        "sentence": claim.sentence,
        "source": claim.source,
        "scale": scale,
        "verdicts": {} if any(part["failed"] for part in parts) else verdicts(claim, own),
        "parts": parts,
    }


def _share(row: Row) -> float:
    measure = row.measure
    return share_of_limit(measure.value, measure.relation, measure.limit, measure.tolerance)


def _measure(row: Row) -> dict[str, Any]:
    about = ("instance", "quantity", "value", "relation", "limit", "tolerance", "holds")
    return {key: value for key, value in columns(row).items() if key in about}


def lines(summaries: Iterable[Mapping[str, Any]]) -> list[str]:
    """The summaries as text: a line a part with its worst measure, then one a verdict."""
    said = []
    for one in summaries:
        for part in one["parts"]:
            words = {None: "inconclusive", True: "holds", False: "misses"}
            verdict = "not measured" if part["failed"] else words[part["holds"]]
            worst = f" ({_worst(part)})" if part["worst"] else ""
            said.append(f"{one['claim']}: {_name(part['part'], part['variant'])}: {verdict}{worst}")
        for variant, verdict in one["verdicts"].items():
            said.append(f"{one['claim']}: {_name('all parts', variant)}: {verdict}")
    return said


def _worst(part: Mapping[str, Any]) -> str:
    measure = part["worst"]
    tolerance = f" ± {measure['tolerance']:.2g}" if measure["tolerance"] else ""
    compared = f"{measure['value']:.6g} {measure['relation']} {measure['limit']:.6g}{tolerance}"
    return f"worst of {part['instances']} instances: {measure['quantity']}: {compared}"
