"""Gradient-free search with normal laws: the spectral-factorized scheme and natural evolution strategies.

In citations, 003 is Lin et al. (2025), "Spectral-factorized Positive-definite Curvature Learning for NN
Training" (docs/sources.md).

Samples are drawn from N(mu, S^-1) with S^-1 = A A^T. beta_1 and beta_2 are the learning rates of mu and S. A
generation is one step, with a batch of samples.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any, NamedTuple

import numpy as np

from curvebench.benchmarks.claims._curvature_paths import STARTS
from curvebench.benchmarks.claims._matrices import OPS
from curvebench.benchmarks.claims._measures import at_least
from curvebench.benchmarks.claims._parts import Random
from curvebench.benchmarks.claims.spectral_curvature import TIES, TOLERANCES
from curvebench.optimizers.matrix_functions import SpectralMaps, Spectrum, spectral_step
from curvebench.property_checks.checks import Check, Measure, PropertyClaim, Series
from curvebench.results.intervals import median_interval

# A method counts as comparable if its loss reduction, in decades, is at least this share of the baseline's.
KEPT = 0.75
# Minimum number of decades by which a baseline must reduce the loss to be worth a comparison.
DECADES = 1.0
# Number of evenly spaced generations at which the loss at the mean is recorded.
RECORDS = 20
JUDGED = {"half-way": RECORDS // 2, "at the end": RECORDS}
# Lower limit to which losses are clipped.
# The limit is a hundred times the rounding error of the terms of size 20 in `ackley`.
FLOOR = 1e-12
# Number of measures of the claim: 10 subclaims have 6 measures each, of which 4 have the limit 0.
MEASURES = 60
# Level of the interval whose lower end decides whether a measure is supported.
# A measure has an error probability of 5 %, which suffices, since all measures must be supported.
SUPPORT = 1 - 2 * 0.05
# Level of the interval whose upper end decides whether a measure is refuted.
# The error probability of all measures together is 5 %, since one refuted measure refutes the claim.
REFUTATION = 1 - 2 * 0.05 / MEASURES
# Values of beta_1 and of beta_2 among which the learning rates are tuned.
MEAN_RATES = (0.25, 0.5, 1.0, 2.0, 4.0)
CURVATURE_RATES = (0.05, 0.1, 0.2, 0.4, 0.8)
RATES = np.array([(one, other) for one in MEAN_RATES for other in CURVATURE_RATES])


# --- test functions (003 App. C) -----------------------------------------------------------------------


# A tuple, and not a dataclass, so that the hash of a claim's rule includes the function.
class Objective(NamedTuple):
    """Function to minimize, with minimum 0.

    Args:
        loss: values (...,) at points (..., d), d >= 2.
        low, high: range of the uniformly drawn entries of the first mean. The minimum of the function is not
            at the centre of this range.
        generations: number of generations at scale `paper`.
    """

    loss: Callable[[np.ndarray], np.ndarray]
    low: float
    high: float
    generations: int


def ackley(w: np.ndarray) -> np.ndarray:
    """Return Ackley's function, with minimum 0 at 0.

    The function is 20 - 20 exp(-0.2 sqrt(mean w_i^2)) + e - exp(mean cos(2 pi w_i)).
    """
    far = np.exp(-0.2 * np.sqrt((w**2).mean(-1)))
    return np.asarray(20 - 20 * far + math.e - np.exp(np.cos(2 * np.pi * w).mean(-1)))


def rosenbrock(w: np.ndarray) -> np.ndarray:
    """Return Rosenbrock's function, with minimum 0 at (1, ..., 1).

    The function is the sum of 100 (w_(i+1) - w_i^2)^2 + (w_i - 1)^2.
    """
    one, next_one = w[..., :-1], w[..., 1:]
    return np.asarray((100 * (next_one - one**2) ** 2 + (one - 1) ** 2).sum(-1))


def bohachevsky(w: np.ndarray) -> np.ndarray:
    """Return Bohachevsky's function, with minimum 0 at 0.

    The function is the sum of w_i^2 + 2 w_(i+1)^2 - 0.3 cos(3 pi w_i) - 0.4 cos(4 pi w_(i+1)) + 0.7.
    """
    one, next_one = w[..., :-1], w[..., 1:]
    waves = 0.3 * np.cos(3 * np.pi * one) + 0.4 * np.cos(4 * np.pi * next_one)
    return np.asarray((one**2 + 2 * next_one**2 - waves + 0.7).sum(-1))


def schaffer(w: np.ndarray) -> np.ndarray:
    """Return Schaffer's function, with minimum 0 at 0.

    The function is the sum of r^0.25 (sin^2(50 r^0.1) + 1) with r = w_i^2 + w_(i+1)^2.
    """
    squares = w[..., :-1] ** 2 + w[..., 1:] ** 2
    return np.asarray((squares**0.25 * (np.sin(50 * squares**0.1) ** 2 + 1)).sum(-1))


def griewank(w: np.ndarray) -> np.ndarray:
    """Return Griewank's function, with minimum 0 at 0.

    The function is 1 plus the sum of w_i^2 / 4000, minus the product of cos(w_i / sqrt(i)), with i from 1.
    """
    waves = np.cos(w / np.sqrt(np.arange(1, w.shape[-1] + 1)))
    return np.asarray((w**2).sum(-1) / 4000 - waves.prod(-1) + 1)


OBJECTIVES: Mapping[str, Objective] = {
    "Ackley": Objective(ackley, 1.0, 30.0, 300),
    "Rosenbrock": Objective(rosenbrock, -2.0, 2.0, 600),
    "Bohachevsky": Objective(bohachevsky, 1.0, 15.0, 300),
    "Schaffer": Objective(schaffer, 10.0, 100.0, 600),
    "Griewank": Objective(griewank, 10.0, 600.0, 300),
}


# --- search methods ------------------------------------------------------------------------------------


# A tuple and not a dataclass, so that the hash of a claim's rule includes the functions in the fields.
class SearchMethod(NamedTuple):
    """Method that learns the covariance S^-1 = A A^T of a normal distribution.

    Args:
        begin: `begin(spectrum)` is the initial state, from the spectrum of S.
        root: `root(state)` is A, (..., d, d); a sample is mu + A z with z ~ N(0, I).
        step: `step(state, M, beta_2)` is the next state, with M = A^T H A (..., d, d) for the curvature H
            along which S moves, and beta_2 (..., 1).
    """

    begin: Callable[[Spectrum], Any]
    root: Callable[[Any], np.ndarray]
    step: Callable[[Any, np.ndarray, np.ndarray], Any]


def inverse_root(spectrum: Spectrum) -> np.ndarray:
    """Return the root B diag(d)^(-1/2) of S^-1, (..., d, d)."""
    return np.asarray(spectrum.basis / np.sqrt(spectrum.values)[..., None, :])


def _moved_root(
    root: np.ndarray, inside: np.ndarray, rate: np.ndarray, factor: Callable[[np.ndarray], np.ndarray]
) -> np.ndarray:
    """Return the root A after a step, A f(beta_2 M), (..., d, d).

    f is `factor`, a function of symmetric matrices, and M is `inside`.
    """
    values, vectors = np.linalg.eigh(inside)
    return np.asarray((root @ vectors * factor(rate * values)[..., None, :]) @ vectors.swapaxes(-1, -2))


# The result is NaN where the covariance is no longer positive definite.
NES = SearchMethod(inverse_root, np.asarray, partial(_moved_root, factor=lambda change: np.sqrt(1 - change)))
CHOLESKY_NES = SearchMethod(
    inverse_root, np.asarray, partial(_moved_root, factor=lambda change: np.exp(-change / 2))
)
BASELINES = {"NES": NES, "Cholesky-based NES": CHOLESKY_NES}


def _spectral(spectrum: Spectrum, inside: np.ndarray, rate: np.ndarray, tie_tolerance: float) -> Spectrum:
    # `root` is the inverse transpose of A.
    root = spectrum.basis * np.sqrt(spectrum.values)[..., None, :]
    curvature = root @ inside @ root.swapaxes(-1, -2)
    return spectral_step(OPS, spectrum, curvature, rate, 0.0, SpectralMaps(tie_tolerance=tie_tolerance))


def spectral_search(tie_tolerance: float) -> SearchMethod:
    """Return the spectral-factorized scheme for a full matrix S, as in 003 Fig. 1 and Sec. 4.3.

    It uses the exact exponential map, no decay of S (gamma is 0), and S^-1 itself as the preconditioner.
    """
    return SearchMethod(
        lambda spectrum: spectrum, inverse_root, partial(_spectral, tie_tolerance=tie_tolerance)
    )


def rank_costs(count: int) -> np.ndarray:
    """Return costs that replace the losses of `count` samples, (count,), in the order from best to worst.

    The sum of the costs is 0. The cost of rank k, from 1, is 1 / count - m_k / sum m_k with m_k = max(0,
    log(count / 2 + 1) - log k) (Glasmachers et al. 2010).
    """
    shares = np.maximum(0, np.log(count / 2 + 1) - np.log(np.arange(1, count + 1)))
    return np.asarray(1 / count - shares / shares.sum())


def moments(draws: np.ndarray, costs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return A^T g and A^T H A as estimated by REINFORCE (003 eq. 7): the sums of c z and of c z z^T.

    g = E[c grad_mu log q] and H = E[2 c grad_(S^-1) log q] are expressed in the coordinates z = A^-1 (w -
    mu). In these coordinates the second formula has z z^T - I; the identity I has no effect, since the costs
    have sum 0.

    Args:
        draws: z, (..., samples, d).
        costs: c, (..., samples).
    """
    weighted = draws * costs[..., None]
    return weighted.sum(-2), weighted.swapaxes(-1, -2) @ draws


def search(
    method: SearchMethod,
    loss: Callable[[np.ndarray], np.ndarray],
    begun: tuple[np.ndarray, Spectrum],
    rates: np.ndarray,
    draws: Random,
    samples: int,
    generations: int,
) -> np.ndarray:
    """Return losses at the mean mu, (RECORDS + 1, settings, seeds).

    The losses are recorded before the first generation and at evenly spaced generations. The mean moves with
    the covariance of the current samples, as in 003 eqs. 9-11 and in both baselines.

    Args:
        method: the method that learns the covariance.
        loss: the objective.
        begun: first means (seeds, d), and the spectra of S.
        rates: beta_1 and beta_2, (settings, 2).
        draws: random generator; all settings get the same normal numbers.
        samples: samples per generation; the second half mirrors the first.
        generations: at least RECORDS.
    """
    count, size = begun[0].shape
    lanes = (len(rates), count)
    mean = np.broadcast_to(begun[0], (*lanes, size))
    spectrum = begun[1]
    state = method.begin(
        Spectrum(
            np.broadcast_to(spectrum.basis, (*lanes, size, size)),
            np.broadcast_to(spectrum.values, (*lanes, size)),
        )
    )
    mean_rate, curvature_rate = rates.T[..., None, None]
    costs = rank_costs(samples)
    recorded = np.rint(np.linspace(0, generations, RECORDS + 1)).astype(int)
    found = [loss(mean)]
    # A search that has diverged continues with NaN.
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        for generation in range(1, generations + 1):
            half = draws.standard_normal((count, samples // 2, size))
            drawn = np.concatenate([half, -half], -2)
            root = method.root(state)
            ranks = loss(mean[..., None, :] + drawn @ root.swapaxes(-1, -2)).argsort(-1).argsort(-1)
            slope, inside = moments(drawn, costs[ranks])
            mean = mean - mean_rate * (root @ slope[..., None])[..., 0]
            state = method.step(state, inside, curvature_rate)
            if generation in recorded:
                found.append(loss(mean))
    return np.array(found)


# --- checks of the claim -------------------------------------------------------------------------------


@dataclass(frozen=True)
class SearchSizes:
    """Sizes of a comparison of search methods.

    Args:
        dimension: number of parameters d.
        share: fraction of `Objective.generations` for which a search runs.
        tuning_seeds: number of seeds on which rates are tuned.
        seeds: number of fresh seeds on which methods are compared.
    """

    dimension: int
    share: float
    tuning_seeds: int
    seeds: int

    @property
    def samples(self) -> int:
        """Samples per generation, twice the usual number of evolution strategies.

        The number is doubled because half of the samples are mirror images of the other half.
        """
        return 2 * (4 + int(3 * np.log(self.dimension)))


PAPER, QUICK = SearchSizes(10, 1.0, 10, 200), SearchSizes(3, 0.15, 5, 20)


def floored(losses: np.ndarray) -> np.ndarray:
    """Clip losses (records, ...) to the range from FLOOR to the first loss.

    A search that has diverged gets the first loss.
    """
    first = np.broadcast_to(losses[0], losses.shape)
    return np.clip(np.where(np.isfinite(losses), losses, first), FLOOR, first)


def best_setting(losses: np.ndarray) -> int:
    """Return the index of the setting with the minimum median over seeds of the last losses.

    If the medians of settings are equal, the median loss half-way decides.

    Args:
        losses: (records, settings, seeds).
    """
    medians = np.median(losses[list(JUDGED.values())], -1)
    # The function lexsort sorts by the last key first.
    return int(np.lexsort(medians)[0])


def _losses(
    method: SearchMethod, objective: Objective, start: str, seed: int, sizes: SearchSizes
) -> np.ndarray:
    """Tune the rates of a method on the tuning seeds, and return its losses on fresh seeds.

    The shape is (RECORDS + 1, seeds).
    """

    def run(stream: int, seeds: int, rates: np.ndarray) -> np.ndarray:
        random = np.random.default_rng([seed, stream])
        means = random.uniform(objective.low, objective.high, (seeds, sizes.dimension))
        spectra = [STARTS[start](random, sizes.dimension) for _ in range(seeds)]
        variance = ((objective.high - objective.low) / 2) ** 2
        spectrum = Spectrum(
            np.stack([one.basis for one in spectra]), np.stack([one.values for one in spectra]) / variance
        )
        generations = round(sizes.share * objective.generations)
        return floored(
            search(method, objective.loss, (means, spectrum), rates, random, sizes.samples, generations)
        )

    best = best_setting(run(0, sizes.tuning_seeds, RATES))
    return run(1, sizes.seeds, RATES[[best]])[:, 0]


# The results of baselines are cached, because both tie tolerances are compared with the same baselines.
_baseline_losses = lru_cache(maxsize=32)(_losses)


def _interval_at_least(quantity: str, values: np.ndarray, limit: float) -> Measure:
    """Return the measure that the median of values (seeds,) is at least a limit.

    The value and tolerance of the measure are the midpoint and half-length of a confidence interval.
    """
    low, high = median_interval(values, SUPPORT).low, median_interval(values, REFUTATION).high
    return at_least(quantity, (low + high) / 2, limit, (high - low) / 2)


def _competes(
    random: Random, objective: Objective, start: str, tie_tolerance: float, sizes: SearchSizes, panel: str
) -> Iterator[Measure | Series]:
    case = (objective, start, int(random.integers(2**32)), sizes)
    losses = {"spectral": _losses(spectral_search(tie_tolerance), *case)}
    losses |= {name: _baseline_losses(method, *case) for name, method in BASELINES.items()}
    gained = {name: np.log10(one[0] / one) for name, one in losses.items()}
    for name in BASELINES:
        for when, record in JUDGED.items():
            kept = gained["spectral"][record] - KEPT * gained[name][record]
            yield _interval_at_least(f"decades gained less 3/4 of those of {name}, {when}", kept, 0.0)
        yield _interval_at_least(f"decades gained by {name}, at the end", gained[name][-1], DECADES)
    evaluations = np.linspace(0, round(sizes.share * objective.generations) * sizes.samples, RECORDS + 1)
    for name, one in losses.items():
        median = np.median(one, -1)
        yield Series("003 Fig. 9", name, evaluations, median, ("evaluations", "loss"), panel=panel, log="y")


def _parts() -> Iterator[Check]:
    for name, objective in OBJECTIVES.items():
        for start in STARTS:
            part = f"{name}, S_0 {start}"
            for variant, tie_tolerance in TOLERANCES:
                measures = partial(
                    _competes, objective=objective, start=start, tie_tolerance=tie_tolerance, panel=part
                )
                yield Check(
                    part,
                    "003 App. C, Fig. 9",
                    partial(measures, sizes=PAPER),
                    {"quick": 1, "paper": 1},
                    variant,
                    {"quick": partial(measures, sizes=QUICK)},
                    sampled=True,
                )


GRADIENT_FREE = PropertyClaim(
    id="spectral.gradient-free",
    sentence=(
        "In gradient-free optimization of Ackley, Rosenbrock, Bohachevsky, Schaffer and Griewank functions "
        "the scheme is competitive with natural evolution strategies."
    ),
    source="003 Sec. 4.3, App. C, Fig. 3, Fig. 9",
    setting="d = 10, 20 samples a generation, ten of them the mirrored others; 300 generations, 600 of "
    "Rosenbrock and Schaffer (d = 3, 14 samples, 15 % of the generations at quick scale). The first "
    "mean is uniform in [1, 30]^d (Ackley), [-2, 2]^d (Rosenbrock), [1, 15]^d (Bohachevsky), [10, "
    "100]^d (Schaffer) and [10, 600]^d (Griewank); S_0 is the identity, or has geometric eigenvalues "
    "from 1/2 to 2 in a random basis, divided by the square of half of the interval's length. Functions "
    "as printed, which has no misprint: all have the least value 0. Ranks stand for losses (Glasmachers "
    "et al. 2010), with mirrored samples in place of techniques that Sec. 4.3 cites and does not name. "
    "All methods move the mean with the covariance that was sampled from, as in eqs. 9-11 (Fig. 1 has "
    "the new one), and the covariance along the same estimate of the natural gradient: NES adds it to "
    "the covariance, and has diverged where that is no longer positive definite; Cholesky-based NES "
    "takes the exponential; the scheme takes the step of Fig. 1 with gamma 0 and the exact exponential. "
    "Each is tuned on 10 seeds (5) over the same 25 pairs of beta_1 from 1/4 to 4 and beta_2 from 0.05 "
    "to 0.8, by the median last loss at the mean, where it ties by that half-way, and judged on 200 "
    "fresh seeds (20), with the same starts and normal numbers. Competitive: half-way and at the end the "
    "scheme has gained at least 3/4 of the decades that each baseline has, which studies call "
    "comparable, by the median over seeds; a baseline must gain one decade itself. Losses count from "
    "1e-12, a hundred times the rounding of Ackley's terms, to the first one, which is that of a search "
    "that diverged. Values are the middles of intervals of medians (order statistics): the lower end, which "
    "supports, at 5 % for each measure, the upper one, which refutes, at 5 % for the 60 of a verdict "
    "together (both at that until runs at it decided 4 to 9 of 10 parts; instances are fresh since). "
    "Limits, rates and numbers at paper scale were chosen before the "
    "scheme was run: intervals of the first mean and generations so that the baselines come near the "
    "minimum, and seldom to the floor. " + TIES,
    checks=tuple(_parts()),
)

CLAIMS = (GRADIENT_FREE,)
