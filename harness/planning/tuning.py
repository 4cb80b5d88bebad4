"""What the runs of a sweep say: which rates refine it, and which setting is chosen."""

from __future__ import annotations

from typing import TYPE_CHECKING

from documents.document import Direction
from documents.tuning import Setting, Tuning, power_of_ten

if TYPE_CHECKING:
    import polars as pl

Group = tuple[str, str]  # workload, basis that chooses
MULTIPLES = (2, 4, 8)  # 000 Sec. C.3, second step: doubling inside each power of ten


def refine(runs: pl.DataFrame, tuning: Tuning, direction: Direction) -> dict[Group, tuple[Setting, ...]]:
    """The new settings of the refined sweep, six for each workload and basis that chooses.

    The bounds lie one power of ten around the best coarse rate; rates of the coarse sweep are not run
    again. Where the best rate is at the edge of the coarse grid the refined one leaves the grid, without
    its outer bound, so that every method gets the same number of rates.

    Args:
        runs: the coarse sweep of one optimizer (results.schema.RUNS).
        tuning: the study's protocol.
        direction: of the metric that it chooses by.
    """
    chosen = choose(runs, tuning, direction)
    return {group: _around(setting["learning_rate"]) for group, setting in chosen.items()}


def _around(rate: float) -> tuple[Setting, ...]:
    exponent = power_of_ten(rate)
    if exponent is None:
        raise ValueError(f"the coarse rate {rate:g} is not a power of ten")
    around = (exponent - 1, exponent)
    return tuple({"learning_rate": float(f"{multiple}e{one}")} for one in around for multiple in MULTIPLES)


def choose(runs: pl.DataFrame, tuning: Tuning, direction: Direction) -> dict[Group, Setting]:
    """The setting that is taken (`results.tuning.chosen_setting`), by workload and the basis that chooses.

    A group whose runs are all missing has none.

    Args:
        runs: the tuning runs of one optimizer (results.schema.RUNS).
        tuning: the study's protocol.
        direction: of the metric that it chooses by.

    Raises:
        ValueError: when the runs are of several optimizers, or lack the metric or the identity basis.
    """
    import polars as pl

    from results.outcomes import finished, missing
    from results.tuning import chosen_setting

    optimizers = runs["optimizer"].unique().to_list()
    if len(optimizers) > 1:
        raise ValueError(f"a choice needs the runs of one optimizer, not of {sorted(optimizers)}")
    names, metric, which = tuning.names, tuning.choose.metric, tuning.choose.which
    has = pl.col(f"{which}_metrics").list.eval(pl.element().struct.field("name") == metric).list.any()
    for run in runs.filter(finished() & ~has)["run"]:
        raise ValueError(f"run {run} has no {which} {metric}")
    groups = dict(runs.group_by("workload", "basis", maintain_order=True))
    chosen: dict[Group, Setting] = {}
    for workload, basis in groups:
        group = workload, tuning.chooser(basis)
        if group not in groups:
            raise ValueError(f"no run of {workload} in the identity basis, which chooses for all bases")
        known = groups[group].filter(~missing())
        if len(known):
            best = chosen_setting(known, names, metric, which, direction)
            chosen[group] = dict(zip(names, best, strict=True))
    return chosen
