"""Performance profiles of times to target, their area as a score, and intervals of scores and ranks.

A submission is one method of a table of runs. A study is one repetition of a submission's runs on a workload,
such as a seed. A workload may be a variant of another workload, its base. The time on a variant does not
enter the scores; it only decides whether the time on the base counts. A time is missed if the target was
never reached. A time is void if it was reached, but does not count.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product

import numpy as np
import polars as pl

from curvebench.results.intervals import LEVEL

LIMIT = 4.0  # a time that is more than this multiple of the fastest time on its workload does not count
POINTS = 100  # number of ratios at which a profile is evaluated
RESAMPLES = 1000  # number of resamples for the intervals of scores and ranks
# Number of resamples for tiers. With only 1000, the tier of some methods depended on the random seed.
TIER_RESAMPLES = 8000
# Columns of the table of scores that are computed by resampling studies.
RESAMPLED = ("low", "high", "rank_low", "rank_high", "tier")
ROUNDING = 1e-12  # largest relative difference between two ratios of times that counts as a rounding error

Times = Sequence[np.ndarray]  # for each workload, seconds to the target, shape (submissions, studies)


@dataclass(frozen=True)
class _Contest:
    """Submissions and workloads of a table of runs: the names along the axes of the arrays of times.

    Args:
        submissions, workloads: names along the axes of an array of shape (submissions, workloads).
        variants: for each variant, its index in `workloads` and the index of its base workload.
        scored: indices of the workloads that enter the profile, which are all except variants.
        problems: problem of each workload; workloads of the same problem share the weight of one workload.
    """

    submissions: tuple[str, ...]
    workloads: tuple[str, ...]
    variants: tuple[tuple[int, int], ...]
    scored: tuple[int, ...]
    problems: tuple[str, ...]

    @property
    def weights(self) -> np.ndarray:
        """Weight of each scored workload, with mean 1; the weights of each problem have the same sum."""
        problems = [self.problems[index] for index in self.scored]
        each = len(problems) / len({*problems})
        return np.array([each / problems.count(problem) for problem in problems])


def time_ratios(runs: pl.DataFrame, variants: Mapping[str, str] = {}) -> pl.DataFrame:
    """Return the time of each submission on each workload divided by the fastest time on the workload.

    The ratios are computed in these steps:

    1. The time of a submission on a workload is the median over studies. A missed target is infinitely long.
    2. A time above `LIMIT` times the fastest time on the workload is void.
    3. If the time on a base is missed or void, the times on its variants are void. If the time on a variant
       is missed or void, the time on its base is void.
    4. The remaining times are divided by the fastest remaining time on the workload.

    Args:
        runs: columns submission, workload, study, seconds, with one row per combination of the first three.
            Null or infinite seconds mean a missed target. If a submission has fewer studies on a workload
            than another submission, the absent studies count as missed.
        variants: base workload by the name of its variant. A variant does not enter the profile. Its target
            must be reached in time, or the time on its base does not count.

    Returns:
        One row for every submission on every workload. Columns: submission, workload, seconds (null if the
        target was missed) and ratio (null if the time was missed or void).

    Raises:
        ValueError: for a missing column, two rows of one study, seconds that are NaN or not above 0, or a
            variant that is unknown or its own base.
    """
    contest = _contest(runs, variants)
    seconds = np.stack([_medians(times) for times in _studies(runs, contest, paired=False)], axis=-1)
    names = product(contest.submissions, contest.workloads)
    frame = pl.DataFrame(list(names), schema=["submission", "workload"], orient="row")
    values = {"seconds": seconds.ravel(), "ratio": _ratios(seconds, contest).ravel()}
    finite = [pl.when(pl.col(name).is_finite()).then(pl.col(name)) for name in values]
    return frame.with_columns(pl.Series(name, times) for name, times in values.items()).with_columns(finite)


def score_intervals(
    runs: pl.DataFrame,
    variants: Mapping[str, str] = {},
    *,
    problems: Mapping[str, str] = {},
    paired: bool,
) -> pl.DataFrame:
    """Return scores and ranks of submissions, with intervals by resampling studies.

    A score is the area under a submission's performance profile, from 0 (reaches no target) to 1 (always
    fastest). The profile is a function of a ratio r: the share of workloads on which the submission's time is
    at most r times the fastest time (Dolan and More, Mathematical Programming 91, 2002). A workload on which
    no submission reaches the target counts as missed by all: if it were left out, a benchmark would seem
    easier the more of its workloads are too hard. The area is computed by the trapezoid rule over `POINTS`
    equally spaced ratios from 1 to `LIMIT`, and divided by `LIMIT` - 1 (Dahl et al., Benchmarking Neural
    Network Training Algorithms, arXiv:2306.07179, section 4.5). A score depends on the other submissions,
    since the fastest time may be theirs. If several workloads are one problem, together they have the weight
    of one workload in the profile, in equal shares.

    For intervals, studies are drawn with replacement inside every workload. Workloads of one problem with the
    same number of studies share the drawn studies. Workloads are not resampled: the intervals say how scores
    would vary if the same workloads were run again. The half-width of a score's interval is the 95 % quantile
    of the distance of the resampled scores from the estimate (Hall, Journal of the Royal Statistical Society
    B 50, 1988). It is widened for small samples (Hesterberg, The American Statistician 69, 2015), and the
    interval is clipped to 0 and 1. The interval of a rank consists of percentiles, and is extended to contain
    the estimate.

    If several submissions are equally fast, the fastest time is the smallest of several random times, so that
    the ratios of all of them are too large and their scores too low. Resampling cannot show this bias.
    Therefore a second upper end is computed as if every submission whose time may equal the fastest time on a
    workload (by the interval of their ratio) were equally fast. The larger of the two upper ends is used.
    Imposing ties that are not refuted is Andrews and Soares' moment selection (Econometrica 78, 2010), which
    repairs the bootstrap of a minimum (Fang and Santos, Review of Economic Studies 86, 2019).

    A tier is a group of submissions whose scores cannot be distinguished. Tiers are formed from the best
    score down: a submission opens a new tier if it can be distinguished from any member of the present tier.
    Equal scores share a tier. All pairs of submissions are tested together, by the difference of their scores
    divided by the standard deviation of the resampled differences. A pair is distinguished if its quotient is
    larger than a critical value: in 95 % of the resamples, no pair deviates from its estimate by more
    (Westfall and Young, Resampling-Based Multiple Testing, 1993). The critical value is widened like the
    intervals.

    Assumes independent studies. `docs/statistics.md` has the measured coverage.

    Args:
        runs: columns submission, workload, study, seconds, with one row per combination of the first three.
            Null or infinite seconds, and absent studies, mean a missed target.
        variants: base workload by the name of its variant. A variant differs a little from its base
            workload. If a submission misses the target on a variant, its time on the base is missed too.
        problems: problem by workload; a workload without an entry is a problem by itself.
        paired: whether studies of the same name are the same problem instance (such as a seed) for all
            submissions. If so, a resample has the same studies of all submissions.

    Returns:
        One row per submission, the best score first. Columns: submission, score, low and high (ends of the
        score's interval), rank (ties averaged), rank_low and rank_high (ends of the rank's interval), tier
        (from 1 on) and studies (smallest number of studies on any workload). If every workload has a single
        study, nothing can be resampled, and the columns `RESAMPLED` are null.

    Raises:
        ValueError: for a missing column, two rows of one study, seconds that are NaN or not above 0, or a
            variant that is unknown or its own base.
    """
    contest = _contest(runs, variants, problems)
    studies = _studies(runs, contest, paired)
    for_bounds, for_tiers = (
        _resampled_medians(studies, contest, paired, size, np.random.default_rng(0))
        for size in (RESAMPLES, TIER_RESAMPLES)
    )
    columns = _bounds(studies, contest, for_bounds) | {"tier": _tiers(studies, contest, for_tiers)}
    counts = [seconds.shape[1] for seconds in studies]
    frame = pl.DataFrame({"submission": contest.submissions, **columns, "studies": min(counts)})
    if max(counts) == 1:
        frame = frame.with_columns(pl.lit(None, frame.schema[name]).alias(name) for name in RESAMPLED)
    return frame.sort("score", "submission", descending=[True, False])


def ranks_by_subset(
    runs: pl.DataFrame, problems: Mapping[str, str], subsets: Sequence[Collection[str]]
) -> dict[str, list[float]]:
    """Return the ranks of submissions by their scores on subsets of the workloads.

    Args:
        runs: columns submission, workload, study, seconds, as for `score_intervals`, with paired studies.
        problems: problem by workload; a workload without an entry is a problem by itself.
        subsets: for each rank, the workloads on which scores are computed.

    Returns:
        By submission: its rank in each subset, 1 for the best, ties averaged.
    """
    contest = _contest(runs, {}, problems)
    medians = np.stack([_medians(seconds) for seconds in _studies(runs, contest, paired=True)], axis=-1)
    columns = [[contest.workloads.index(name) for name in subset] for subset in subsets]
    ranks = [_ranks(_scores(medians, replace(contest, scored=tuple(chosen)))) for chosen in columns]
    return dict(zip(contest.submissions, np.transpose(ranks).tolist(), strict=True))


def _bounds(studies: Times, contest: _Contest, resampled: np.ndarray) -> dict[str, np.ndarray]:
    """Return scores and ranks with the ends of their intervals, as `score_intervals` describes them.

    Args:
        studies: seconds on each workload, arrays of shape (submissions, studies).
        resampled: medians of resampled studies, shape (resamples, submissions, workloads).

    Returns:
        The columns score, low, high, rank, rank_low and rank_high, each of shape (submissions,).
    """
    medians = np.stack([_medians(seconds) for seconds in studies], axis=-1)
    estimate = _scores(medians, contest)
    scores = _scores(resampled, contest)
    ranks, estimated_ranks = _ranks(scores), _ranks(estimate)
    tails = ((1 - LEVEL) / 2, (1 + LEVEL) / 2)
    widening = _widening(studies)
    reach = widening * np.quantile(np.abs(scores - estimate), LEVEL, axis=0)
    if_tied = [_scores(times, contest) for times in _tied(medians, resampled)]
    bias = widening * np.quantile(if_tied[0] - if_tied[1], tails[1], axis=0)
    # The ends of the interval are ranks that occurred in the resamples, without interpolation between ranks.
    rank_low = np.quantile(ranks, tails[0], axis=0, method="lower")
    rank_high = np.quantile(ranks, tails[1], axis=0, method="higher")
    return {
        "score": estimate,
        "low": np.maximum(estimate - reach, 0.0),
        "high": np.minimum(estimate + np.maximum(reach, bias), 1.0),
        "rank": estimated_ranks,
        "rank_low": np.minimum(rank_low, estimated_ranks),
        "rank_high": np.maximum(rank_high, estimated_ranks),
    }


def _widening(studies: Times) -> float:
    """Return the factor by which bootstrap intervals are widened: sqrt(n / (n - 1)) for n studies.

    Here n is the number of studies on the workload with the fewest studies, and at least 2.
    """
    fewest = min(seconds.shape[1] for seconds in studies)
    return float(np.sqrt(fewest / max(fewest - 1, 1)))


def _tiers(studies: Times, contest: _Contest, resampled: np.ndarray) -> np.ndarray:
    """Return the tier of every submission, from 1 for the best; `score_intervals` describes tiers.

    Args:
        studies: seconds on each workload, arrays of shape (submissions, studies).
        resampled: medians of resampled studies, shape (resamples, submissions, workloads).

    Returns:
        Number of the tier, shape (submissions,).
    """
    estimate = _scores(np.stack([_medians(seconds) for seconds in studies], axis=-1), contest)
    off = _scores(resampled, contest) - estimate
    strays = off[:, :, None] - off[:, None, :]
    deviations = strays.std(axis=0)
    # If the difference of a pair does not vary over resamples, any difference distinguishes the pair.
    moves = deviations > ROUNDING
    furthest = np.divide(strays, deviations, out=np.zeros_like(strays), where=moves).max(axis=(1, 2))
    critical = np.maximum(_widening(studies) * np.quantile(furthest, LEVEL) * deviations, ROUNDING)
    order = np.argsort(-estimate, kind="stable")
    groups = np.split(order, np.flatnonzero(np.diff(-estimate[order]) > ROUNDING) + 1)
    tiers, above, tier = np.ones(len(estimate), dtype=np.int64), groups[0], 1
    for equals in groups[1:]:
        gaps = estimate[above][:, None] - estimate[equals]
        opens = bool((gaps > critical[np.ix_(above, equals)]).any())
        above, tier = (equals, tier + 1) if opens else (np.append(above, equals), tier)
        tiers[equals] = tier
    return tiers


def _contest(frame: pl.DataFrame, variants: Mapping[str, str], problems: Mapping[str, str] = {}) -> _Contest:
    """Check a table of runs, and return its submissions and workloads.

    Names are sorted, so that results do not depend on the order of rows.

    Args:
        frame: the table, with columns submission, workload and seconds.
        variants: base workload by the name of its variant.
        problems: problem by workload; a workload without an entry is a problem by itself.

    Raises:
        ValueError: when a column is missing, the table is empty, seconds are NaN or not above 0, or a variant
            or its base is unknown or the base is a variant itself.
    """
    missing = {"submission", "workload", "seconds"} - set(frame.columns)
    if missing:
        raise ValueError(f"no column {', '.join(sorted(missing))}; there are {', '.join(frame.columns)}")
    if frame.is_empty():
        raise ValueError("no rows: a profile needs a submission and a workload")
    seconds = frame["seconds"].cast(pl.Float64)
    wrong = frame.filter(seconds.is_nan() | (seconds <= 0))
    if len(wrong):
        row = wrong.row(0, named=True)
        raise ValueError(
            f"{row['submission']} on {row['workload']} takes {row['seconds']} seconds: "
            "a time must be above 0, and a missed target is null"
        )
    workloads = tuple(frame["workload"].unique().sort().to_list())
    for variant, base in variants.items():
        if variant not in workloads or base not in workloads:
            raise ValueError(f"variant {variant} of {base}: both must be workloads of the frame")
        if base in variants:
            raise ValueError(f"variant {variant} of {base}: {base} must not be a variant itself")
    column_of = {workload: column for column, workload in enumerate(workloads)}
    return _Contest(
        submissions=tuple(frame["submission"].unique().sort().to_list()),
        workloads=workloads,
        variants=tuple((column_of[variant], column_of[base]) for variant, base in variants.items()),
        scored=tuple(column_of[workload] for workload in workloads if workload not in variants),
        problems=tuple(problems.get(workload, workload) for workload in workloads),
    )


def _studies(runs: pl.DataFrame, contest: _Contest, paired: bool) -> list[np.ndarray]:
    """Return the seconds of every submission in every study, as one array per workload.

    Args:
        paired: whether a study has the same position in the array for all submissions. If not, the studies of
            each submission are numbered by themselves.

    Returns:
        For each workload, seconds of shape (submissions, studies). They are infinite if the target was missed
        or the submission lacks the study.

    Raises:
        ValueError: when there is no column study, or a submission has two rows for one study.
    """
    if "study" not in runs.columns:
        raise ValueError(f"no column study; there are {', '.join(runs.columns)}")
    key = runs.select("submission", "workload", "study")
    if key.is_duplicated().any():
        twice = key.filter(key.is_duplicated()).row(0)
        raise ValueError(f"two rows of {' / '.join(map(str, twice))}: there must be one")
    over = ["workload"] if paired else ["submission", "workload"]
    placed = runs.with_columns((pl.col("study").rank("dense").over(over) - 1).alias("_study"))
    filled, row_of = [], {name: row for row, name in enumerate(contest.submissions)}
    for workload in contest.workloads:
        rows_here = placed.filter(pl.col("workload") == workload)
        columns = rows_here["_study"].to_numpy()
        seconds = np.full((len(contest.submissions), columns.max() + 1), np.inf)
        rows = rows_here["submission"].replace_strict(row_of, return_dtype=pl.Int64).to_numpy()
        seconds[rows, columns] = rows_here["seconds"].cast(pl.Float64).fill_null(np.inf).to_numpy()
        filled.append(seconds)
    return filled


def _resampled_medians(
    studies: Times, contest: _Contest, paired: bool, count: int, random: np.random.Generator
) -> np.ndarray:
    """Draw studies with replacement, and return the medians of their seconds.

    Args:
        studies: seconds on each workload, arrays of shape (submissions, studies).
        paired: whether a resample has the same studies of all submissions.
        count: number of resamples.

    Returns:
        Shape (resamples, submissions, workloads).
    """
    medians, draws = [], dict[tuple[str, int], np.ndarray]()
    for seconds, problem in zip(studies, contest.problems, strict=True):
        size = seconds.shape[1]
        if (problem, size) not in draws:
            rows = 1 if paired else len(seconds)
            draws[problem, size] = random.integers(size, size=(count, rows, size))
        medians.append(_medians(seconds[np.arange(len(seconds))[:, None], draws[problem, size]]))
    return np.stack(medians, axis=-1)


def _medians(values: np.ndarray) -> np.ndarray:
    """Return medians along the last axis, in half the time of np.median, which also searches for NaN."""
    first, second = (values.shape[-1] - 1) // 2, values.shape[-1] // 2
    parted = np.partition(values, (first, second), axis=-1)
    middle: np.ndarray = (parted[..., first] + parted[..., second]) / 2
    return middle


def _tied(medians: np.ndarray, resampled: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Give all submissions that may be as fast as the fastest submission on a workload the same time.

    A submission may be as fast if the resampled interval of the ratio of its time to the fastest time
    contains 1.

    Args:
        medians: median times, shape (submissions, workloads).
        resampled: median times in the resamples, shape (resamples, submissions, workloads).

    Returns:
        Both arrays, in which the times of such a submission are multiplied by the factor that makes its
        median equal to the fastest median.
    """
    leaders = medians.argmin(axis=0)[None]
    with np.errstate(divide="ignore", invalid="ignore"):
        logs = np.log(medians) - np.log(medians.min(axis=0))
        fastest = np.take_along_axis(resampled, leaders[None], axis=1)
        off = np.abs(np.log(resampled) - np.log(fastest) - logs)
        off = np.nan_to_num(off, nan=np.inf, posinf=np.inf)
        reach = np.quantile(off, LEVEL, axis=0, method="higher")
        factors = np.where(np.isfinite(logs) & (logs <= reach), np.exp(-logs), 1.0)
    return medians * factors, resampled * factors


def _ratios(times: np.ndarray, contest: _Contest) -> np.ndarray:
    """Return the ratios of times to the fastest time on the workload, as `time_ratios` describes them.

    Args:
        times: shape (..., submissions, workloads); infinite where the target was missed.

    Returns:
        Ratios of the same shape, infinite where the time was missed or void.
    """
    within = np.where(times > LIMIT * (1 + ROUNDING) * times.min(axis=-2, keepdims=True), np.inf, times)
    for variant, base in contest.variants:
        within[..., variant] = np.where(np.isinf(within[..., base]), np.inf, within[..., variant])
    for variant, base in contest.variants:
        within[..., base] = np.where(np.isinf(within[..., variant]), np.inf, within[..., base])
    fastest = within.min(axis=-2, keepdims=True)
    counts = np.isfinite(within)
    ratios = np.full(within.shape, np.inf)
    np.divide(within, fastest, out=ratios, where=counts)
    # A ratio that is larger than the limit only by rounding is clipped, so that it stays in the profile.
    return np.where(counts, np.minimum(ratios, LIMIT), np.inf)


def _scores(times: np.ndarray, contest: _Contest) -> np.ndarray:
    """Return the score of every submission: the area under its profile.

    Args:
        times: shape (..., submissions, workloads); infinite where the target was missed.

    Returns:
        Shape (..., submissions).
    """
    ratios = _ratios(times, contest)[..., list(contest.scored)]
    weights = np.full(POINTS, 1.0 / (POINTS - 1))
    weights[[0, -1]] /= 2
    # The profile is computed at POINTS ratios from 1 to LIMIT. Each ratio has a trapezoidal weight.
    # The ratio of a submission on a workload is its time divided by the fastest time.
    # A workload adds to the area the weights of all points from the ratio of the submission on.
    # If the ratio of the submission is above LIMIT, the workload adds nothing.
    area = np.append(np.cumsum(weights[::-1])[::-1], 0.0)
    # A ratio that equals a point up to rounding counts as equal. Otherwise results would depend on the CPU.
    first_point = np.searchsorted(np.linspace(1.0, LIMIT, POINTS), ratios * (1 - ROUNDING))
    scores: np.ndarray = (area[first_point] * contest.weights).mean(axis=-1)
    return scores


def _ranks(scores: np.ndarray) -> np.ndarray:
    """Return the ranks of scores along the last axis: 1 for the highest score, ties averaged."""
    # Scores that differ by at most this number are equal. The number is larger than rounding errors of sums.
    # Any two unequal areas differ by more than this number.
    near = 1e-12
    gaps = scores[..., None, :] - scores[..., :, None]
    above, same = gaps > near, np.abs(gaps) <= near
    ranks: np.ndarray = 1 + above.sum(axis=-1) + (same.sum(axis=-1) - 1) / 2
    return ranks
