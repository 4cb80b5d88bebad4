"""What is wrong with how the runs of a study ended and with what they cost, held against plan and curves.

The rules are those by which the harness records a run (harness/records.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import polars as pl

from results.methods import IDENTITY
from results.reading import named
from results.schema import FAILED, OUTCOMES
from results.sentences import Row, of_rows, value, when
from results.set_plan import Basis, PlannedStudy

LOSS = "train_loss"  # every workload has it: where it ends without a finite value, the run diverged
WRITTEN = tuple(each for each in OUTCOMES if each not in FAILED)  # a job that fails leaves no runs
SLACK = 1e-3  # relative: what the rounding of a small gradient may be, taken in a step and at a checkpoint
SINGLE = 0.5  # the same in float32
APART = 1e3  # relative: between the gradient of a minibatch, or ahead, and the full one at the iterate


def of_runs(study: PlannedStudy, runs: pl.DataFrame, curves: pl.DataFrame) -> Iterator[str]:
    """Outcomes, precisions, steps, gradients and costs of bases that plan, metrics and curves contradict.

    Args:
        runs: the table `runs` with `method`.
        curves: of the final runs, all checkpoints or some.
    """
    where = study.name
    finished = pl.col("outcome").cast(pl.String).is_in(WRITTEN).fill_null(value=False)
    yield from of_rows(where, "runs", runs.filter(~finished), _unfinished)
    known = _known(study, runs.filter(finished), curves)
    yield from _precisions(study, known)
    for wrong, flaw in ENDS:
        yield from of_rows(where, "runs", known.filter(wrong), flaw)
    yield from _uneven_epochs(study, known)
    for metric, threshold in study.stop.items():
        yield from _stops(study, known, curves, metric, threshold)
    yield from _gradients(study, known, curves)
    yield from _bases(study, known)


def left_open(study: PlannedStudy, runs: pl.DataFrame) -> Iterator[str]:
    """What runs say that `of_runs` cannot judge, or only roughly."""
    where = f"{study.name}/runs.parquet"
    if study.precision is None and any(workload.dtype is None for workload in study.workloads):
        yield f"{where}: which precision runs should have, beyond that all have one: plan.json does not say"
    batches = [workload.name for workload in study.workloads if workload.settings.batch_size is not None]
    if study.stop:
        ahead, small = pl.col("optimizer").is_in(study.looks_ahead), pl.col("workload").is_in(batches)
        for what, rough in (
            ("whose gradient is of a point ahead of the iterate", ahead),
            ("whose gradient is of a minibatch", ~ahead & small),
        ):
            if count := len(runs.filter(rough)):
                yield (
                    f"{where}: where {count} runs stopped {what}, beyond that the metric is below {APART:g} "
                    "times the threshold"
                )
        for name in batches:
            own = runs.filter((pl.col("workload") == name) & (pl.col("outcome") == "budget"))
            if study.budget.steps is None and own.is_empty():
                yield f"{where}: how long runs on {name} may be: none took its budget"
    if study.needs_hessian and (count := len(runs.filter(pl.col("optimizer").is_in(study.needs_hessian)))):
        yield (
            f"{where}: how many gradient evaluations a step of {count} runs takes, beyond that a method "
            "takes as many in each: they need a Hessian, whose rows plan.json does not count"
        )
    epochs = [label for label, basis in study.bases.items() if _period(basis)[1] == "epochs"]
    anew = pl.col("basis").is_in(epochs) & pl.col("workload").is_in(batches)
    if study.budget.epochs is None and (count := len(runs.filter(anew))):
        yield (
            f"{where}: how often the bases of {count} runs were estimated anew: plan.json gives epochs, and "
            "the data are not here"
        )


# --- outcomes, precisions and steps --------------------------------------------------------------


def _unfinished(row: Row) -> str:
    return (
        f"outcome is {value(row['outcome'])}; a job that fails leaves no runs, and those that are here are "
        f"{', '.join(WRITTEN[:-1])} or {WRITTEN[-1]}: compute it anew"
    )


def _known(study: PlannedStudy, runs: pl.DataFrame, curves: pl.DataFrame) -> pl.DataFrame:
    """The runs, as well with planned (steps), why, stopped, met (first target) and loss (the last)."""
    known = (
        runs.with_columns(pl.col("outcome").cast(pl.String))
        .join(_planned(study, runs), on="workload")
        .join(_ends(curves, LOSS), on="run", how="left")
        .with_columns(met=pl.col("targets").list.eval(pl.element().struct.field("steps")).list.min())
    )
    # nobody knows of a run that met its first target at its end whether it stopped there as well
    unclear = pl.when(pl.col("met").ne_missing(pl.col("steps"))).then(
        pl.col("outcome_step") == pl.col("steps")
    )
    early = pl.when(pl.col("planned").is_null()).then(unclear).otherwise(pl.col("steps") < pl.col("planned"))
    return known.with_columns(
        stopped=(pl.col("outcome") == "reached") & early & bool(study.stop),
        loss=pl.coalesce(named(LOSS, "final_metrics"), "at_end"),
    ).drop("at_end")


def _planned(study: PlannedStudy, runs: pl.DataFrame) -> pl.DataFrame:
    """Columns workload, planned (steps) and why.

    Epochs of minibatches are as long as the longest run's that did not stop; null where all may have.
    """
    whole = ["budget"] if study.stop else ["budget", "reached"]
    longest = dict(
        runs.filter(pl.col("outcome").is_in(whole))
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
    """Columns run, at_end: where curves end."""
    own = curves.filter(pl.col("metric") == metric).sort("step")
    return own.group_by("run").agg(pl.col("value").last().alias("at_end"))


def _precisions(study: PlannedStudy, runs: pl.DataFrame) -> Iterator[str]:
    """Runs in another precision than the study's or the workload's own, or than most runs on the workload."""
    said = {workload.name: study.precision or workload.dtype for workload in study.workloads}
    planned = pl.col("workload").replace_strict(said, default=None, return_dtype=pl.String)
    most = pl.col("dtype").mode().min().over("workload")
    known = runs.with_columns(right=pl.coalesce(planned, most))
    yield from of_rows(
        study.name,
        "runs",
        known.filter(pl.col("dtype").ne_missing(pl.col("right"))),
        lambda row: (
            f"dtype is {value(row['dtype'])}, and should be {row['right']}, as "
            + ("plan.json has it" if said[row["workload"]] else f"of other runs on {row['workload']}")
        ),
    )


Flaw = tuple[pl.Expr, Callable[[Row], str]]
DIVERGED = pl.col("outcome") == "diverged"
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
        | (~DIVERGED & ~pl.col("stopped") & (pl.col("steps") < pl.col("planned"))),
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

    What runs stop by is the metric itself where it is of the full batch and of the iterate: closely in
    float64, roughly in float32. A minibatch's gradient, or one ahead, may be much shorter than the metric.
    """
    batches = [workload.name for workload in study.workloads if workload.settings.batch_size is not None]
    apart = pl.col("workload").is_in(batches) | pl.col("optimizer").is_in(study.looks_ahead)
    single = pl.col("dtype") != "float64"
    judged = (
        runs.filter(
            pl.col("workload").is_in([each.name for each in study.workloads if metric in each.metrics])
        )
        .join(_ends(curves, metric), on="run", how="left")
        .with_columns(
            end=pl.coalesce(named(metric, "final_metrics"), "at_end"),
            most=threshold * pl.when(apart).then(APART).when(single).then(1 + SINGLE).otherwise(1 + SLACK),
            least=threshold * pl.when(apart).then(0).when(single).then(1 - SINGLE).otherwise(1 - SLACK),
        )
    )
    below = (pl.col("end") < pl.col("most")).fill_null(value=False)
    yield from of_rows(
        study.name,
        "runs",
        judged.filter(pl.col("stopped") & ~below),
        lambda row: (
            f"outcome is reached after {row['steps']} {_of(row['planned'])}steps, and {metric} ends at "
            f"{value(row['end'])}; a run that stops so early ends below {value(threshold)}"
            f"{_roughly(row, threshold)}"
        ),
    )
    points = curves.filter(pl.col("metric") == metric)
    on = points.join(judged.select("run", "steps", "least"), on="run").filter(
        (pl.col("value") < pl.col("least")) & (pl.col("step") < pl.col("steps"))
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


def _of(planned: int | None) -> str:
    return "" if planned is None else f"of {planned} "


def _roughly(row: Row, threshold: float) -> str:
    """What the metric may be above the threshold, where that is more than rounding in float64."""
    return f", here below {value(row['most'])}" if row["most"] > threshold * (1 + SLACK) else ""


# --- gradients -----------------------------------------------------------------------------------


MOST = (pl.col("taken") - 1).clip(lower_bound=0)  # estimates of a basis: after each gradient but the last


def _gradients(study: PlannedStudy, runs: pl.DataFrame, curves: pl.DataFrame) -> Iterator[str]:
    """Gradient evaluations and examples that are not those of the steps.

    A step takes one evaluation, of a rule that needs the Hessian one more for each of its rows; the one by
    which a run notices that it should stop is no step, and comes on top in `runs`. A basis that is estimated
    anew every so many steps takes its samples again each time, before the next gradient is taken. Where its
    period is not known in steps, the evaluations on top need only be as many as whole estimates cost, and
    no more than one after each gradient but the last.
    """
    about = ["run", "workload", "optimizer", "basis", "backend", "seed"]
    taken = runs.with_columns(taken=pl.col("steps") + pl.col("stopped").cast(pl.Int64)).join(
        _periods(study, runs), on=["workload", "basis"], how="left"
    )
    cost = pl.when(pl.col("anew")).then(pl.col("basis_gradient_evaluations")).fill_null(0)
    taken = taken.with_columns(again=cost)
    points = (
        curves.unique(["run", "step"], keep="first", maintain_order=True)
        .rename({"step": "taken"})
        .join(taken.select(*about, "again", "every"), on="run")
        .with_columns(step=pl.col("taken"))
    )
    each = _evaluations_each(study, points)
    batches = _batches(study, points)
    for table, frame in (("runs", taken), ("curves", points)):
        known = frame.join(each, on=["workload", "optimizer"], how="left").join(
            batches, on="workload", how="left"
        )
        further = pl.col("gradient_evaluations") - pl.col("taken") * pl.col("each")
        whole = pl.when(pl.col("again") > 0).then(further // pl.col("again")).otherwise(0)
        times = pl.coalesce(MOST // pl.col("every"), whole.clip(0, MOST))
        wrong = further != times * pl.col("again")
        yield from of_rows(study.name, table, known.with_columns(times=times).filter(wrong), _other_gradients)
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


def _period(basis: Basis) -> tuple[int, str]:
    """After how many of what, steps or epochs, a basis is estimated anew; 0 and nothing where it is not."""
    count, _, unit = (basis.every or "0 ").partition(" ")
    return int(count), unit


def _periods(study: PlannedStudy, runs: pl.DataFrame) -> pl.DataFrame:
    """Columns workload, basis, anew (whether it is estimated again) and every (steps); null: not known."""
    sizes = {workload.name: workload.settings.batch_size for workload in study.workloads}
    rows = []
    for workload, planned in runs.select("workload", "planned").unique().iter_rows():
        epoch = 1 if sizes[workload] is None else None  # in steps
        if epoch is None and study.budget.epochs is not None and planned is not None:
            epoch = planned // study.budget.epochs or None
        for label, basis in study.bases.items():
            count, unit = _period(basis)
            steps = 1 if unit == "steps" else epoch
            rows.append((workload, label, count > 0, count * steps if count and steps else None))
    columns = {"workload": pl.String, "basis": pl.String, "anew": pl.Boolean, "every": pl.Int64}
    return pl.DataFrame(rows, schema=columns, orient="row")


def _evaluations_each(study: PlannedStudy, points: pl.DataFrame) -> pl.DataFrame:
    """Columns workload, optimizer, each: evaluations of a step, with a Hessian those of most checkpoints."""
    anew = pl.when(pl.col("again") > 0).then(pl.col("again") * (MOST // pl.col("every"))).otherwise(0)
    own = (pl.col("gradient_evaluations") - anew) / pl.col("taken")
    steps = points.filter(pl.col("taken") > 0).with_columns(share=own.round().cast(pl.Int64))
    most = pl.col("share").drop_nulls().mode().min().clip(lower_bound=1)
    found = steps.group_by("workload", "optimizer").agg(each=most)
    if study.needs_hessian is None:
        return found
    all_of_them = points.select("workload", "optimizer").unique()
    found = all_of_them.join(found, on=["workload", "optimizer"], how="left")
    rows = pl.col("each").clip(lower_bound=2)  # the gradient, and a row of the Hessian
    return found.with_columns(
        each=pl.when(pl.col("optimizer").is_in(study.needs_hessian)).then(rows).otherwise(1)
    )


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
    if not row["again"]:
        return f"{said}, and should be {right}"
    if row["every"] is None:
        return f"{said}, and should be {right}, and {row['again']} more for each new estimate of the basis"
    more = row["times"] * row["again"]
    return (
        f"{said}, and should be {row['taken'] * row['each'] + more}: {row['each']} for each of "
        f"{row['taken']} gradients, and {more} for {row['times']} new estimates of the basis"
    )


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
