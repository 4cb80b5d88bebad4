"""Recurrent networks on two problems of long dependencies: adding and copying.

- **Adding**: each step of a sequence has a uniform number and a marker. Two steps, one in each half, have the
  marker 1, and the target is the sum of their numbers (Hochreiter and Schmidhuber 1997, "Long short-term
  memory"; Martens and Sutskever 2011, "Learning recurrent neural networks with Hessian-free optimization").
- **Copying**: a sequence starts with symbols, which the outputs of its last steps have to repeat. In between
  are blanks, and a sign that the symbols are due (Arjovsky, Shah and Bengio 2016, "Unitary evolution
  recurrent neural networks").

A network that ignores its inputs has a mean squared error of 1/6 in adding, and a loss of log 8 in copying.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Literal, NamedTuple

import numpy as np

from curvebench.spec.values import choice, whole
from curvebench.workloads.arguments import Array, Arrays, Ops, Random, Settings
from curvebench.workloads.classification import Parameter, SizedNetwork, constant
from curvebench.workloads.matrices import orthonormal, xavier_normal
from curvebench.workloads.workload import (
    Likelihood,
    Metric,
    Problem,
    Role,
    Setting,
    Start,
    Workload,
    batch_size,
    loss_of,
    require_batch,
)

SYMBOLS, COPIED = 8, 4  # size of the alphabet of copying, and number of symbols to copy
BLANK, DUE = SYMBOLS, SYMBOLS + 1  # further inputs of copying: a blank, and the sign that symbols are due
BLOCKS = {"tanh": 1, "gru": 3}  # number of matrices of a cell, which are stacked in each of its two weights


class TaskSizes(NamedTuple):
    """Numbers of the inputs of a step, of the outputs of a step, and of last steps that have outputs."""

    inputs: int
    outputs: int
    last: int


SIZES = {"adding": TaskSizes(2, 1, 1), "copy": TaskSizes(SYMBOLS + 2, SYMBOLS, COPIED)}


@dataclass(frozen=True)
class RecurrentNetwork(SizedNetwork):
    """A recurrent cell and a linear output layer.

    Args:
        sizes: sizes of the task.
        width: units of the cell.
        blocks: number of matrices of the cell.
        output: kind of the output weight: `head` if the network classifies, otherwise `weight`.
    """

    sizes: TaskSizes
    width: int
    blocks: int
    output: Literal["head", "weight"]

    @property
    def parameters(self) -> dict[str, Parameter]:
        """Parameters: Xavier normal weights, orthogonal recurrent matrices, biases of 0."""
        inputs, outputs, _ = self.sizes
        total = self.blocks * self.width

        def recurrent(generator: np.random.Generator) -> np.ndarray:
            square = (self.width, self.width)
            return np.concatenate([orthonormal(*square, generator) for _ in range(self.blocks)])

        def entering(generator: np.random.Generator) -> np.ndarray:
            return np.concatenate([xavier_normal(self.width, inputs, generator) for _ in range(self.blocks)])

        table = {
            "W_in": Parameter((total, inputs), Role("weight", 0), entering),
            "b_in": constant((total,), Role("bias", 0), 0.0),
            "W_rec": Parameter((total, self.width), Role("weight", 1), recurrent),
        }
        if self.blocks > 1:
            table["b_rec"] = constant((total,), Role("bias", 1), 0.0)
        shape = (outputs, self.width)
        return {
            **table,
            "W_out": Parameter(shape, Role(self.output, 2), partial(xavier_normal, *shape)),
            "b_out": constant((outputs,), Role("bias", 2), 0.0),
        }


def _network(settings: Settings) -> RecurrentNetwork:
    """Return the network that the settings describe."""
    output: Literal["head", "weight"] = "head" if settings["task"] == "copy" else "weight"
    return RecurrentNetwork(SIZES[settings["task"]], settings["width"], BLOCKS[settings["cell"]], output)


def _adding(length: int, count: int, generator: np.random.Generator) -> dict[str, np.ndarray]:
    """Draw sequences (count, length, 2) of numbers and markers, and their targets (count, 1, 1)."""
    numbers, markers, rows = (
        generator.uniform(size=(count, length)),
        np.zeros((count, length)),
        np.arange(count),
    )
    for half in np.array_split(np.arange(length), 2):
        markers[rows, generator.choice(half, count)] = 1.0
    targets = (numbers * markers).sum(axis=1)
    return {"inputs": np.stack([numbers, markers], axis=-1), "targets": targets[:, None, None]}


def _copy(length: int, count: int, generator: np.random.Generator) -> dict[str, np.ndarray]:
    """Draw symbols (count, COPIED), the labels, and the sequences (count, length, SYMBOLS + 2) to copy them.

    A sequence has the symbols, blanks, the sign, and blanks while the symbols are due; its entries are unit
    vectors.
    """
    labels = generator.integers(SYMBOLS, size=(count, COPIED))
    codes = np.full((count, length), BLANK)
    codes[:, :COPIED] = labels
    codes[:, -COPIED] = DUE
    return {"inputs": np.eye(SYMBOLS + 2)[codes], "labels": labels}


DRAWS = {"adding": _adding, "copy": _copy}


def _problem(settings: Settings, random: Random) -> Problem:
    """Draw sequences and initial parameters, different for each seed."""
    generator, draw = random("data"), DRAWS[settings["task"]]
    counts = {split: settings[f"{split}_examples"] for split in ("train", "validation")}
    return Problem(
        parameters=_network(settings).sample(random("parameters")),
        splits={name: draw(settings["length"], count, generator) for name, count in counts.items()},
    )


def _outputs(ops: Ops, params: Arrays, state: Arrays, batch: Arrays, noise: Arrays, last: int) -> Array:
    """Return the outputs of the last steps, (examples, last, outputs).

    The cell is h_t = tanh(W_in x_t + b_in + W_rec h_(t - 1)) or, if there is a bias b_rec, a gated recurrent
    unit with the gates in PyTorch's order: reset, update, new.
    """
    entering = ops.unstack(ops.linear(batch["inputs"], params["W_in"], params["b_in"]), 1)
    width = params["W_rec"].shape[1]
    hidden, states = ops.zeros_like(entering[0][:, :width]), []
    for x in entering:
        if "b_rec" in params:
            seen = ops.linear(hidden, params["W_rec"], params["b_rec"])
            gates = ops.sigmoid(x[:, : 2 * width] + seen[:, : 2 * width])
            reset, update = gates[:, :width], gates[:, width:]
            new = ops.tanh(x[:, 2 * width :] + reset * seen[:, 2 * width :])
            hidden = new + update * (hidden - new)
        else:
            hidden = ops.tanh(x + ops.linear(hidden, params["W_rec"]))
        states.append(hidden)
    return ops.linear(ops.stack(states[-last:], 1), params["W_out"], params["b_out"])


def _squared_error(ops: Ops, params: Arrays, batch: Arrays) -> Array:
    """Return the mean squared error of adding."""
    outputs = _outputs(ops, params, {}, batch, {}, SIZES["adding"].last)
    return ops.mean(ops.square(outputs - batch["targets"]))


def _cross_entropy(ops: Ops, params: Arrays, batch: Arrays) -> Array:
    """Return the mean negative log-likelihood of the symbols in copying."""
    logits = _outputs(ops, params, {}, batch, {}, SIZES["copy"].last)
    logarithms = ops.log_softmax(logits, axis=-1)
    return -ops.mean(ops.take_along_axis(logarithms, batch["labels"][..., None], axis=-1))


LOSSES = {
    "adding": (_squared_error, Likelihood(partial(_outputs, last=SIZES["adding"].last), "gaussian", 2.0)),
    "copy": (_cross_entropy, Likelihood(partial(_outputs, last=COPIED), "categorical", 1 / COPIED)),
}
MIN_LENGTHS = {"adding": 2, "copy": 2 * COPIED}


def _check(settings: Settings) -> None:
    """Check that a sequence has room for its task, and that a minibatch is not larger than the data."""
    least = MIN_LENGTHS[settings["task"]]
    if settings["length"] < least:
        raise ValueError(
            f"length = {settings['length']} is too short for {settings['task']}: at least {least}"
        )
    require_batch(settings, settings["train_examples"])


def _workload(task: str) -> Workload:
    """Return the workload with the loss of a task."""
    objective, likelihood = LOSSES[task]
    return Workload(
        name="recurrent",
        description="recurrent tanh network that adds two numbers in sequences of 20 (d = 1153)",
        source="Hochreiter and Schmidhuber 1997; Martens and Sutskever 2011; Arjovsky, Shah and Bengio 2016",
        metrics={
            f"{split}_loss": Metric(
                f"squared error of the sum, or negative log-likelihood of a symbol, on the {split} split",
                "minimize",
            )
            for split in ("train", "validation")
        },
        settings={
            "batch_size": batch_size(64),
            "task": Setting(
                "adding", "adding: the sum of two marked numbers; copy: 4 of 8 symbols", choice(*SIZES)
            ),
            "cell": Setting("tanh", "tanh, or gru: a gated recurrent unit", choice(*BLOCKS)),
            "length": Setting(20, "steps of a sequence", whole()),
            "width": Setting(32, "units of the cell", whole()),
            "train_examples": Setting(2048, "sequences of the training split", whole()),
            "validation_examples": Setting(512, "sequences of the validation split", whole()),
        },
        dtype="float32",
        shared_data=False,
        roles=lambda settings: _network(settings).roles,
        problem=_problem,
        sample_parameters=lambda settings, generator: _network(settings).sample(generator),
        loss=loss_of(objective),
        evaluate=lambda ops, params, state, split: {"loss": objective(ops, params, split)},
        likelihood=likelihood,
        start=Start(0.6611250119318707, 9.334732917161809),
        check=_check,
        bind=lambda settings: BY_TASK[settings["task"]],
    )


BY_TASK = {task: _workload(task) for task in LOSSES}
WORKLOADS = (BY_TASK["adding"],)
