"""Checks of property claims, by the command `curvebench claims check` and by checks jobs.

A property claim states a property of an optimizer, such as an invariance. It is checked by measurements on
small random instances. A property claim consists of subclaims (`parts` in the code), each of which is a
sentence with a verdict of its own. If the source has a misprint, a subclaim has two variants, as printed and
as corrected.
"""

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
from curvebench.results.verdicts import Variant, all_hold, share_of_limit
from curvebench.spec.errors import by_reason
from curvebench.stages.job import Job
from curvebench.stages.supervision import failure_of


@dataclass(frozen=True)
class Checked:
    """Result of checking some claims.

    Args:
        rows: measures of all instances of all subclaims.
        traces: series of values for figures.
        errors: the exceptions of subclaims that could not be measured. A key consists of claim, subclaim and
            variant.
    """

    rows: list[Row] = field(default_factory=list)
    traces: list[Trace] = field(default_factory=list)
    errors: dict[tuple[str, str, Variant], Exception] = field(default_factory=dict)

    def raise_errors(self) -> None:
        """Raise the errors, if there are any.

        Raises:
            ExceptionGroup: all errors, with a message that names each claim and subclaim.
        """
        if self.errors:
            messages = [
                f"{claim}: {_name(part, variant)} ({type(error).__name__}: {error})"
                for (claim, part, variant), error in self.errors.items()
            ]
            raise ExceptionGroup(f"not measured: {'; '.join(messages)}", list(self.errors.values()))


def check(claims: Iterable[PropertyClaim], scale: str, title: str) -> Checked:
    """Measure all subclaims of some claims.

    If the measurement of a subclaim raises an exception, the exception is recorded, and the next subclaim is
    measured.

    Args:
        claims: the claims.
        scale: scale of the checks, which decides the number of random instances.
        title: title of the progress bar.
    """
    parts = [(claim.id, part, check_rule(claim)) for claim in claims for part in claim.checks]
    progress = Progress(title, sum(part.count(scale) + part.bound for _, part, _ in parts), even=False)
    checked = Checked()
    for claim, part, rule in parts:
        total, reported = part.count(scale) + part.bound, 0
        try:
            for row in part_results(claim, part, scale, rule):
                if isinstance(row, Trace):
                    checked.traces.append(row)
                    continue
                checked.rows.append(row)
                # All searches for the worst case of a subclaim count as one instance in the progress bar.
                done = min(row.instance, part.count(scale))
                if done > reported:
                    progress.advance(done - reported, f"({claim})")
                    reported = done
        except Exception as error:  # A check may raise any exception.
            error.add_note(f"while checking {claim}: {_name(part.part, part.variant)}")
            checked.errors[claim, part.part, part.variant] = error
        progress.advance(total - reported, f"({claim})")
    return checked


def _name(part: str, variant: Variant) -> str:
    return f"{part} ({variant})" if variant else part


def check_claims(job: Job) -> None:
    """Check the claims of one module of benchmarks/claims, and write the tables `checks` and `series`.

    The spec of the job has the name of the module in place of an optimizer.

    Claims whose data are missing are left out, and a note for the provenance says so. If a subclaim could not
    be measured, the claim of the subclaim is recorded as a failure, and has no rows in the tables.
    """
    spec = job.spec
    (module,) = (optimizer.name for optimizer in spec.optimizers)
    claims, skipped = with_data(claims_of(module))
    with job.clock.phase("evaluation"):
        checked = check(claims, spec.scale, f"claims of {module}")
    for (claim, part, variant), error in checked.errors.items():
        job.trace(error)
        failure = failure_of(error)
        job.fail(claim, failure._replace(reason=f"{_name(part, variant)}: {failure.reason}"))
    failed = {claim for claim, _, _ in checked.errors}
    sources = {(claim.id, part.part, part.variant): part.source for claim in claims for part in claim.checks}
    of_job = {"scale": spec.scale, "spec_hash": spec.hash, "machine": job.machine}
    table = [
        {**columns(row), "source": sources[row.claim, row.part, row.variant], **of_job}
        for row in checked.rows
        if row.claim not in failed
    ]
    series = series_table(trace for trace in checked.traces if trace.claim not in failed)
    job.write("series", series.with_columns(**{name: pl.lit(value) for name, value in of_job.items()}))
    job.write("checks", table)
    job.own_notes.extend(f"not checked: {claims} ({reason})" for claims, reason in by_reason(skipped))


def with_data(claims: Iterable[PropertyClaim]) -> tuple[list[PropertyClaim], dict[str, str]]:
    """Separate claims whose data are available from claims whose data are missing.

    Returns:
        A list of the claims whose data are available, and a dictionary of all other claims. The dictionary
        has, by id of the claim, a sentence on the missing data and on how to get them.
    """
    reasons = {claim.id: (claim, missing_of(at_defaults(claim.workloads))) for claim in claims}
    available = [claim for claim, reason in reasons.values() if reason is None]
    return available, {name: reason for name, (_, reason) in reasons.items() if reason is not None}


def columns(row: Row) -> dict[str, Any]:
    """Return the columns of the table `checks` for a measure, except the columns that describe the job."""
    fields = {**vars(row), **asdict(row.measure), "holds": row.measure.holds}
    return {name: value for name, value in fields.items() if name not in ("measure", "sampled")}


def series_table(traces: Iterable[Trace]) -> pl.DataFrame:
    """Return the table `series`, with one row per point, without the columns that describe the job."""
    job = ("scale", "spec_hash", "machine")
    columns = {name: dtype for name, dtype in schema.SERIES.items() if name not in job}
    parts = [pl.DataFrame(schema=columns)]
    for trace in traces:
        values = {**vars(trace), **vars(trace.series)}
        values |= zip(("x_name", "y_name"), trace.series.axes, strict=True)
        points = pl.DataFrame({"x": values.pop("x"), "y": values.pop("y")})
        rows = points.with_columns(pl.lit(values[name]).alias(name) for name in columns.keys() - {"x", "y"})
        parts.append(rows.select(pl.col(name).cast(dtype) for name, dtype in columns.items()))
    return pl.concat(parts)


# --- the command ---------------------------------------------------------------------------------


def summary(claim: PropertyClaim, scale: str, checked: Checked) -> dict[str, Any]:
    """Summarize the result of a claim in JSON types.

    The summary has a verdict for each variant (as printed, as corrected), and the worst measure of each
    subclaim. If a subclaim could not be measured, there are no verdicts.

    Args:
        claim: the claim.
        scale: scale of the checks.
        checked: results of this claim, and possibly of other claims.
    """
    rows = [row for row in checked.rows if row.claim == claim.id]
    subclaims = []
    for check in claim.checks:
        measured = [row for row in rows if (row.part, row.variant) == (check.part, check.variant)]
        failed = (claim.id, check.part, check.variant) in checked.errors
        subclaims.append(
            {
                "subclaim": check.part,
                "variant": check.variant,
                "source": check.source,
                "instances": len({row.instance for row in measured}),
                "seconds": sum({row.instance: row.seconds for row in measured}.values()),
                "failed": failed,
                "holds": None if failed else all_hold([row.measure.holds for row in measured]),
                "worst": _measure(max(measured, key=_share)) if measured else None,
            }
        )
    return {
        "claim": claim.id,
        "sentence": claim.sentence,
        "source": claim.source,
        "scale": scale,
        "verdicts": {} if any(subclaim["failed"] for subclaim in subclaims) else verdicts(claim, rows),
        "subclaims": subclaims,
    }


def _share(row: Row) -> float:
    measure = row.measure
    return share_of_limit(measure.value, measure.relation, measure.limit, measure.tolerance)


def _measure(row: Row) -> dict[str, Any]:
    names = ("instance", "quantity", "value", "relation", "limit", "tolerance", "holds")
    return {key: value for key, value in columns(row).items() if key in names}


def lines(summaries: Iterable[Mapping[str, Any]]) -> list[str]:
    """Format the summaries of claims as text.

    Each claim has a line for each subclaim, with the worst measure of the subclaim, and then a line for each
    verdict.
    """
    texts = []
    for claim in summaries:
        for row in claim["subclaims"]:
            words = {None: "inconclusive", True: "holds", False: "misses"}
            verdict = "not measured" if row["failed"] else words[row["holds"]]
            worst = f" ({_worst(row)})" if row["worst"] else ""
            texts.append(f"{claim['claim']}: {_name(row['subclaim'], row['variant'])}: {verdict}{worst}")
        for variant, verdict in claim["verdicts"].items():
            texts.append(f"{claim['claim']}: {_name('all parts', variant)}: {verdict}")
    return texts


def _worst(subclaim: Mapping[str, Any]) -> str:
    measure = subclaim["worst"]
    tolerance = f" ± {measure['tolerance']:.2g}" if measure["tolerance"] else ""
    compared = f"{measure['value']:.6g} {measure['relation']} {measure['limit']:.6g}{tolerance}"
    return f"worst of {subclaim['instances']} instances: {measure['quantity']}: {compared}"
