"""`curvebench compare`: which optimizer trains a user's own model best."""

from __future__ import annotations

import math
import os
import re
import sys
from argparse import ArgumentTypeError, Namespace
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from curvebench.commands.command import JSON, RESULTS_FOLDER, argument, command, positive, print_json
from curvebench.commands.running import run_to_plan
from curvebench.commands.trying import names
from curvebench.spec.errors import InputError

if TYPE_CHECKING:
    from curvebench.planning.model_comparison import ModelComparison
    from curvebench.planning.studies.study import Study

SECONDS = {"s": 1, "min": 60, "h": 3600}


def duration(text: str) -> float:
    """Parse a time such as `20min`, `90s` or `1.5h`, and return its seconds.

    Raises:
        ArgumentTypeError: when the text is no such time.
    """
    match = re.fullmatch(r"(\d+(?:\.\d+)?)(s|min|h)", text)
    if match is None:
        raise ArgumentTypeError(f"{text!r} is no time such as 90s, 20min or 1.5h")
    return float(match[1]) * SECONDS[match[2]]


OUTPUT = (
    argument("--cores", default="all", metavar="N"),
    argument("--open", action="store_true"),
    JSON,
    RESULTS_FOLDER,
)


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
def compare(args: Namespace) -> int:
    """Find the optimizer that trains a model of your own best.

    The file defines the model, its loss and its data. Every optimizer gets the same number of trials, seeds
    and steps. An interrupted command resumes when it is called again; curvebench more adds seeds.

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
        --cores: CPU cores to use, or all (default: %(default)s)
        --open: open the page of the comparison in a browser
    """
    from curvebench.commands.studies import check_methods
    from curvebench.planning.studies.validation import read_study

    comparison = comparison_of(args)
    study = read_study(comparison.write(args.results))
    print(model_as_text(study), file=sys.stderr)
    check_methods([study])
    affordable(comparison, args.results, args.budget, args.cores).write(args.results)
    return finish("curvebench compare", comparison.label, args)


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
        --cores: CPU cores to use, or all (default: %(default)s)
        --open: open the page of the comparison in a browser
    """
    from curvebench.planning.model_comparison import add_seeds

    add_seeds(args.name, args.results, args.seeds)
    return finish("curvebench more", args.name, args)


def comparison_of(args: Namespace) -> ModelComparison:
    """Return the comparison that the arguments of the command describe.

    Raises:
        InputError: when an argument is invalid.
    """
    from curvebench.planning.model_comparison import ModelComparison, entries, locator_of
    from curvebench.registry import find_workload
    from curvebench.spec.study import in_letters, parsed_yaml

    model = locator_of(args.file, args.model)
    further = parsed_yaml("--settings", args.settings)
    if not isinstance(further, dict):
        raise InputError(f"--settings: {args.settings!r} is no mapping, such as '{{hidden: 64}}'")
    keys = ("loss", "train", "validation", "metrics", "batch_size")
    given = {key: getattr(args, key) for key in keys}
    given |= {key: list(getattr(args, key)) for key in ("maximize", "minimize")}
    settings = {**{key: value for key, value in given.items() if value}, **further}
    workload = find_workload(model)
    workload.complete(settings)
    label = in_letters(args.label or re.sub(r"\W", "_", workload.name))
    return ModelComparison(
        model, settings, entries(args.optimizers), args.steps, label, args.judge, args.schedule
    )


def model_as_text(study: Study) -> str:
    """Return a table of the parameters of a model, with shape and role, and how its runs are computed."""
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
    how = "together" if workload.mapped else "one after another, since an operation of it cannot be batched"
    count = sum(map(math.prod, shapes.values()))
    head = f"{spec.name}: {count:,} parameters, whose kinds --settings '{{roles: {{NAME: KIND}}}}' corrects"
    return "\n".join([head, *lines, f"Runs of a method are computed {how}."])


def affordable(
    comparison: ModelComparison, results: Path, budget: float | None, cores: str
) -> ModelComparison:
    """Return the comparison, reduced until its estimated time fits into the budget, and print the estimate.

    The estimate is made from some measured steps of each method. Trials are reduced first, then methods are
    left out; the number of steps stays.

    Args:
        comparison: the comparison, whose study file is written.
        results: the results folder.
        budget: seconds that the comparison may take; None for no limit.
        cores: the argument --cores.

    Raises:
        InputError: if not even two methods fit.
    """
    from curvebench.planning.model_comparison import TRIALS
    from curvebench.planning.plan import make_plan
    from curvebench.stages.estimating import START_SECONDS, job_costs

    count = available_cores() if cores == "all" else int(cores)
    (planned,) = make_plan(comparison.config(results)).studies
    costs = {job.spec.description: cost for job, cost in job_costs([planned]) if cost.runs}
    full = comparison.trials

    def seconds(trials: int, left_out: int) -> float:
        kept = list(costs.values())[: len(costs) - left_out]
        share = comparison.runs(trials) / comparison.runs(full)
        return sum(START_SECONDS + share * cost.process_seconds for cost in kept) / min(count, len(kept))

    choices = [(trials, 0) for trials in TRIALS if trials <= full]
    choices += [(choices[-1][0], left_out) for left_out in range(1, len(costs) - 1)]
    fitting = (choice for choice in choices if budget is None or seconds(*choice) <= budget)
    chosen = next(fitting, None)
    if chosen is None:
        shortest = seconds(*choices[-1]) if choices else 0.0
        raise InputError(f"--budget: two methods alone take about {shortest / 60:.0f} min; give more")
    trials, left_out = chosen
    print(f"about {seconds(trials, left_out) / 60:.1f} min on {count} cores", file=sys.stderr)
    if trials < full:
        print(f"to fit into the budget: {trials} trials a method instead of {full}", file=sys.stderr)
    if left_out:
        omitted = ", ".join(list(costs)[len(costs) - left_out :])
        print(f"to fit into the budget, left out: {omitted}", file=sys.stderr)
    kept = comparison.optimizers[: len(comparison.optimizers) - left_out]
    return replace(comparison, trials=trials, optimizers=kept)


def available_cores() -> int:
    """Return the number of CPU cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def finish(name: str, label: str, args: Namespace) -> int:
    """Run a comparison, and print its result.

    Args:
        name: name of the command, for messages.
        label: label of the comparison.
        args: arguments of the command.

    Returns:
        The exit status: 1 if every run failed.
    """
    from curvebench.planning.model_comparison import config
    from curvebench.reports.boards import model_comparison as boards
    from curvebench.reports.failures import in_words, read_failures
    from curvebench.reports.pages.site import study_file
    from curvebench.reports.tables import tables_of

    configuration = config(label, args.results)
    status, plan = run_to_plan(name, configuration, args.cores)
    for failure in read_failures(plan):
        print(f"failed: {in_words(failure)}", file=sys.stderr)
    (study,) = plan.studies
    result = boards.comparison_of(study, tables_of(study))
    page = (configuration.site / study_file(study.name)).resolve()
    if args.json:
        print_json({**boards.as_json(result), "page": str(page)})
    else:
        print(f"{boards.as_text(result)}\n\nPage: {page}")
    if args.open:
        import webbrowser

        webbrowser.open(page.as_uri())
    return status
