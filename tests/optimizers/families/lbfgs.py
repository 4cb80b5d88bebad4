"""L-BFGS: loop and entries of the battery, whose losses are given like its gradients."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from tests.optimizers.entry import Entry
from tests.optimizers.loops import Hyper, Leaf


class Point(NamedTuple):
    t: float
    loss: float
    slope: float
    gradient: np.ndarray


def cubic(one: Point, other: Point, low: float, high: float) -> float:
    """Minimize the cubic through two points by its coefficients, or return the middle."""
    width = other.t - one.t
    if width == 0:
        return (low + high) / 2 if low != high else low
    # q(x) = loss + slope x + b x^2 + a x^3 for x = t - one.t
    secant = (other.loss - one.loss) / width
    a = (one.slope + other.slope - 2 * secant) / width**2
    b = (3 * secant - 2 * one.slope - other.slope) / width
    square = b**2 - 3 * a * one.slope
    if not square >= 0:
        return (low + high) / 2
    # The root with the positive second derivative, without cancellation.
    root = np.sqrt(square)
    found = one.t + ((-b + root) / (3 * a) if b < 0 else -one.slope / (b + root))
    return float(np.clip(found, low, high)) if np.isfinite(found) else (low + high) / 2


def lbfgs(
    leaf: Leaf, hyper: Hyper, needs: list[dict[str, np.ndarray]], memory: int, search_evaluations: int
) -> Iterator[np.ndarray]:
    """Search with plain loops and branches, and store the inverse Hessian as a matrix."""
    given = zip((float(needed["loss"]) for needed in needs), leaf.grads, strict=True)
    w, rate = leaf.start, hyper["learning_rate"]
    loss, gradient = next(given)
    yield w
    pairs: list[tuple[np.ndarray, np.ndarray]] = []
    while True:
        inverse = np.eye(w.size)
        for number, (s, y) in enumerate(pairs):
            inverse = (
                inverse if number else inverse * (pairs[-1][0] @ pairs[-1][1]) / (pairs[-1][1] @ pairs[-1][1])
            )
            turn = np.eye(w.size) - np.outer(s, y) / (s @ y)
            inverse = turn @ inverse @ turn.T + np.outer(s, s) / (s @ y)
        p = -inverse @ gradient
        p = p if p @ gradient < 0 else -gradient
        start = Point(0.0, loss, p @ gradient, gradient)
        t = rate if pairs else rate / max(1.0, np.abs(gradient).sum())
        low, high, accepted, count = start, None, None, 0
        while accepted is None:
            now = next(given, None)
            if now is None:
                return
            count += 1
            here = Point(t, now[0], now[1] @ p, now[1])
            enough = here.loss <= loss + hyper["sufficient_decrease"] * t * start.slope
            if not enough or (here.loss >= low.loss and (high is not None or count > 1)):
                high = here
            elif abs(here.slope) <= -hyper["curvature"] * start.slope:
                accepted = here
                break
            elif high is None:
                if here.slope >= 0:
                    low, high = here, low
                else:
                    t = cubic(low, here, t + 0.01 * (t - low.t), 10 * t)
                    low = here
            else:
                high = low if here.slope * (high.t - low.t) >= 0 else high
                low = here
            if high is not None:
                left, width = min(low.t, high.t), abs(high.t - low.t)
                t = cubic(low, high, left + 0.1 * width, left + 0.9 * width)
            if count == search_evaluations:
                accepted = low
                break
            yield w
        s, y = accepted.t * p, accepted.gradient - gradient
        in_vain = accepted.t == 0
        pairs = [] if in_vain else pairs + ([(s, y)] if s @ y > 1e-15 * (y @ y) else [])
        pairs = pairs[-memory:]
        w, loss, gradient = w + s, accepted.loss, accepted.gradient
        yield w


HYPER = {"learning_rate": 0.7, "sufficient_decrease": 0.2, "curvature": 0.6}
ENTRIES = {
    "lbfgs": Entry(loop=lbfgs, hyper=HYPER, spreads_nan=False, tolerance=1e-10),
    "lbfgs: short": Entry(
        loop=lbfgs,
        hyper=HYPER,
        options={"memory": 2, "search_evaluations": 2},
        spreads_nan=False,
        tolerance=1e-10,
    ),
}
