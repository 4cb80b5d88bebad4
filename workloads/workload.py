"""Definition of a workload: data, initial parameters, loss and metrics, written once for every backend.

A lane is one run inside a batched program; lanes differ in seed and setting. Minibatches and splits are
mappings of field names to arrays whose first axis counts examples.

In citations, 000 is the EGOP paper, "Faster Adaptive Optimization via Expected Gradient Outer Product
Reparameterization" (docs/sources.md).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, Protocol, get_args

import numpy as np

from curvebench.spec.errors import InputError
from curvebench.spec.values import Option, Precision, Read, completed, whole
from curvebench.workloads.arguments import Array, Arrays, Ops, Random, Settings

# Two metrics that the executor computes itself when a workload declares them.
# GRADIENT_NORM is the Euclidean norm of the full-batch gradient.
# MINIBATCH_LOSS is the mean minibatch loss of the steps since the last evaluation.
# At step 0, MINIBATCH_LOSS is the loss of the first step's minibatch.
GRADIENT_NORM, MINIBATCH_LOSS = "gradient_norm", "minibatch_loss"


class DataMissing(InputError):
    """Raised when a data set is not on this machine; the message says how to get it."""


class DataSource(Protocol):
    """A split whose examples are read from files, or generated, when they are needed.

    Several threads call `fetch` at the same time.
    """

    def __len__(self) -> int:
        """Return the number of examples."""

    def fetch(self, number: int, generator: np.random.Generator | None) -> Mapping[str, np.ndarray]:
        """Return the fields of one example. The result depends on the arguments only.

        Args:
            number: index of the example, from 0.
            generator: source of the random augmentation of this example in this step, such as its crop; None
                in evaluation, where the example is not augmented.
        """

    def placeholder(self, is_training: bool) -> Mapping[str, np.ndarray]:
        """Return arrays of the shapes and types that `fetch` returns, without reading a file."""

    @property
    def notes(self) -> list[str]:
        """Return remarks on the examples fetched so far, such as damaged files, for the run's provenance."""


Split = Mapping[str, np.ndarray] | DataSource


def examples_in(split: Split) -> int:
    """Return the number of examples in a split."""
    return len(next(iter(split.values()))) if isinstance(split, Mapping) else len(split)


def placeholder_of(split: Split) -> Mapping[str, np.ndarray]:
    """Return arrays of the shapes and types of one training example."""
    if isinstance(split, Mapping):
        return {name: values[0] for name, values in split.items()}
    return split.placeholder(is_training=True)


@dataclass(frozen=True)
class Setting(Option):
    """A setting of a workload that a study may change: its default, description and `read`.

    `read(value)` converts and checks the value that a study gives. Without `read`, every value is accepted
    unchanged.
    """

    read: Read = lambda value: value


@dataclass(frozen=True)
class Role:
    """Kind of a parameter in its model, and its layer (0 is the layer nearest to the input).

    An `embedding` maps patches, words or positions to tokens. A `head` is the weight matrix of the output
    layer of a classifier that has several layers. Matrix methods such as Muon treat embeddings and heads
    differently from hidden `weight` matrices. A `vector` is a parameter that belongs to no layer.
    """

    kind: Literal["weight", "bias", "convolution", "norm", "embedding", "head", "vector"]
    layer: int = 0


@dataclass(frozen=True)
class Metric:
    """A number that evaluation returns: its description, its unit, and whether to minimize or maximize it."""

    description: str
    direction: Literal["minimize", "maximize"]
    unit: str = ""


def batch_size(default: int | None = None) -> Setting:
    """Return the setting `batch_size`; `require_batch` compares its value with the number of examples.

    Args:
        default: default number of examples in a minibatch; None for the full batch.
    """
    description = "full batch" if default is None else "examples in a minibatch; null: full batch"
    return Setting(default, description, whole(1, "full batch"))


def require_batch(settings: Settings, examples: int) -> None:
    """Check that `batch_size` is at most the number of training examples.

    Raises:
        ValueError: if `batch_size` is larger.
    """
    if settings["batch_size"] is not None and settings["batch_size"] > examples:
        raise ValueError(
            f"batch_size = {settings['batch_size']} is larger than the {examples} training examples "
            "(null: full batch)"
        )


def split_of(metric: str) -> str | None:
    """Return the split that a metric is evaluated on; None for a metric that training steps compute
    themselves.
    """
    if metric == MINIBATCH_LOSS:
        return None
    return "train" if metric == GRADIENT_NORM else metric.partition("_")[0]


Loss = Callable[[Ops, Arrays, Arrays, Arrays, Arrays], tuple[Array, Arrays, Arrays]]


def loss_of(objective: Callable[[Ops, Arrays, Arrays], Array]) -> Loss:
    """Return the field `loss` of a workload without model state and noise, from a function `objective(ops,
    params, batch)`.
    """

    def loss(
        ops: Ops, params: Arrays, state: Arrays, batch: Arrays, noise: Arrays
    ) -> tuple[Array, Arrays, Arrays]:
        return objective(ops, params, batch), state, {}

    return loss


Family = Literal["categorical", "gaussian"]


@dataclass(frozen=True)
class Likelihood:
    """Distribution of the targets given the model's outputs.

    The loss is the mean negative log-likelihood, multiplied by `scale`.

    Update rules that use a Fisher matrix, such as K-FAC, need the likelihood.

    Args:
        outputs: `outputs(ops, params, state, batch, noise) -> (examples, ..., C)`, where C is the number of
            classes or of target components.
        family: `categorical`: the outputs are logits. `gaussian`: the outputs are means of targets with unit
            variance, and the negative log-likelihood is half the squared error.
        scale: factor of the mean negative log-likelihood in the loss.
        targets: `targets(ops, batch) -> (examples, ..., C)`, the targets of a Gaussian distribution; by
            default the field `targets`. Rules that use residuals, such as Gauss-Newton, require that the
            outputs and targets of an example do not depend on other examples.
    """

    outputs: Callable[[Ops, Arrays, Arrays, Arrays, Arrays], Array]
    family: Family
    scale: float = 1.0
    targets: Callable[[Ops, Arrays], Array] = lambda ops, batch: batch["targets"]

    def __post_init__(self) -> None:
        families = get_args(Family)
        if self.family not in families:
            raise ValueError(f"Likelihood: family = {self.family!r} is not {' or '.join(families)}")
        if not self.scale > 0:
            raise ValueError(f"Likelihood: scale = {self.scale!r} is not above 0")


@dataclass(frozen=True)
class Problem:
    """One instance of a workload, drawn with one seed, as NumPy arrays.

    Arrays of real numbers are float64.

    Args:
        parameters: initial parameters by name, in the order of the flat parameter vector.
        splits: `train` and, if the workload has them, `validation` and `test`. Each is a mapping of field
            names to arrays whose first axis counts examples, or a `DataSource`.
        state: model state, such as the running means of batch normalization; empty for most workloads.
        facts: known numbers of this instance, such as the minimum of the loss.
    """

    parameters: dict[str, np.ndarray]
    splits: Mapping[str, Any]  # values of type Split
    state: dict[str, np.ndarray] = field(default_factory=dict)
    facts: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Start:
    """Training loss and gradient at the initial parameters of one problem.

    They identify the problem: another definition of the loss, other data or another random start have other
    values. `curvebench check` compares them with the values on this machine.

    Args:
        loss: training loss.
        gradient_norm: Euclidean norm of the gradient of the training loss with respect to all parameters.
    """

    loss: float
    gradient_norm: float


@dataclass(frozen=True)
class Workload:
    """A family of optimization problems: model, loss and data as functions of settings and seed.

    `loss` and `evaluate` receive `ops`, the array functions of a backend, and must use no other array
    functions.

    Args:
        name: the name in studies and tables.
        description: one line for `curvebench list` and the report.
        source: source document and place in it, such as "000 C.6".
        metrics: the metrics of an evaluation by full name: the split, an underscore and the key that
            `evaluate` returns, such as `train_loss` or `validation_accuracy`. Two further metrics may be
            declared, which the executor computes: `gradient_norm`, the Euclidean norm of the full-batch
            gradient, and `minibatch_loss`, the mean loss of the steps since the last evaluation, which needs
            no pass over the data.
        settings: the settings that a study may change; `batch_size` is one of them (null: full batch).
        dtype: the precision of runs for which a study gives no precision (docs/reference/precision.md).
        shared_data: whether `splits` is the same for every seed. All lanes then share one copy of the splits.
        roles: `roles(settings) -> {parameter: Role}`.
        problem: `problem(settings, random) -> Problem`.
        sample_parameters: `sample_parameters(settings, generator) -> parameters`, one draw from the
            distribution of the initial parameters. EGOP estimates its basis from such draws.
        shapes: `shapes(settings) -> {parameter: shape}`. Set it if `sample_parameters` takes seconds; without
            `shapes`, the shapes are read from one draw.
        loss: `loss(ops, params, state, batch, noise) -> (loss, state, metrics)` for one run.
        evaluate: `evaluate(ops, params, state, split) -> {key: scalar}` for one run and one split.
        likelihood: distribution of the targets given the outputs, for rules that need a Fisher matrix; None
            if the targets have no distribution; such rules then cannot run on the workload.
        noise: `noise(settings, generator, batch_size) -> arrays` draws, on the host, the random arrays of one
            step of one seed, such as dropout masks and shifts of augmentation; None for a loss without noise.
            When gradients are accumulated, arrays whose first axis counts examples are split like the
            minibatch.
        linear_input: name of a weight (outputs, inputs) and of a field (examples, inputs) of every split, if
            weight and field enter loss and evaluation only through the product field @ weight.T; None
            otherwise. A change of basis of that weight can then be applied to the data once.
        mapped: whether lanes are computed in one batched program. Set it to False if lanes are faster one
            after another, as with convolutions on a CPU.
        evaluation_batch: number of examples per evaluation call; metrics are then means over examples. None
            evaluates all examples in one call. With a number, the splits stay in host memory.
        streamed: whether each minibatch is assembled on the host and sent to the device, because the training
            data do not fit on the device. A `DataSource` is always streamed.
        separate_jobs: whether each run is a separate job. Set it to True for runs that take hours.
        files: `files(settings) -> paths` of the data files of the problem; their content is part of a job's
            hash. A very large data set names a single file, which lists the checksums of all other files.
        data_hashes: `data_hashes(settings)` returns, by name, the SHA-256 of data that are not in `files`.
            These hashes are part of a job's hash too.
        missing: `missing(settings)` returns which data is missing and how to get it, or None if no data are
            missing.
        start: training loss and gradient norm in float64 at the start of the problem with default settings
            and seed 0, as `start_of` in `curvebench.engine.first_evaluation` computes them; None if they are
            not known.
        check: `check(settings)` raises a ValueError if completed settings contradict each other; `complete`
            calls it.
        streams: original name of the workload, from which random streams are seeded; set if a study's label
            has replaced this name in `name`.
        backend: the only backend on which the workload runs, `torch` or `jax`, because the workload's loss
            calls this library; None for a workload that is written in `ops`.
        bind: `bind(settings) -> workload` returns the workload whose functions belong to given settings, if
            metrics and loss depend on them, as for a model that is constructed from settings; None if metrics
            and loss do not depend on settings. Call `bind` through `at`.

    Example:
        The mean squared distance of a vector from random points:

        >>> from curvebench import Metric, Problem, Role, Setting, Workload, WorkloadRandom
        >>> def distance(ops, params, batch):
        ...     return ops.mean((params["x"][None, :] - batch["points"]) ** 2)
        >>> workload = Workload(
        ...     name="nearest_point",
        ...     description="the point nearest to random points",
        ...     source="an example",
        ...     metrics={"train_loss": Metric("mean squared distance", "minimize")},
        ...     settings={"points": Setting(10, "how many"), "batch_size": Setting(None, "full batch")},
        ...     dtype="float64",
        ...     shared_data=False,
        ...     roles=lambda settings: {"x": Role("vector")},
        ...     problem=lambda settings, random: Problem(
        ...         parameters={"x": random("start").normal(size=2)},
        ...         splits={"train": {"points": random("data").normal(size=(settings["points"], 2))}},
        ...     ),
        ...     sample_parameters=lambda settings, generator: {"x": generator.normal(size=2)},
        ...     loss=lambda ops, params, state, batch, noise: (distance(ops, params, batch), state, {}),
        ...     evaluate=lambda ops, params, state, split: {"loss": distance(ops, params, split)},
        ... )
        >>> settings = workload.complete({"points": 100})
        >>> problem = workload.problem(settings, WorkloadRandom(workload.name, seed=0))
        >>> problem.splits["train"]["points"].shape
        (100, 2)
    """

    name: str
    description: str
    source: str
    metrics: Mapping[str, Metric]
    settings: Mapping[str, Setting]
    dtype: Precision
    shared_data: bool
    roles: Callable[[Settings], dict[str, Role]]
    problem: Callable[[Settings, Random], Problem]
    sample_parameters: Callable[[Settings, np.random.Generator], dict[str, np.ndarray]]
    loss: Loss
    evaluate: Callable[[Ops, Arrays, Arrays, Arrays], dict[str, Array]]
    likelihood: Likelihood | None = None
    noise: Callable[[Settings, np.random.Generator, int], dict[str, np.ndarray]] | None = None
    linear_input: tuple[str, str] | None = None
    mapped: bool = True
    evaluation_batch: int | None = None
    streamed: bool = False
    separate_jobs: bool = False
    shapes: Callable[[Settings], Mapping[str, tuple[int, ...]]] | None = None
    missing: Callable[[Settings], str | None] = lambda settings: None
    files: Callable[[Settings], tuple[Path, ...]] = lambda settings: ()
    data_hashes: Callable[[Settings], Mapping[str, str]] = lambda settings: {}
    start: Start | None = None
    check: Callable[[Settings], None] = lambda settings: None
    streams: str = ""
    backend: str | None = None
    bind: Callable[[Settings], Workload] | None = None

    def at(self, settings: Settings) -> Workload:
        """Return the workload whose metrics, loss and evaluation belong to given values of all settings."""
        return self if self.bind is None else self.bind(settings)

    def __post_init__(self) -> None:
        in_pieces = self.streamed or self.evaluation_batch is not None
        if GRADIENT_NORM in self.metrics and (in_pieces or self.noise is not None):
            raise ValueError(
                f"{self.name}: {GRADIENT_NORM} is that of all training data at once, without noise; leave it "
                "out of the metrics, or noise, streamed and evaluation_batch at their defaults"
            )
        if self.streamed and self.evaluation_batch is None:
            raise ValueError(f"{self.name}: training data that are streamed need an evaluation_batch")

    @property
    def evaluated_splits(self) -> tuple[str, ...]:
        """Splits on which the metrics are evaluated."""
        return tuple(dict.fromkeys(filter(None, map(split_of, self.metrics))))

    def evaluated_on(self, splits: Collection[str] | None) -> Workload:
        """Return the workload with the metrics of `splits` only; if `splits` is None, return it unchanged.

        Metrics that training steps compute themselves are kept.
        """
        if splits is None:
            return self
        metrics = {name: metric for name, metric in self.metrics.items() if split_of(name) in (None, *splits)}
        return replace(self, metrics=metrics)

    def shapes_at(self, settings: Settings) -> dict[str, tuple[int, ...]]:
        """Return the shape of each parameter by name."""
        if self.shapes is not None:
            return dict(self.shapes(settings))
        sample = self.sample_parameters(settings, np.random.default_rng(0))
        return {name: value.shape for name, value in sample.items()}

    def complete(self, given: Settings) -> dict[str, Any]:
        """Check the given settings, and return them together with the defaults of all other settings.

        Raises:
            ValueError: for an unknown setting, a wrong value, or settings that `check` refuses.
        """
        settings = completed(self.name, "setting", self.settings, given, ValueError)
        try:
            self.check(settings)
        except ValueError as error:
            raise ValueError(f"{self.name}: {error}") from error
        return settings
