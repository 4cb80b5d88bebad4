"""Anytime performance: times to many targets, the share of targets reached, expected running time, profiles.

Functions take and return arrays. A time is a number of gradient evaluations up to a target, infinite where
the target was missed. An instance is a problem with a seed.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from curvebench.results.intervals import LEVEL

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]

# A target is given by a share: how much of the distance from the start value to the smallest value remains.
# The share falls from below 1 to 1e-5 (the high accuracy of More and Wild), with ten targets per decade.
# At shares below 1e-5, rounding in float32 would decide which run is the best.
DECADES, PER_DECADE = 5, 10
SHARES_LEFT: Floats = 10.0 ** (-np.arange(1, DECADES * PER_DECADE + 1) / PER_DECADE)
# Indices of the targets that count in scores and ranks, two per decade; the last share is 0.001.
SCORED = tuple(PER_DECADE * k // 2 - 1 for k in range(1, 7))
RESAMPLES = 1000
# If only one method reached a target, log-ratio profiles show this multiple of the largest finite log-ratio.
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
        Target values, shape (instances, targets).
    """
    return np.asarray(smallest[:, None] + shares_left * (start - smallest)[:, None], dtype=np.float64)


def first_times(evaluations: Floats, values: Floats, targets: Floats) -> Floats:
    """Return the time at which a run first reached each target: a value at or below the target.

    Args:
        evaluations: number of gradient evaluations up to each recorded value, increasing, shape (points,).
        values: recorded values, shape (points,); NaN counts as infinite.
        targets: values to reach, shape (targets,).

    Returns:
        Gradient evaluations up to the first value at or below each target, shape (targets,); infinite where
        the target was missed.
    """
    best = np.minimum.accumulate(np.where(np.isnan(values), np.inf, values))
    index = np.searchsorted(-best, -targets, side="left")
    return np.append(evaluations, np.inf)[index].astype(np.float64)


def share_reached(times: Floats, at: Floats) -> Floats:
    """Return the share of all pairs of run and target in which the target was reached in time (an ECDF).

    Hansen, Auger, Brockhoff and Tusar, Anytime performance assessment in blackbox optimization benchmarking,
    IEEE Transactions on Evolutionary Computation 26, 2022. With a single target, the result is a data profile
    (More and Wild 2009). If `times` are `performance_ratios`, it is Dolan and More's performance profile.

    Args:
        times: time of each run to each target, shape (..., runs, targets).
        at: numbers of evaluations within which a target must be reached, increasing, shape (points,).

    Returns:
        The share for each entry of `at`, shape (..., points).
    """
    return np.asarray(shares_of_runs(times, at).mean(axis=-2))


def shares_of_runs(times: Floats, at: Floats) -> Floats:
    """Return the share of the targets that each run has reached within each number of evaluations.

    Args:
        times: time of each run to each target, shape (..., runs, targets).
        at: numbers of evaluations within which a target must be reached, increasing, shape (points,).

    Returns:
        The share for each run and each entry of `at`, shape (..., runs, points).
    """
    ordered = np.sort(times, axis=-1).reshape(-1, times.shape[-1])
    counts = np.stack([np.searchsorted(run, at, side="right") for run in ordered])
    return (counts / times.shape[-1]).reshape(*times.shape[:-1], len(at))


def equal_weights(problems: Integers) -> Floats:
    """Return weights of runs such that the runs on each problem have the same sum of weights.

    Args:
        problems: problem of each run, shape (runs,).

    Returns:
        Weight of each run, shape (runs,), with sum 1.
    """
    _, indices, counts = np.unique(problems, return_inverse=True, return_counts=True)
    return np.asarray(1.0 / (counts[indices] * len(counts)), dtype=np.float64)


@dataclass(frozen=True)
class Bands:
    """Shares of targets that methods reached, with pointwise bands of about 95 % coverage.

    Args:
        share: share of each method at each point, shape (methods, points).
        low, high: lower and upper end of the band, shape (methods, points).
    """

    share: Floats
    low: Floats
    high: Floats


def ecdf_bands(times: Floats, problems: Integers, at: Floats) -> Bands:
    """Return the share of targets that each method reached on all instances, with bands.

    Every problem has the same weight. For the bands, seeds are drawn with replacement inside every problem,
    the same seeds for all methods. At each point, the half-width of the band is the 95 % quantile of the
    distance of the resampled shares from the estimate. This half-width is multiplied by a factor for few
    seeds, similar to the widening of Student's t (Hesterberg, The American Statistician 69, 2015), and the
    band is clipped to 0 and 1. Problems and targets are not resampled, so that a band shows how the line
    would vary with other seeds. The coverage is for each point by itself, not for the whole line.

    Args:
        times: time of each method to each target, shape (methods, instances, targets).
        problems: problem of each instance, shape (instances,).
        at: numbers of evaluations within which a target must be reached, increasing, shape (points,).
    """
    # The functions ndtri and stdtrit are quantiles. Importing the same quantiles of scipy.stats takes 0.5 s.
    from scipy.special import ndtri, stdtrit

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
    widening = np.sqrt(fewest / max(fewest - 1, 1)) * stdtrit(freedom, tail) / ndtri(tail)
    reach = widening * np.quantile(np.abs(resampled - estimate[:, None]), LEVEL, axis=1)
    return Bands(estimate, np.maximum(estimate - reach, 0.0), np.minimum(estimate + reach, 1.0))


def expected_running_time(times: Floats, lengths: Floats) -> Floats:
    """Return the expected running time of a method to a target, in gradient evaluations.

    For each run, the evaluations until the target count, or all evaluations if the run missed the target. The
    sum over runs is divided by the number of runs that reached the target. This estimates the cost of a
    method that is restarted until it reaches the target (Hansen et al. 2022, see `share_reached`).

    Args:
        times: time of each run to the target, shape (runs, ...); further axes may be several targets.
        lengths: number of evaluations of each whole run, shape (runs,).

    Returns:
        Expected running times, shape (...,); infinite where no run reached the target.
    """
    ends = lengths.reshape(-1, *[1] * (times.ndim - 1))
    reached = np.isfinite(times)
    spent = np.where(reached, times, ends).sum(axis=0)
    expected = np.full(spent.shape, np.inf)
    np.divide(spent, reached.sum(axis=0), out=expected, where=reached.any(axis=0))
    return expected


def performance_ratios(times: Floats) -> Floats:
    """Return the time of each method divided by the smallest time of any method on the same instance.

    Args:
        times: time of each method to the target of each instance, shape (methods, instances).

    Returns:
        The ratios, shape (methods, instances); infinite where the method missed the target.
    """
    fastest = times.min(axis=0)
    ratios = np.full(times.shape, np.inf)
    np.divide(times, fastest, out=ratios, where=np.isfinite(times))
    return ratios


def log_ratio_profile(first: Floats, second: Floats) -> Floats:
    """Return the sorted log-ratios of the times of two methods, log2(first / second), over all instances.

    A log-ratio is below 0 where the first method is faster. If only the first method reached the target of an
    instance, the instance has the log-ratio -`FAR` * m, where m is the largest absolute log-ratio of any
    instance that both methods reached. If only the second method did, it has `FAR` * m. An instance that both
    methods missed has an entry of each kind.

    Definition of OptiProfiler (Huang, Ragonneau and Zhang, optprof.com), after Shi, Xuan, Oztoprak and
    Nocedal, Optimization Methods and Software 38, 2023.

    Args:
        first, second: time of each method to the target of each instance, shape (instances,), above 0.

    Returns:
        The sorted log-ratios, shape (instances + instances that both methods missed,).
    """
    both = np.isfinite(first) & np.isfinite(second)
    ratios = np.log2(first[both]) - np.log2(second[both])
    edge = FAR * max(np.abs(ratios).max(initial=0.0), np.finfo(float).eps)
    first_only, second_only = (np.isfinite(times) & ~both for times in (first, second))
    missed = len(first) - (both | first_only | second_only).sum()
    ends = [np.full(first_only.sum() + missed, -edge), np.full(second_only.sum() + missed, edge)]
    return np.sort(np.concatenate([ratios, *ends]))
