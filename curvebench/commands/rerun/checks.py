"""Recompute instances of the property checks of a published set: `curvebench sets check --rerun`.

An instance is determined by its seed, so that it can be drawn and measured again. A subclaim (`part` in
tables) is one sentence of a claim. A bound is a limit that a value must not exceed; a search looks for an
instance that exceeds it.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from functools import partial

import numpy as np
import polars as pl

from curvebench.commands.rerun.runs import ALLOWED_SPREADS, Reexecution
from curvebench.property_checks.check_rules import check_rule
from curvebench.property_checks.checks import PropertyClaim, Row, part_results
from curvebench.property_checks.searching import Moved
from curvebench.reports.claims.checked import PART, check_rows
from curvebench.results.verdicts import TESTED, bound_shares, least_tested
from curvebench.spec.errors import InputError
from curvebench.spec.plan import ReportPlan

# If the drawn instances of a subclaim took less than this time, the subclaim is cheap.
# Cheap subclaims do not count in the argument `count` of `draw`.
COUNTED_SECONDS = 5.0
# Two measures agree if their difference is at most the tolerance of the limit plus a rounding term.
# The rounding term is this share of the measured value or of the limit, whichever is larger.
VALUE_SHARE = 1e-6
# Number of twins of an instance. A twin is an instance that `Moved` draws at the angle TWIN_STEP from it.
TWINS, TWIN_STEP = 4, 1e-13
NUMBERS, MEASURE = ("value", "limit", "tolerance"), ("quantity", "value", "relation", "limit", "tolerance")
Subclaim = tuple[str, str, str]  # claim, subclaim and variant


def read_subclaims(plan: ReportPlan, claim: str | None) -> dict[Subclaim, pl.DataFrame]:
    """Read the measures of the property checks of a published set, by subclaim.

    Args:
        plan: plan of the set.
        claim: id of the only claim whose measures are returned; None for all claims.
    """
    if plan.checks is None:
        return {}
    parts = check_rows(plan.checks).partition_by(PART, as_dict=True, maintain_order=True)
    return {(name, *of): measures for (name, *of), measures in parts.items() if claim in (None, name)}


def draw(
    plan: ReportPlan, subclaims: Mapping[Subclaim, pl.DataFrame], count: int | None, seed: int
) -> tuple[dict[Subclaim, list[int] | None], int]:
    """Draw the instances on which the finding of each subclaim depends.

    If the subclaim is a bound, all instances are drawn, since the search starts from the instance that comes
    nearest to the bound. If the subclaim is violated, only the instance with the largest violation is drawn,
    since one violation suffices. Otherwise a random instance is drawn.

    Args:
        plan: plan of the set.
        subclaims: measures, as `read_subclaims` returns them.
        count: largest number of drawn subclaims whose instances took at least `COUNTED_SECONDS`. Cheaper
            subclaims are always drawn. None for all instances of all subclaims.
        seed: seed of the random sample.

    Returns:
        For each drawn subclaim, the numbers of its instances, or None for all instances; and the smallest
        `count` with which no subclaim is left out.
    """
    if count is None or plan.checks is None:
        return dict.fromkeys(subclaims), 0
    bounds = {
        (claim.id, part.part, part.variant): part.bound
        for claim in plan.checks.claims
        for part in claim.parts
    }
    generator, costly = random.Random(seed), list[Subclaim]()
    drawn: dict[Subclaim, list[int] | None] = {}
    for subclaim, measures in subclaims.items():
        violating = measures.filter(~pl.col("holds")).sort("share", descending=True)["instance"].to_list()
        numbers = violating[:1] or [generator.choice(measures["instance"].to_list())]
        chosen = measures if bounds[subclaim] else measures.filter(pl.col("instance").is_in(numbers))
        if chosen.unique("instance")["seconds"].sum() >= COUNTED_SECONDS:
            costly.append(subclaim)
        drawn[subclaim] = None if bounds[subclaim] else numbers
    for subclaim in generator.sample(costly, max(len(costly) - count, 0)):
        del drawn[subclaim]
    return drawn, len(costly)


def compute(
    claim: PropertyClaim | None, subclaim: Subclaim, measures: pl.DataFrame, numbers: list[int] | None
) -> Reexecution:
    """Recompute instances of a subclaim, and compare them with the published measures.

    Rounding may change a value, in chaotic instances by a large amount. Therefore a published value is wrong
    only under two conditions: only one of the published and the recomputed value satisfies the limit, and the
    two values differ by more than `ALLOWED_SPREADS` times the largest distance of a twin. If the computation
    raises an exception, or the decision rule of the claim is not the published one, the reason is stored in
    the field `missing` of the result.

    Args:
        claim: the claim in the present code; None if there is no such claim.
        subclaim: the subclaim.
        measures: measures of the subclaim, as `read_subclaims` returns them.
        numbers: numbers of the instances; None for all instances.
    """
    name, part, variant = subclaim
    label = f"{name}, {part}{variant and f' ({variant})'}, instance {numbers[0] if numbers else 'all'}"
    rule, scale = measures.select("rule_of_runs", "scale").row(0)
    try:
        if claim is None or check_rule(claim) != rule:
            raise InputError("its decision rule is not the one of the set")
        (check,) = (check for check in claim.checks if (check.part, check.variant) == (part, variant))
        results = partial(part_results, name, check, scale, rule)
        recomputed = [row for row in results(only=numbers) if isinstance(row, Row)]
        published = measures.filter(pl.lit(numbers is None) | pl.col("instance").is_in(numbers or []))

        def spread(row: Row) -> float:
            """Return the largest distance of a twin's value from a recomputed value; 0 for a search."""
            values = [
                twin.measure.value
                for number in range(TWINS if row.instance < check.count(scale) else 0)
                for twin in results(only=[row.instance], generator=partial(_moved, number))
                if isinstance(twin, Row) and twin.measure.quantity == row.measure.quantity
            ]
            return max((abs(value - row.measure.value) for value in values), default=0.0)

        wrong = _differences(published, recomputed, spread)
        now = pl.DataFrame([vars(row.measure) for row in recomputed])
        nearest, nearest_now = (
            least_tested(bound_shares(rows.select(MEASURE).iter_rows()))[1] for rows in (published, now)
        )
        if numbers is None and check.bound and nearest >= TESTED > nearest_now:
            wrong.append(f"comes as near to its bound as {nearest:.3g}, and recomputed {nearest_now:.3g}")
    except Exception as error:
        return Reexecution(label, missing=f"{type(error).__name__}: {error}")
    return Reexecution(label, tuple(wrong))


def _moved(number: int, seed: list[int]) -> np.random.Generator:
    """Return the random generator of a twin, which differs from the original instance in the last digits.

    Args:
        number: number of the twin.
        seed: seed of the original instance.
    """
    return Moved(seed, [], TWIN_STEP, np.random.default_rng(number))


def _differences(
    published: pl.DataFrame, recomputed: Sequence[Row], spread: Callable[[Row], float]
) -> list[str]:
    """Return a sentence for each measure whose published value is wrong, as explained in `compute`.

    Args:
        published: rows of the table `checks`.
        recomputed: measures of the same instances.
        spread: function that measures the effect of rounding on a recomputed value.
    """
    keys = [(row.instance, row.measure.quantity, row.measure.relation) for row in recomputed]
    if published.select("instance", "quantity", "relation").rows() != keys:
        return ["has other measures than the recomputed instances"]
    lines = []
    for old, row in zip(published.iter_rows(named=True), recomputed, strict=True):
        new = row.measure
        distance = max(abs(old[name] - getattr(new, name)) for name in NUMBERS)
        allowed = VALUE_SHARE * max(abs(new.value), abs(new.limit)) + (0.0 if new.sampled else new.tolerance)
        if old["holds"] == new.holds or distance <= allowed:
            continue
        if not distance <= allowed + ALLOWED_SPREADS * spread(row):
            before, now = (
                f"{value!r} {new.relation} {limit!r}"
                for value, limit in ((old["value"], old["limit"]), (new.value, new.limit))
            )
            lines.append(f"{new.quantity} of instance {row.instance}: {before}, and recomputed {now}")
    return lines
