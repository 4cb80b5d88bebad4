"""What a workload is: data, initial parameters, loss and metrics, written once for every backend."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, Protocol, get_args

import numpy as np

from curvebench.spec.errors import InputError
from curvebench.spec.values import Option, Precision, Read, completed, whole

Array = Any  # a numpy.ndarray, torch.Tensor or jax.Array; workloads never ask which
Ops = Any  # the table of array functions that a backend hands over (curvebench/backends)
Arrays = Mapping[str, Array]
Settings = Mapping[str, Any]


# Metrics that the executor computes where they are declared: the norm of the full-batch gradient; and the
# mean loss of the steps since the evaluation before, at step 0 the loss of the first step's minibatch.
GRADIENT_NORM, MINIBATCH_LOSS = "gradient_norm", "minibatch_loss"


class DataMissing(InputError):
    """A data set that is not on this machine; the message says how to get it."""


class Random(Protocol):
    """Random generators by purpose, made by the harness from (workload, seed)."""

    def __call__(self, purpose: str, shared: bool = False) -> np.random.Generator:
        """A fresh generator for a named purpose; `shared` gives every seed the same one."""


class DataSource(Protocol):
    """The examples of a split by number, read when they are needed: from files, or made.

    Several threads fetch at once.
    """

    def __len__(self) -> int:
        """The number of examples."""

    def fetch(self, number: int, generator: np.random.Generator | None) -> Mapping[str, np.ndarray]:
        """The fields of an example, a function of the arguments alone.

        Args:
            number: of the example, from 0.
            generator: draws what training draws for this example at this place of this step, such as a crop;
                None for the example as evaluation sees it.
        """

    def placeholder(self, is_training: bool) -> Mapping[str, np.ndarray]:
        """Fields of the shapes and types that `fetch` gives, without reading anything."""

    @property
    def notes(self) -> list[str]:
        """What the provenance of a run is to say of what has been fetched, such as files that are damaged."""


Split = Mapping[str, np.ndarray] | DataSource


def examples_in(split: Split) -> int:
    """The number of examples."""
    return len(next(iter(split.values()))) if isinstance(split, Mapping) else len(split)


def placeholder_of(split: Split) -> Mapping[str, np.ndarray]:
    """Fields of the shapes and types of one example in training."""
    if isinstance(split, Mapping):
        return {name: values[0] for name, values in split.items()}
    return split.placeholder(is_training=True)


@dataclass(frozen=True)
class Setting(Option):
    """One choice that a study may make about a workload; any value where nothing reads it."""

    read: Read = lambda value: value


@dataclass(frozen=True)
class Role:
    """What a parameter is inside a model, and the layer it belongs to (0 is nearest to the input).

    An `embedding` is what patches, words or their places are made tokens with; a `head` the weight of the
    output layer of a network of several layers that tells classes apart.
    """

    kind: Literal["weight", "bias", "convolution", "norm", "embedding", "head", "vector"]
    layer: int = 0


@dataclass(frozen=True)
class Metric:
    """A number that evaluation gives: on which split, and whether less is better."""

    description: str
    direction: Literal["minimize", "maximize"]
    unit: str = ""


def batch_size(default: int | None = None) -> Setting:
    """The setting of the minibatches; `require_batch` holds it against the training examples."""
    of = "full batch" if default is None else "examples in a minibatch; null: full batch"
    return Setting(default, of, whole(1, "full batch"))


def require_batch(settings: Settings, examples: int) -> None:
    """Require a `batch_size` that the training examples can fill.

    Raises:
        ValueError: for a larger one.
    """
    if settings["batch_size"] is not None and settings["batch_size"] > examples:
        raise ValueError(
            f"batch_size = {settings['batch_size']} is larger than the {examples} training examples "
            "(null: full batch)"
        )


def split_of(metric: str) -> str | None:
    """The split whose examples a metric is of, which are all passed through; None for what steps give."""
    if metric == MINIBATCH_LOSS:
        return None
    return "train" if metric == GRADIENT_NORM else metric.partition("_")[0]


Loss = Callable[[Ops, Arrays, Arrays, Arrays, Arrays], tuple[Array, Arrays, Arrays]]


def loss_of(objective: Callable[[Ops, Arrays, Arrays], Array]) -> Loss:
    """A workload's `loss` by `objective(ops, params, batch)`, without model state and noise."""

    def loss(
        ops: Ops, params: Arrays, state: Arrays, batch: Arrays, noise: Arrays
    ) -> tuple[Array, Arrays, Arrays]:
        return objective(ops, params, batch), state, {}

    return loss


Family = Literal["categorical", "gaussian"]


@dataclass(frozen=True)
class Likelihood:
    """The distribution of targets by a model's outputs, whose mean negative logarithm the loss is.

    Args:
        outputs: `outputs(ops, params, state, batch, noise) -> (examples, ..., C)`.
        family: `categorical`, outputs being logits; or `gaussian`, means of targets with unit variance, whose
            negative log-likelihood is half the squared error.
        scale: what the mean over examples of the negative log-likelihood is multiplied with in the loss.
    """

    outputs: Callable[[Ops, Arrays, Arrays, Arrays, Arrays], Array]
    family: Family
    scale: float = 1.0

    def __post_init__(self) -> None:
        families = get_args(Family)
        if self.family not in families:
            raise ValueError(f"Likelihood: family = {self.family!r} is not {' or '.join(families)}")
        if not self.scale > 0:
            raise ValueError(f"Likelihood: scale = {self.scale!r} is not above 0")


@dataclass(frozen=True)
class Problem:
    """One instance of a workload on the host: NumPy arrays, float64 where they are real.

    Args:
        parameters: initial parameters by name, in the order that flattening keeps.
        splits: `train` and, where there are any, `validation` and `test`; each maps field names to
            arrays whose leading axis counts examples, or is a `DataSource`.
        state: model state such as running means; empty for most.
        facts: numbers known of the instance, such as the least loss that can be reached.
    """

    parameters: dict[str, np.ndarray]
    splits: Mapping[str, Any]  # each a Split
    state: dict[str, np.ndarray] = field(default_factory=dict)
    facts: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Workload:
    """A problem family.

    Args:
        name: the name in studies and tables.
        description: one line for `curvebench list` and the report.
        source: file and place in the seed documents.
        metrics: what evaluation gives, by full name: the split, an underscore, the key that `evaluate`
            returns (`train_loss`, `validation_accuracy`). Two may be declared too that the executor computes:
            `gradient_norm`, the Euclidean norm of the full-batch gradient, and `minibatch_loss`, the mean
            loss of the steps since the evaluation before, which takes no pass over the data.
        settings: the choices a study may make, among them `batch_size` (null: full batch).
        dtype: the precision of its runs where a study asks for none, a policy's word.
        shared_data: whether `splits` is the same for every seed, so that lanes store it once.
        roles: `roles(settings) -> {parameter: Role}`.
        problem: `problem(settings, random) -> Problem`.
        sample_parameters: `sample_parameters(settings, generator) -> parameters`, one draw from the
            distribution that initial parameters come from (EGOP's realistic sampling).
        shapes: `shapes(settings) -> {parameter: shape}`, where a draw takes seconds; None to see them in one.
        loss: `loss(ops, params, state, batch, noise) -> (loss, state, metrics)` for one run.
        evaluate: `evaluate(ops, params, state, split) -> {key: scalar}` for one run and one split.
        likelihood: how targets are drawn from the model, for rules that need its Fisher matrix; None where
            that is not said.
        noise: `noise(settings, generator, batch_size) -> arrays` draws what one step of one seed needs, such
            as masks of dropout and shifts of augmentation, on the host; None where a loss takes none. Where
            gradients are accumulated, arrays whose first axis counts the examples are cut with them.
        linear_input: the weight (outputs, inputs) and the field (examples, inputs) of every split that enter
            loss and evaluation by the product of field and weight's transpose alone; None where none do.
        mapped: whether lanes advance side by side in one program; False where convolutions make lane after
            lane faster.
        evaluation_batch: examples that evaluation sees at once, its values then being means over examples;
            None for all. Splits stay on the host where there is one.
        streamed: whether minibatches are cut on the host and sent, since the training data do not fit the
            device; always where a split is a `DataSource`.
        alone: whether each run is a job of its own, as runs of hours are.
        files: `files(settings) -> paths`, the data files that the problem is read from; their content is part
            of a job's hash. A very large set names an index of its files with their checksums.
        missing: `missing(settings)` says what data is missing and how to get it, or None when all is there.
        check: `check(settings)` raises a ValueError where completed settings do not go together; `complete`
            calls it.
        streams: the name of its random streams, where a label has taken its place in `name`.
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
    alone: bool = False
    shapes: Callable[[Settings], Mapping[str, tuple[int, ...]]] | None = None
    missing: Callable[[Settings], str | None] = lambda settings: None
    files: Callable[[Settings], tuple[Path, ...]] = lambda settings: ()
    check: Callable[[Settings], None] = lambda settings: None
    streams: str = ""

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
        """The splits that its metrics are of."""
        return tuple(dict.fromkeys(filter(None, map(split_of, self.metrics))))

    def evaluated_on(self, splits: Collection[str] | None) -> Workload:
        """The workload with the metrics of some splits alone, and what steps give; None: with all."""
        if splits is None:
            return self
        kept = {name: metric for name, metric in self.metrics.items() if split_of(name) in (None, *splits)}
        return replace(self, metrics=kept)

    def shapes_at(self, settings: Settings) -> dict[str, tuple[int, ...]]:
        """The shape of each parameter."""
        if self.shapes is not None:
            return dict(self.shapes(settings))
        drawn = self.sample_parameters(settings, np.random.default_rng(0))
        return {name: value.shape for name, value in drawn.items()}

    def complete(self, given: Settings) -> dict[str, Any]:
        """The given settings completed by the defaults.

        Raises:
            ValueError: for an unknown setting, a wrong value, or settings that `check` refuses.
        """
        settings = completed(self.name, "setting", self.settings, given, ValueError)
        try:
            self.check(settings)
        except ValueError as error:
            raise ValueError(f"{self.name}: {error}") from error
        return settings
