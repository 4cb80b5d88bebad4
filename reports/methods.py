"""Every statistic that the site shows, in two sentences, with what it assumes and where it comes from."""

from __future__ import annotations

from dataclasses import dataclass

from reports.formatting import RANGE_BELOW, percent, plain
from reports.measures import NEARLY
from reports.statistics.decisions import LEAST_LEVEL, POWER
from reports.statistics.medians import LEVEL
from reports.statistics.paired import EXACT_UP_TO
from reports.statistics.profiles import LIMIT
from reports.statistics.ranks import LEAST_SEEDS, NEGLIGIBLE
from results.verdicts import ALPHA


@dataclass(frozen=True)
class Statistic:
    """A statistic as readers meet it.

    Args:
        anchor: its place on the page, which captions link to.
        says: what it is and how to read it, in two sentences.
        reference: where it was proposed; empty for definitions of this project.
        functions: the functions of `reports.statistics` that compute it.
    """

    anchor: str
    name: str
    says: str
    assumes: str
    reference: str
    functions: tuple[str, ...]


STATISTICS = (
    Statistic(
        "median",
        "Median and its interval",
        "The median over seeds, or over repetitions of a timing, and below it an interval between order "
        f"statistics that covers the true median with about {percent(LEVEL)}. Fewer than {RANGE_BELOW} "
        "values cannot reach that: the interval is then their whole range, and the line below a table says "
        "what it covers.",
        "Independent values; nothing of their distribution.",
        "David and Nagaraja, Order Statistics, 3rd ed., 2003, section 7.1; Hettmansperger and Sheather, "
        "Statistics and Probability Letters 4, 1986 (the interpolation)",
        ("median_interval", "medians"),
    ),
    Statistic(
        "quartiles",
        "Bands of curves",
        "The quartiles over seeds at a checkpoint: the middle half of the runs lies in the band. They tell "
        "how runs differ, and are no interval of the median.",
        "Nothing.",
        "",
        ("quartile_bands",),
    ),
    Statistic(
        "paired",
        "Paired effect",
        "Two methods are compared seed by seed on the same problem instances: the ratio of a loss that is "
        "nowhere negative, else the difference, and its median with an interval over pairs. Seeds that are "
        "hard for both then do not count as a difference between them.",
        "Independent pairs.",
        "",
        ("paired_values", "compare_pairs", "effect_for"),
    ),
    Statistic(
        "ties",
        "Ties",
        f"Values that differ by less than {percent(NEGLIGIBLE, 1)} of the larger one are equal in tests, "
        "ranks and wins; a test of two methods counts them, and pairs that stopped runs leave open, against "
        "the one that is asked about. Rounding that leans one way on every seed would be a significant "
        "result otherwise.",
        "Nothing.",
        "",
        ("tied",),
    ),
    Statistic(
        "stopped",
        "Runs that stopped",
        "A run that stopped at a threshold would have got further, nobody knows how far, so that the effect "
        "of its pair is a bound (≤ or ≥), and unknown where both stopped. A claim's comparison holds or "
        "fails only where it does so whatever these effects are; where they may put the median on either "
        "side of what the claim allows, no number of seeds would decide.",
        "That a run which goes on gets no worse.",
        "Manski, Partial Identification of Probability Distributions, Springer, 2003",
        ("tells_nothing",),
    ),
    Statistic(
        "signed-rank",
        "Wilcoxon's signed-rank test",
        "One-sided, in the direction that is claimed: how likely ranks of the paired differences would lean "
        "so far by chance. It decides only claims whose rule asks for it, and up to "
        f"{EXACT_UP_TO} pairs its null distribution is summed exactly, ties or not.",
        "Independent pairs whose differences are symmetric about their median.",
        "Wilcoxon, Biometrics Bulletin 1, 1945; Hollander, Wolfe and Chicken, Nonparametric Statistical "
        "Methods, 3rd ed., 2014, section 3.1",
        ("signed_rank_p_value",),
    ),
    Statistic(
        "sign",
        "Sign test",
        "One-sided: how likely that many of the paired differences would have the claimed sign by chance. "
        "Every p-value of a paired comparison is this test's, unless a claim's rule asks for signed ranks; "
        "n pairs give none below 2⁻ⁿ.",
        "Independent pairs; nothing of the shape of their differences.",
        "Hollander, Wolfe and Chicken, 2014, section 3.4",
        ("sign_p_value",),
    ),
    Statistic(
        "shift",
        "Ratio of two sessions' seconds",
        "Repetitions of two sessions are not paired: the ratio is the median of those between every "
        "repetition of one and every one of the other. Its interval holds the ratios that Mann and "
        "Whitney's two-sided exact test does not reject, so that interval and p-value agree.",
        "Independent repetitions whose distributions are alike but for the ratio.",
        "Hodges and Lehmann, Annals of Mathematical Statistics 34, 1963; Lehmann, Nonparametrics, revised "
        "ed., 2006; Mann and Whitney, Annals of Mathematical Statistics 18, 1947",
        ("shift",),
    ),
    Statistic(
        "holm",
        "Holm's correction",
        "The more comparisons a claim rests on, the likelier one of them succeeds by chance; the corrected "
        f"p-values of a family may be held against {percent(ALPHA)} together. Each comparison names its "
        "family, which is its claim where it names none.",
        "Nothing of how the tests depend on each other.",
        "Holm, Scandinavian Journal of Statistics 6, 1979",
        ("holm",),
    ),
    Statistic(
        "margin",
        "Margin and finding",
        "The margin is the smallest effect that matters, set by the claim before the runs. A comparison "
        "holds where the corrected test rejects its null and the median effect is one that the claim "
        f"allows, fails where the interval of the median (of {percent(LEAST_LEVEL)} or more) excludes all "
        "that it allows, and is open otherwise.",
        "What the test and the interval assume.",
        "Schuirmann, Journal of Pharmacokinetics and Biopharmaceutics 15, 1987 (two one-sided tests, for "
        "“the same”); Berger, Technometrics 24, 1982 (all comparisons must hold)",
        ("decide",),
    ),
    Statistic(
        "seeds-needed",
        "How many seeds would do",
        "Larger studies are drawn from the pairs that are there, and the least size is taken at which "
        f"{percent(POWER)} of them are decided. It speaks of the effect that was seen, which few pairs may "
        "mislead.",
        "Further seeds are like those that are there.",
        "",
        ("seeds_needed",),
    ),
    Statistic(
        "best-set",
        "The methods that may be the best",
        "A method is out of the question where another beats it seed by seed, by the sign test with "
        "Bonferroni's correction over its opponents. Of those that stay nothing is said but this: the best "
        f"one is among them with {percent(1 - ALPHA)}.",
        "Independent instances.",
        "Gupta, Technometrics 7, 1965; Hsu, Annals of Statistics 9, 1981",
        ("best_set",),
    ),
    Statistic(
        "mean-rank",
        "Mean rank",
        "Methods are ranked on every problem instance that all of them ran, 1 is best and a diverged run "
        "last; ranks are averaged over the seeds of a workload, then over workloads. The approximate "
        f"interval is a t interval over seeds, with workloads as strata, from {LEAST_SEEDS} seeds a "
        "workload on: it says how the rank would move with other seeds, not with other workloads.",
        "Independent seeds and mean ranks that are close to normal.",
        "Satterthwaite, Biometrics Bulletin 2, 1946 (degrees of freedom); Agresti and Coull, The American "
        "Statistician 52, 1998 (the least variance)",
        ("instance_ranks", "mean_ranks"),
    ),
    Statistic(
        "wins",
        "Wins",
        "On how many problem instances a method is the best or ties with it. Several methods may win one "
        "instance, and nobody wins where all diverged.",
        "Nothing.",
        "",
        ("wins",),
    ),
    Statistic(
        "score",
        "Score and rank by it",
        "A performance profile is the share of workloads that a method solves within a ratio of the fastest "
        f"one; the score is the area below it for ratios from 1 to {plain(LIMIT)}, from 0 to 1, by the "
        "median gradient evaluations to target, a missed target being infinitely long. The intervals of "
        "score and rank are of studies drawn again from the seeds of each workload, the same draw for every "
        "method, and so speak of other seeds and not of other workloads.",
        "Independent seeds. The score depends on who else takes part, and where nearly half of the runs miss "
        "the target its interval is too narrow.",
        "Dolan and Moré, Mathematical Programming 91, 2002; Dahl and others, Benchmarking Neural Network "
        "Training Algorithms, arXiv:2306.07179; Hall, Journal of the Royal Statistical Society B 50, 1988; "
        "Andrews and Soares, Econometrica 78, 2010 (methods that may be equal)",
        ("score_intervals", "study_medians", "time_ratios"),
    ),
    Statistic(
        "friedman",
        "Friedman's test",
        "How likely ranks over problem instances would differ as much as they do if every order of the "
        "methods were equally likely on each. Seeds of one workload are instances of that workload alone, so "
        "that a small p-value speaks of the workloads that ran and not of others; the smallest one that so "
        "few instances permit stands beside it.",
        "Independent instances.",
        "Friedman, Journal of the American Statistical Association 32, 1937; Iman and Davenport, "
        "Communications in Statistics A 9, 1980",
        ("friedman_test", "least_pairwise_p"),
    ),
    Statistic(
        "critical-difference",
        "Critical difference",
        "Two methods differ by Nemenyi's test where their mean ranks are further apart than the critical "
        f"difference, which holds for all pairs together at {percent(ALPHA)}. In the diagram a bar joins "
        "methods that are not told apart, which does not say that they are equal, and who else takes part "
        "counts too.",
        "What Friedman's test assumes, and enough instances for mean ranks that are close to normal.",
        "Nemenyi, Distribution-free Multiple Comparisons, 1963; Demšar, Journal of Machine Learning Research "
        "7, 2006; Benavoli, Corani and Mangili, Journal of Machine Learning Research 17, 2016 (its weakness)",
        ("pairwise_tests", "critical_difference", "indifferent_groups"),
    ),
    Statistic(
        "reached-share",
        "Share of seeds that have reached the target",
        "One minus Kaplan and Meier's estimate, with an interval for each time. A run that ended without the "
        "target counts until then as one that had not reached it, and one that diverged until the end of the "
        "budget, since it never will.",
        "Independent runs that were stopped for no reason that has to do with when they would reach the "
        "target.",
        "Kaplan and Meier, Journal of the American Statistical Association 53, 1958",
        ("reached_shares",),
    ),
    Statistic(
        "restricted-mean",
        "Restricted mean to target",
        "The mean number of gradient evaluations to the target up to a horizon, a run that takes longer "
        "counting as the horizon: the time up to which every run of both methods is known. Its interval "
        "takes times for normal or lognormal, whichever reaches further, where every run reached the target "
        "by then, else the jackknife's pseudo-values; means of two horizons do not compare.",
        "What the share of seeds assumes.",
        "Royston and Parmar, BMC Medical Research Methodology 13, 2013; Efron and Tibshirani, An "
        "Introduction to the Bootstrap, 1993, chapter 11; Zhou and Gao, Statistics in Medicine 16, 1997 "
        "(lognormal times)",
        ("restricted_means", "common_horizon"),
    ),
    Statistic(
        "win-probability",
        "Probability of being sooner",
        "How likely a run reaches the target before the other method's run of the same seed; two that miss "
        "it tie, and a tie counts half. One half means that neither is sooner.",
        "Independent seeds.",
        "Gehan, Biometrika 52, 1965",
        ("win_probability",),
    ),
    Statistic(
        "log-rank",
        "Log-rank test",
        "One-sided, that a method reaches the target sooner: how likely it would reach it so much oftener "
        "than expected, time after time, if the runs were dealt to both methods by chance. All ways to deal "
        "them are gone through, or some are drawn; where the two shares over time cross it may see nothing.",
        "Independent runs, stopped alike.",
        "Mantel, Cancer Chemotherapy Reports 50, 1966",
        ("log_rank_test",),
    ),
    Statistic(
        "front",
        "Front of loss against cost",
        "A method is on the front where no other one is better in loss or cost without being worse in the "
        "other, by medians over seeds. The share of resamples says how often it is on the front when the "
        "seeds are drawn again, which is no probability that it belongs there.",
        "Independent seeds; with few of them the share says little.",
        "Ehrgott, Multicriteria Optimization, 2nd ed., 2005; Efron and Tibshirani, 1993, chapter 6",
        ("front_shares",),
    ),
    Statistic(
        "improvement",
        "Probability of improvement",
        "How likely a run of one method ends better than the other's on the same seed, ties counting half, "
        "averaged over workloads. One half means that neither is better; how much better it ends does not "
        "count.",
        "Independent seeds.",
        "Mann and Whitney, Annals of Mathematical Statistics 18, 1947; Agarwal and others, Deep "
        "Reinforcement Learning at the Edge of the Statistical Precipice, 2021",
        ("probability_of_improvement", "joined"),
    ),
    Statistic(
        "share",
        "Shares",
        "How many runs of all diverged, reached the target or held, with an interval of the chance behind it "
        "that covers at least 95 %. Over workloads whose chances differ there is none, and a count alone is "
        "shown.",
        "Independent runs with one chance.",
        "Clopper and Pearson, Biometrika 26, 1934",
        ("share_interval",),
    ),
    Statistic(
        "sensitivity",
        "Sensitivity to the learning rate",
        f"How many decades of learning rates do nearly as well as the best one: at most {plain(NEARLY)} "
        f"times its loss, or an accuracy of at least 1/{plain(NEARLY)} of its own. It is never more than "
        "what was tried, and is of the metric that the study compares, not of the one that chose the rate, "
        "since near the floor of a training loss all rates are alike.",
        "A grid that is fine enough.",
        "",
        (),
    ),
)
