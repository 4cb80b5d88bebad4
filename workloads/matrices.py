"""Random matrices with given singular values, and the usual distributions of initial parameters.

N(mean, variance) is the normal distribution. fan_in and fan_out are the numbers of inputs and outputs of a
layer.

In citations, 000 is the EGOP paper, "Faster Adaptive Optimization via Expected Gradient Outer Product
Reparameterization" (docs/sources.md).
"""

from __future__ import annotations

import numpy as np


def orthonormal(rows: int, columns: int, generator: np.random.Generator) -> np.ndarray:
    """Draw a matrix (rows, columns), columns <= rows, with orthonormal columns, uniformly.

    Uniform means that rotations do not change the distribution. The factor Q in the QR decomposition of a
    Gaussian matrix has this distribution if the diagonal of R is made positive (Mezzadri, "How to generate
    random matrices from the classical compact groups", 2007).
    """
    q, r = np.linalg.qr(generator.normal(size=(rows, columns)))
    return q * np.where(np.diagonal(r) < 0, -1.0, 1.0)


def power_law_matrix(rows: int, columns: int, alpha: float, generator: np.random.Generator) -> np.ndarray:
    """Draw a matrix (rows, columns) with singular values k^-alpha, k >= 1, and random singular vectors.

    Source: 000 Sec. 6 and C.6.
    """
    rank = min(rows, columns)
    singular_values = np.arange(1, rank + 1) ** -float(alpha)
    left = orthonormal(rows, rank, generator)
    right = orthonormal(columns, rank, generator)
    return (left * singular_values) @ right.T


def xavier_normal(fan_out: int, fan_in: int, generator: np.random.Generator) -> np.ndarray:
    """Draw a weight matrix (fan_out, fan_in) with entries N(0, 2 / (fan_in + fan_out)) (000 C.6)."""
    return generator.normal(scale=np.sqrt(2.0 / (fan_in + fan_out)), size=(fan_out, fan_in))


def uniform_bias(fan_out: int, fan_in: int, generator: np.random.Generator) -> np.ndarray:
    """Draw a bias (fan_out,), uniform between -b and b with b = (fan_in + fan_out)^(-1/2) (000 C.6)."""
    bound = (fan_in + fan_out) ** -0.5
    return generator.uniform(-bound, bound, size=fan_out)


def torch_default_weight(fan_out: int, fan_in: int, generator: np.random.Generator) -> np.ndarray:
    """Draw a weight matrix (fan_out, fan_in), uniform between -b and b with b = fan_in^(-1/2) (000 C.6)."""
    return generator.uniform(-(fan_in**-0.5), fan_in**-0.5, size=(fan_out, fan_in))


def torch_default_bias(fan_out: int, fan_in: int, generator: np.random.Generator) -> np.ndarray:
    """Draw a bias (fan_out,), uniform between -b and b with b = fan_in^(-1/2), as `torch.nn.Linear` does."""
    return generator.uniform(-(fan_in**-0.5), fan_in**-0.5, size=fan_out)


def zero_bias(fan_out: int, fan_in: int, generator: np.random.Generator) -> np.ndarray:
    """Return a bias (fan_out,) of zeros; nothing is drawn."""
    return np.zeros(fan_out)


def kaiming_normal(shape: tuple[int, int, int, int], generator: np.random.Generator) -> np.ndarray:
    """Draw a convolution (outputs, inputs, rows, columns) with entries N(0, 2 / (outputs rows columns)).

    He et al. 2015, "Delving deep into rectifiers", Sec. 2.2, for the backward signal (`fan_out`).
    """
    outputs, _, rows, columns = shape
    return generator.normal(scale=np.sqrt(2.0 / (outputs * rows * columns)), size=shape)
