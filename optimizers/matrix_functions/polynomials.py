"""Odd polynomials that drive singular values to 1: the coefficient sets of Newton-Schulz iterations.

In citations, 002 is Stratos (2026), "Adaptive Learning Methods", a set of notes (docs/sources.md).
"""

from __future__ import annotations

from collections.abc import Mapping

OddPolynomial = tuple[float, ...]  # Coefficients c_1, c_2, ... of c_1 x + c_2 x^3 + ... (002 eq. 147).

CUBIC: OddPolynomial = (3 / 2, -1 / 2)
QUINTIC: OddPolynomial = (15 / 8, -5 / 4, 3 / 8)
JORDAN: OddPolynomial = (3.4445, -4.7750, 2.0315)

# Coefficients by Amsel, Persson, Musco, Gower 2025, "The Polar Express".
# A polynomial is the best on the interval to which the polynomials before it map [1e-3, 1].
# The best polynomial is the one with the smallest maximum distance from 1 (minimax).
# The interval of a polynomial has a margin of 0.024 at its lower end.
# The coefficients in the paper agree with POLAR_EXPRESS to 9 digits.
# No composition of equally many odd quintic polynomials comes closer to 1 on the whole interval [1e-3, 1].
#
# The composition of the first steps has slopes of up to 70,000 at 1, which amplify rounding errors.
# In float32 a singular value of 1 is off by 1 % after 5 steps; after 8 steps only rounding errors are left.
# In bfloat16, rounding could move a singular value out of a polynomial's interval.
POLAR_EXPRESS: tuple[OddPolynomial, ...] = (
    (8.287212018145635, -23.59588651909885, 17.30038731253094),
    (4.107059111542204, -2.947849916737911, 0.5448431082926602),
    (3.9486908534822818, -2.9089021159629387, 0.5518191394370117),
    (3.318419657370606, -2.488488024314878, 0.5100489401237208),
    (2.300652019954818, -1.6689039845747504, 0.4188073119525673),
    (1.8913014077873993, -1.26799582719459, 0.37680408948524985),
    (1.8750014808512874, -1.250001645395636, 0.37500016454527263),
    QUINTIC,
)

# By name, one polynomial for each step; newton_schulz repeats the last polynomial for further steps.
COEFFICIENTS: Mapping[str, tuple[OddPolynomial, ...]] = {
    "cubic": (CUBIC,),  # 002 Q.3.1: fixed point 1, convergence of order 2.
    "quintic": (QUINTIC,),  # 002 Q.3.1: fixed point 1, convergence of order 3.
    "jordan": (JORDAN,),  # 002 Q.3.1 (Jordan et al. 2024): reaches 1 +- 0.3 in 5 steps, and comes no nearer.
    "polar_express": POLAR_EXPRESS,
}


def evaluate(polynomial: OddPolynomial, x: float) -> float:
    """Return the value of an odd polynomial at a singular value x, c_1 x + c_2 x^3 + ... (002 eq. 147)."""
    return float(sum(c * x ** (2 * power + 1) for power, c in enumerate(polynomial)))
