"""Anytime performance: times to many targets, the share of targets reached, expected running time, profiles.

Functions take and return arrays. A time is a number of gradient evaluations, infinite where a target was
missed.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from curvebench.results.intervals import LEVEL

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]

# A target is given by the share that remains of the distance from the start value to the smallest value.
# There are ten targets per decade of remaining share, from below 1 to More and Wild's high accuracy of 1e-5.
# At remaining shares below 1e-5, rounding in float32 would decide which run is the best.
DECADES, PER_DECADE = 5, 10
SHARES_LEFT: Floats = 10.0 ** (-np.arange(1, DECADES * PER_DECADE + 1) / PER_DECADE)
RESAMPLES = 1000
# If only one method solved an instance, log-ratio profiles show this multiple of the largest finite ratio.
FAR = 1.1


def target_values(start: Floats, smallest: Floats, shares_left: Floats = SHARES_LEFT) -> Floats:
    """Return the target values of More and Wild's convergence test.

    A target is smallest + share_left * (start - smallest): More and Wild, Benchmarking derivative-free
    optimization algorithms, SIAM Journal on Optimization 20, 2009, (2.2). For a metric that is maximized,
    pass values with the opposite sign.

    Args:
        start: value at the start of each instance, shape (instances,).
        smallest: smallest value that any method reached on each instance, shape (instances,).
        shares_left: share of the distance from start to smallest that remains at each target, shape
            (targets,).

    Returns:
        Shape (instances, targets).
    """
    return np.asarray(smallest[:, None] + shares_left * (start - smallest)[:, None], dtype=np.float64)


def first_times(evaluations: Floats, values: Floats, targets: Floats) -> Floats:
    """Return the first time at which the best value so far was at or below each target.

    Args:
        evaluations: times at which values were recorded, increasing, shape (points,).
        values: recorded values, shape (points,); NaN counts as infinite.
        targets: values to reach, shape (targets,).

    Returns:
        Shape (targets,), infinite where a target was missed.
    """
    best = np.minimum.accumulate(np.where(np.isnan(values), np.inf, values))
    index = np.searchsorted(-best, -targets, side="left")
    return np.append(evaluations, np.inf)[index].astype(np.float64)


def share_reached(times: Floats, at: Floats) -> Floats:
    """Return the share of targets that runs have reached within each number of evaluations (an ECDF).

    Hansen, Auger, Brockhoff and Tusar, Anytime performance assessment in blackbox optimization benchmarking,
    IEEE Transactions on Evolutionary Computation 26, 2022. With a single target it is a data profile (More
    and Wild 2009); applied to `performance_ratios` it is Dolan and More's performance profile.

    Args:
        times: time of each run to each target, shape (..., runs, targets).
        at: numbers of evaluations, increasing, shape (points,).

    Returns:
        Shape (..., points).
    """
    return np.asarray(shares_of_runs(times, at).mean(axis=-2))


def shares_of_runs(times: Floats, at: Floats) -> Floats:
    """Return for each run the share of its targets that it has reached within each number of evaluations.

    Args:
        times: time of each run to each target, shape (..., runs, targets).
        at: numbers of evaluations, increasing, shape (points,).

    Returns:
        Shape (..., runs, points).
    """
    ordered = np.sort(times, axis=-1).reshape(-1, times.shape[-1])
    counts = np.stack([np.searchsorted(run, at, side="right") for run in ordered])
    return (counts / times.shape[-1]).reshape(*times.shape[:-1], len(at))


def equal_weights(problems: Integers) -> Floats:
    """Return weights of runs that give each problem the same weight, however many runs it has.

    Args:
        problems: problem of each run, shape (runs,).

    Returns:
        Shape (runs,), with sum 1.
    """
    _, indices, counts = np.unique(problems, return_inverse=True, return_counts=True)
    return np.asarray(1.0 / (counts[indices] * len(counts)), dtype=np.float64)


@dataclass(frozen=True)
class Bands:
    """Shares of targets reached, with pointwise bands of about 95 %; all of shape (methods, points)."""

    share: Floats
    low: Floats
    high: Floats


def ecdf_bands(times: Floats, problems: Integers, at: Floats) -> Bands:
    """Return the share of all combinations of problem, target and seed that each method reached, with bands.

    Every problem has the same weight. For the bands, seeds are drawn with replacement inside every problem,
    the same draws for all methods. At each point, the band extends to both sides as far as 95 % of the
    resampled shares are from the estimate. It is widened by a factor for few seeds, as Student's t is
    (Hesterberg, The American Statistician 69, 2015), and clipped to 0 and 1. Problems and targets are not
    resampled: a band says where the line would be with other seeds. It holds for one point at a time.

    Args:
        times: time of each method to each target, shape (methods, instances, targets); an instance is a
            problem with a seed.
        problems: problem of each instance, shape (instances,).
        at: numbers of evaluations, increasing, shape (points,).
    """
    from scipy.stats import norm, t

    shares = shares_of_runs(times, at)
    weights = equal_weights(problems)
    estimate = np.einsum("i,mip->mp", weights, shares)
    instances_of = [np.flatnonzero(problems == problem) for problem in np.unique(problems)]
    random = np.random.default_rng(0)
    counts = np.zeros((RESAMPLES, len(problems)))
    for group in instances_of:
        counts[:, group] = random.multinomial(len(group), np.full(len(group), 1 / len(group)), RESAMPLES)
    resampled = np.einsum("ri,mip->mrp", counts * weights, shares, optimize=True)
    fewest = min(map(len, instances_of))
    freedom = max(len(problems) - len(instances_of), 1)
    tail = (1 + LEVEL) / 2
    widening = np.sqrt(fewest / max(fewest - 1, 1)) * t.ppf(tail, freedom) / norm.ppf(tail)
    reach = widening * np.quantile(np.abs(resampled - estimate[:, None]), LEVEL, axis=1)
    return Bands(estimate, np.maximum(estimate - reach, 0.0), np.minimum(estimate + reach, 1.0))


def expected_running_time(times: Floats, lengths: Floats) -> Floats:
    """Return the evaluations of all runs up to the target or their end, divided by the number of successes.

    This estimates the cost of a method that is restarted until it reaches the target (Hansen et al. 2022, see
    `share_reached`).

    Args:
        times: time of each run to the target, shape (runs, ...); further axes may be several targets.
        lengths: number of evaluations of each whole run, shape (runs,).

    Returns:
        Shape (...,), infinite where no run reached the target.
    """
    ends = lengths.reshape(-1, *[1] * (times.ndim - 1))
    reached = np.isfinite(times)
    spent = np.where(reached, times, ends).sum(axis=0)
    expected = np.full(spent.shape, np.inf)
    np.divide(spent, reached.sum(axis=0), out=expected, where=reached.any(axis=0))
    return expected


def performance_ratios(times: Floats) -> Floats:
    """Return each time divided by the smallest time of any method, infinite where the target was missed.

    Args:
        times: time of each method to the target of each instance, shape (methods, instances).
    """
    fastest = times.min(axis=0)
    ratios = np.full(times.shape, np.inf)
    np.divide(times, fastest, out=ratios, where=np.isfinite(times))
    return ratios


def log_ratio_profile(first: Floats, second: Floats) -> Floats:
    """Return the sorted ratios of two methods' times as log2(first / second); below 0 the first is faster.

    Definition of OptiProfiler (Huang, Ragonneau and Zhang, optprof.com), after Shi, Xuan, Oztoprak and
    Nocedal, Optimization Methods and Software 38, 2023. An instance that one method missed has `FAR` times
    the largest finite ratio. An instance that both missed has this value at both ends.

    Args:
        first, second: times of both methods, shape (instances,), above 0.

    Returns:
        Shape (instances + instances that both missed,).
    """
    both = np.isfinite(first) & np.isfinite(second)
    ratios = np.log2(first[both]) - np.log2(second[both])
    edge = FAR * max(np.abs(ratios).max(initial=0.0), np.finfo(float).eps)
    first_only, second_only = (np.isfinite(times) & ~both for times in (first, second))
    missed = len(first) - (both | first_only | second_only).sum()
    ends = [np.full(first_only.sum() + missed, -edge), np.full(second_only.sum() + missed, edge)]
    return np.sort(np.concatenate([ratios, *ends]))
