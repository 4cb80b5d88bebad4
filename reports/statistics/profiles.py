"""Performance profiles of times to target, their area as a score, and intervals of scores and ranks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np
import polars as pl

from curvebench.results.intervals import LEVEL

LIMIT = 4.0  # ratio to the fastest above which a time counts as missed
POINTS = 100
RESAMPLES = 1000
TIER_RESAMPLES = 8000  # of 1000 whether a method is in a tier depended on the seed of the draws
RESAMPLED = ("low", "high", "rank_low", "rank_high", "tier")  # what a table of scores has by resampling
ROUNDING = 1e-12  # relative, of ratios of times

Studies = Sequence[np.ndarray]  # by workload, seconds of shape (submissions, studies)


@dataclass(frozen=True)
class _Contest:
    """Who met what: names along the axes of an array, and which workloads only guard others.

    Args:
        variants: pairs of columns: the variant's and its base's.
        scored: the columns that enter the profile.
    """

    submissions: tuple[str, ...]
    workloads: tuple[str, ...]
    variants: tuple[tuple[int, int], ...]
    scored: tuple[int, ...]


def time_ratios(runs: pl.DataFrame, variants: Mapping[str, str] | None = None) -> pl.DataFrame:
    """Each median time to target over the fastest one on its workload, where it counts.

    In this order: the time on a workload is the median over studies, a missed one being infinitely long; a
    time above `LIMIT` times the fastest is void; a variant is void where its base is; the base is void where
    one of its variants is; the rest is divided by the fastest that is left.

    Args:
        runs: columns submission, workload, study, seconds: one row for the three; null or infinite seconds
            mean missed. Studies that a submission lacks beside another one on the workload are missed.
        variants: base workload by the name of its variant. A variant has no place in a profile, it only
            has to be reached for its base to count.

    Returns:
        Columns submission, workload, seconds (null = missed), ratio (null = missed or void), a row for
        every pair.

    Raises:
        ValueError: for a missing column, two rows of one study, seconds that are NaN or not above 0, or a
            variant that is unknown or its own base.
    """
    contest = _contest(runs, variants or {})
    seconds = np.stack([_medians(each) for each in _studies(runs, contest, paired=False)], axis=-1)
    names = product(contest.submissions, contest.workloads)
    frame = pl.DataFrame(list(names), schema=["submission", "workload"], orient="row")
    values = {"seconds": seconds.ravel(), "ratio": _ratios(seconds, contest).ravel()}
    finite = [pl.when(pl.col(name).is_finite()).then(pl.col(name)) for name in values]
    return frame.with_columns(pl.Series(name, each) for name, each in values.items()).with_columns(finite)


def score_intervals(
    runs: pl.DataFrame, variants: Mapping[str, str] | None = None, *, paired: bool
) -> pl.DataFrame:
    """Score and rank submissions by their times to target, with intervals and tiers from a bootstrap.

    **Score.** The score of a submission is the area under its performance profile, from 0 (solves nothing) to
    1 (always the fastest). The profile gives, for each ratio, the share of workloads that the submission
    solves within this ratio of the fastest time (Dolan and More, Mathematical Programming 91, 2002). The time
    on a workload is the median over its studies. The area is computed by the trapezoid rule over `POINTS`
    equally spaced ratios from 1 to `LIMIT`, and divided by `LIMIT` - 1 (Dahl et al., Benchmarking Neural
    Network Training Algorithms, arXiv:2306.07179, section 4.5). A workload that no submission solves counts
    as missed by all; without this rule, a benchmark would become easier the more of it is too hard. A score
    depends on the other submissions, because ratios are taken to the fastest.

    **Intervals.** The bootstrap draws studies with replacement within each workload and keeps the workloads,
    so that the intervals describe a repetition of the same workloads. The interval of a score is symmetric
    around the estimate and contains 95 % of the resampled scores (Hall, Journal of the Royal Statistical
    Society B 50, 1988); it is widened for small samples (Hesterberg, The American Statistician 69, 2015) and
    clipped to 0 and 1. The interval of a rank has the percentiles of the resampled ranks as ends, and
    contains the estimate.

    **Equally fast submissions.** If several submissions are equally fast, one of them is the fastest by
    chance, all their scores are too low, and the bootstrap as described does not show it. A second upper end
    is therefore computed from studies in which every submission that may be as fast as the fastest on a
    workload, by the interval of their ratio, is made exactly as fast. The larger of the two upper ends is
    returned. This is the moment selection of Andrews and Soares (Econometrica 78, 2010), which repairs the
    bootstrap of a minimum (Fang and Santos, Review of Economic Studies 86, 2019).

    **Tiers.** In the order of scores, a submission starts a new tier if it differs significantly from any
    member of the tier above, so that no two members of a tier differ significantly. Equal scores share a
    tier. The differences of all pairs are tested together: a difference is significant if it exceeds, in
    units of its resampled standard deviation, the largest deviation of any pair from its estimate in 95 % of
    the resamples (Westfall and Young, Resampling-Based Multiple Testing, 1993), widened as above.

    The method assumes independent studies. Its coverage was measured: `docs/statistics.md`.

    Args:
        runs: frame with the columns submission, workload, study and seconds, one row for each combination of
            the first three. Null or infinite seconds mean that the target was missed. A study that other
            submissions have on a workload, and a submission lacks, counts as missed by it.
        variants: by the name of a workload that is a variant, the name of its base. A variant is not part of
            the profile; the base counts for a submission only if it also reaches the target on the variants.
        paired: whether studies of the same name are the same problem instance (seed) for all submissions.
            They are then drawn together.

    Returns:
        Frame with the columns submission, score, low, high, rank (ties averaged), rank_low, rank_high, tier
        (from 1) and studies (the smallest number on a workload), in descending order of scores. If every
        workload has a single study, nothing can be resampled: bounds and tiers are null.

    Raises:
        ValueError: when a column is missing, a study occurs twice, seconds are NaN or not above 0, or a
            variant is unknown or its own base.

    Example:
        >>> import polars as pl
        >>> from curvebench import score_intervals
        >>> times = {"adam": [10.0, 11.0], "sgd": [20.0, None]}  # seconds to the target with two seeds
        >>> runs = pl.DataFrame(
        ...     [
        ...         {"submission": name, "workload": "digits", "study": seed, "seconds": seconds}
        ...         for name, values in times.items()
        ...         for seed, seconds in enumerate(values)
        ...     ]
        ... )
        >>> score_intervals(runs, paired=True).select("submission", "rank", "tier").rows()
        [('adam', 1.0, 1), ('sgd', 2.0, 2)]
    """
    contest = _contest(runs, variants or {})
    studies = _studies(runs, contest, paired)
    few, many = (
        _resampled_medians(studies, paired, size, np.random.default_rng(0))
        for size in (RESAMPLES, TIER_RESAMPLES)
    )
    found = _bounds(studies, contest, few) | {"tier": _tiers(studies, contest, many)}
    counts = [each.shape[1] for each in studies]
    frame = pl.DataFrame({"submission": contest.submissions, **found, "studies": min(counts)})
    if max(counts) == 1:
        frame = frame.with_columns(pl.lit(None, frame.schema[name]).alias(name) for name in RESAMPLED)
    return frame.sort("score", "submission", descending=[True, False])


def _bounds(studies: Studies, contest: _Contest, drawn: np.ndarray) -> dict[str, np.ndarray]:
    """Scores and ranks with their intervals, each of shape (submissions,): see `score_intervals`.

    Args:
        drawn: what `_resampled_medians` returns.
    """
    medians = np.stack([_medians(each) for each in studies], axis=-1)
    estimate = _scores(medians, contest)
    scores = _scores(drawn, contest)
    ranks, estimated_ranks = _ranks(scores), _ranks(estimate)
    tails = ((1 - LEVEL) / 2, (1 + LEVEL) / 2)
    widening = _widening(studies)
    reach = widening * np.quantile(np.abs(scores - estimate), LEVEL, axis=0)
    if_tied = [_scores(each, contest) for each in _tied(medians, drawn)]
    lost = widening * np.quantile(if_tied[0] - if_tied[1], tails[1], axis=0)
    # Ranks that were met, not some between them.
    rank_low = np.quantile(ranks, tails[0], axis=0, method="lower")
    rank_high = np.quantile(ranks, tails[1], axis=0, method="higher")
    return {
        "score": estimate,
        "low": np.maximum(estimate - reach, 0.0),
        "high": np.minimum(estimate + np.maximum(reach, lost), 1.0),
        "rank": estimated_ranks,
        "rank_low": np.minimum(rank_low, estimated_ranks),
        "rank_high": np.maximum(rank_high, estimated_ranks),
    }


def _widening(studies: Studies) -> float:
    """By how much a bootstrap of n values is too narrow."""
    fewest = min(each.shape[1] for each in studies)
    return float(np.sqrt(fewest / max(fewest - 1, 1)))


def _tiers(studies: Studies, contest: _Contest, drawn: np.ndarray) -> np.ndarray:
    """The tier of every submission, from 1 on: see `score_intervals`.

    Args:
        drawn: what `_resampled_medians` returns.
    """
    estimate = _scores(np.stack([_medians(each) for each in studies], axis=-1), contest)
    off = _scores(drawn, contest) - estimate
    strays = off[:, :, None] - off[:, None, :]
    deviations = strays.std(axis=0)
    moves = deviations > ROUNDING  # the others never change: any difference of theirs tells them apart
    furthest = np.divide(strays, deviations, out=np.zeros_like(strays), where=moves).max(axis=(1, 2))
    critical = np.maximum(_widening(studies) * np.quantile(furthest, LEVEL) * deviations, ROUNDING)
    order = np.argsort(-estimate, kind="stable")
    parts = np.split(order, np.flatnonzero(np.diff(-estimate[order]) > ROUNDING) + 1)
    tiers, above, tier = np.ones(len(estimate), dtype=np.int64), parts[0], 1
    for equals in parts[1:]:
        gaps = estimate[above][:, None] - estimate[equals]
        opens = bool((gaps > critical[np.ix_(above, equals)]).any())
        above, tier = (equals, tier + 1) if opens else (np.append(above, equals), tier)
        tiers[equals] = tier
    return tiers


def _contest(frame: pl.DataFrame, variants: Mapping[str, str]) -> _Contest:
    """The names in a frame, sorted: results depend on no order of rows. The frame is checked first."""
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
    place = {workload: column for column, workload in enumerate(workloads)}
    return _Contest(
        submissions=tuple(frame["submission"].unique().sort().to_list()),
        workloads=workloads,
        variants=tuple((place[variant], place[base]) for variant, base in variants.items()),
        scored=tuple(place[workload] for workload in workloads if workload not in variants),
    )


def _studies(runs: pl.DataFrame, contest: _Contest, paired: bool) -> list[np.ndarray]:
    """Per workload the seconds of shape (submissions, studies), infinite where missed or absent."""
    if "study" not in runs.columns:
        raise ValueError(f"no column study; there are {', '.join(runs.columns)}")
    key = runs.select("submission", "workload", "study")
    if key.is_duplicated().any():
        twice = key.filter(key.is_duplicated()).row(0)
        raise ValueError(f"two rows of {' / '.join(map(str, twice))}: there must be one")
    over = ["workload"] if paired else ["submission", "workload"]
    placed = runs.with_columns((pl.col("study").rank("dense").over(over) - 1).alias("_study"))
    filled, place = [], {name: row for row, name in enumerate(contest.submissions)}
    for workload in contest.workloads:
        there = placed.filter(pl.col("workload") == workload)
        columns = there["_study"].to_numpy()
        seconds = np.full((len(contest.submissions), columns.max() + 1), np.inf)
        rows = there["submission"].replace_strict(place, return_dtype=pl.Int64).to_numpy()
        seconds[rows, columns] = there["seconds"].cast(pl.Float64).fill_null(np.inf).to_numpy()
        filled.append(seconds)
    return filled


def _resampled_medians(
    studies: Studies, paired: bool, resamples: int, random: np.random.Generator
) -> np.ndarray:
    """Medians of studies drawn with replacement, of shape (resamples, submissions, workloads)."""
    medians = []
    for seconds in studies:
        rows = 1 if paired else len(seconds)
        drawn = random.integers(seconds.shape[1], size=(resamples, rows, seconds.shape[1]))
        medians.append(_medians(seconds[np.arange(len(seconds))[:, None], drawn]))
    return np.stack(medians, axis=-1)


def _medians(values: np.ndarray) -> np.ndarray:
    """Along the last axis: np.median without its search for NaN, which takes half of its time."""
    first, second = (values.shape[-1] - 1) // 2, values.shape[-1] // 2
    parted = np.partition(values, (first, second), axis=-1)
    middle: np.ndarray = (parted[..., first] + parted[..., second]) / 2
    return middle


def _tied(medians: np.ndarray, drawn: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The medians with those that may be as fast as the fastest made so, and the resampled ones about them.

    Args:
        medians: shape (submissions, workloads).
        drawn: resampled ones, shape (resamples, submissions, workloads).
    """
    leaders = medians.argmin(axis=0)[None]
    with np.errstate(divide="ignore", invalid="ignore"):
        logs = np.log(medians) - np.log(medians.min(axis=0))
        resampled = np.log(drawn) - np.log(np.take_along_axis(drawn, leaders[None], axis=1))
        off = np.nan_to_num(np.abs(resampled - logs), nan=np.inf, posinf=np.inf)
        reach = np.quantile(off, LEVEL, axis=0, method="higher")
        factors = np.where(np.isfinite(logs) & (logs <= reach), np.exp(-logs), 1.0)
    return medians * factors, drawn * factors


def _ratios(times: np.ndarray, contest: _Contest) -> np.ndarray:
    """Ratios to the fastest, infinite where missed or void; of shape (..., submissions, workloads)."""
    within = np.where(times > LIMIT * (1 + ROUNDING) * times.min(axis=-2, keepdims=True), np.inf, times)
    for variant, base in contest.variants:
        within[..., variant] = np.where(np.isinf(within[..., base]), np.inf, within[..., variant])
    for variant, base in contest.variants:
        within[..., base] = np.where(np.isinf(within[..., variant]), np.inf, within[..., base])
    fastest = within.min(axis=-2, keepdims=True)
    counts = np.isfinite(within)
    ratios = np.full(within.shape, np.inf)
    np.divide(within, fastest, out=ratios, where=counts)
    # Rounding must not take a time at the limit out of the profile.
    return np.where(counts, np.minimum(ratios, LIMIT), np.inf)


def _scores(times: np.ndarray, contest: _Contest) -> np.ndarray:
    """Areas under the profiles, of shape (..., submissions), for times of (..., submissions, workloads)."""
    ratios = _ratios(times, contest)[..., list(contest.scored)]
    weights = np.full(POINTS, 1.0 / (POINTS - 1))
    weights[[0, -1]] /= 2
    # A workload solved at ratio r adds the weights of all points from r on, and nothing behind the last.
    area = np.append(np.cumsum(weights[::-1])[::-1], 0.0)
    # A ratio that is at a point but for rounding is at it, or processors would disagree about ties.
    place = np.searchsorted(np.linspace(1.0, LIMIT, POINTS), ratios * (1 - ROUNDING))
    scores: np.ndarray = area[place].mean(axis=-1)
    return scores


def _ranks(scores: np.ndarray) -> np.ndarray:
    """Ranks along the last axis, 1 for the highest score, ties averaged."""
    near = 1e-12  # below any difference of areas; sums in another order differ by less
    gaps = scores[..., None, :] - scores[..., :, None]
    above, same = gaps > near, np.abs(gaps) <= near
    ranks: np.ndarray = 1 + above.sum(axis=-1) + (same.sum(axis=-1) - 1) / 2
    return ranks
