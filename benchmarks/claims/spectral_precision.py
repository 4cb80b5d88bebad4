"""Spectral-factorized curvature in half precision, and with a truncated Cayley map.

In citations, 003 is Lin et al. (2025), "Spectral-factorized Positive-definite Curvature Learning for NN
Training" (docs/sources.md).

B has the eigenvectors, and d the eigenvalues, of the learned curvature S. beta_2 is the step size of d, and
bar beta_2 the step size of a normalized rotation of B. X is the skew-symmetric generator of a rotation; the
Cayley map of X is (I + X) (I - X)^-1.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

import numpy as np

from curvebench.benchmarks.claims._curvature_paths import relative_frobenius, spread_matrix
from curvebench.benchmarks.claims._gaussians import assembled
from curvebench.benchmarks.claims._matrices import OPS
from curvebench.benchmarks.claims._measures import at_least, at_most
from curvebench.benchmarks.claims._parts import Random, printed_and_corrected
from curvebench.benchmarks.claims._spectral_scheme import POSITIVE, stepped
from curvebench.benchmarks.claims._trained_lanes import (
    CHECKPOINTS,
    defect,
    draw_lanes,
    ops_of,
    torch_ops_of,
    train,
)
from curvebench.optimizers.matrix_functions import (
    EXPONENTIALS,
    KroneckerSpectrum,
    SpectralMaps,
    Spectrum,
    nearer_orthogonal,
    rotation_generator,
    spectral_growth,
)
from curvebench.optimizers.matrix_functions.scaling import normalized
from curvebench.optimizers.matrix_functions.spectral_steps import CAYLEYS
from curvebench.property_checks.checks import CORRECTED, PRINTED, Check, Measure, PropertyClaim, Series
from curvebench.results.verdicts import Variant

TIES: tuple[tuple[Variant, float], ...] = ((PRINTED, 0.0), (CORRECTED, 1e-2))
SEEDS, STEPS = 24, 1000
# Maximum increase of log(loss) by half precision.
# The same number is the maximum difference of log(loss) between the exact and the truncated Cayley map.
WORSE = 0.05
# Best learning rate for each power p, among 0.003, 0.01, ... 0.3, in float32 with 300 steps and other seeds.
RATES = {1.0: 0.03, 2.0: 0.03, 4.0: 0.3}
TRAINED: Mapping[str, Any] = {"cayley": "truncated", "clipping": 1.0}
AXES = ("steps", "greatest |B^T B - I|")
REDUCED = "a network of 512 weights is trained where 003 trains vision transformers of 50 to 86 million"
Measures = Callable[..., Iterator[Measure | Series]]


def _by_ties(
    name: str, source: str, measures: Measures, quick: Mapping[str, Any], **case: Any
) -> list[Check]:
    """Return two checks on the same seeds, without and with a tie tolerance.

    Without a tolerance, only equal eigenvalues count as tied (and their eigenvectors are not rotated), as 003
    prints.
    """
    return [
        Check(
            name,
            source,
            partial(measures, ties=ties, **case),
            {"quick": 1, "paper": 1},
            variant,
            {"quick": partial(measures, ties=ties, **case, **quick)},
            sampled=True,
        )
        for variant, ties in TIES
    ]


def _interval(values: np.ndarray, intervals: int) -> tuple[np.ndarray, np.ndarray]:
    """Return means over seeds (the last axis), and half-widths of the t intervals of these means.

    The level of an interval is such that `intervals` intervals have a simultaneous coverage of 95 %.
    """
    from scipy.stats import t

    seeds = values.shape[-1]
    error = values.std(-1, ddof=1) / np.sqrt(seeds)
    return values.mean(-1), t.ppf(1 - 0.05 / (2 * intervals), seeds - 1) * error


# --- half precision (003 Sec. 3.4, Sec. 4.4) ------------------------------------------------------

# Number of checks per variant. The intervals of these checks have a simultaneous coverage of 95 %.
PARTS = 6


def _stable(
    random: Random, power: float, weights: str, ties: float, seeds: int = SEEDS, steps: int = STEPS
) -> Iterator[Measure | Series]:
    """Compare training in bfloat16 and in float32, from the same weights and on the same minibatches."""
    lanes = draw_lanes(random, seeds, steps)
    options = {**TRAINED, "power": power, "tie_tolerance": ties}
    hyper = {"learning_rate": RATES[power]}
    full, half = train(lanes, options, hyper), train(lanes, options, hyper, "bfloat16", weights)
    with np.errstate(invalid="ignore"):  # some losses may not be finite
        worse, tolerance = _interval(np.log(half.losses[-1] / full.losses[-1]), PARTS)
    is_finite = np.isfinite(worse)
    loss = "logarithm of the last loss over float32's, mean"
    yield at_most(loss, worse if is_finite else np.inf, WORSE, tolerance if is_finite else 0.0)
    yield at_least("least of d", half.values.min(), POSITIVE)
    for name, found in (("float32", full), (f"bfloat16, weights in {weights}", half)):
        panel = f"p = {power:g}, ties {ties:g}"
        losses = found.losses.mean(-1)
        if np.isfinite(losses).all():
            yield Series("003 Fig. 4, loss", name, found.steps, losses, ("steps", "loss"), panel=panel)
        if np.isfinite(found.defects).all():
            given = (found.steps[1:], found.defects[1:])
            yield Series("drift in training", name, *given, AXES, panel=panel, log="y")


# --- drift of B -----------------------------------------------------------------------------------

SIZE, DRAWS, DRIFT_STEPS = 16, 5, 4000
# Step sizes beta_2 (of d) and bar beta_2 (of the rotation of B), the defaults of the rule.
RATE, TURN = 0.05, 0.05
# Number of steps between two corrections that make B more orthogonal.
EVERY = 10


def inverse_of(ops: Any, skew: Any) -> Any:
    """Return the inverse of I - X, for a skew-symmetric matrix X.

    For bfloat16, in which no library solves linear systems, the inverse is computed in float32 and rounded.
    """
    table = torch_ops_of("float32") if ops.dtype == "bfloat16" else ops
    matrix = ops.cast(ops.eye(skew.shape[-1]) - skew, table.dtype)
    return ops.cast(table.solve(matrix, table.zeros_like(matrix) + table.eye(skew.shape[-1])), ops.dtype)


def exact_product(ops: Any, basis: Any, skew: Any) -> Any:
    """Return B times the Cayley map of X, computed as the product B ((I + X) (I - X)^-1)."""
    return basis @ ((ops.eye(skew.shape[-1]) + skew) @ inverse_of(ops, skew))


def exact_sum(ops: Any, basis: Any, skew: Any) -> Any:
    """Return B times the Cayley map of X, computed as the sum B + B E with E = 2 X (I - X)^-1."""
    return basis + basis @ (2 * skew @ inverse_of(ops, skew))


def truncated_product(ops: Any, basis: Any, skew: Any) -> Any:
    """Return B times the truncated Cayley map, B ((I + X)^2 (I + X^2) (I + X^4)) (003 Sec. 3.4)."""
    one, square = ops.eye(skew.shape[-1]), skew @ skew
    return basis @ ((one + skew) @ (one + skew) @ (one + square) @ (one + square @ square))


FORMS: Mapping[str, Mapping[str, Callable[[Any, Any, Any], Any]]] = {
    "exact": {"product": exact_product, "sum B + B E": exact_sum},
    "truncated": {"product": truncated_product, "sum B + B E": CAYLEYS["truncated"]},
}


def drifting(
    random: Random,
    form: Callable[[Any, Any, Any], Any],
    precision: str,
    corrects: bool,
    draws: int = DRAWS,
    steps: int = DRIFT_STEPS,
) -> tuple[np.ndarray, np.ndarray, float]:
    """Take full-matrix steps on normal gradients, and measure how far B drifts from orthogonal.

    Args:
        random: generator of the instance.
        form: `form(ops, basis, skew)`, a way to compute the Cayley map.
        precision: precision of all steps.
        corrects: whether bases are made more orthogonal at every EVERY-th step.
        draws: number of independent runs.
        steps: number of steps.

    Returns:
        Steps, maximum |B^T B - I|_2 after these steps, and the minimum of d.
    """
    ops = ops_of(precision)
    covariance = spread_matrix(random, SIZE, 100.0)
    gradients = random.standard_normal((steps, draws, SIZE)) @ np.linalg.cholesky(covariance).T
    basis, values = ops.zeros((draws, SIZE, SIZE)) + ops.eye(SIZE), ops.zeros((draws, SIZE)) + 1
    at, found, least = [], [], np.inf
    for number, gradient in enumerate(map(ops.asarray, gradients), start=1):
        if corrects and number % EVERY == 0:
            basis = nearer_orthogonal(ops, basis)
        inside = (gradient[..., None, :] @ basis)[..., 0, :]
        outer = inside[..., :, None] * inside[..., None, :]
        skew, _ = normalized(ops, rotation_generator(ops, values, outer, TIES[1][1]), (-2, -1))
        growth = spectral_growth(values, ops.square(inside), RATE, 1.0)
        basis, values = (
            form(ops, basis, TURN / 2 * skew),
            values * EXPONENTIALS["first_order"](ops, *growth),
        )
        if number % (steps // CHECKPOINTS) == 0:
            at.append(number)
            found.append(defect(_double(ops, basis)))
            # The minimum is NaN if an entry is NaN, so that a failed run is noticed.
            least = float(np.minimum(least, _double(ops, values).min()))
    return np.array(at), np.array(found), least


def _double(ops: Any, array: Any) -> np.ndarray:
    return np.asarray(ops.to_numpy(ops.cast(array, "float64")), np.float64)


def _drift(
    random: Random, precision: str, cayley: str, draws: int = DRAWS, steps: int = DRIFT_STEPS
) -> Iterator[Measure | Series]:
    # All forms of the Cayley map get the same gradients, because the same seed is used.
    seed = int(random.integers(2**32))
    for form, function in FORMS[cayley].items():
        for corrects in (False, True):
            name = f"{form}, {'corrected' if corrects else 'as it drifts'}"
            at, found, least = drifting(
                np.random.default_rng(seed), function, precision, corrects, draws, steps
            )
            yield at_least(f"least of d, {name}", least, POSITIVE)
            if np.isfinite(found).all():
                panel = f"{precision}, {cayley} Cayley map"
                yield Series("drift of B", name, at, found, AXES, panel=panel, log="x y")


HALF_PRECISION = PropertyClaim(
    id="spectral.half-precision",
    sentence="The scheme trains stably in bfloat16, without eigendecomposition or QR.",
    source="003 Sec. 3.4, Sec. 4.4",
    setting=(
        "Trained: W_2 tanh(W_1 x), both 16 x 16, on 1,024 correlated inputs whose labels are those of such "
        "a network, a tenth of them drawn anew; minibatches of 64, 1,000 steps (60 at quick scale), 24 "
        "seeds (3). The rule spectral with the truncated Cayley map, directions clipped at a root mean "
        "square of 1, all else at its defaults; rates by a cosine from the best of a grid for float32 on "
        "other seeds (0.03 for p = 1 and 2, 0.3 for p = 4). In bfloat16 are state, gradients, "
        "hyperparameters and the result of every operation of the rule (PyTorch on a CPU); the loss and its "
        "gradient are computed in float32, at weights in float32, as mixed precision keeps them, or in "
        "bfloat16. float32 has the same seeds, minibatches and numbers. Stable: d > 0 and the logarithm of "
        "the last loss over float32's at most 0.05, by t intervals over seeds of 95 % for all roots and "
        "weights together; a loss that is not finite counts as infinite. How far B drifts from orthogonal "
        "is shown, not judged, since 003 bounds it nowhere (|B^T B - I|_2 < 1 was asked until runs reached "
        "1.06 in training and 1.9 by products). Drift: a full S of 16 x 16, g ~ N(0, Sigma) of condition "
        "100, beta_2 = bar beta_2 = 0.05, 4,000 steps (200) of 5 draws (1), by products or as B + B E, each "
        "with and without a Newton-Schulz correction at every 10th step; the inverse of the exact map in "
        "bfloat16 is solved in float32. Limits chosen before any run; the seeds were 8 in a first one, "
        "which left seven of twelve undecided. As printed equal values alone are tied, as corrected those "
        "within 1 %."
    ),
    checks=(
        *(
            check
            for power in RATES
            for weights in ("float32", "bfloat16")
            for check in _by_ties(
                f"p = {power:g}, weights in {weights}",
                "003 Sec. 4.4",
                _stable,
                {"seeds": 3, "steps": 60},
                power=power,
                weights=weights,
            )
        ),
        *(
            Check(
                f"drift in {precision}, {cayley} Cayley map",
                "003 Sec. 3.4",
                partial(_drift, precision=precision, cayley=cayley),
                {"quick": 1, "paper": 1},
                by_scale={"quick": partial(_drift, precision=precision, cayley=cayley, draws=1, steps=200)},
            )
            for precision in ("float64", "float32", "bfloat16")
            for cayley in FORMS
        ),
    ),
    at_most_partly=REDUCED,
)

# --- the truncated Cayley map (003 Sec. 3.4, Fig. 10) ---------------------------------------------

# Values of bar beta_2. The Frobenius norm of the rotation's generator is bar beta_2 / 2, and thus below 1.
TURNS = (0.05, 0.5, 1.5)
# Number of times at which losses are compared.
TIMES = 5
# Maximum relative difference of two curvatures S along a path, at which the paths count as the same.
SAME_PATH = 0.01
# Minimum ratio of the step times with the exact and with the truncated map.
# If the ratio is at least this number, the truncated map counts as much faster.
MUCH_FASTER = 1.5
# Number of samples of each step, and planned number of steps (so small that nothing is compiled).
REPETITIONS, EAGER = 101, 100


def _same_losses(
    random: Random, turn: float, ties: float, seeds: int = SEEDS, steps: int = STEPS
) -> Iterator[Measure | Series]:
    """Compare losses of training with the exact and the truncated map in float32, on the same minibatches."""
    lanes = draw_lanes(random, seeds, steps)
    hyper = {"learning_rate": RATES[2.0], "rotation_rate": turn}
    options = {"power": 2.0, "clipping": 1.0, "tie_tolerance": ties}
    found = {name: train(lanes, {**options, "cayley": name}, hyper) for name in CAYLEYS}
    every = CHECKPOINTS // TIMES
    with np.errstate(invalid="ignore"):  # some losses may not be finite
        ratios = np.log(found["truncated"].losses / found["exact"].losses)[every::every]
        means, halves = _interval(ratios, TIMES * len(TURNS))
    for number, (mean, half) in enumerate(zip(means, halves, strict=True), start=1):
        value, tolerance = (abs(mean), half) if np.isfinite(mean) else (np.inf, 0.0)
        yield at_most(f"|logarithm of the losses' ratio|, {number} of {TIMES}", value, WORSE, tolerance)
    for name, one in found.items():
        if np.isfinite(one.losses).all():
            panel = f"turns of {turn:g}, ties {ties:g}"
            yield Series("003 Fig. 10", name, one.steps, one.losses.mean(-1), ("steps", "loss"), panel=panel)


def _same_path(random: Random, turn: float, ties: float, steps: int = 500) -> Iterator[Measure]:
    """Compare the curvatures S that both Cayley maps learn from the same normal gradients, in float64."""
    shape = (6, 8)
    roots = [np.linalg.cholesky(spread_matrix(random, size, 10.0)) for size in shape]
    begun = KroneckerSpectrum(np.ones(1), tuple(Spectrum(np.eye(size), np.ones(size)) for size in shape))
    paths: dict[str, Any] = dict.fromkeys(CAYLEYS, begun)
    greatest = 0.0
    for _ in range(steps):
        gradient = roots[0] @ random.standard_normal(shape) @ roots[1].T
        for name, spectrum in paths.items():
            maps = SpectralMaps("first_order", name, normalized=True, tie_tolerance=ties)
            paths[name] = stepped(spectrum, gradient, RATE, 1.0, maps, turn=turn)
        wholes = [assembled(one) for one in paths.values()]
        gap = float(relative_frobenius(wholes[1], wholes[0]))
        greatest = max(greatest, gap if np.isfinite(gap) else np.inf)
    yield at_most("greatest |S of truncated - S of exact| over |S of exact|", greatest, SAME_PATH)


def _near_cayley(random: Random, printed: bool) -> Iterator[Measure]:
    """Check that the truncated product is Cayley(X) (I - X^8).

    003 prints the product with inverses of the factors.
    """
    size = int(random.integers(2, 9))
    drawn = random.standard_normal((size, size))
    skew = (drawn - drawn.T) / np.linalg.norm(drawn - drawn.T) * random.uniform(0.3, 0.95)
    one, powers = np.eye(size), [np.linalg.matrix_power(skew, exponent) for exponent in (1, 2, 4)]
    cayley = (one + skew) @ np.linalg.inv(one - skew)
    found = truncated_product(OPS, one, skew)
    if printed:
        found = one + skew
        for power in powers:
            found = found @ np.linalg.inv(one + power)
    error = np.linalg.norm(found - cayley, 2) / np.linalg.norm(skew, 2) ** 8
    yield at_most("distance from Cayley(X) over |X|^8", error, 1.0, 1e-6)


def _step_times(random: Random, size: int, repetitions: int = REPETITIONS) -> Iterator[Measure]:
    """Compare step times of the rule with the exact and with the truncated Cayley map.

    The parameter is one matrix (n, n) in float32. The two steps are timed in turn on one CPU thread.
    """
    # The order of these imports is part of the hash of the claim's rule, and thus determines its instances.
    from curvebench.timing.clocks import one_thread
    from curvebench.timing.interleaving import interleaved

    # isort: split
    from curvebench.benchmarks.kernels.steps import optimizer_step
    from curvebench.optimizers import rules

    shapes = {"w": (size, size)}
    with one_thread():
        steps = [
            optimizer_step("torch", rules()["spectral"].choose({"cayley": name}), shapes, "float32", EAGER)
            for name in CAYLEYS
        ]
        with steps[0].context(), steps[1].context():
            found = interleaved(steps[0].run, steps[1].run, repetitions).ratio
    half = max(found.high - found.median, found.median - found.low)
    yield at_least(
        "seconds with the exact map over those with the truncated one", found.median, MUCH_FASTER, half
    )


CAYLEY_TRUNCATED = PropertyClaim(
    id="spectral.cayley-truncated",
    sentence="The truncated Cayley map does as well per iteration as the exact one.",
    source="003 Sec. 3.4, Fig. 10",
    setting=(
        "p = 2 and rotations of a given length, bar beta_2 of 0.05, the rule's default, 0.5 and 1.5: |b N|_F "
        "is half of that. Losses: the network of spectral.half-precision in float32, rates from 0.03 by a "
        "cosine, the same seeds, minibatches and hyperparameters for both maps; after each fifth of the steps"
        " the mean over seeds of the logarithm of truncated over exact is within 0.05 of 0, by t intervals "
        "over seeds of 95 % for all times and lengths together. Limits chosen before any run; seeds, 24, "
        "were 8 in a first one, which left parts undecided. How long a step takes is a claim of its own, "
        "spectral.cayley-truncated-seconds. The product's middle form is printed with the inverses of its "
        "factors; as corrected it has none, as its end. As printed equal values alone are tied, as corrected "
        "those within 1 %."
    ),
    checks=(
        *printed_and_corrected("the product is near the Cayley map", "003 Sec. 3.4", _near_cayley, 10),
        *(
            check
            for turn in TURNS
            for check in _by_ties(
                f"losses, bar beta_2 = {turn:g}",
                "003 Fig. 10",
                _same_losses,
                {"seeds": 3, "steps": 100},
                turn=turn,
            )
        ),
    ),
    at_most_partly=REDUCED,
)

CAYLEY_CURVATURE = PropertyClaim(
    id="spectral.cayley-truncated-curvature",
    sentence="The curvature that is learned with the truncated Cayley map stays near that of the exact one.",
    source="003 Sec. 3.4",
    setting=(
        "A question of ours: 003 compares losses. bar beta_2 of 0.05, the rule's default, 0.5 and 1.5, for "
        "each of which the claim is decided. Factors of 6 x 6 and 8 x 8 in float64, 500 gradients "
        "N(0, S_1 x S_2) of conditions 10, beta_2 = 0.05, S within 1 % all the way. As printed equal "
        "values alone are tied, as corrected those within 1 %."
    ),
    checks=tuple(
        Check(
            f"curvature, bar beta_2 = {turn:g}",
            "003 Sec. 3.4",
            partial(_same_path, turn=turn, ties=ties),
            {"quick": 1, "paper": 5},
            variant,
            {"quick": partial(_same_path, turn=turn, ties=ties, steps=100)},
            where=f"bar beta_2 = {turn:g}",
        )
        for turn in TURNS
        for variant, ties in TIES
    ),
)

CAYLEY_SECONDS = PropertyClaim(
    id="spectral.cayley-truncated-seconds",
    sentence="On a CPU, a step with the truncated Cayley map is much faster than one with the exact map.",
    source="003 Sec. 3.4, Fig. 10",
    setting=(
        "A question of ours: 003's figure is of a GPU. A step of the rule for one matrix with the exact map "
        "takes 1.5 times as long or longer, PyTorch in float32, in turn on one thread; 101 samples."
    ),
    checks=tuple(
        Check(
            f"a step on a CPU, {size} x {size}",
            "003 Sec. 3.4",
            partial(_step_times, size=size),
            {"quick": 1, "paper": 1},
            by_scale={"quick": partial(_step_times, size=size, repetitions=6)},
            sampled=True,
        )
        for size in (64, 256)
    ),
)

CLAIMS = (HALF_PRECISION, CAYLEY_TRUNCATED, CAYLEY_CURVATURE, CAYLEY_SECONDS)
