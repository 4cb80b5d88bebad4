"""What the runs of a sweep say: which rates refine it, and which settings may be chosen."""

from __future__ import annotations

from typing import TYPE_CHECKING

from curvebench.spec.tuning import Setting, power_of_ten

if TYPE_CHECKING:
    import polars as pl

    from curvebench.results.tuning import Judge, Tried

Group = tuple[str, str]  # workload, basis that chooses
MULTIPLES = (2, 4, 8)  # 000 Sec. C.3, second step: doubling inside each power of ten


def refine(runs: pl.DataFrame, judge: Judge) -> dict[Group, tuple[Setting, ...]]:
    """The new settings of the refined sweep, six for each workload and basis that chooses.

    The bounds lie one power of ten around the best coarse rate; rates of the coarse sweep are not run
    again. Where the best rate is at the edge of the coarse grid the refined one leaves the grid, without
    its outer bound, so that every method gets the same number of rates.

    Args:
        runs: the coarse sweep of one optimizer (curvebench.results.schema.RUNS).
        judge: by what the study chooses.
    """
    return {group: _around(found.chosen[0]) for group, found in groups_tried(runs, judge).items()}


def _around(rate: float) -> tuple[Setting, ...]:
    exponent = power_of_ten(rate)
    if exponent is None:
        raise ValueError(f"the coarse rate {rate:g} is not a power of ten")
    around = (exponent - 1, exponent)
    return tuple({"learning_rate": float(f"{multiple}e{one}")} for one in around for multiple in MULTIPLES)


def groups_tried(runs: pl.DataFrame, judge: Judge) -> dict[Group, Tried]:
    """The settings that were tried (`curvebench.results.tuning.tried`), by workload and the basis that
    chooses.

    A group whose runs are all missing has none.

    Args:
        runs: the tuning runs of one optimizer (curvebench.results.schema.RUNS).
        judge: by what the study chooses.

    Raises:
        ValueError: when the runs are of several optimizers, or lack the metric or the identity basis.
    """
    import polars as pl

    from curvebench.results.outcomes import finished, missing
    from curvebench.results.tuning import tried

    optimizers = runs["optimizer"].unique().to_list()
    if len(optimizers) > 1:
        raise ValueError(f"a choice needs the runs of one optimizer, not of {sorted(optimizers)}")
    metric, which = judge.tuning.choose.metric, judge.tuning.choose.which
    has = pl.col(f"{which}_metrics").list.eval(pl.element().struct.field("name") == metric).list.any()
    for run in runs.filter(finished() & ~has)["run"]:
        raise ValueError(f"run {run} has no {which} {metric}")
    groups = dict(runs.group_by("workload", "basis", maintain_order=True))
    found: dict[Group, Tried] = {}
    for workload, basis in groups:
        group = workload, judge.tuning.chooser(basis)
        if group not in groups:
            raise ValueError(f"no run of {workload} in the identity basis, which chooses for all bases")
        known = groups[group].filter(~missing())
        if len(known):
            found[group] = tried(known, judge.tuning.names, judge)
    return found
