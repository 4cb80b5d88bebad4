"""L-BFGS with a line search for the strong Wolfe conditions, in which every step evaluates one point.

In formulas, w is the vector of all parameters, f the loss, g its gradient, p the direction of a search, t the
length of a trial, and f(t) and f'(t) the loss and its derivative along p at the trial point w + t p.

A search takes several steps of a run. At each step the loss is evaluated at the trial point, and the update
accepts the point, which becomes the parameters, or chooses the next trial; the parameters do not change
then. A step therefore costs exactly one gradient, in every lane, however long its search is.
"""

from __future__ import annotations

from typing import NamedTuple

from curvebench.optimizers.arrays import Array, Hyper, Ops, safe_divide
from curvebench.optimizers.needs import LOSS
from curvebench.optimizers.options import Option, Options
from curvebench.optimizers.rule import LEARNING_RATE, Hyperparameter, Rule, configured
from curvebench.spec.values import whole


class Along(NamedTuple):
    """A point of a search."""

    length: Array  # t, (..., 1)
    loss: Array  # f(t), (..., 1)
    slope: Array  # f'(t), (..., 1)
    gradient: Array  # g, (..., d)


class WolfeSearch(NamedTuple):
    """State of L-BFGS with a memory of m pairs; all arrays start at 0."""

    base: Along  # the parameters, with t = 0
    low: Along  # the last trial; once there is a bracket, the end of the bracket with the smaller loss
    high: Along  # the other end of the bracket; its gradient is not used
    is_bracketed: Array  # 1 if the bracket contains a point to accept, otherwise 0, (..., 1)
    evaluations: Array  # trials of this search, (..., 1)
    length: Array  # t of the next trial, (..., 1)
    direction: Array  # p, (..., d)
    steps: Array  # differences of accepted points, the newest last, (..., m, d); 0 where there is none
    changes: Array  # differences of their gradients, (..., m, d)


def _select(ops: Ops, mask: Array, if_true: Along, if_false: Along) -> Along:
    pairs = zip(if_true, if_false, strict=True)
    return Along(*(ops.where(mask, true, false) for true, false in pairs))


def _dot(ops: Ops, one: Array, other: Array) -> Array:
    return ops.sum(one * other, axis=-1, keepdims=True)


def cubic_minimizer(ops: Ops, one: Along, other: Along, low: Array, high: Array) -> Array:
    """Return the minimizer of the cubic through two points with their slopes, limited to [low, high].

    If the cubic has no minimizer, or a value is not finite, the result is the middle (Nocedal and Wright
    2006, eq. 3.59).
    """
    width = other.length - one.length
    first = one.slope + other.slope - 3 * safe_divide(ops, other.loss - one.loss, width)
    square = first**2 - one.slope * other.slope
    second = ops.sign(width) * ops.sqrt(ops.where(square > 0, square, 0.0))
    denominator = other.slope - one.slope + 2 * second
    found = other.length - width * safe_divide(ops, other.slope + second - first, denominator)
    middle = (low + high) / 2
    return ops.where((square >= 0) & ops.isfinite(found), ops.minimum(ops.maximum(found, low), high), middle)


def newton_direction(ops: Ops, gradient: Array, steps: Array, changes: Array) -> Array:
    """Return -H g for the inverse Hessian H of L-BFGS (Nocedal and Wright 2006, Alg. 7.4).

    Pairs whose entries are all 0 have no effect. Without any pair, H is the identity.
    """
    products = ops.sum(steps * changes, axis=-1)[..., None]
    inverses = safe_divide(ops, ops.ones_like(products), products)
    count, vector, shares = steps.shape[-2], gradient, []
    for index in reversed(range(count)):
        shares.append(inverses[..., index, :] * _dot(ops, steps[..., index, :], vector))
        vector = vector - shares[-1] * changes[..., index, :]
    scale = safe_divide(ops, products[..., -1, :], _dot(ops, changes[..., -1, :], changes[..., -1, :]))
    vector = ops.where(scale > 0, scale, 1.0) * vector
    for index, share in enumerate(reversed(shares)):
        correction = inverses[..., index, :] * _dot(ops, changes[..., index, :], vector)
        vector = vector + (share - correction) * steps[..., index, :]
    return -vector


def _init(memory: int, ops: Ops, param: Array) -> WolfeSearch:
    def number() -> Array:
        return ops.zeros_like(param[..., :1])

    def point() -> Along:
        return Along(number(), number(), number(), ops.zeros_like(param))

    pairs = (*param.shape[:-1], memory, param.shape[-1])
    return WolfeSearch(
        *(point(), point(), point(), number(), number(), number()),
        ops.zeros_like(param),
        ops.zeros(pairs),
        ops.zeros(pairs),
    )


def _update(
    longest: int, ops: Ops, grad: Array, state: WolfeSearch, param: Array, hyper: Hyper
) -> tuple[Array, WolfeSearch]:
    """Do a step: judge the trial, then choose the next trial of this search, or begin the next search.

    The strong Wolfe conditions are f(t) <= f(0) + c_1 t f'(0) and |f'(t)| <= c_2 |f'(0)|. Trials grow until
    an interval contains a point that meets both, and then divide the interval (Nocedal and Wright 2006, Algs.
    3.5 and 3.6). After `longest` trials the end of the interval with the smaller loss is accepted. If that is
    the point where the search began, the pairs are forgotten, and the next direction is -g.
    """
    base, low, high = state.base, state.low, state.high
    loss = hyper["loss"][..., None] + 0 * base.loss
    trial = Along(state.length, loss, _dot(ops, grad, state.direction), grad)
    is_first, was_bracketed = hyper["step"] == 1, state.is_bracketed > 0
    evaluations = state.evaluations + 1

    # --- judge the trial ---
    allowed = base.loss + hyper["sufficient_decrease"] * trial.length * base.slope
    is_high = ~(trial.loss <= allowed) | ((trial.loss >= low.loss) & (was_bracketed | (evaluations > 1)))
    is_flat = ops.abs(trial.slope) <= -hyper["curvature"] * base.slope
    accepts_trial = is_first | (~is_high & is_flat)
    # The bracket after the trial. Where the trial is the new low end, the other end is the old low end if
    # the slope at the trial points to it, otherwise the old high end.
    turns = trial.slope * ops.where(was_bracketed, high.length - low.length, 1.0) >= 0
    new_high = _select(ops, is_high, trial, _select(ops, turns, low, high))
    new_low = _select(ops, is_high, low, trial)
    is_bracketed = was_bracketed | is_high | turns
    ends = accepts_trial | (evaluations >= longest)

    # --- the next trial of this search ---
    left = ops.minimum(new_low.length, new_high.length)
    width = ops.abs(new_high.length - new_low.length)
    inside = cubic_minimizer(ops, new_low, new_high, left + 0.1 * width, left + 0.9 * width)
    advance = trial.length - low.length
    outside = cubic_minimizer(ops, low, trial, trial.length + 0.01 * advance, 10 * trial.length)
    next_length = ops.where(is_bracketed, inside, outside)

    # --- the next search ---
    accepted = _select(ops, accepts_trial, trial, new_low)
    moved = param + accepted.length * state.direction
    step, change = accepted.length * state.direction, accepted.gradient - base.gradient
    is_lost = ends & ~accepts_trial & (accepted.length == 0)
    # Forget all pairs if the search was in vain; do not store a pair without positive curvature.
    stores = ~is_first & (_dot(ops, step, change) > 1e-15 * _dot(ops, change, change))
    pairs = []
    for old, new in ((state.steps, step), (state.changes, change)):
        shifted = ops.concatenate([old[..., 1:, :], new[..., None, :]], -2)
        kept = ops.where(stores[..., None], shifted, old)
        pairs.append(ops.where(is_lost[..., None], 0.0, kept))
    direction = newton_direction(ops, accepted.gradient, *pairs)
    slope = _dot(ops, accepted.gradient, direction)
    direction = ops.where(slope < 0, direction, -accepted.gradient)
    slope = ops.where(slope < 0, slope, -_dot(ops, accepted.gradient, accepted.gradient))
    # Without a pair, the length of p says nothing on the length of the step.
    has_pair = ops.sum(ops.abs(pairs[0][..., -1, :]), axis=-1, keepdims=True) > 0
    sum_of_gradient = ops.sum(ops.abs(accepted.gradient), axis=-1, keepdims=True)
    shorter = ops.where(has_pair | (sum_of_gradient < 1), 1.0, 1 / ops.maximum(sum_of_gradient, 1.0))
    zero = ops.zeros_like(state.length)
    start = Along(zero, accepted.loss, slope, accepted.gradient)

    return ops.where(ends, moved, param), WolfeSearch(
        base=_select(ops, ends, start, base),
        low=_select(ops, ends, start, new_low),
        high=_select(ops, ends, start, new_high),
        is_bracketed=ops.where(is_bracketed & ~ends, 1.0 + zero, zero),
        evaluations=ops.where(ends, zero, evaluations),
        length=ops.where(ends, hyper["learning_rate"] * shorter, next_length),
        direction=ops.where(ends, direction, state.direction),
        steps=ops.where(ends[..., None], pairs[0], state.steps),
        changes=ops.where(ends[..., None], pairs[1], state.changes),
    )


OPTIONS = {
    "memory": Option(10, "m, pairs of steps and changes of the gradient that are stored", whole(1)),
    "search_evaluations": Option(20, "largest number of trials in a search", whole(1)),
}


@configured("lbfgs", OPTIONS)
def lbfgs(chosen: Options) -> Rule:
    """Return the update rule of L-BFGS; options that are not given keep their defaults.

    The learning rate is the length of the first trial of each search, and usually 1. In the first search, and
    after a search in vain, it is divided by the sum of the absolute entries of g, if the sum is above 1.
    """
    return Rule(
        name="lbfgs",
        source="Nocedal and Wright 2006, Algs. 3.5, 3.6, 7.4",
        hyperparameters={
            "learning_rate": LEARNING_RATE,
            "sufficient_decrease": Hyperparameter(
                "c_1, smallest decrease of the loss as a share of what the slope promises", 1e-4, 0.0, 1.0
            ),
            "curvature": Hyperparameter("c_2, largest slope as a share of the first slope", 0.9, 0.0, 1.0),
        },
        init=lambda ops, param: _init(chosen["memory"], ops, param),
        update=lambda *arguments: _update(chosen["search_evaluations"], *arguments),
        gradient_at=lambda ops, state, param, hyper: param + state.length * state.direction,
        scope="model",
        needs=(LOSS,),
        compares_losses=True,
    )


RULES = (lbfgs({}),)
