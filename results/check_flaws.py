"""What is wrong with a set's property checks: measures that contradict themselves or the plan."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import partial

import polars as pl

from results.sentences import Row, of_rows, value
from results.set_plan import OPEN, Ask, ClaimPart, SetPlan
from results.verdicts import share_of_limit

PART = ["claim", "part", "variant"]
MEASURE = ("relation", "limit", "tolerance")


def of_checks(plan: SetPlan, checks: pl.DataFrame) -> Iterator[str]:
    """Measures of property checks that do not say what follows from them, and instances left out."""
    about = checks.select("value", pl.col("relation").cast(pl.String), "limit", "tolerance")
    holds = pl.Series([share_of_limit(*measure) <= 1 for measure in about.iter_rows()], dtype=pl.Boolean)
    wrong = checks.filter(holds.ne_missing(checks["holds"]))
    yield from of_rows("checks", "checks", wrong, _not_what_holds)
    counts = checks.group_by(PART).agg(
        pl.col("instance").n_unique().alias("count"), pl.col("instance").max().alias("last")
    )
    gaps = counts.filter(pl.col("last") != pl.col("count").cast(pl.Int64) - 1).sort(PART)
    yield from (
        f"checks/checks.parquet: {claim}, {part}: instances up to number {last}, and {count} are there; "
        "all that were drawn belong in a set"
        for claim, part, count, last in gaps.select("claim", "part", "count", "last").iter_rows()
    )
    for claim in plan.checks.claims if plan.checks else []:
        if claim.parts is not None and not claim.missing:
            yield from _asked(claim.id, claim.parts, checks.filter(pl.col("claim") == claim.id))
    known = {claim.id: claim for claim in plan.checks.claims} if plan.checks else {}
    asked = {name for name, claim in known.items() if not claim.missing}
    there = set(checks["claim"])
    yield from (f"checks/checks.parquet: no measure of the claim {name}" for name in sorted(asked - there))
    yield from (
        f"checks/checks.parquet: measures of {name}, a claim that the plan does not have"
        for name in sorted(there - set(known))
    )


def _not_what_holds(row: Row) -> str:
    said, right = value(row["holds"]), value(not row["holds"])
    within = f" with tolerance {value(row['tolerance'])}" if row["tolerance"] else ""
    return (
        f"holds is {said}, and should be {right}: {value(row['value'])} {row['relation']} "
        f"{value(row['limit'])}{within}"
    )


# --- what the plan asks --------------------------------------------------------------------------


def _asked(claim: str, parts: Sequence[ClaimPart], checks: pl.DataFrame) -> Iterator[str]:
    """Parts, instances and measures of a claim that the plan asks for otherwise."""
    rows = checks.with_columns(pl.col("variant", "relation").cast(pl.String))
    known = pl.DataFrame(
        [(part.part, part.variant) for part in parts],
        schema={"part": pl.String, "variant": pl.String},
        orient="row",
    )
    strange = rows.join(known, on=["part", "variant"], how="anti")
    yield from of_rows("checks", "checks", strange, lambda _: "plan.json has no such part of the claim")
    for part in parts:
        own = rows.filter((pl.col("part") == part.part) & (pl.col("variant") == part.variant))
        where = f"checks/checks.parquet: {claim}, {part.part}{f' ({part.variant})' * bool(part.variant)}"
        count = own["instance"].n_unique()
        if count != part.instances:
            yield f"{where}: {count} instances, and plan.json asks for {part.instances}"
        source = own.filter(pl.col("source") != part.source)
        yield from of_rows("checks", "checks", source, partial(_other_source, part.source))
        yield from _measures(where, part, own)


def _other_source(right: str, row: Row) -> str:
    return f"source is {row['source']}, and should be {right}"


def _measures(where: str, part: ClaimPart, rows: pl.DataFrame) -> Iterator[str]:
    """Measures that the plan does not ask for, and those that it asks of every instance and some lack."""
    instances = set(rows["instance"])
    fitting = pl.lit(value=False)
    for ask in part.asks:
        named = [quantity for quantity in rows["quantity"].unique() if _is_named(ask, quantity)]
        fits = pl.col("quantity").is_in(named)
        lacking = sorted(instances - set(rows.filter(fits)["instance"]))
        if ask.always and lacking:
            yield (
                f"{where}: instance {lacking[0]} has no measure of {ask.quantity}, and plan.json asks for it "
                f"in each; {len(lacking)} of {len(instances)} have none"
            )
        for column in MEASURE:
            right = getattr(ask, column)
            fits &= pl.lit(right is None) | (pl.col(column) == pl.lit(right))
        fitting |= fits.fill_null(value=False)
    yield from of_rows("checks", "checks", rows.filter(~fitting), partial(_not_asked, part.asks))


def _is_named(ask: Ask, quantity: str) -> bool:
    """Whether a quantity is the one that is asked for, whatever an instance puts into it."""
    pattern = ".+".join(map(re.escape, ask.quantity.split(OPEN)))
    return re.fullmatch(pattern, quantity, re.DOTALL) is not None


def _not_asked(asks: Sequence[Ask], row: Row) -> str:
    near = [ask for ask in asks if _is_named(ask, row["quantity"])]
    right = "; or ".join(map(_told, near or asks)) or "nothing"
    said = f"{row['relation']} {value(row['limit'])} with tolerance {value(row['tolerance'])}"
    return f"is held against {said}, and plan.json asks for {right}"


def _told(ask: Ask) -> str:
    relation, limit, tolerance = (
        f"any {column}" if getattr(ask, column) is None else value(getattr(ask, column)) for column in MEASURE
    )
    return f"{ask.quantity} {relation} {limit} with tolerance {tolerance}"
