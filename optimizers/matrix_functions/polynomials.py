"""Odd polynomials that drive singular values to 1: the coefficient sets of Newton-Schulz iterations."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.polynomial import Polynomial

OddPolynomial = tuple[float, ...]  # c_1, c_2, ... of c_1 x + c_2 x^3 + ... (002 eq. 147)

CUBIC: OddPolynomial = (3 / 2, -1 / 2)
QUINTIC: OddPolynomial = (15 / 8, -5 / 4, 3 / 8)
JORDAN: OddPolynomial = (3.4445, -4.7750, 2.0315)

LOWER = 1e-3  # of the published Polar Express coefficients (Amsel et al. 2025)
CUSHION = 0.02407327424182761  # likewise
EXCHANGES = (
    6  # Remez converges quadratically: the error is exact to rounding for any lower / upper from 1e-12
)
# |1 - QUINTIC(x)| is (5/2)|1 - x|^3 + ...: below this distance it is less than rounding
NARROW = (2 / 5 * float(np.finfo(np.float64).eps)) ** (1 / 3)


def evaluate(polynomial: OddPolynomial, x: float) -> float:
    """The value c_1 x + c_2 x^3 + ... (002 eq. 147 for a singular value)."""
    return float(sum(c * x ** (2 * power + 1) for power, c in enumerate(polynomial)))


def minimax_quintic(lower: float, upper: float) -> tuple[OddPolynomial, float]:
    """The odd polynomial of degree 5 that is nearest to 1 on an interval, by the Remez algorithm.

    It is x r(x^2) with a quadratic r, and its error takes its largest size at four points with alternating
    signs. r is sought in the variable that runs from -1 to 1 on [lower^2, upper^2], in which narrow
    intervals are as well-conditioned as wide ones.

    Args:
        lower: above 0.
        upper: above `lower`.

    Returns:
        c_1, c_2, c_3, and the largest error on the interval.
    """
    domain = [lower**2, upper**2]
    square = Polynomial.identity(domain=domain)
    # four Chebyshev extrema: exact in the limit of a narrow interval
    points: Any = (lower + upper) / 2 + (upper - lower) / 2 * np.array([-1.0, -0.5, 0.5, 1.0])
    r, error = Polynomial([1.0], domain=domain), 0.0
    for _ in range(EXCHANGES):
        within = (2 * points**2 - domain[0] - domain[1]) / (domain[1] - domain[0])
        system = np.column_stack([points, points * within, points * within**2, [1.0, -1.0, 1.0, -1.0]])
        *solution, error = np.linalg.solve(system, np.ones(4))
        r = Polynomial(solution, domain=domain)
        interior = (r + 2 * square * r.deriv()).roots()  # of the derivative, in x^2
        points = np.concatenate([[lower], np.sqrt(np.sort(interior.real)), [upper]])
    in_powers = r.convert(domain=[-1, 1], window=[-1, 1])
    return tuple(float(c) for c in in_powers.coef), abs(float(error))


def minimax_composition(lower: float, cushion: float = 0.0) -> tuple[OddPolynomial, ...]:
    """Quintics whose composition is nearest to 1 on [lower, 1] after each number of steps.

    Each is the minimax polynomial of the interval that the ones before it map [lower, 1] to; no composition
    of as many odd quintics comes nearer (Amsel, Persson, Musco, Gower 2025, "The Polar Express", prove it).
    Once the interval is narrower than rounding, the last polynomial is 002 Q.3.1's quintic.

    In the first steps the composition is steep at 1, up to 70,000: in float32 a rounded singular value of 1
    misses by 1 % after 5 steps and is right to rounding after 8; in bfloat16 it could leave the interval.

    Args:
        lower: the least singular value that must come near to 1, in (0, 1).
        cushion: the least lower end of an interval over its upper end that a polynomial is made for. Above 0,
            no polynomial comes near to 0 inside its interval, for a slower first approach.

    Returns:
        c_1, c_2, c_3 by step.

    Raises:
        ValueError: where `lower` is outside (0, 1).
    """
    if not 0 < lower < 1:
        raise ValueError(f"lower = {lower!r}: the least singular value is between 0 and 1")
    upper, polynomials = 1.0, []
    while upper - lower > NARROW:
        best, _ = minimax_quintic(max(lower, cushion * upper), upper)
        # with a cushion the error at the two ends differs: the values there are centred around 1
        centre = (evaluate(best, lower) + evaluate(best, upper)) / 2
        polynomials.append(tuple(c / centre for c in best))
        lower = evaluate(polynomials[-1], lower)
        upper = 2 - lower
    return (*polynomials, QUINTIC)


# One polynomial a step, of which newton_schulz repeats the last.
COEFFICIENTS: Mapping[str, tuple[OddPolynomial, ...]] = {
    "cubic": (CUBIC,),  # 002 Q.3.1, fixed point 1 of order 2
    "quintic": (QUINTIC,),  # 002 Q.3.1, fixed point 1 of order 3
    "jordan": (JORDAN,),  # 002 Q.3.1 (Jordan et al. 2024): to 1 +- 0.3 in 5 steps, and no nearer
    "polar_express": minimax_composition(LOWER, CUSHION),
}
