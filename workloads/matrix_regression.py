"""Two regressions on matrices, full batch and float64: errors in variables, and low-rank factorization.

In errors in variables, W (n, m) is the parameter, M (n, m) a random mask, A (n, n) the features and Y (n, m)
the targets. M * W is the entrywise product. In factorization, a matrix X* (n, m) of rank r is recovered from
targets Y, which are A X* with noise: the factors L and R minimize the distance of A L R^T to Y. The singular
values sigma_k of A decay as k^-alpha. EGOP samples are parameters at which gradients are sampled to estimate
a basis.

In citations, 000 is the EGOP paper, "Faster Adaptive Optimization via Expected Gradient Outer Product
Reparameterization" (docs/sources.md).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from curvebench.spec.values import choice, number, whole
from curvebench.workloads.arguments import Array, Arrays, Ops, Random, Settings
from curvebench.workloads.matrices import orthonormal, power_law_matrix
from curvebench.workloads.workload import Metric, Problem, Role, Setting, Start, Workload, loss_of

LOSS = Metric("value of the objective", "minimize")
FULL_BATCH = Setting(None, "full batch, the only choice", read=choice(None))


# --- errors in variables ---------------------------------------------------------------------------


def kronecker_residual(matrix: np.ndarray, mask: np.ndarray) -> float:
    """Return the distance of a Hessian to the nearest Kronecker product over the Hessian's norm.

    Source: 000 eq. 6.3.

    The Hessian belongs to the objective 1/2 ||A (M * W) - Y||_F^2. Let m_j be column j of M. The Hessian has
    the block diag(m_j) A^T A diag(m_j) for each column j of W, and is 0 elsewhere. Van Loan and Pitsianis
    rearrange the Hessian to a matrix with a row for each block, in which only the rows of these blocks are
    not 0. The best Kronecker product is the best approximation of these rows with rank 1.

    Args:
        matrix: A (n, n).
        mask: M (n, m).

    Returns:
        A number from 0, for a Hessian that is a Kronecker product, to 1. The number is 0 if the Hessian is 0.
    """
    blocks = np.einsum("ij,ik,kj->jik", mask, matrix.T @ matrix, mask)
    values = np.linalg.svd(blocks.reshape(len(blocks), -1), compute_uv=False)
    return float(np.linalg.norm(values[1:]) / (np.linalg.norm(values) or 1.0))


def _masked_loss(ops: Ops, params: Arrays, split: Arrays) -> Array:
    """Return the loss of W, f = 1/2 ||A (M * W) - Y||_F^2, where * is the entrywise product (000 eq. 6.2)."""
    product = ops.matmul(split["matrix"], split["mask"] * params["W"])
    return 0.5 * ops.sum(ops.square(product - split["targets"]))


def _zero(settings: Settings, generator: np.random.Generator) -> dict[str, np.ndarray]:
    """Return the initial parameter W = 0, which all seeds share (000 C.6)."""
    return {"W": np.zeros((settings["n"], settings["m"]))}


def _errors_in_variables(settings: Settings, random: Random) -> Problem:
    """Draw A with sigma_k = k^-alpha, M_ij ~ N(1, nu^2), W*_ij ~ N(0, 1); set Y = A (M * W*) (000 C.6).

    W* is the true parameter, and nu is the setting `nu`.
    """
    generator = random("data")
    shape = (settings["n"], settings["m"])
    matrix = power_law_matrix(shape[0], shape[0], settings["alpha"], generator)
    mask = 1.0 + settings["nu"] * generator.normal(size=shape)
    targets = matrix @ (mask * generator.normal(size=shape))
    return Problem(
        parameters=_zero(settings, random("parameters")),
        splits={"train": {"matrix": matrix, "mask": mask, "targets": targets}},
        facts={"minimum": 0.0, "kronecker_residual": kronecker_residual(matrix, mask)},
    )


def _masked_evaluation(ops: Ops, params: Arrays, state: Arrays, split: Arrays) -> dict[str, Array]:
    """Return the objective, and the objective divided by its value at W = 0."""
    value = _masked_loss(ops, params, split)
    return {"loss": value, "relative_loss": value / (0.5 * ops.sum(ops.square(split["targets"])))}


ERRORS_IN_VARIABLES = Workload(
    name="errors_in_variables",
    description="regression with errors in variables: a mask whose entries have the deviation nu (d = 100)",
    source="000 eqs. 6.2-6.3, C.6, Fig. 8",
    metrics={
        "train_loss": LOSS,
        "train_relative_loss": Metric("objective over its value at the start, W = 0", "minimize"),
    },
    settings={
        "batch_size": FULL_BATCH,
        "n": Setting(10, "rows and columns of A, rows of W", whole()),
        "m": Setting(10, "columns of W", whole()),
        "alpha": Setting(2.0, "decay of A's singular values, sigma_k = k^-alpha", number(0.0)),
        "nu": Setting(0.3, "standard deviation of the mask's entries around 1", number(0.0)),
    },
    dtype="float64",
    shared_data=False,
    roles=lambda settings: {"W": Role("weight")},
    problem=_errors_in_variables,
    sample_parameters=_zero,
    loss=loss_of(_masked_loss),
    evaluate=_masked_evaluation,
    start=Start(4.695021135217075, 3.0816054813043197),
)


# --- low-rank factorization ------------------------------------------------------------------------

# Values of the setting start_power: the corrected exponent, and the exponent that the paper prints.
EXPONENTS = {"1/2": 0.5, "-1/2": -0.5}


class _Instance(NamedTuple):
    """The matrices of one factorization problem."""

    matrix: np.ndarray  # A (n, n)
    truth: np.ndarray  # X* (n, m), of rank r
    targets: np.ndarray  # Y (n, m)


def _draw(settings: Settings, generator: np.random.Generator) -> _Instance:
    """Draw X* = U diag(1, ..., 1/kappa) V^T, A with sigma_k = k^-alpha, and Y = A X* + noise (000 C.6).

    U (n, r) and V (m, r) have orthonormal columns, and the condition number kappa is the setting `condition`.
    """
    n, m, rank = settings["n"], settings["m"], settings["rank"]
    u, v = orthonormal(n, rank, generator), orthonormal(m, rank, generator)
    truth = (u * np.linspace(1.0, 1.0 / settings["condition"], rank)) @ v.T
    matrix = power_law_matrix(n, n, settings["alpha"], generator)
    return _Instance(matrix, truth, matrix @ truth + settings["noise"] * generator.normal(size=(n, m)))


def _spectral_start(settings: Settings, instance: _Instance) -> dict[str, np.ndarray]:
    """Return L_0 = U_r Sigma_r^e and R_0 = V_r Sigma_r^e from the SVD of A^+ Y (000 C.6).

    A^+ is the pseudoinverse of A. The columns of U_r and V_r are the singular vectors of A^+ Y for its r
    largest singular values, which are on the diagonal of Sigma_r. With e = 1/2, the product L_0 R_0^T is the
    best approximation of A^+ Y with rank r. The paper prints e = -1/2, for which the product has the inverse
    singular values.
    """
    solution = np.linalg.pinv(instance.matrix) @ instance.targets
    u, values, vh = np.linalg.svd(solution, full_matrices=False)
    rank = settings["rank"]
    roots = values[:rank] ** EXPONENTS[settings["start_power"]]
    return {"L": u[:, :rank] * roots, "R": vh[:rank].T * roots}


def _factored_loss(ops: Ops, params: Arrays, split: Arrays) -> Array:
    """Return the loss of factors L and R, f = 1/2 ||A L R^T - Y||_F^2 (000 eq. 6.4)."""
    product = ops.matmul(ops.matmul(split["matrix"], params["L"]), ops.swapaxes(params["R"], 0, 1))
    return 0.5 * ops.sum(ops.square(product - split["targets"]))


def _matrix_factorization(settings: Settings, random: Random) -> Problem:
    """Draw a problem with known minimum: A is invertible, so that A L R^T can be any matrix of rank r."""
    instance = _draw(settings, random("data"))
    u, values, vh = np.linalg.svd(instance.targets, full_matrices=False)
    rank = settings["rank"]
    nearest = (u[:, :rank] * values[:rank]) @ vh[:rank]  # the best approximation of Y with rank r
    return Problem(
        parameters=_spectral_start(settings, instance),
        splits={
            "train": {"matrix": instance.matrix, "targets": instance.targets, "nearest": nearest},
            "test": {"truth": instance.truth},
        },
        facts={"minimum": 0.5 * float(np.sum((nearest - instance.targets) ** 2))},
    )


def _factored_evaluation(ops: Ops, params: Arrays, state: Arrays, split: Arrays) -> dict[str, Array]:
    """Return the objective, and the objective minus its minimum.

    On the test split, return ||L R^T - X*||_F^2 instead.
    """
    if "truth" in split:
        error = ops.matmul(params["L"], ops.swapaxes(params["R"], 0, 1)) - split["truth"]
        return {"recovery_error": ops.sum(ops.square(error))}
    value = _factored_loss(ops, params, split)
    minimum = 0.5 * ops.sum(ops.square(split["nearest"] - split["targets"]))
    return {"loss": value, "suboptimality": value - minimum}


def _check_rank(settings: Settings) -> None:
    """Check that a matrix (n, m) can have the rank in the settings."""
    if settings["rank"] > min(settings["n"], settings["m"]):
        raise ValueError(f"rank = {settings['rank']} is larger than n or m")


MATRIX_FACTORIZATION = Workload(
    name="matrix_factorization",
    description="low-rank matrix factorization from a spectral start (d = 200)",
    source="000 eq. 6.4, C.6, Fig. 9",
    metrics={
        "train_loss": LOSS,
        "train_suboptimality": Metric("objective minus its minimum", "minimize"),
        "test_recovery_error": Metric("squared distance to the true matrix, Frobenius norm", "minimize"),
    },
    settings={
        "batch_size": FULL_BATCH,
        "n": Setting(20, "rows of the true matrix, rows and columns of A", whole()),
        "m": Setting(20, "columns of the true matrix", whole()),
        "rank": Setting(5, "rank of the true matrix, columns of each factor", whole()),
        "condition": Setting(2.0, "largest over smallest nonzero singular value of X*", number(1.0)),
        "alpha": Setting(0.5, "decay of A's singular values, sigma_k = k^-alpha", number(0.0)),
        "noise": Setting(0.01, "standard deviation of the noise in the targets", number(0.0)),
        "start_power": Setting(
            "1/2", "power of the singular values in both factors of the start", choice(*EXPONENTS)
        ),
    },
    dtype="float64",
    shared_data=False,
    roles=lambda settings: {"L": Role("weight", 0), "R": Role("weight", 1)},
    problem=_matrix_factorization,
    # Initial parameters depend on the data, so that each EGOP sample is the start of a new instance.
    sample_parameters=lambda settings, generator: _spectral_start(settings, _draw(settings, generator)),
    loss=loss_of(_factored_loss),
    evaluate=_factored_evaluation,
    start=Start(0.012668742427935116, 0.024180244441174014),
    check=_check_rank,
)

WORKLOADS = (ERRORS_IN_VARIABLES, MATRIX_FACTORIZATION)
