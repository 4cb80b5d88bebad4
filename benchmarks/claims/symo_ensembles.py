"""Gradients and Hessians over random initializations: structure of the covariances and mean Hessians.

An ensemble is a set of networks that start at random and have the same teacher. The source is 004, Bernacchia
(2025), "Global curvature for second-order optimization of neural networks" (docs/sources.md).
`_randomization` explains the tests.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial

from curvebench.benchmarks.claims._invariants import (
    MISPRINTS,
    Misprint,
    Structure,
    count_invariants,
    orthonormal_span,
)
from curvebench.benchmarks.claims._matrices import relative_error
from curvebench.benchmarks.claims._measures import at_least, at_most, equals, vanishes
from curvebench.benchmarks.claims._parts import Random, part, printed_and_corrected
from curvebench.benchmarks.claims._randomization import (
    ALIKE,
    Curvature,
    EnsembleMoments,
    Lesson,
    UnitChange,
    adjusted,
    ensemble,
    excluded_p_value,
    matrix_statistics,
    mean_statistics,
    seeds,
)
from curvebench.benchmarks.claims._symmetries import Perceptron, SymmetryGroup, draw_matrix
from curvebench.property_checks.checks import CORRECTED, PRINTED, Check, Measure, PropertyClaim
from curvebench.results.verdicts import Variant

# Significance level of each subclaim's test.
# A claim has at most five subclaims, so that the level of all tests together is 0.05.
LEVEL = 0.01
# Relative tolerance of products of orthogonal matrices, and of projections.
EXACT = 1e-11

TANH_2 = Lesson(Perceptron((5, 5, 5), "tanh", True), (0.0, -5.0), 0.5, 1 / 3, 0.2, 20, 500)
TANH_3 = replace(TANH_2, network=Perceptron((5, 5, 5, 5), "tanh", True))
RELU_3 = Lesson(Perceptron((5, 5, 5, 5), "relu", False), (2.5, -2.5), 1.0, 0.0, 0.01, 5, 500)
RELU_3_BIAS = replace(RELU_3, network=Perceptron((5, 5, 5, 5), "relu", True), bias_scale=1 / 3)
RELU_5 = Lesson(Perceptron((2, 3, 3, 3, 3, 2), "relu", True), (0.0, -2.0), 0.2, 1 / 3, 0.02, 5, 100)
SCALED, SHIFTED = UnitChange(scale=1.2), UnitChange(shift=0.5)


@dataclass(frozen=True)
class Sizes:
    """Sizes of a randomization test.

    Args:
        problems: number of problems, each of which is a teacher with inputs and has one ensemble. One test
            covers all problems.
        teams: number of teams of models; the models of a team get the same map.
        models: models per team.
        draws: number of random maps per team.
        points: number of inputs; None for `Lesson.points`.
    """

    problems: int
    teams: int
    models: int
    draws: int = 499
    points: int | None = None

    def of(self, lesson: Lesson) -> Lesson:
        """Return the description of an ensemble and its training with `points` inputs.

        If `points` is None, the description is returned unchanged.
        """
        return lesson if self.points is None else replace(lesson, points=self.points)


# 64 teams of 156 models: 9,984 models for each problem.
TANH = Sizes(2, 64, 156)
# 64 teams of 1,563 models: 100,032 models for each problem.
RELU = Sizes(2, 64, 1563)
QUICK_TANH = Sizes(1, 32, 60, 149, 20)
QUICK_RELU = Sizes(1, 32, 80, 149, 20)


def _both(
    name: str,
    source: str,
    measures: partial[Iterator[Measure]],
    paper: Sizes,
    quick: Sizes,
    variant: Variant = "",
) -> Check:
    """Return a check that makes one test at each scale, with ensembles of different sizes."""
    return Check(
        name,
        source,
        partial(measures, sizes=paper),
        {"quick": 1, "paper": 1},
        variant,
        {"quick": partial(measures, sizes=quick)},
    )


def _ensembles(
    random: Random, lesson: Lesson, sizes: Sizes, curvature: Curvature | None, change: UnitChange = ALIKE
) -> list[EnsembleMoments]:
    """Return the moments of each problem's ensemble, before and after training."""
    return [
        ensemble(sizes.of(lesson), seed, sizes.teams, sizes.models, curvature, change)
        for seed in seeds(random, sizes.problems)
    ]


def _blocks(
    random: Random,
    lesson: Lesson,
    sizes: Sizes,
    curvature: Curvature,
    printed: frozenset[Misprint] = frozenset(),
) -> Iterator[Measure]:
    """Yield measures of the p-values of all blocks, before and after training.

    With misprints in `printed`, a further p-value tests the components that the printed equations exclude.
    """
    found = _ensembles(random, lesson, sizes, curvature)
    statistics = [matrix_statistics(random, lesson, one, curvature, sizes.draws) for one in found]
    for block, value in adjusted(statistics).items():
        yield at_least(f"adjusted p-value, block of {block}", value, LEVEL)
    if printed:
        structure = Structure(lesson.network.depth, lesson.network.bias, lesson.group, printed)
        values = [excluded_p_value(lesson, one, curvature, structure) for one in found]
        excluded = min(1.0, len(values) * min(values))
        yield at_least("adjusted p-value, what the printed equations exclude", excluded, LEVEL)


def _noticed(random: Random, lesson: Lesson, sizes: Sizes, curvature: Curvature) -> Iterator[Measure]:
    """Measure the smallest p-value of all blocks for an ensemble without symmetry.

    The initial parameters of the first hidden unit are multiplied by 1.2.
    """
    found = _ensembles(random, lesson, sizes, curvature, SCALED)
    statistics = [matrix_statistics(random, lesson, one, curvature, sizes.draws) for one in found]
    yield at_most("least adjusted p-value of all blocks", min(adjusted(statistics).values()), LEVEL)


def _means(random: Random, lesson: Lesson, sizes: Sizes) -> Iterator[Measure]:
    found = _ensembles(random, lesson, sizes, None)
    statistics = [mean_statistics(random, lesson, one, sizes.draws) for one in found]
    for tensor, value in adjusted(statistics).items():
        yield at_least(f"adjusted p-value, mean of {tensor}", value, LEVEL)


def _means_noticed(random: Random, lesson: Lesson, sizes: Sizes, change: UnitChange) -> Iterator[Measure]:
    found = _ensembles(random, lesson, sizes, None, change)
    statistics = [mean_statistics(random, lesson, one, sizes.draws) for one in found]
    yield at_most("least adjusted p-value of all means", min(adjusted(statistics).values()), LEVEL)


def _forms(random: Random, groups: tuple[SymmetryGroup, ...], printed: bool) -> Iterator[Measure]:
    """Check that a matrix is invariant under the group if and only if the equations of 004 hold for it."""
    depth, bias = int(random.integers(2, 6)), bool(random.integers(2))
    outside = random.integers(2, 4, 2)
    widths = (int(outside[0]), *(int(width) for width in random.integers(2, 4, depth - 1)), int(outside[1]))
    structure = Structure(depth, bias, groups[0], MISPRINTS if printed else frozenset())
    missing = 0
    for (first, second), invariants in zip(
        structure.pairs, count_invariants(structure, widths).values(), strict=True
    ):
        forms = structure.forms(first, second, widths)
        rank = orthonormal_span(forms.reshape(len(forms), -1).T).shape[1] if len(forms) else 0
        missing = max(missing, abs(invariants - rank))
    yield equals("dimensions of a block that the equations miss, at most", missing, 0.0)
    sizes = {
        (first.name, second.name): len(structure.forms(first, second, widths))
        for first, second in structure.pairs
    }
    matrix = structure.built({pair: random.standard_normal(size) for pair, size in sizes.items()}, widths)
    moved = []
    for group in groups:
        turn = draw_matrix(random, widths, bias, group)
        moved.append(relative_error(turn @ matrix @ turn.T, matrix))
    yield vanishes("G M G^T less M, relative, of a matrix of their form", max(moved), EXACT)


TEST = (
    "The test is one of group randomization: the statistic is a block's squared distance from the nearest "
    "block of the theorem's form, at both times; under the claim a random map of the hidden units, drawn "
    "for each of 64 teams of models (fewer at quick scale), changes no law, so that the ensemble is "
    "exchangeable with 499 mapped ones (149). P-values are of the largest of all standardized statistics "
    "of all blocks, times and problems (Westfall and Young's maxT), so that a part is rejected falsely "
    "with a probability of at most 0.01, its level, and a claim, of at most five such parts, with 0.05. "
    "That a part could be rejected is shown by ensembles whose first hidden unit {change}: these must be, "
    "at the same level. "
)
SCALED_UNIT = "has its weights, in and out, and its bias multiplied by 1.2 when it is initialized"
FIGURES_TANH = (
    "Widths 5, 500 points, spectrum of the inputs from 1 to 1e-5, biases N(0, 1/9), weights N(0, "
    "1/fan-in), a teacher of the same architecture, the mean over points of half of the squared error, at "
    "the start and after 20 steps of gradient descent with rate 0.2. "
)
FIGURES_RELU = (
    "Three layers of width 5 without biases, weights of standard deviation 1/fan-in, spectrum from 10^2.5 "
    "to 10^-2.5, 500 points, at the start and after 5 steps of gradient descent with rate 0.01. "
)
SIZES_TANH = "Two problems with 9,984 models each; one with 1,920 and 20 points at quick scale. "
SIZES_RELU = "Two problems with 100,032 models each; one with 2,560 and 20 points at quick scale. "

COVARIANCE_TANH = PropertyClaim(
    id="symo.covariance-tanh",
    sentence=(
        "The gradient covariance of tanh networks over initializations has the zero and equal blocks of "
        "Theorem 3.1, before and during training."
    ),
    source="004 Fig. 2, Fig. 3, Thm. 3.1",
    setting=FIGURES_TANH
    + SIZES_TANH
    + TEST.format(change=SCALED_UNIT)
    + "The last part counts: networks of two to five layers, widths 2 and 3, with and without biases; the "
    "forms of eqs. 29-36 are left alone by orthogonal maps and signed permutations, and have as many "
    "dimensions as the generators of the latter leave alone.",
    checks=(
        _both(
            "two layers",
            "004 Fig. 2, eqs. 29-36",
            partial(_blocks, lesson=TANH_2, curvature="gradients"),
            TANH,
            QUICK_TANH,
        ),
        _both(
            "three layers",
            "004 Fig. 3, eqs. 29-36",
            partial(_blocks, lesson=TANH_3, curvature="gradients"),
            TANH,
            QUICK_TANH,
        ),
        _both(
            "two layers: a scaled unit is noticed",
            "004 Fig. 2",
            partial(_noticed, lesson=TANH_2, curvature="gradients"),
            replace(TANH, problems=1),
            QUICK_TANH,
        ),
        _both(
            "three layers: a scaled unit is noticed",
            "004 Fig. 3",
            partial(_noticed, lesson=TANH_3, curvature="gradients"),
            replace(TANH, problems=1),
            QUICK_TANH,
        ),
        part(
            "the equations say all",
            "004 eqs. 29-36, App. I",
            _forms,
            5,
            groups=("signed", "orthogonal"),
            printed=False,
        ),
    ),
)


def _misprinted(
    name: str,
    source: str,
    lesson: Lesson,
    curvature: Curvature,
    misprints: frozenset[Misprint],
    paper: Sizes,
    quick: Sizes,
) -> tuple[Check, Check]:
    """Return two checks of the blocks of ReLU networks, for the equations as printed and as corrected.

    Both checks use the same ensembles.
    """
    measures = partial(_blocks, lesson=lesson, curvature=curvature)
    return (
        _both(name, source, partial(measures, printed=misprints), paper, quick, PRINTED),
        _both(name, source, measures, paper, quick, CORRECTED),
    )


NARROW = (
    "As printed eq. 128 (165) lets the block of W_1 and W_L be omega_1 1^T + 1 omega_2^T alone, where "
    "permutations leave a whole d_0 x d_L matrix free, which it is as corrected; both see the same "
    "ensembles. What is free and excluded as printed must have mean 0: Hotelling's T^2 over the teams of "
    "models. "
)

COVARIANCE_RELU = PropertyClaim(
    id="symo.covariance-relu",
    sentence=(
        "The gradient covariance of ReLU networks over initializations has the structure of Theorem 3.2, "
        "before and during training."
    ),
    source="004 Fig. 4, Thm. 3.2, App. J",
    setting=FIGURES_RELU
    + SIZES_RELU
    + NARROW
    + TEST.format(change=SCALED_UNIT)
    + "Five layers 2-3-3-3-3-2 with biases N(0, 1/9), weights of standard deviation fan-in^-0.2, so that "
    "layers far apart correlate, spectrum from 1 to 0.01, 100 points, rate 0.02, two problems with "
    "49,920 models each (one with 3,840, 40 points, at quick scale), have every block of eqs. 118-142; "
    "there the block of b_1 with W_L, for which eq. 142 is not printed, is 0 as printed and has its form "
    "as corrected. The last part counts as in symo.covariance-tanh.",
    checks=(
        *_misprinted(
            "three layers",
            "004 Fig. 4, eqs. 122-131",
            RELU_3,
            "gradients",
            frozenset({"128"}),
            RELU,
            QUICK_RELU,
        ),
        *_misprinted(
            "five layers with biases",
            "004 eqs. 118-142",
            RELU_5,
            "gradients",
            frozenset({"128", "142"}),
            Sizes(2, 64, 780),
            Sizes(1, 32, 120, 149, 40),
        ),
        _both(
            "three layers: a scaled unit is noticed",
            "004 Fig. 4",
            partial(_noticed, lesson=RELU_3, curvature="gradients"),
            replace(RELU, problems=1),
            QUICK_RELU,
        ),
        *printed_and_corrected(
            "the equations say all", "004 eqs. 118-142, App. J", partial(_forms, groups=("permutations",)), 5
        ),
    ),
)

# --- claims on Hessians -----------------------------------------------------------------------------

HESSIANS = (
    (
        "two tanh layers",
        "004 Fig. 7",
        TANH_2,
        TANH,
        replace(TANH, problems=1, models=32),
        Sizes(1, 12, 90, 149, 10),
    ),
    (
        "three tanh layers",
        "004 Fig. 8",
        TANH_3,
        TANH,
        replace(TANH, problems=1, models=32),
        Sizes(1, 16, 120, 149, 10),
    ),
)
RELU_HESSIANS, QUICK_RELU_HESSIANS = replace(RELU, points=100), Sizes(1, 24, 40, 149, 20)

HESSIAN = PropertyClaim(
    id="symo.hessian",
    sentence="The averaged Hessian has the structure of the gradient covariance.",
    source="004 App. H, Fig. 7-9",
    setting="The ensembles of symo.covariance-tanh and symo.covariance-relu, with Hessians by exact second "
    "derivatives of each model, of ReLU almost everywhere, and 100 points for ReLU. Two problems with "
    "9,984 tanh models and 100,032 ReLU models each; one with 1,080 (1,920 of three layers) and 960, 10 "
    "and 20 points, at quick scale. "
    + NARROW
    + TEST.format(change=SCALED_UNIT)
    + "For that 2,048 tanh models and 25,024 ReLU models are enough.",
    checks=(
        *(
            _both(name, source, partial(_blocks, lesson=lesson, curvature="hessians"), paper, quick)
            for name, source, lesson, paper, _, quick in HESSIANS
        ),
        *_misprinted(
            "three ReLU layers",
            "004 Fig. 9, eqs. 122-131",
            RELU_3,
            "hessians",
            frozenset({"128"}),
            RELU_HESSIANS,
            QUICK_RELU_HESSIANS,
        ),
        *(
            _both(
                f"{name}: a scaled unit is noticed",
                source,
                partial(_noticed, lesson=lesson, curvature="hessians"),
                paper,
                quick,
            )
            for name, source, lesson, paper, quick in (
                *((name, source, lesson, few, quick) for name, source, lesson, _, few, quick in HESSIANS),
                (
                    "three ReLU layers",
                    "004 Fig. 9",
                    RELU_3,
                    replace(RELU_HESSIANS, problems=1, models=391),
                    QUICK_RELU_HESSIANS,
                ),
            )
        ),
    ),
)

# --- claims on mean gradients -----------------------------------------------------------------------

MEANS = (
    ("two tanh layers", "004 eqs. 26-28", TANH_2, SHIFTED, TANH, Sizes(1, 64, 20, 149, 20)),
    ("three tanh layers", "004 eqs. 26-28", TANH_3, SHIFTED, TANH, Sizes(1, 64, 20, 149, 20)),
    ("three ReLU layers", "004 eqs. 113-117", RELU_3, SCALED, RELU, Sizes(1, 64, 40, 149, 20)),
    (
        "three ReLU layers with biases",
        "004 eqs. 113-117",
        RELU_3_BIAS,
        SCALED,
        RELU,
        Sizes(1, 64, 40, 149, 20),
    ),
)

MEAN = PropertyClaim(
    id="symo.mean",
    sentence=(
        "The mean gradient over initializations is zero but for the last bias with tanh, and constant over "
        "hidden units with ReLU."
    ),
    source="004 Thm. 3.1 eqs. 26-28, App. J eqs. 113-117",
    setting="The ensembles of symo.covariance-tanh and symo.covariance-relu, the latter with biases "
    "N(0, 1/9) too. Two problems with 9,984 tanh models and 100,032 ReLU models each; one with 1,280 and "
    "2,560, 20 points, at quick scale. "
    + TEST.format(
        change=SCALED_UNIT
        + " (ReLU), or is shifted by half of a standard deviation (tanh, where a scaled unit still has "
        "either sign alike)"
    )
    + "Statistics are those of the mean of a tensor's gradient; 64 teams at both scales. The last bias is "
    "free. A changed unit is looked for in a quarter of the models of one problem.",
    checks=(
        *(
            _both(name, source, partial(_means, lesson=lesson), paper, quick)
            for name, source, lesson, _, paper, quick in MEANS
        ),
        *(
            _both(
                f"{name}: a changed unit is noticed",
                source,
                partial(_means_noticed, lesson=lesson, change=change),
                replace(paper, problems=1, models=paper.models // 4),
                quick,
            )
            for name, source, lesson, change, paper, quick in MEANS
        ),
    ),
)

CLAIMS = (COVARIANCE_TANH, COVARIANCE_RELU, HESSIAN, MEAN)
