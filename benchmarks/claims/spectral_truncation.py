"""Spectral-factorized curvature with a truncated exponential map, and on diagonal matrices.

In citations, 003 is Lin et al. (2025), "Spectral-factorized Positive-definite Curvature Learning for NN
Training" (docs/sources.md).

S = B diag(d) B^T, or alpha S_1 (x) S_2, is the learned curvature, g the gradient, beta_2 the step size of S,
gamma its decay (0 or 1), and lambda the damping. A step multiplies d by the exponential e^x; a truncated step
multiplies d by 1 + x instead.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from curvebench.benchmarks.claims._gaussians import assembled, draw_kronecker, draw_spectrum, identity
from curvebench.benchmarks.claims._matrices import OPS, relative_error
from curvebench.benchmarks.claims._measures import agrees, at_least, at_most, equals, vanishes
from curvebench.benchmarks.claims._moves import moves
from curvebench.benchmarks.claims._parts import Random, bounds, part, parts_for, printed_and_corrected
from curvebench.benchmarks.claims._spectral_scheme import (
    EXACT_MAPS,
    PLAIN_ROTATION,
    POSITIVE,
    READ,
    RULES,
    axes_curvatures,
    draw_gradients,
    lengths_of,
    preconditioners,
    stepped,
)
from curvebench.optimizers.matrix_functions import (
    KroneckerSpectrum,
    SpectralMaps,
    Spectrum,
    kronecker_spectral_step,
    spectral_step,
)
from curvebench.property_checks.checks import Measure, PropertyClaim

# --- the truncated exponential map (003 Figs. 5 and 6, App. A.2 and A.3, Claims 7 and 8) --------------------

# Tolerance of a measured order of convergence, which should be 2.
# The order is measured at rates at which a step changes log d by at most 0.01.
SECOND_ORDER = 0.05
# The truncated exponential map and the exact Cayley map, as in 003 Figs. 5 and 6.
TRUNCATED_MAPS = SpectralMaps("first_order", "exact")
# Maps for gradients of any size. They normalize rotations, so that rounding cannot remove I from I - X.
STEADY_MAPS, TURN = SpectralMaps("first_order", "exact", normalized=True), 0.05
# Number of steps of the checks with damping.
DAMPED = 200
FORMS = {"full": "full", "Kronecker": "kronecker"}


def draw_state(random: Random, form: str) -> tuple[Any, np.ndarray]:
    """Draw the spectrum of a matrix S, and a gradient S^(1/2) z, whose magnitude matches S.

    The entries of z are normal with standard deviations from 1/3 to 3.
    """
    if form == "full":
        shape: tuple[int, ...] = lengths_of(random, 1)
        spectrum: Any = draw_spectrum(random, shape[0], tied=True)
    else:
        shape = lengths_of(random, 2)
        spectrum = draw_kronecker(random, shape, tied=True)
    root = assembled(spectrum, 0.5)
    drawn = random.standard_normal(len(root)) * 3.0 ** random.uniform(-1, 1, len(root))
    return spectrum, (root @ drawn).reshape(shape)


def growths_of(spectrum: Any, gradient: np.ndarray, gamma: float) -> list[np.ndarray]:
    """Return the growth m of log d, for each factor of S (003 Fig. 1).

    For one matrix S, m = d^-1 diag(B^T g g^T B) - gamma. For a Kronecker factor, m = d^-1 diag(W) / (alpha k)
    - gamma, where W / (alpha k) is the curvature that `axes_curvatures` returns.
    """
    if isinstance(spectrum, Spectrum):
        return [(spectrum.basis.T @ gradient) ** 2 / spectrum.values - gamma]
    return [
        np.diag(inside) / factor.values - gamma
        for inside, factor in zip(axes_curvatures(spectrum, gradient), spectrum.factors, strict=True)
    ]


def _claim_7(random: Random) -> Iterator[Measure]:
    spectrum, gradient = draw_state(random, "kronecker")
    rate, gamma, flat = float(random.uniform(0.02, 0.3)), float(random.integers(2)), gradient.ravel()
    trace = flat @ np.linalg.inv(assembled(spectrum)) @ flat / gradient.size
    for number, inside in enumerate(axes_curvatures(spectrum, gradient)):
        # Both factors contribute to the growth of alpha. A curvature of 0 removes the other contribution.
        alone = [np.zeros((length, length)) for length in gradient.shape]
        alone[number] = inside
        moved = kronecker_spectral_step(OPS, spectrum, tuple(alone), rate, 0.0)
        asked = 2 * np.log(moved.scale / spectrum.scale)[0] / rate
        quantity = f"factor {number + 1}: mean of d^-1 W over alpha k, less the trace t over m n, over 1 + t"
        yield equals(quantity, (asked - trace) / (1 + trace), 0.0, 1e-10)
    after = stepped(spectrum, gradient, rate, gamma)
    growth = np.log(after.scale / spectrum.scale)[0] / rate
    quantity = "log of alpha's growth over beta_2, less t - gamma, over 1 + t"
    yield equals(quantity, (growth - trace + gamma) / (1 + trace), 0.0, 1e-10)


def _log_determinant(random: Random) -> Iterator[Measure]:
    """Check that a step of the rule increases log det S by beta_2 (Tr(S^-1 g g^T) - gamma m n).

    This is 003 Claim 7 for alpha.
    """
    shape = lengths_of(random, 2, 2, 3)
    rate, gamma = float(random.uniform(0.02, 0.3)), float(random.integers(2))
    gradients = draw_gradients(random, shape, 3)
    options = {**PLAIN_ROTATION, "exponential": "exact", "power": 1.0}
    found = preconditioners("spectral", gradients, {"curvature_rate": rate, "gamma": gamma}, options)
    inverse = np.eye(gradients[0].size)
    for after, gradient in zip(found, gradients, strict=True):
        flat = gradient.ravel()
        growth = np.linalg.slogdet(inverse)[1] - np.linalg.slogdet(after)[1]
        expected = rate * (flat @ inverse @ flat - gamma * flat.size)
        yield equals(
            "log det S's growth less beta_2 (Tr(S^-1 g g^T) - gamma m n)", growth - expected, 0.0, READ
        )
        inverse = after


def boxes(
    spectrum: Any, gradient: np.ndarray, rate: float, gamma: float, damping: Sequence[float]
) -> list[Any]:
    """Return the new eigenvalues of each factor, as the boxes of 003 Figs. 5 and 6 state them.

    They are (1 - gamma beta_2) d + beta_2 (diag W + Lambda) / (alpha k), where Lambda is the damping of the
    factor, and W and k are as in `axes_curvatures`. If S is one matrix, alpha k = 1.
    """
    if isinstance(spectrum, Spectrum):
        inside = np.diag(spectrum.basis.T @ np.outer(gradient, gradient) @ spectrum.basis)
        return [(1 - gamma * rate) * spectrum.values + rate * (inside + damping[0])]
    found, scale, (rows, columns) = [], spectrum.scale, gradient.shape
    for factor, inside, added, count in zip(
        spectrum.factors, axes_curvatures(spectrum, gradient), damping, (columns, rows), strict=True
    ):
        curved = np.diag(inside) + added / (scale * count)
        found.append((1 - gamma * rate) * factor.values + rate * curved)
    return found


def adaptive_damping(spectrum: KroneckerSpectrum, damping: float, printed: bool) -> list[float]:
    """Return the adaptive damping Lambda^(l) of 003 Fig. 6 (caption).

    The divisor is Tr(S^(l))^-1 in the printed formula, and Tr((S^(l))^-1) in the corrected formula.
    """
    wholes = [assembled(factor) for factor in spectrum.factors]
    inverses = [float(np.trace(np.linalg.inv(whole))) for whole in wholes]
    below = [1 / float(np.trace(whole)) for whole in wholes] if printed else inverses
    return [damping * inverses[0] * inverses[1] / own for own in below]


def _figure_5(random: Random) -> Iterator[Measure]:
    """Compare steps of the rule from S = I with the steps of 003 Fig. 5."""
    (size,) = lengths_of(random, 1, 2, 5)
    rate, gamma = float(random.uniform(0.02, 0.5)), float(random.integers(2))
    damping, gradients = float(10.0 ** random.uniform(-3, 0)), draw_gradients(random, (size,), 3)
    options = {**PLAIN_ROTATION, "exponential": "first_order", "power": 1.0}
    hyper = {"curvature_rate": rate, "gamma": gamma, "damping": damping}
    found = preconditioners("spectral_full", gradients, hyper, options)
    spectrum = identity((size,))
    for inverse, gradient in zip(found, gradients, strict=True):
        (values,) = boxes(spectrum, gradient, rate, gamma, [damping])
        gaps = spectrum.values[:, None] - spectrum.values[None, :]
        entries = spectrum.basis.T @ np.outer(gradient, gradient) @ spectrum.basis
        lower = np.tril(-entries / np.where(gaps == 0, np.inf, gaps), -1)
        turn = rate / 2 * (lower - lower.T)
        rotated = spectrum.basis @ (np.eye(size) + turn) @ np.linalg.inv(np.eye(size) - turn)
        spectrum = Spectrum(rotated, values)
        yield agrees("S^-1, relative error", inverse, assembled(spectrum, -1.0), READ)


def _rule_figure_6(random: Random) -> Iterator[Measure]:
    """Compare steps of the optimizer `spectral`, which starts at S = I, with steps of this module's own code.

    `_figure_6` compares the same own code with 003 Fig. 6.
    """
    shape = lengths_of(random, 2, 2, 3)
    rate, gamma = float(random.uniform(0.02, 0.5)), float(random.integers(2))
    damping, gradients = float(10.0 ** random.uniform(-3, 0)), draw_gradients(random, shape, 3)
    options = {**PLAIN_ROTATION, "exponential": "first_order", "power": 1.0}
    hyper = {"curvature_rate": rate, "gamma": gamma, "damping": damping}
    found, spectrum = preconditioners("spectral", gradients, hyper, options), identity(shape)
    for inverse, gradient in zip(found, gradients, strict=True):
        spectrum = stepped(spectrum, gradient, rate, gamma, TRUNCATED_MAPS, damping)
        yield agrees("S^-1, relative error", inverse, assembled(spectrum, -1.0), READ)


def _figure_6(random: Random, printed: bool) -> Iterator[Measure]:
    spectrum, gradient = draw_state(random, "kronecker")
    rate, gamma = float(random.uniform(0.02, 0.5)), float(random.integers(2))
    # The damping is drawn in relation to the size of S, and not only of the gradient.
    damping = float(spectrum.scale[0] * 10.0 ** random.uniform(-2, 0))
    after = stepped(spectrum, gradient, rate, gamma, TRUNCATED_MAPS, damping)
    traces = adaptive_damping(spectrum, damping, printed)
    means = []
    for number, (factor, values) in enumerate(
        zip(after.factors, boxes(spectrum, gradient, rate, gamma, traces), strict=True), start=1
    ):
        means.append(np.log(values).mean())
        expected = np.exp(np.log(values) - means[-1])
        yield agrees(f"d of factor {number}, relative error", factor.values, expected, READ)
    expected = spectrum.scale * np.exp(sum(means) / 2)
    yield agrees("alpha, relative error", after.scale, expected, READ)


def _claim_8(random: Random, printed: bool) -> Iterator[Measure]:
    """Check that the exact step multiplies the eigenvalues alpha d by exp(beta_2 m) (003 Claim 8).

    m is the growth of log d (`growths_of`). The truncated step must differ from the exact step by terms of
    second order in beta_2.
    """
    spectrum, gradient = draw_state(random, "kronecker")
    gamma = float(random.integers(2))
    growths, gaps = growths_of(spectrum, gradient, gamma), []
    for rate in _small_rates(growths):
        after = stepped(spectrum, gradient, rate, gamma)
        found = [np.log(after.scale * factor.values) for factor in after.factors]
        before = [np.log(spectrum.scale * factor.values) for factor in spectrum.factors]
        expected = [one + rate * growth for one, growth in zip(before, growths, strict=True)]
        yield vanishes("log(alpha d) less beta_2 m and that before", _farthest(found, expected), READ)
        # The factor of the growth m is 1 at the end of the printed proof, and beta_2 in the claim.
        share = 1.0 if printed else rate
        truncated = [
            one + np.log(1 - rate * gamma + share * (growth + gamma))
            for one, growth in zip(before, growths, strict=True)
        ]
        gaps.append(_farthest(found, truncated))
    order = np.log10(gaps[0] / gaps[1])
    yield equals("order of the truncation's gap in beta_2", order, 2.0, SECOND_ORDER)


def _small_rates(growths: list[np.ndarray]) -> tuple[float, float]:
    """Return two rates: at the first no log d changes by more than 0.01, at the second by more than 0.001."""
    largest = max(float(np.abs(one).max()) for one in growths)
    return 1e-2 / largest, 1e-3 / largest


def _farthest(found: list[np.ndarray], expected: list[np.ndarray]) -> float:
    return max(float(np.abs(one - other).max()) for one, other in zip(found, expected, strict=True))


def _second_order(random: Random, form: str) -> Iterator[Measure]:
    """Check that from equal states, exact and truncated steps differ by terms of second order in beta_2."""
    spectrum, gradient = draw_state(random, form)
    gamma, gaps = float(random.integers(2)), []
    for rate in _small_rates(growths_of(spectrum, gradient, gamma)):
        exact, truncated = (
            logarithms(stepped(spectrum, gradient, rate, gamma, maps))
            for maps in (EXACT_MAPS, TRUNCATED_MAPS)
        )
        gaps.append(float(np.abs(truncated - exact).max()))
    yield equals("order of the gap of log S in beta_2", np.log10(gaps[0] / gaps[1]), 2.0, SECOND_ORDER)


def _draw_growing(random: Random, shape: tuple[int, ...]) -> np.ndarray:
    """Draw gradients with entries of size 1.5 to 3. A step from S = I then increases S, even with decay."""
    return random.choice([-1.0, 1.0], shape) * random.uniform(1.5, 3, shape)


def _rule_second_order(random: Random, optimizer: str) -> Iterator[Measure]:
    """Check that the exact and the truncated first step of a rule differ by terms of second order in beta_2.

    Both steps start from S = I.
    """
    shape = lengths_of(random, 2, 2, 3) if optimizer == "spectral" else lengths_of(random, 1, 1, 5)
    gamma, gradients, gaps = float(random.integers(2)), [_draw_growing(random, shape)], []
    largest = float(np.square(gradients[0]).sum()) + 1
    for rate in (1e-2 / largest, 1e-3 / largest):
        hyper = {"curvature_rate": rate, "gamma": gamma}
        exact, truncated = (
            preconditioners(
                optimizer, gradients, hyper, {**PLAIN_ROTATION, "exponential": name, "power": 1.0}
            )[-1]
            for name in ("exact", "first_order")
        )
        gaps.append(relative_error(truncated, exact))
    yield equals("order of the gap of S^-1 in beta_2", np.log10(gaps[0] / gaps[1]), 2.0, SECOND_ORDER)


def _between(growths: list[np.ndarray], rate: float) -> np.ndarray:
    """Return a bound of the difference between an exact and a truncated step in log(eigenvalues of S).

    `growths` has for each factor the relative changes of its eigenvalues, divided by the rate. The result has
    shape (n,), or (n, m) with Kronecker factors. For one matrix S, the difference is x - log(1 + x),
    where x is the rate times a growth, and 0 <= x - log(1 + x) <= x^2 / (2 min(1, 1 + x)). With two Kronecker
    factors, each factor has terms x - log(1 + x) of this kind. The difference is a term of the first factor
    plus a term of the second, minus half of the sum of the two means of the terms. Neither of these sums is
    negative, so that the larger of their bounds is a bound of the difference.
    """
    least = [(rate * one) ** 2 / (2 * np.minimum(1, 1 + rate * one)) for one in growths]
    if len(least) == 1:
        return least[0]
    apart = least[0][:, None] + least[1][None, :]
    return np.maximum(apart, (least[0].mean() + least[1].mean()) / 2)


def _gap_bound(random: Random, form: str) -> Iterator[Measure]:
    spectrum, gradient = draw_state(random, form)
    gamma, rate = float(random.integers(2)), float(10.0 ** random.uniform(-4, -0.5))
    growths = growths_of(spectrum, gradient, gamma)
    # Larger rates would overflow the exponential.
    rate = min(rate, 5 / max(np.abs(one).max() for one in growths))
    exact, truncated = (
        logarithms(stepped(spectrum, gradient, rate, gamma, maps)) for maps in (EXACT_MAPS, TRUNCATED_MAPS)
    )
    bound = _between(growths, rate)
    # Rounding errors would dominate differences with smaller bounds.
    counts = bound > 1e-11
    ratio = np.abs(exact - truncated)[counts] / bound[counts]
    yield at_most("gap of log S over its bound", ratio.max(initial=0.0), 1.0, 1e-3)


def logarithms(spectrum: Any) -> np.ndarray:
    """Return the logarithms of the eigenvalues of S, (n,), or (n, m) with Kronecker factors."""
    if isinstance(spectrum, Spectrum):
        return np.log(spectrum.values)
    first, second = (np.log(factor.values) for factor in spectrum.factors)
    return np.asarray(np.log(spectrum.scale) + first[:, None] + second[None, :])


def _wild(random: Random, shape: tuple[int, ...]) -> np.ndarray:
    """Draw gradients (DAMPED, ...) whose entries span 12 orders of magnitude; half of the entries are 0."""
    sizes = 10.0 ** random.uniform(-6, 6, (DAMPED, *(1,) * len(shape)))
    return np.asarray(
        random.standard_normal((DAMPED, *shape)) * sizes * random.integers(0, 2, (DAMPED, *shape))
    )


def _draw_damped(random: Random) -> tuple[float, float, float]:
    """Draw beta_2, gamma, and a damping over 8 orders of magnitude.

    In half of the cases beta_2 is 1, where with gamma 1 nothing of d remains.
    """
    rate = 1.0 if random.integers(2) else float(random.uniform(0.01, 1))
    return rate, float(random.integers(2)), float(10.0 ** random.uniform(-8, 0))


def _positive_values(random: Random) -> Iterator[Measure]:
    """Check that each step replaces d by at least (1 - gamma beta_2) d + beta_2 lambda, entry by entry."""
    spectrum, (rate, gamma, damping) = draw_spectrum(random, int(random.integers(1, 6))), _draw_damped(random)
    least, ratios = [], []
    for gradient in _wild(random, spectrum.values.shape):
        after = stepped(spectrum, gradient, rate, gamma, STEADY_MAPS, damping, TURN)
        limit = (1 - gamma * rate) * spectrum.values + rate * damping
        least.append(after.values.min())
        ratios.append((after.values / limit).min())
        spectrum = after
    yield at_least(f"least of d in {DAMPED} steps", min(least), POSITIVE)
    yield at_least("least of d over (1 - gamma beta_2) d + beta_2 lambda before", min(ratios), 1.0, 1e-12)


def _positive_rule(random: Random, optimizer: str) -> Iterator[Measure]:
    """Check that all steps of a rule are finite.

    This implies that the eigenvalues d stay positive: a step divides by roots of d, which must be positive.
    """
    shape = lengths_of(random, 2, 2, 4) if optimizer == "spectral" else lengths_of(random, 1)
    rate, gamma, damping = _draw_damped(random)
    options = {"exponential": "first_order", "start": "identity", "velocity": False, "normalized": True}
    hyper = {"curvature_rate": rate, "gamma": gamma, "damping": damping, "rotation_rate": TURN}
    found = moves(optimizer, _wild(random, shape), hyper, {**options, "power": 2.0, "tie_tolerance": 0.0})
    lost = (~np.isfinite(found)).reshape(DAMPED, -1).any(1).sum()
    yield vanishes(f"steps of {DAMPED} that are not finite", lost)


TRUNCATED_EXPONENTIAL = PropertyClaim(
    id="spectral.truncated-exponential",
    sentence=(
        "Both Kronecker factors ask for the same growth of alpha; with the exponential truncated the step is "
        "that of Figs. 5 and 6, differs from the exact one by the square of the step size, and keeps d above "
        "0."
    ),
    source="003 Figs. 5 and 6, App. A.2 and A.3, Claims 7 and 8",
    setting=(
        "1 to 5 dimensions, factors of 1 to 5; states with equal eigenvalues among them, scales over 4 "
        "orders of magnitude; gradients N(0, S), each entry times 1/3 to 3; gamma 0 and 1. W is taken from "
        "whole inverses; of the rules S^-1 is read off with unit vectors as gradients. Orders are of steps "
        "from equal states, of the rules from I, that change log d by 0.01 and 0.001 at most, and 2 within "
        "0.05. The bound on the gap is that of x - log(1 + x), since the source gives no constant. Positive: "
        "200 steps, gradients over 12 orders of magnitude, half of their entries 0, rates up to 1, lambda "
        "from 1e-8, rotations of a given length: plain ones are then so large that rounding makes I - X "
        "singular. Fig. 6's damping is printed over Tr(S^(l))^-1; as corrected over Tr((S^(l))^-1), as in "
        "its second form. The end of Claim 8's proof is printed without beta_2 before diag(W); as corrected "
        "with it, as in the claim."
    ),
    checks=(
        part("both factors ask for the same growth", "003 Claim 7", _claim_7, 20),
        part("log det S of the rule spectral", "003 Claim 7, Fig. 1", _log_determinant, 3),
        part("the full step is Fig. 5's", "003 Fig. 5, A.2", _figure_5, 5),
        *printed_and_corrected("the Kronecker step is Fig. 6's", "003 Fig. 6, A.3", _figure_6, 20),
        part("the rule spectral is Fig. 6's", "003 Fig. 6", _rule_figure_6, 5),
        *printed_and_corrected("the merged step and its truncation", "003 Claim 8", _claim_8, 20),
        *parts_for("the maps differ by the second order, {}", "003 A.2, A.3", _second_order, 20, form=FORMS),
        *parts_for("{} differs by the second order", "003 A.2, A.3", _rule_second_order, 5, optimizer=RULES),
        *bounds(*parts_for("how far the maps are apart, {}", "003 A.2, A.3", _gap_bound, 20, form=FORMS)),
        part("d stays positive", "003 Fig. 5", _positive_values, 5),
        *parts_for("{} stays positive", "003 Figs. 5 and 6", _positive_rule, 5, optimizer=RULES),
    ),
)

# --- the diagonal case (003 Sec. 3.2, App. A.1) -------------------------------------------------------------

# Number of steps of the paths that are compared.
PATH = 30
ROOTS = (1.0, 2.0, 4.0)
# Relative tolerance of updates, which are computed as differences of weights.
FOLLOWED_DIAGONAL = 1e-10
DIAGONAL_OPTIONS: Mapping[str, Any] = {"exponential": "first_order", "start": "identity", "velocity": False}


def _draw_diagonal(random: Random) -> tuple[np.ndarray, float]:
    """Draw beta_2 and gradients (T, m, n), some entries of which are 0.

    The standard deviations of entries span 2 orders of magnitude.
    """
    shape = lengths_of(random, int(random.integers(1, 3)))
    gradients = random.standard_normal((PATH, *shape)) * 10.0 ** random.uniform(-1, 1, shape)
    return gradients * (random.random(gradients.shape) < 0.9), float(random.uniform(0.01, 0.3))


def _diagonal_moves(gradients: np.ndarray, rate: float, gamma: float, **options: Any) -> np.ndarray:
    hyper = {"curvature_rate": rate, "gamma": gamma, "damping": 0.0}
    return moves("spectral_diagonal", gradients, hyper, {**DIAGONAL_OPTIONS, **options})


def _is_adagrad(random: Random) -> Iterator[Measure]:
    """Check that the truncated diagonal scheme without decay is Adagrad, up to a factor of the updates.

    S starts at I, and is therefore beta_2 (1 / beta_2 + sum g^2). The second factor is Adagrad's sum with the
    initial value 1 / beta_2.
    """
    gradients, rate = _draw_diagonal(random)
    hyper = {"initial_accumulator": 1 / rate, "epsilon": 0.0}
    expected = moves("adagrad", gradients, hyper) / np.sqrt(rate)
    found = _diagonal_moves(gradients, rate, 0.0, power=2.0)
    yield agrees("moves less Adagrad's over sqrt(beta_2), relative", found, expected, FOLLOWED_DIAGONAL)


def _is_rmsprop(random: Random) -> Iterator[Measure]:
    """Check that the truncated diagonal scheme with decay is RMSprop with the initial second moment v = 1.

    Since v starts at 0 in the project's RMSprop, a first gradient of 1 / sqrt(beta_2) is used to make v = 1.
    """
    gradients, rate = _draw_diagonal(random)
    hyper = {"beta1": 0.0, "beta2": 1 - rate, "epsilon": 0.0}
    first = np.full((1, *gradients.shape[1:]), rate**-0.5)
    expected = moves("rmsprop", np.concatenate([first, gradients]), hyper)[1:]
    found = _diagonal_moves(gradients, rate, 1.0, power=2.0)
    yield agrees("moves less RMSprop's, relative", found, expected, FOLLOWED_DIAGONAL)


def _default_moves(gradients: np.ndarray, rate: float, gamma: float, power: float) -> np.ndarray:
    """Return the updates -S^(-1/p) g of the default scheme for a diagonal S that starts at 1 (003 eq. 2).

    The step of the default scheme is S <- (1 - beta_2 gamma) S + beta_2 g^2.
    """
    diagonal, found = np.ones(gradients.shape[1:]), []
    for gradient in gradients:
        diagonal = (1 - rate * gamma) * diagonal + rate * gradient * gradient
        found.append(-gradient / diagonal ** (1 / power))
    return np.array(found)


def _is_default(random: Random, power: float) -> Iterator[Measure]:
    gradients, rate = _draw_diagonal(random)
    for gamma in (0.0, 1.0):
        found = _diagonal_moves(gradients, rate, gamma, power=power)
        expected = _default_moves(gradients, rate, gamma, power)
        quantity = f"moves less eq. 2's, gamma {gamma:.0f}, relative"
        yield agrees(quantity, found, expected, FOLLOWED_DIAGONAL)


def _keeps_basis(random: Random) -> Iterator[Measure]:
    """Check that a step of the full scheme is a step of the diagonal scheme if the curvature is diagonal.

    B is a diagonal matrix of signs, which the step must not change.
    """
    gradients, rate = _draw_diagonal(random)
    gradients, size = gradients.reshape(PATH, -1), gradients[0].size
    gamma, power = float(random.integers(2)), float(random.choice(ROOTS))
    signs = np.diag(random.choice([-1.0, 1.0], size))
    spectrum, found, turned = Spectrum(signs, np.ones(size)), [], 0.0
    for gradient in gradients:
        spectrum = spectral_step(OPS, spectrum, np.diag(gradient**2), rate, gamma, TRUNCATED_MAPS)
        turned = max(turned, float(np.abs(spectrum.basis - signs).max()))
        found.append(-assembled(spectrum, -1 / power) @ gradient)
    yield vanishes("largest change of an entry of B", turned)
    expected = _diagonal_moves(gradients, rate, gamma, power=power)
    yield agrees("steps less the diagonal rule's, relative", np.array(found), expected, FOLLOWED_DIAGONAL)


def _exact_diagonal(random: Random) -> Iterator[Measure]:
    """Check one step of the diagonal scheme from S = I with the exact exponential.

    003 eq. 12 is the same step with the truncated exponential.
    """
    gradient = _draw_growing(random, (1, *lengths_of(random, int(random.integers(1, 3)))))
    gamma = float(random.integers(2))
    rates, gaps = 1 / (np.square(gradient).max() + 1) * np.array([1e-2, 1e-3]), []
    for rate in rates:
        one = _diagonal_moves(gradient, float(rate), gamma, power=1.0, exponential="exact")
        other = _default_moves(gradient, float(rate), gamma, 1.0)
        gaps.append(relative_error(one, other))
    yield equals("order of the gap in beta_2", np.log10(gaps[0] / gaps[1]), 2.0, SECOND_ORDER)


DIAGONAL = PropertyClaim(
    id="spectral.diagonal",
    sentence=(
        "Where S is diagonal and the exponential map truncated, the scheme is Adagrad (but for sqrt(beta_2) "
        "in the rate), RMSprop, and their variants with the root p."
    ),
    source="003 Sec. 3.2, App. A.1, eqs. 2, 12",
    setting=(
        "The rule spectral_diagonal from S = I, without damping or momentum, on 30 gradients of 1 to 25 "
        "entries over 2 orders of magnitude, a tenth of them 0; beta_2, the share added, from 0.01 to "
        "0.3. Adagrad is the project's with v_0 = 1 / beta_2 and the rate over sqrt(beta_2); RMSprop is the "
        "project's, whose v starts at 0: a gradient of 1 / sqrt(beta_2) before all others makes it 1. Other "
        "roots are compared with eq. 2. The full step is given the diagonal of the curvature and a B of "
        "signs. Tolerances are for rounding; the gap of the exact exponential, after one gradient with "
        "entries of 1.5 to 3, has the order 2 within 0.05."
    ),
    checks=(
        part("gamma 0, p = 2: Adagrad", "003 Sec. 3.2", _is_adagrad, 10),
        part("gamma 1, p = 2: RMSprop", "003 A.1", _is_rmsprop, 10),
        *(part(f"p = {power:.0f}: eq. 2", "003 eq. 12", _is_default, 10, power=power) for power in ROOTS),
        part("the full step keeps B, and is the diagonal one", "003 A.1, eq. 12", _keeps_basis, 10),
        part("the exact exponential differs by the second order", "003 A.1", _exact_diagonal, 10),
    ),
)

CLAIMS = (TRUNCATED_EXPONENTIAL, DIAGONAL)
