"""`curvebench compare`: which optimizer trains a user's own model best."""

from __future__ import annotations

import inspect
import math
import os
import re
import sys
from argparse import ArgumentTypeError, Namespace
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from curvebench.commands.command import OUTPUT, argument, command, positive, present
from curvebench.commands.trying import check_writable, names, run_to_plan
from curvebench.paths import RESULTS, STUDY_FOLDER
from curvebench.spec.errors import InputError

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from polars import DataFrame

    from curvebench.loading import LoadedResults
    from curvebench.planning.model_comparison import ComparisonPlan
    from curvebench.planning.studies.study import Study
    from curvebench.reports.boards.model_comparison import ModelResults

SECONDS = {"s": 1, "min": 60, "h": 3600}


def duration(text: str) -> float:
    """Parse a time such as `20min`, `90s` or `1.5h`, and return the time in seconds.

    Raises:
        ArgumentTypeError: when the text is not a number followed by `s`, `min` or `h`.
    """
    match = re.fullmatch(r"(\d+(?:\.\d+)?)(s|min|h)", text)
    if match is None:
        raise ArgumentTypeError(f"{text!r} is no time such as 90s, 20min or 1.5h")
    return float(match[1]) * SECONDS[match[2]]


@command(
    "compare",
    argument("file", metavar="FILE"),
    argument("--model", default="", metavar="NAME"),
    argument("--loss", default="loss", metavar="NAME"),
    argument("--train", required=True, metavar="DATA"),
    argument("--validation", default="", metavar="DATA"),
    argument("--metrics", default="", metavar="NAME"),
    argument("--maximize", type=names, default=(), metavar="A,B"),
    argument("--minimize", type=names, default=(), metavar="A,B"),
    argument("--judge", default="", metavar="METRIC"),
    argument("--settings", default="{}", metavar="YAML"),
    argument("--optimizers", type=names, default=(), metavar="A,B"),
    argument("--steps", type=positive, default=300, metavar="N"),
    argument("--batch-size", type=positive, default=32, metavar="N"),
    argument("--schedule", choices=("cosine", "constant"), default="cosine"),
    argument("--budget", type=duration, metavar="TIME"),
    argument("--label", default="", metavar="NAME"),
    *OUTPUT,
)
def compare_model(args: Namespace) -> int:
    """Find the optimizer that trains a model of your own best.

    The file defines the model, its loss and its data. Every optimizer gets the same seeds and steps, and
    the same number of trials for each tuned hyperparameter. An interrupted command resumes when it is called
    again; curvebench more adds seeds.

    Args:
        file: the Python file, such as my_gru.py
        --model: class of torch.nn.Module, Flax or Equinox in the file, or a function that returns a module
            (default: the functions init and loss of a file for JAX)
        --loss: function (model, batch) -> number in the file (default: %(default)s)
        --train: training data: a name in the file, a call such as 'Adding(2000)', or a file.npz
        --validation: validation data, like --train
        --metrics: function (model, batch) -> {name: number} in the file
        --maximize: metrics of which more is better, separated by commas
        --minimize: metrics of which less is better
        --judge: metric that tunes and ranks, such as validation_accuracy (default: the loss on the validation
            data, or else on the training data)
        --settings: arguments of the model and other settings of its workload, such as '{hidden: 64}'
        --optimizers: optimizers, separated by commas: names that curvebench list prints, torch:package.Class,
            optax:package.function, or my.py:Lion (default: ten)
        --steps: steps of a run (default: %(default)s)
        --batch-size: examples in a minibatch (default: %(default)s)
        --schedule: learning rate after a warm-up of 5 %% of the steps (default: %(default)s)
        --budget: time that the comparison may take, such as 20min; fewer trials, then fewer optimizers are
            run (default: no limit)
        --label: name of the comparison (default: the model's)
    """
    from curvebench.planning.model_comparison import locator_of
    from curvebench.spec.study import parsed_yaml

    further = parsed_yaml("--settings", args.settings)
    if not isinstance(further, dict):
        raise InputError(f"--settings: {args.settings!r} is no mapping, such as '{{hidden: 64}}'")
    same = inspect.signature(compare).parameters.keys() - {"model", "settings"}
    given = {name: getattr(args, name) for name in same}
    return shown(compare(locator_of(args.file, args.model), settings=further, **given), args)


@command(
    "more",
    argument("name", metavar="NAME"),
    argument("--seeds", type=positive, required=True, metavar="N"),
    *OUTPUT,
)
def more(args: Namespace) -> int:
    """Add seeds to a comparison of curvebench compare; what was computed before stays.

    Args:
        name: name of the comparison
        --seeds: number of seeds that judge each method, including those that are there
    """
    from curvebench.planning.model_comparison import add_seeds

    check_writable(args.results)
    add_seeds(args.name, args.results, args.seeds)
    return shown(result_of("curvebench more", args.name, args.results, args.cores), args)


def compare(
    model: Any,
    loss: Any = "loss",
    train: Any = "",
    validation: Any = "",
    *,
    optimizers: Sequence[str] = (),
    steps: int = 300,
    batch_size: int | None = 32,
    metrics: Any = "",
    maximize: Sequence[str] = (),
    minimize: Sequence[str] = (),
    judge: str = "",
    settings: Mapping[str, Any] | None = None,
    schedule: str = "cosine",
    budget: float | None = None,
    label: str = "",
    results: Path | str = RESULTS,
    cores: str = "all",
) -> ComparedModel:
    """Find the optimizer that trains a model best, as `curvebench compare` does.

    The model and the functions must be defined in a Python file, since other processes import the file.

    Args:
        model: a class of modules, or a function that returns a module; or text such as `my_gru.py:GRU`.
        loss: the function `(model, batch) -> number`, or the name of the function in the file of the model.
        train: training data: a data set of PyTorch, arrays, or text as for `curvebench compare --train`.
            Objects are stored as arrays in the folder of the comparison.
        validation: validation data, in the same forms as `train`; empty for no validation data.
        optimizers: names as for `curvebench compare --optimizers`; empty for the ten default optimizers.
        steps: number of steps of a run.
        batch_size: number of examples in a minibatch; None for the full batch.
        metrics: the function `(model, batch) -> {name: number}`, or the name of the function in the file of
            the model; empty for no further metrics.
        maximize: names of the metrics in `metrics` of which more is better.
        minimize: names of the metrics in `metrics` of which less is better.
        judge: name of the metric by which methods are tuned and ranked. Empty for the loss on the validation
            data, or, if there are no validation data, for the loss on the training data.
        settings: arguments of the model, and further settings of the model's workload.
        schedule: learning-rate schedule after a warm-up of 5 % of the steps: `cosine` or `constant`.
        budget: seconds that the comparison may take; None for no limit.
        label: name of the comparison; empty for the name of the model.
        results: folder of all results.
        cores: number of CPU cores to use, or `all`.

    Raises:
        InputError: if the model or a function is not defined in a file, if a setting is invalid, or if no
            optimizer runs on the model.
    """
    from curvebench.planning.model_comparison import locator_of

    file, name = (model, "") if isinstance(model, str) else _defined_in(model, "model")
    results, locator = Path(results), locator_of(file, name)
    label = label or re.sub(r"\W", "_", Path(locator.rpartition(":")[2]).stem.lower())
    data = {
        split: value if isinstance(value, str) else str(_stored(value, results, label, split))
        for split, value in (("train", train), ("validation", validation))
    }
    given = {
        "loss": _name_in(file, loss, "loss"),
        **data,
        "metrics": _name_in(file, metrics, "metrics"),
        "maximize": maximize,
        "minimize": minimize,
        "batch_size": batch_size,
        **(settings or {}),
    }
    plan = plan_of(locator, given, optimizers, label, steps=steps, judged_by=judge, schedule=schedule)
    return run_plan(plan, results, cores, budget)


@dataclass(frozen=True)
class ComparedModel:
    """Result of a comparison of optimizers on a model.

    Args:
        status: exit status of Snakemake, which is not 0 if runs have failed.
        label: name of the model's workload in tables.
        metric: name of the metric by which the methods are ranked.
        comparison: results of all methods, with the best method.
        tables: the tables of all runs.
        page: path of the page that shows the comparison.
        refused: a mapping from labels of methods to reasons, for methods that were left out because they do
            not run on the model.
    """

    status: int
    label: str
    metric: str
    comparison: ModelResults
    tables: LoadedResults
    page: Path
    refused: Mapping[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        from curvebench.reports.boards.model_comparison import as_text

        left_out = [f"{method} was left out: {reason}" for method, reason in self.refused.items()]
        return "\n".join([as_text(self.comparison), *left_out])

    @property
    def ranking(self) -> DataFrame:
        """Table of the methods, from the best to the worst, with median and interval of the metric."""
        direction = self.comparison.direction == "maximize"
        return self.tables.best(self.metric, maximize=direction)

    def plot(self) -> Figure:
        """Draw the curve of each method: the metric against the step."""
        return self.tables.plot_curves(self.label, self.metric)


def _defined_in(item: Any, kind: str) -> tuple[str, str]:
    """Return the path of the file that defines a class or a function, and the name of the class or function.

    Args:
        item: the class or function.
        kind: `model`, `loss` or `metrics`, for messages.

    Raises:
        InputError: if the class or function is not defined at the top of a file, or if curvebench is just
            importing the file.
    """
    from curvebench.interop.files import MODULE_PREFIX

    name = getattr(item, "__qualname__", None)
    if name is None:
        remedy = "give a function (model, batch) of a file"
        if kind == "model":
            remedy = f"give the class, {type(item).__name__}, and its arguments as settings={{'NAME': VALUE}}"
        raise InputError(f"{kind}: an object of class {type(item).__name__}; {remedy}")
    if item.__module__.startswith(MODULE_PREFIX):
        raise InputError(
            f"{name}: call compare below `if __name__ == '__main__':`, since its file is imported"
        )
    try:
        file = inspect.getsourcefile(item)
    except (TypeError, OSError):
        file = None
    if file is None or not Path(file).is_file() or not name.isidentifier():
        raise InputError(
            f"{name}: is not defined at the top of a file; write it to one (%%writefile my_model.py)"
        )
    return file, name


def _name_in(file: str, function: Any, kind: str) -> str:
    """Return the name of a function in the file of the model.

    Args:
        file: file or locator of the model.
        function: the function, or its name.
        kind: `loss` or `metrics`, for messages.

    Raises:
        InputError: if the function is defined in another file. The file of the model might then define a
            different function with the same name.
    """
    from curvebench.interop.files import FILE

    if isinstance(function, str):
        return function
    own, name = _defined_in(function, kind)
    match = FILE.fullmatch(file.removeprefix("torch:").removeprefix("jax:"))
    if match and Path(own).resolve() != Path(match["path"]).resolve():
        raise InputError(
            f"{name}: is defined in {own}, not in the file of the model; move it there, or import it there "
            f"and give its name as text, '{name}'"
        )
    return name


def _stored(data: Any, results: Path, label: str, split: str) -> Path:
    from curvebench.interop.models import attributed, store
    from curvebench.planning.model_comparison import study_file

    path = study_file(label, results).with_name(f"{split}.npz").resolve()
    path.parent.mkdir(parents=True, exist_ok=True)
    with attributed(split, path):
        store(data, path)
    return path


def plan_of(
    locator: str, settings: Mapping[str, Any], optimizers: Sequence[str], label: str, **details: Any
) -> ComparisonPlan:
    """Return the plan of a comparison, after a check of its settings.

    Args:
        locator: locator of the model, such as `torch:my_gru.py:GRU`.
        settings: settings of the model's workload. Settings with an empty value are left out.
        optimizers: names of the optimizers; empty for the ten default optimizers.
        label: name of the comparison.
        details: further fields of the plan.

    Raises:
        InputError: when a setting is invalid.
    """
    from curvebench.planning.model_comparison import ComparisonPlan, entries
    from curvebench.planning.studies.reading import study_files
    from curvebench.registry import find_workload
    from curvebench.spec.study import in_letters

    chosen = {
        key: list(value) if isinstance(value, tuple) else value
        for key, value in settings.items()
        if value not in ("", (), [])
    }
    try:
        find_workload(locator).complete(chosen)
        in_letters(label)
    except ValueError as error:
        raise InputError(str(error)) from error
    for path in study_files(STUDY_FOLDER):
        if path.stem == label:
            raise InputError(f"--label: {label} is the name of the study {path}; give another name")
    return ComparisonPlan(locator, chosen, entries(optimizers), label=label, **details)


def run_plan(plan: ComparisonPlan, results: Path, cores: str, budget: float | None) -> ComparedModel:
    """Check a comparison, reduce it until it fits into a time budget, run it, and return the result.

    Information on the checks, on the reduction and on failed runs is printed on standard error.

    Args:
        plan: the comparison.
        results: the results folder.
        cores: number of CPU cores to use, or `all`.
        budget: seconds that the comparison may take; None for no limit.
    """
    from curvebench.planning.model_comparison import study_file

    check_writable(results)
    plan, refused = runnable(plan)
    path = study_file(plan.label, results)
    before = path.read_text() if path.exists() else ""
    after = affordable(plan, budget, cores).write(results).read_text()
    if before not in ("", after):
        print(f"replaces the earlier comparison {plan.label}; runs with equal settings stay", file=sys.stderr)
    return replace(result_of("curvebench compare", plan.label, results, cores), refused=refused)


def runnable(plan: ComparisonPlan) -> tuple[ComparisonPlan, dict[str, str]]:
    """Check a comparison, and take a few steps of each method on the model.

    A table of the model's parameters, and notes on the methods, are printed on standard error.

    Returns:
        The comparison with only the methods that run on the model, and a dictionary of all other methods. The
        dictionary has, by label of the method, the reason why the method does not run.

    Raises:
        InputError: if no method runs on the model.
    """
    from curvebench.commands.studies import check_methods
    from curvebench.planning.model_comparison import SCALE
    from curvebench.planning.studies.validation import read_study

    kept, refused = dict[str, Any](), dict[str, str]()
    with TemporaryDirectory() as folder:
        for entry in plan.optimizers:
            name = entry if isinstance(entry, str) else next(iter(entry))
            written = replace(plan, optimizers=(entry,)).write(Path(folder))
            try:
                study = read_study(written)
                (optimizer,), (backend,) = study.optimizers, study.scales[SCALE].backends
                name = optimizer.label
                if name in kept:
                    raise InputError("another method has this name")
                if not optimizer.runs_on(backend):
                    raise InputError(f"it runs on {optimizer.only_backend} only, and the model on {backend}")
                notes = check_methods([study])
            except InputError as error:
                refused[name] = str(error).replace(f"{written}: ", "").removeprefix(f"optimizers.{name}: ")
                continue
            if not kept:
                print(model_as_text(study), file=sys.stderr)
            for note in notes:
                print(f"note: {note.removeprefix(f'{written}: ')}", file=sys.stderr)
            kept[name] = entry
        if not kept:
            raise InputError("\n".join(dict.fromkeys(refused.values())))
    return replace(plan, optimizers=tuple(kept.values())), refused


def model_as_text(study: Study) -> str:
    """Return a text about the model of a comparison.

    The text is a table of the model's parameters, with the kind and the shape of each, and a sentence that
    says whether the runs of a method are computed together.

    Args:
        study: the study of the comparison, whose only workload is the model.
    """
    from curvebench.planning.model_comparison import SCALE
    from curvebench.registry import find_workload

    (spec,) = study.workloads[SCALE]
    workload = find_workload(spec.locator).at(spec.settings)
    shapes, roles = workload.shapes_at(spec.settings), workload.roles(spec.settings)
    width = max(map(len, shapes))
    lines = [
        f"  {name:<{width}}  {roles[name].kind:<12} {' x '.join(map(str, shape)) or 'scalar'}"
        for name, shape in shapes.items()
    ]
    apart = "one after another: the loss draws random numbers, or an operation cannot be batched"
    count = sum(map(math.prod, shapes.values()))
    head = f"{spec.name}: {count:,} parameters, whose kinds --settings '{{roles: {{NAME: KIND}}}}' corrects"
    return "\n".join(
        [head, *lines, f"Runs of a method are computed {'together' if workload.mapped else apart}."]
    )


def affordable(comparison: ComparisonPlan, budget: float | None, cores: str) -> ComparisonPlan:
    """Return the comparison, reduced until its estimated time fits into the budget, and print the estimate.

    The time is estimated from measured steps of each method. First the number of trials (settings for each
    tuned hyperparameter) is reduced, then methods are left out. The number of steps of a run is not reduced.

    Args:
        comparison: the comparison.
        budget: seconds that the comparison may take; None for no limit.
        cores: number of CPU cores to use, or `all`.

    Raises:
        InputError: if two methods with the fewest trials do not fit into the budget.
    """
    from curvebench.planning.model_comparison import TRIALS, config
    from curvebench.planning.plan import make_plan
    from curvebench.stages.estimating import START_SECONDS, job_costs

    available = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    count = available if cores == "all" else int(cores)
    with TemporaryDirectory() as folder:
        comparison.write(Path(folder))
        (planned,) = make_plan(config(comparison.label, Path(folder))).studies
    costs = {job.spec.description: cost for job, cost in job_costs([planned]) if cost.runs}
    full = comparison.trials

    def seconds(trials: int, left_out: int) -> float:
        kept = list(costs.values())[: len(costs) - left_out]
        final, total = comparison.final_seeds, 0.0
        for cost in kept:
            share = ((cost.runs - final) * trials / full + final) / cost.runs
            total += START_SECONDS + share * cost.process_seconds
        return total / min(count, len(kept))

    choices = [(trials, 0) for trials in TRIALS if trials <= full]
    choices += [(choices[-1][0], left_out) for left_out in range(1, len(costs) - 1)]
    fitting = (choice for choice in choices if budget is None or seconds(*choice) <= budget)
    chosen = next(fitting, None)
    if chosen is None:
        raise InputError(f"--budget: two methods alone take about {seconds(*choices[-1]):.0f} s; give more")
    trials, left_out = chosen
    print(f"about {seconds(trials, left_out) / 60:.1f} min on {count} cores", file=sys.stderr)
    if trials < full:
        print(f"to fit into the budget: {trials} trials a hyperparameter instead of {full}", file=sys.stderr)
    if left_out:
        omitted = ", ".join(list(costs)[len(costs) - left_out :])
        print(f"to fit into the budget, left out: {omitted}", file=sys.stderr)
    kept = comparison.optimizers[: len(comparison.optimizers) - left_out]
    return replace(comparison, trials=trials, optimizers=kept)


def result_of(name: str, label: str, results: Path, cores: str) -> ComparedModel:
    """Run a comparison whose study file has been written, and return the result.

    Args:
        name: name of the command, for messages.
        label: label of the comparison.
        results: the results folder.
        cores: number of CPU cores to use, or `all`.
    """
    from curvebench.loading import LoadedResults
    from curvebench.planning.model_comparison import config
    from curvebench.reports.boards.model_comparison import comparison_of
    from curvebench.reports.pages.site import study_file
    from curvebench.reports.tables import tables_of

    configuration = config(label, results)
    status, plan = run_to_plan(name, configuration, cores)
    (study,) = plan.studies
    return ComparedModel(
        status,
        label,
        study.compare.metric,
        comparison_of(study, tables_of(study)),
        LoadedResults(study.tables),
        (configuration.site / study_file(study.name)).resolve(),
    )


def shown(result: ComparedModel, args: Namespace) -> int:
    """Print the result of a comparison, and return the exit status of the command.

    Args:
        result: the result.
        args: arguments of the command: `json` to print JSON, `open` to open the page in a browser.
    """
    from curvebench.reports.boards.model_comparison import as_json

    present({**as_json(result.comparison), "refused": result.refused}, str(result), result.page, args)
    return result.status
