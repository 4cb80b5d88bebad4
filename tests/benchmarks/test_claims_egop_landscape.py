"""The landscape in two dimensions: closed forms, what is drawn, and other bases that are noticed."""

from __future__ import annotations

import numpy as np
import pytest

from curvebench.backends.numpy_ops import numpy_ops
from curvebench.benchmarks.claims import egop_landscape
from curvebench.benchmarks.claims.egop_landscape import (
    AXIS_ALIGNED,
    LogSumExp,
    draw_problem,
)
from curvebench.property_checks.checks import Series, Trace, part_results
from curvebench.workloads.convex import LOG_SUM_EXP
from tests.benchmarks.claim_mutations import assert_noticed

ALIGNED = "the leading direction lies along an axis"
DRAWN = "and does so on the problem of the figure"


@pytest.fixture
def problem() -> LogSumExp:
    return draw_problem(np.random.default_rng(0))


def test_losses_are_the_workload_s_and_gradients_their_slopes(problem):
    points = np.random.default_rng(1).normal(size=(5, 2)) * 20
    ops = numpy_ops("float64")
    split = {"features": problem.features, "targets": problem.targets}
    for point, loss, gradient in zip(points, problem.losses(points), problem.gradients(points), strict=True):
        assert loss == pytest.approx(float(LOG_SUM_EXP.evaluate(ops, {"theta": point}, {}, split)["loss"]))
        steps = 1e-5 * np.eye(2)
        slopes = (problem.losses(point + steps) - problem.losses(point - steps)) / 2e-5
        np.testing.assert_allclose(gradient, slopes, rtol=1e-6, atol=1e-7)
    assert np.abs(problem.gradients(problem.minimizer)).max() < 1e-10
    assert problem.losses(problem.minimizer) == pytest.approx(np.log(100))


def test_a_level_set_lies_on_its_level(problem):
    turns = np.linspace(0, 2 * np.pi, 9)
    points = problem.level_set(3.0, np.column_stack([np.cos(turns), np.sin(turns)]))
    np.testing.assert_allclose(problem.losses(points), np.log(100) + 3)


def test_what_is_drawn_is_the_landscape_and_the_paths_in_both_coordinates():
    _, check = AXIS_ALIGNED.checks
    found = part_results(AXIS_ALIGNED.id, check, "quick")
    drawn: list[Series] = [each.series for each in found if isinstance(each, Trace)]
    original, egop = ([one for one in drawn if one.panel.startswith(name)] for name in ("original", "EGOP"))
    assert [one.kind for one in original] == [one.kind for one in egop] == ["contour"] * 4 + ["path"]
    assert [one.label for one in (original[-1], egop[-1])] == ["adagrad", "adagrad @ egop"]
    assert len(egop[-1].x) == 1001
    for one, turned in zip(original[:-1], egop[:-1], strict=True):
        assert one.label == turned.label
        lengths = [np.linalg.norm(np.diff([each.x, each.y]), axis=0) for each in (one, turned)]
        np.testing.assert_allclose(lengths[0], lengths[1], err_msg="an orthogonal basis keeps lengths")
    ends = [np.array([one.x[0], one.y[0]]) for one in (original[-1], egop[-1])]
    assert np.linalg.norm(ends[0]) == pytest.approx(np.linalg.norm(ends[1])), "the same start, turned"


def test_a_basis_of_no_gradients_is_noticed(monkeypatch):
    monkeypatch.setattr(egop_landscape, "egop_basis", lambda random, problem: np.eye(2))
    assert_noticed(AXIS_ALIGNED, 1, ALIGNED, DRAWN)
