"""Recovery of a known solution by nonconvex least squares: completion, tensor factorization, phase retrieval.

In completion, an array X of order p (a matrix for p = 2) is the sum of R rank-one arrays. F_1, ..., F_p
(n, C) are the factors, whose columns c predict the entry at (i_1, ..., i_p) as the sum over c of
F_1[i_1, c] ... F_p[i_p, c]. The examples are the observed entries. In phase retrieval, x (d,) is recovered up
to its sign from the squares of linear measurements.

Each of the losses has saddles, 0 among them, and symmetries. The validation metric is the distance to the
solution modulo these symmetries.
"""

from __future__ import annotations

import math

import numpy as np

from curvebench.spec.values import number, whole
from curvebench.workloads.arguments import Array, Arrays, Ops, Random, Settings
from curvebench.workloads.workload import (
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

GRADIENT = Metric("Euclidean norm of the full-batch gradient", "minimize")
START_SCALE = Setting(0.3, "standard deviation of the entries of the start", number(0.0))
NOISE = Setting(0.0, "standard deviation of the noise in the targets", number(0.0))


# --- completion of matrices and tensors --------------------------------------------------------------------


def _predictions(ops: Ops, params: Arrays, index: Array) -> Array:
    """Return the entries of the product of the factors at `index` (examples, p), a vector (examples,)."""
    product = 1.0
    for mode, factor in enumerate(params.values()):
        product = product * ops.take(ops.astype_float(factor), index[:, mode], 0)
    return ops.sum(product, axis=-1)


def _entry_loss(ops: Ops, params: Arrays, split: Arrays) -> Array:
    """Return half the mean squared error of the entries in the split."""
    return 0.5 * ops.mean(ops.square(_predictions(ops, params, split["index"]) - split["entries"]))


def _evaluate_entries(ops: Ops, params: Arrays, state: Arrays, split: Arrays) -> dict[str, Array]:
    """Return the loss, and the distance to the entries of the split over their norm."""
    loss = _entry_loss(ops, params, split)
    return {"loss": loss, "distance": ops.sqrt(2.0 * loss / ops.mean(ops.square(split["entries"])))}


def _observed(settings: Settings, order: int) -> int:
    """Return the number of observed entries."""
    return round(settings["observed"] * settings["n"] ** order)


def _completion(name: str, description: str, order: int, n: int, observed: float, start: Start) -> Workload:
    """Return the workload of arrays of one order.

    Args:
        name, description, start: fields of the workload.
        order: number p of indices of an entry.
        n, observed: default values of the settings `n` and `observed`.
    """

    def factors(settings: Settings, generator: np.random.Generator) -> dict[str, np.ndarray]:
        shape = settings["n"], settings["columns"] or settings["rank"]
        scale = settings["start_scale"]
        return {f"F{mode}": scale * generator.normal(size=shape) for mode in range(1, order + 1)}

    def problem(settings: Settings, random: Random) -> Problem:
        """Draw true factors whose columns have the correlation c^2, and observe entries at random.

        Each column is c u + (1 - c^2)^(1/2) v with standard normal u, which all columns of the factor share,
        and v. The entries are divided by the square root of R, so that their variance is 1 for c = 0.
        """
        generator, collinearity = random("data"), settings["collinearity"]
        entries: np.ndarray | float = settings["rank"] ** -0.5
        for mode in range(order):
            own = generator.normal(size=(settings["n"], settings["rank"]))
            shared = generator.normal(size=(settings["n"], 1))
            factor = collinearity * shared + math.sqrt(1.0 - collinearity**2) * own
            entries = entries * factor.reshape((-1, *(1,) * (order - 1 - mode), settings["rank"]))
        truth = np.sum(entries, axis=-1).ravel()
        index = np.indices((settings["n"],) * order).reshape(order, -1).T
        known = random("observed").permutation(len(truth))[: _observed(settings, order)]
        targets = truth[known] + settings["noise"] * random("noise").normal(size=len(known))
        return Problem(
            parameters=factors(settings, random("parameters")),
            splits={
                "train": {"index": index[known], "entries": targets},
                "validation": {"index": index, "entries": truth},
            },
        )

    return Workload(
        name=name,
        description=description,
        source="none",
        metrics={
            "train_loss": Metric("half the mean squared error of the observed entries", "minimize"),
            "train_distance": Metric("error of the observed entries over their norm", "minimize"),
            "gradient_norm": GRADIENT,
            "validation_loss": Metric(
                "half the mean squared error of all entries, without noise", "minimize"
            ),
            "validation_distance": Metric(
                "distance of all entries to the true ones over their norm", "minimize"
            ),
        },
        settings={
            "batch_size": batch_size(),
            "n": Setting(n, "rows of each factor", whole()),
            "rank": Setting(3, "the number R of rank-one arrays in the solution", whole()),
            "columns": Setting(None, "columns of each factor; null: as many as rank", whole(1, "rank")),
            "observed": Setting(observed, "share of the entries that are observed", number(0.0, 1.0, True)),
            "collinearity": Setting(
                0.0, "c: the columns of a true factor have the correlation c^2", number(0.0, 1.0)
            ),
            "noise": NOISE,
            "start_scale": START_SCALE,
        },
        dtype="float64",
        shared_data=False,
        roles=lambda settings: {f"F{mode}": Role("weight", mode - 1) for mode in range(1, order + 1)},
        problem=problem,
        sample_parameters=factors,
        loss=loss_of(_entry_loss),
        evaluate=_evaluate_entries,
        start=start,
        check=lambda settings: require_batch(settings, _observed(settings, order)),
    )


MATRIX_COMPLETION = _completion(
    name="matrix_completion",
    description="completion of a 40 x 40 matrix of rank 3 from a third of its entries (d = 240)",
    order=2,
    n=40,
    observed=0.35,
    start=Start(0.43482137215767125, 0.03441114260184855),
)

TENSOR_FACTORIZATION = _completion(
    name="tensor_factorization",
    description="factorization of a 12 x 12 x 12 tensor of rank 3 (d = 108)",
    order=3,
    n=12,
    observed=1.0,
    start=Start(0.5115938551803734, 0.004558569598258789),
)


# --- phase retrieval ---------------------------------------------------------------------------------------


def _intensity_loss(ops: Ops, params: Arrays, split: Arrays) -> Array:
    """Return the mean of 1/4 (<a_i, x>^2 - y_i)^2 for measurement vectors a_i and intensities y_i."""
    amplitudes = ops.matmul(split["vectors"], ops.astype_float(params["x"]))
    return 0.25 * ops.mean(ops.square(ops.square(amplitudes) - split["intensities"]))


def _evaluate_phase(ops: Ops, params: Arrays, state: Arrays, split: Arrays) -> dict[str, Array]:
    """Return the loss; on the validation split, the distance to the closer of x* and -x*, over its norm."""
    if "truth" not in split:
        return {"loss": _intensity_loss(ops, params, split)}
    truth, x = split["truth"], ops.astype_float(params["x"])
    return {"distance": ops.minimum(ops.norm(x - truth), ops.norm(x + truth)) / ops.norm(truth)}


def _phase_start(settings: Settings, generator: np.random.Generator) -> dict[str, np.ndarray]:
    """Draw x ~ N(0, s^2 I / d)."""
    return {"x": settings["start_scale"] * generator.normal(size=(settings["d"],)) / math.sqrt(settings["d"])}


def _phase_examples(settings: Settings) -> int:
    """Return the number of measurements."""
    return round(settings["oversampling"] * settings["d"])


def _phase_retrieval(settings: Settings, random: Random) -> Problem:
    """Draw x* of norm 1 and a_i ~ N(0, I), and set y_i = <a_i, x*>^2 with noise."""
    generator = random("data")
    truth = generator.normal(size=(settings["d"],))
    truth /= np.linalg.norm(truth)
    vectors = generator.normal(size=(_phase_examples(settings), settings["d"]))
    noise = settings["noise"] * random("noise").normal(size=len(vectors))
    return Problem(
        parameters=_phase_start(settings, random("parameters")),
        splits={
            "train": {"vectors": vectors, "intensities": (vectors @ truth) ** 2 + noise},
            "validation": {"truth": truth},
        },
    )


PHASE_RETRIEVAL = Workload(
    name="phase_retrieval",
    description="real phase retrieval from Gaussian measurements (d = 50)",
    source="Candes, Li and Soltanolkotabi 2015, arXiv 1407.1065",
    metrics={
        "train_loss": Metric("a quarter of the mean squared error of the intensities", "minimize"),
        "gradient_norm": GRADIENT,
        "validation_distance": Metric("distance to the solution up to its sign, over its norm", "minimize"),
    },
    settings={
        "batch_size": batch_size(),
        "d": Setting(50, "number of parameters", whole()),
        "oversampling": Setting(6.0, "measurements per parameter", number(1.0)),
        "noise": NOISE,
        "start_scale": START_SCALE,
    },
    dtype="float64",
    shared_data=False,
    roles=lambda settings: {"x": Role("vector")},
    problem=_phase_retrieval,
    sample_parameters=_phase_start,
    loss=loss_of(_intensity_loss),
    evaluate=_evaluate_phase,
    start=Start(0.6338078747831118, 0.2668364914503476),
    check=lambda settings: require_batch(settings, _phase_examples(settings)),
)

WORKLOADS = (MATRIX_COMPLETION, TENSOR_FACTORIZATION, PHASE_RETRIEVAL)
