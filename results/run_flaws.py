"""What is wrong with how the runs of a study ended and with what they cost, held against plan and curves.

The rules are those by which the harness records a run (harness/records.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import polars as pl

from results.methods import IDENTITY
from results.reading import named
from results.schema import FAILED
from results.sentences import Row, of_rows, value, when
from results.set_plan import PlannedStudy

LOSS = "train_loss"  # every workload has it: where it ends without a finite value, the run diverged
SLACK = 1e-3  # relative: what the rounding of a small gradient may be, taken in a step and at a checkpoint
FINISHED = ("reached", "budget")


def of_runs(study: PlannedStudy, runs: pl.DataFrame, curves: pl.DataFrame) -> Iterator[str]:
    """Outcomes, steps, gradients and costs of bases that plan, metrics and curves contradict.

    Args:
        runs: the table `runs` with `method`.
        curves: of the final runs, all checkpoints or some.
    """
    where = study.name
    known = (
        runs.with_columns(pl.col("outcome").cast(pl.String))
        .join(_planned(study, runs), on="workload")
        .join(_ends(curves, LOSS), on="run", how="left")
    )
    stopped = (pl.col("outcome") == "reached") & (pl.col("steps") < pl.col("planned")) & bool(study.stop)
    known = known.with_columns(
        stopped=stopped,
        met=pl.col("targets").list.eval(pl.element().struct.field("steps")).list.min(),
        loss=pl.coalesce(named(LOSS, "final_metrics"), "at_end"),
        lasted=pl.max_horizontal("steps", "last_step"),
    ).drop("at_end", "last_step")
    for wrong, flaw in ENDS:
        yield from of_rows(where, "runs", known.filter(wrong), flaw)
    yield from _uneven_epochs(study, known)
    for metric, threshold in study.stop.items():
        yield from _stops(study, known, curves, metric, threshold)
    yield from _gradients(study, known.filter(~pl.col("outcome").is_in(FAILED)), curves)
    yield from _bases(study, known.filter(~pl.col("outcome").is_in(FAILED)))


# --- outcomes and steps --------------------------------------------------------------------------


def _planned(study: PlannedStudy, runs: pl.DataFrame) -> pl.DataFrame:
    """Columns workload, planned (steps) and why; epochs of minibatches are as long as the longest run's."""
    longest = dict(
        runs.filter(pl.col("outcome").is_in(FINISHED))
        .group_by("workload")
        .agg(pl.col("steps").max())
        .iter_rows()
    )
    rows = []
    for workload in study.workloads:
        steps, why = study.budget.steps, "the planned steps"
        if steps is None:
            steps, why = study.budget.epochs, "the planned epochs, each a step"
        if study.budget.steps is None and workload.settings.batch_size is not None:
            steps, why = longest.get(workload.name), f"as of other runs on {workload.name}"
        rows.append((workload.name, steps, why))
    return pl.DataFrame(
        rows, schema={"workload": pl.String, "planned": pl.Int64, "why": pl.String}, orient="row"
    )


def _ends(curves: pl.DataFrame, metric: str) -> pl.DataFrame:
    """Columns run, last_step, at_end: where curves end, also of runs that are said to have failed."""
    own = curves.filter(pl.col("metric") == metric).sort("step")
    return own.group_by("run").agg(
        pl.col("step").last().alias("last_step"), pl.col("value").last().alias("at_end")
    )


Flaw = tuple[pl.Expr, Callable[[Row], str]]
DIVERGED, FAILURE = pl.col("outcome") == "diverged", pl.col("outcome").is_in(FAILED)
ENDS: tuple[Flaw, ...] = (
    (
        DIVERGED & pl.col("loss").is_finite(),
        lambda row: (
            f"outcome is diverged, and {LOSS} ends at {value(row['loss'])}; that of a run that diverged ends "
            "without a finite value"
        ),
    ),
    (
        DIVERGED & (pl.col("outcome_step") != pl.col("steps")),
        lambda row: (
            f"outcome is diverged with outcome_step {row['outcome_step']}, and should be with the run's last "
            f"step, {row['steps']}"
        ),
    ),
    (
        FAILURE & (pl.col("lasted") >= pl.col("planned")) & pl.col("loss").is_finite(),
        lambda row: (
            f"outcome is {row['outcome']}, and the run took all of its {row['planned']} steps, with {LOSS} "
            f"{value(row['loss'])}; it should be reached or budget"
        ),
    ),
    (
        (pl.col("outcome") == "budget")
        & (pl.col("met").is_not_null() | pl.col("outcome_step").is_not_null()),
        lambda row: (
            f"outcome is budget with outcome_step {value(row['outcome_step'])}, and the first target is "
            f"{when(row['met'])}; a run that reached none has no outcome_step, and one that did is reached"
        ),
    ),
    (
        (pl.col("outcome") == "reached")
        & (pl.col("outcome_step") != pl.when("stopped").then("steps").otherwise("met")).fill_null(value=True),
        lambda row: (
            f"outcome is reached with outcome_step {value(row['outcome_step'])}, and the "
            + (
                f"run stopped at step {row['steps']}"
                if row["stopped"]
                else f"first target is {when(row['met'])}"
            )
        ),
    ),
    (
        (pl.col("steps") > pl.col("planned"))
        | (pl.col("outcome").is_in(FINISHED) & ~pl.col("stopped") & (pl.col("steps") < pl.col("planned"))),
        lambda row: (
            f"outcome is {row['outcome']} after {row['steps']} steps, and should be after {row['planned']}, "
            f"{row['why']}"
        ),
    ),
)


def _uneven_epochs(study: PlannedStudy, runs: pl.DataFrame) -> Iterator[str]:
    """Budgets of epochs that are no whole number of steps an epoch."""
    epochs = study.budget.epochs
    if epochs is not None:
        for workload, steps in runs.select("workload", "planned").unique().sort("workload").iter_rows():
            if steps is not None and steps % epochs:
                yield (
                    f"{study.name}/runs.parquet: the longest runs on {workload} have {steps} steps, and "
                    f"should have a multiple of the {epochs} epochs of plan.json"
                )


def _stops(
    study: PlannedStudy, runs: pl.DataFrame, curves: pl.DataFrame, metric: str, threshold: float
) -> Iterator[str]:
    """Runs that stopped above the threshold, or went on below it.

    Judged are those whose metric is what they stop by: of the full batch, at the iterate itself, in float64.
    """
    exact = [
        workload.name
        for workload in study.workloads
        if metric in workload.metrics and workload.settings.batch_size is None
    ]
    judged = (
        runs.filter(
            pl.col("workload").is_in(exact)
            & (pl.col("dtype") == "float64")
            & ~pl.col("optimizer").is_in(study.looks_ahead)
        )
        .join(_ends(curves, metric), on="run", how="left")
        .with_columns(end=pl.coalesce(named(metric, "final_metrics"), "at_end"))
    )
    below = (pl.col("end") < threshold * (1 + SLACK)).fill_null(value=False)
    yield from of_rows(
        study.name,
        "runs",
        judged.filter(pl.col("stopped") & ~below),
        lambda row: (
            f"outcome is reached after {row['steps']} of {row['planned']} steps, and {metric} ends at "
            f"{value(row['end'])}; a run that stops so early ends below {value(threshold)}"
        ),
    )
    failed = FAILURE & (pl.col("end") < threshold * (1 - SLACK))
    yield from of_rows(
        study.name,
        "runs",
        judged.filter(failed),
        lambda row: (
            f"outcome is {row['outcome']}, and {metric} ends at {value(row['end'])}, below the "
            f"{value(threshold)} where runs stop; it should be reached"
        ),
    )
    points = curves.filter((pl.col("metric") == metric) & (pl.col("value") < threshold * (1 - SLACK)))
    on = points.join(judged.select("run", "steps", "outcome"), on="run").filter(
        (pl.col("step") < pl.col("steps")) & ~FAILURE
    )
    yield from of_rows(
        study.name,
        "curves",
        on.sort("run", "step"),
        lambda row: (
            f"{value(row['value'])} is below {value(threshold)}, where runs stop, and the run goes on to "
            f"step {row['steps']}"
        ),
    )


# --- gradients -----------------------------------------------------------------------------------


def _gradients(study: PlannedStudy, runs: pl.DataFrame, curves: pl.DataFrame) -> Iterator[str]:
    """Gradient evaluations and examples that are not those of the steps.

    A step takes one evaluation, of a rule that needs the Hessian one more for each of its rows; the one by
    which a run notices that it should stop is no step, and comes on top in `runs`. A basis that is estimated
    anew during a run takes its samples again each time.
    """
    anew = [label for label, basis in study.bases.items() if basis.every is not None]
    about = ["run", "workload", "optimizer", "basis", "backend", "seed"]
    cost = pl.when(pl.col("basis").is_in(anew)).then(pl.col("basis_gradient_evaluations")).fill_null(0)
    taken = runs.with_columns(taken=pl.col("steps") + pl.col("stopped").cast(pl.Int64), again=cost)
    points = (
        curves.unique(["run", "step"], keep="first", maintain_order=True)
        .rename({"step": "taken"})
        .join(taken.select(*about, "again"), on="run")
        .with_columns(step=pl.col("taken"))
    )
    each = _evaluations_each(study, points)
    batches = _batches(study, points)
    for table, frame in (("runs", taken), ("curves", points)):
        known = frame.join(each, on=["workload", "optimizer"], how="left").join(
            batches, on="workload", how="left"
        )
        own = pl.col("taken") * pl.col("each")
        further = pl.col("gradient_evaluations") - own
        times = pl.when(pl.col("again") > 0).then(further // pl.col("again")).otherwise(0)
        wrong = (further != times * pl.col("again")) | ~times.is_between(0, pl.col("taken"))
        yield from of_rows(study.name, table, known.filter(wrong), _other_gradients)
        right = pl.col("gradient_evaluations") * pl.col("batch")
        yield from of_rows(
            study.name,
            table,
            known.with_columns(right=right).filter(pl.col("examples") != right),
            lambda row: (
                f"examples is {row['examples']}, and should be {row['right']}: {row['gradient_evaluations']} "
                f"gradients of {row['batch']} examples each"
            ),
        )
    counts = points.group_by("run").agg(pl.col("gradient_evaluations").sort_by("step").last().alias("count"))
    other = ~pl.col("stopped") & (pl.col("gradient_evaluations") != pl.col("count"))
    yield from of_rows(
        study.name,
        "runs",
        taken.join(counts, on="run").filter(other),
        lambda row: (
            f"gradient_evaluations is {row['gradient_evaluations']}, and the curve ends with {row['count']}"
        ),
    )


def _evaluations_each(study: PlannedStudy, points: pl.DataFrame) -> pl.DataFrame:
    """Columns workload, optimizer, each: evaluations of a step, with a Hessian those of most checkpoints."""
    steps = points.filter((pl.col("taken") > 0) & (pl.col("again") == 0))
    shares = (pl.col("gradient_evaluations") / pl.col("taken")).round().cast(pl.Int64).clip(lower_bound=1)
    found = steps.group_by("workload", "optimizer").agg(shares.mode().min().alias("each"))
    if study.needs_hessian is None:
        return found
    one = ~pl.col("optimizer").is_in(study.needs_hessian)
    return found.with_columns(each=pl.when(one).then(1).otherwise("each"))


def _batches(study: PlannedStudy, points: pl.DataFrame) -> pl.DataFrame:
    """Columns workload, batch: examples of a gradient, of the full batch those of most checkpoints."""
    planned = {workload.name: workload.settings.batch_size for workload in study.workloads}
    steps = points.filter(pl.col("gradient_evaluations") > 0)
    shares = (pl.col("examples") / pl.col("gradient_evaluations")).round().cast(pl.Int64)
    found = steps.group_by("workload").agg(shares.mode().min().alias("batch"))
    own = pl.col("workload").replace_strict(planned, default=None, return_dtype=pl.Int64)
    return found.with_columns(batch=pl.coalesce(own, "batch"))


def _other_gradients(row: Row) -> str:
    said = f"gradient_evaluations is {row['gradient_evaluations']}"
    right = f"{row['taken'] * row['each']}, {row['each']} for each of {row['taken']} gradients"
    if row["again"]:
        return f"{said}, and should be {right}, and {row['again']} more for each new estimate of the basis"
    return f"{said}, and should be {right}"


def _bases(study: PlannedStudy, runs: pl.DataFrame) -> Iterator[str]:
    """Bases that cost what they cannot, or not the same for all: whole numbers of samples are in the plan."""
    samples = {label: basis.samples for label, basis in study.bases.items()}
    free = [label for label, each in samples.items() if each is None] + [IDENTITY]
    whole = {label: each for label, each in samples.items() if isinstance(each, int)}
    most = pl.col("basis_gradient_evaluations").mode().min().clip(lower_bound=1).over("workload", "basis")
    planned = pl.col("basis").replace_strict(whole, default=None, return_dtype=pl.Int64)
    is_free = pl.col("basis").is_in(free)
    known = runs.with_columns(
        right=pl.when(is_free).then(0).otherwise(pl.coalesce(planned, most)),
        cost=pl.col("basis_gradient_evaluations").fill_null(0),
    )
    yield from of_rows(
        study.name,
        "runs",
        known.filter(pl.col("cost") != pl.col("right")),
        lambda row: (
            f"basis_gradient_evaluations is {value(row['basis_gradient_evaluations'])}, and should be "
            f"{row['right']}, as of every run in the basis {row['basis']} on {row['workload']}"
        ),
    )
    yield from of_rows(
        study.name,
        "runs",
        known.filter(is_free & (pl.col("basis_seconds") != 0)),
        lambda row: (
            f"basis_seconds is {value(row['basis_seconds'])}, and should be 0: the basis {row['basis']} is "
            "not estimated"
        ),
    )
