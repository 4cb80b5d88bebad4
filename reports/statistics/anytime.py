"""How soon methods get how far: times to many targets, the share reached, expected running time, profiles.

Every function takes arrays. A time counts gradient evaluations, and is infinite where a target was missed.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from curvebench.results.intervals import LEVEL

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]

# What is left, at a target, of the way from the start to the least value: ten to a decade below 1, down to
# More and Wild's high accuracy; beyond, rounding in float32 decides which run is the best.
DECADES, EACH = 5, 10
SHARES_LEFT: Floats = 10.0 ** (-np.arange(1, DECADES * EACH + 1) / EACH)
RESAMPLES = 1000
FAR = 1.1  # times the greatest finite log-ratio, where a log-ratio profile has what one of two methods missed


def target_values(start: Floats, least: Floats, left: Floats = SHARES_LEFT) -> Floats:
    """The values least + left * (start - least) that More and Wild's convergence test asks for.

    More and Wild, Benchmarking derivative-free optimization algorithms, SIAM Journal on Optimization 20,
    2009, (2.2). What is to be maximized comes with its sign changed.

    Args:
        start: value at the start of each instance, shape (instances,).
        least: the least value that any method reached on it, shape (instances,).
        left: what is left of the way at each target, shape (targets,).

    Returns:
        Shape (instances, targets).
    """
    return np.asarray(least[:, None] + left * (start - least)[:, None], dtype=np.float64)


def first_times(evaluations: Floats, values: Floats, targets: Floats) -> Floats:
    """When the best value so far was first at or below each target.

    Args:
        evaluations: at which values were recorded, increasing, shape (points,).
        values: shape (points,); NaN counts as infinite.
        targets: shape (targets,).

    Returns:
        Shape (targets,), infinite where a target was missed.
    """
    best = np.minimum.accumulate(np.where(np.isnan(values), np.inf, values))
    place = np.searchsorted(-best, -targets, side="left")
    return np.append(evaluations, np.inf)[place].astype(np.float64)


def share_reached(times: Floats, at: Floats) -> Floats:
    """The share of times, along the last axes, that are not above each of some numbers: their ECDF.

    Hansen, Auger, Brockhoff and Tusar, Anytime performance assessment in blackbox optimization benchmarking,
    IEEE Transactions on Evolutionary Computation 26, 2022, over runs and targets; of one target it is a data
    profile (More and Wild 2009), and of `performance_ratios` Dolan and More's performance profile.

    Args:
        times: shape (..., runs, targets).
        at: shape (points,), increasing.

    Returns:
        Shape (..., points).
    """
    return np.asarray(shares_of_runs(times, at).mean(axis=-2))


def shares_of_runs(times: Floats, at: Floats) -> Floats:
    """The share of its targets that each run has reached at each number; shape (..., runs, points)."""
    ordered = np.sort(times, axis=-1).reshape(-1, times.shape[-1])
    counts = np.stack([np.searchsorted(run, at, side="right") for run in ordered])
    return (counts / times.shape[-1]).reshape(*times.shape[:-1], len(at))


def equal_weights(problems: Integers) -> Floats:
    """Weights of runs by which each problem counts the same however many runs it has; shape (runs,)."""
    _, place, counts = np.unique(problems, return_inverse=True, return_counts=True)
    return np.asarray(1.0 / (counts[place] * len(counts)), dtype=np.float64)


@dataclass(frozen=True)
class Bands:
    """Shares reached with approximate 95 % bands; each of shape (methods, points)."""

    share: Floats
    low: Floats
    high: Floats


def ecdf_bands(times: Floats, problems: Integers, at: Floats) -> Bands:
    """The share of (problem, target, seed) that each method has reached, every problem counting the same.

    Seeds are drawn with replacement inside of every problem, the same draws for all methods; the band at a
    point reaches as far to both sides as 95 % of the resampled shares lie from the estimate, widened as
    Student's t is for so few seeds (Hesterberg, The American Statistician 69, 2015), within 0 and 1. Problems
    and targets stay: a band says where the line would be with other seeds. It is for one point at a time.

    Args:
        times: shape (methods, instances, targets); an instance is a problem and a seed.
        problems: the problem of each instance, shape (instances,).
        at: shape (points,), increasing.
    """
    from scipy.stats import norm, t

    shares = shares_of_runs(times, at)
    weights = equal_weights(problems)
    estimate = np.einsum("i,mip->mp", weights, shares)
    places = [np.flatnonzero(problems == problem) for problem in np.unique(problems)]
    random = np.random.default_rng(0)
    drawn = np.zeros((RESAMPLES, len(problems)))
    for own in places:
        drawn[:, own] = random.multinomial(len(own), np.full(len(own), 1 / len(own)), RESAMPLES)
    resampled = np.einsum("ri,mip->mrp", drawn * weights, shares, optimize=True)
    fewest = min(map(len, places))
    freedom = max(len(problems) - len(places), 1)
    tail = (1 + LEVEL) / 2
    widening = np.sqrt(fewest / max(fewest - 1, 1)) * t.ppf(tail, freedom) / norm.ppf(tail)
    reach = widening * np.quantile(np.abs(resampled - estimate[:, None]), LEVEL, axis=1)
    return Bands(estimate, np.maximum(estimate - reach, 0.0), np.minimum(estimate + reach, 1.0))


def expected_running_time(times: Floats, lengths: Floats) -> Floats:
    """Evaluations of all runs up to the target or their end, over the number of runs that reached it.

    Hansen et al. 2022 (`share_reached`): what a method would take that starts again whenever it missed.

    Args:
        times: shape (runs, ...).
        lengths: evaluations of the whole run, shape (runs,).

    Returns:
        Shape (...,), infinite where no run reached the target.
    """
    ends = lengths.reshape(-1, *[1] * (times.ndim - 1))
    reached = np.isfinite(times)
    spent = np.where(reached, times, ends).sum(axis=0)
    found = np.full(spent.shape, np.inf)
    np.divide(spent, reached.sum(axis=0), out=found, where=reached.any(axis=0))
    return found


def performance_ratios(times: Floats) -> Floats:
    """Each time over the least of any method, infinite where it is; shape (methods, instances)."""
    least = times.min(axis=0)
    ratios = np.full(times.shape, np.inf)
    np.divide(times, least, out=ratios, where=np.isfinite(times))
    return ratios


def log_ratio_profile(first: Floats, second: Floats) -> Floats:
    """The sorted binary logarithms of one method's times over another's: below 0 the first one is sooner.

    As OptiProfiler has it (Huang, Ragonneau and Zhang, optprof.com), after Shi, Xuan, Oztoprak and Nocedal,
    Optimization Methods and Software 38, 2023: where one method missed, `FAR` times the greatest ratio there
    is, and where both did, one at either end.

    Args:
        first, second: shape (instances,), above 0.

    Returns:
        Shape (instances + instances that both missed,).
    """
    there = np.isfinite(first) & np.isfinite(second)
    ratios = np.log2(first[there]) - np.log2(second[there])
    edge = FAR * max(np.abs(ratios).max(initial=0.0), np.finfo(float).eps)
    only, other = (np.isfinite(one) & ~there for one in (first, second))
    missed = len(first) - (there | only | other).sum()
    ends = [np.full(only.sum() + missed, -edge), np.full(other.sum() + missed, edge)]
    return np.sort(np.concatenate([ratios, *ends]))
