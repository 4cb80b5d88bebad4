"""The simulated verdicts are those that the engine gives."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.simulations.verdicts import (
    DIVERGED,
    DIVERGENCE,
    MARGIN,
    NOISES,
    Noise,
    any_of,
    claims_of,
    of_claims,
    stopped,
)
from reports.claims.verdicts import combined, decided
from reports.statistics.decisions import Question
from tests.reports.synthetic import compared


def test_a_family_of_claims_gets_the_verdicts_of_the_engine():
    random = np.random.default_rng(0)
    studies = 0.1 * random.normal(size=(3, 3, 8)) + np.array([-0.2, 0.05, 0.3])[:, None]
    asked = [
        [compared(gains, effect="difference", sign=1.0, smallest_effect=MARGIN) for gains in study]
        for study in studies
    ]
    expected = [[combined([finding]) for finding in decided(study)["finding"]] for study in asked]
    found = claims_of(Question("better", MARGIN), studies)
    assert found == expected
    assert {"reproduced", "not reproduced"} <= {verdict for study in found for verdict in study}
    assert any_of(found, "reproduced") == 1.0
    assert of_claims(found, "reproduced") >= 1 / 3


@pytest.mark.parametrize("share", [0.3, 0.9])
def test_where_runs_stop_gains_lie_between_their_bounds_and_the_engine_judges_those(share: float):
    random = np.random.default_rng(3)
    gains = 0.3 * MARGIN * random.normal(size=(4, 3, 12)) + MARGIN
    least, most = stopped(random, gains, share)
    assert ((least <= gains + 1e-12) & (gains <= most + 1e-12)).all()
    assert (np.isneginf(least) & np.isposinf(most)).mean() == pytest.approx(share, abs=0.1)
    asked = [
        [
            compared(low, effect="difference", sign=1.0, smallest_effect=MARGIN, most=high)
            for low, high in zip(*pair, strict=True)
        ]
        for pair in zip(least, most, strict=True)
    ]
    expected = [[combined([finding]) for finding in decided(study)["finding"]] for study in asked]
    assert claims_of(Question("better", MARGIN), least, most) == expected


@pytest.mark.parametrize("noise", NOISES, ids=lambda noise: noise.name)
def test_gains_have_the_median_that_is_asked_for_and_spread_in_margins(noise: Noise):
    gains = noise.gains(np.random.default_rng(1), MARGIN, (20_000,))
    assert (gains > MARGIN).mean() == pytest.approx(0.5, abs=0.02)
    narrow = Noise("narrow", noise.draw, 1).gains(np.random.default_rng(1), 0.0, (20_000,))
    assert gains - MARGIN == pytest.approx(noise.spread * narrow)


def test_a_control_that_often_diverges_leaves_the_median_gain_below_the_null():
    gains = DIVERGENCE.gains(np.random.default_rng(1), 0.0, (20_000,))
    assert np.isposinf(gains).mean() == pytest.approx(DIVERGED, abs=0.02)
    assert (gains[np.isfinite(gains)] <= 0).all()
    assert np.median(gains) < 0
