"""What is wrong with a set's comparison of backends: rows that contradict the plan, and rows left out."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import polars as pl

from results.parity import RELATIVE, is_judged, is_within, unit_of
from results.schema import COMPARISONS
from results.sentences import Row, row_of, told, value
from results.set_plan import ParityPart

FILE = "parity/parity.parquet"
FOLLOWING = ("unit", "steps", "tolerance", "holds")  # columns that follow from the others and the plan


def of_parity(plan: ParityPart, parity: pl.DataFrame) -> Iterator[str]:
    """Comparisons that do not say what follows from plan and differences, or that were left out.

    The differences themselves cannot be computed again: the arrays behind them are in no set.
    """
    rows = parity.with_columns(pl.col("comparison", "unit").cast(pl.String))
    judged = rows.select("judged", "difference").iter_rows()
    holds = [is_within(bool(each), by, plan.tolerance) for each, by in judged]
    right = rows.with_columns(
        pl.Series("right_unit", map(unit_of, rows["comparison"]), dtype=pl.String),
        pl.Series("right_holds", holds, dtype=pl.Boolean),
        right_tolerance=pl.when("judged").then(pl.lit(plan.tolerance)),
        right_steps=pl.lit(plan.steps, dtype=pl.Int64),
    )
    for column in FOLLOWING:
        wrong = right.filter(pl.col(column).ne_missing(pl.col(f"right_{column}")))
        yield from told(FILE, wrong, partial(_other, column))
    first = pl.col("first_step")
    whole = pl.col("difference").is_finite()
    impossible = (first < 0) | (pl.col("difference") < 0) | (whole & ~(first <= pl.col("difference")))
    yield from told(FILE, rows.filter(impossible), _impossible)
    yield from _judged(plan, rows)
    yield from _left_out(plan, rows)


def _other(column: str, row: Row) -> str:
    why = f" (difference {value(row['difference'])}, tolerance {value(row['tolerance'])})"
    said = f"{column} is {value(row[column])}, and should be {value(row[f'right_{column}'])}"
    return f"{row_of('parity', row)}: {said}{why * (column == 'holds')}"


def _impossible(row: Row) -> str:
    return (
        f"{row_of('parity', row)}: first_step is {value(row['first_step'])} and difference "
        f"{value(row['difference'])}; the largest of all is at least the first, and neither is below 0"
    )


def _judged(plan: ParityPart, rows: pl.DataFrame) -> Iterator[str]:
    """Comparisons that are judged, or not, otherwise than the problem's gradients and the optimizer ask.

    Whether a rule looks at single entries is not in a set: it must be so on all problems, or on none.
    """
    known = {problem.label: problem for problem in plan.problems}
    relative = rows.filter(
        (pl.col("unit") == RELATIVE) & pl.col("problem").is_in(list(known)) & pl.col("difference").is_finite()
    )
    wrong = rows.filter((pl.col("unit") != RELATIVE) & pl.col("judged"))
    yield from told(
        FILE,
        wrong,
        lambda row: f"{row_of('parity', row)}: is judged, and rounding to float32 has no tolerance",
    )
    misjudged = [relative.clear()]
    for _, own in relative.group_by("optimizer", maintain_order=True):
        answers = [
            [
                bool(row["judged"])
                == is_judged(known[row["problem"]].full_rank, known[row["problem"]].free_of_noise, by_entry)
                for row in own.iter_rows(named=True)
            ]
            for by_entry in (True, False)
        ]
        if not any(map(all, answers)):
            nearest = max(answers, key=sum)
            misjudged.append(own.filter(~pl.Series(nearest)))
    yield from told(FILE, pl.concat(misjudged), _misjudged)


def _misjudged(row: Row) -> str:
    said, right = ("judged", "not judged") if row["judged"] else ("not judged", "judged")
    return (
        f"{row_of('parity', row)}: is {said}, and should be {right}, by what plan.json says of the problem's "
        "gradients and by the optimizer's other problems"
    )


def _left_out(plan: ParityPart, rows: pl.DataFrame) -> Iterator[str]:
    """Problems that the plan does not have, and comparisons that the others of a problem stand without."""
    labels = [problem.label for problem in plan.problems]
    strange = rows.filter(~pl.col("problem").is_in(labels))
    yield from told(
        FILE,
        strange,
        lambda row: f"{row_of('parity', row)}: plan.json has no such problem (it has: {', '.join(labels)})",
    )
    for (optimizer, problem), own in rows.group_by("optimizer", "problem", maintain_order=True):
        missing = [name for name in COMPARISONS if name not in set(own["comparison"])]
        if missing:
            yield f"{FILE}: {optimizer} on {problem}: the comparison {' and '.join(missing)} is missing"
