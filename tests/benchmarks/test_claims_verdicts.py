"""The verdicts of the property claims, of few instances: all hold as corrected, and none as printed."""

import pytest

from harness.checks import PropertyClaim, claims_by_id, verdicts
from tests.benchmarks.claim_mutations import few, found_rows

INSTANCES = {
    "egop.equivariance": 3,
    "egop.kronecker-subset": 3,
    "egop.smoothness-bound": 4,
    "egop.adagrad-bound": 4,
    "egop.hessian-sandwich": 8,
    "egop.hessian-lipschitz": 4,
    "egop.axis-aligned": 1,
    "egop.first-layer-data": 3,
    "egop.auxiliary-exact": 5,
    "egop.shared-filters": 1,
    "egop.natural-data": 10,
    "egop.spectral-ratio": 3,
    "egop.random-density": 1,
    "notes.adafactor": 8,
    "notes.adafactor-clip": 8,
    "notes.amsgrad": 1,
    "notes.update-size": 2,
    "notes.scale-invariance": 5,
    "notes.fisher": 3,
    "notes.hindsight": 15,
    "notes.iterations": 4,
    "notes.kronecker": 12,
    "notes.majorize": 6,
    "notes.manifold": 4,
    "notes.mirror": 8,
    "notes.momentum": 8,
    "notes.nadam": 8,
    "notes.muon": 5,
    "notes.newton-schulz-order": 4,
    "notes.regret": 6,
    "notes.online-to-batch": 3,
    "notes.rates": 10,
    "notes.shampoo": 8,
    "notes.weight-decay": 1,
}
ELSEWHERE = {  # test_claims_egop_network_spectra.py, on spectra that are given
    *("egop.spectrum-digits", "egop.spectrum-sampling", "egop.spectrum-layers", "egop.eigenvector-density"),
}
TESTED_APART = {"sensitivity to the learning rate"}  # a network is trained
MISSED = {"notes.amsgrad": {("and little later, steady gradients", "")}}
CLAIMS = {name: claim for name, (_, claim) in claims_by_id().items()}


def test_every_claim_is_here():
    assert {*INSTANCES} | ELSEWHERE == set(CLAIMS)


@pytest.mark.parametrize("claim", [CLAIMS[name] for name in INSTANCES], ids=lambda claim: claim.id)
def test_what_is_misprinted_misses_and_all_else_holds(claim: PropertyClaim):
    parts = {check.part for check in claim.checks} - TESTED_APART
    claim = few(claim, INSTANCES[claim.id], parts)
    rows = found_rows(claim)
    misprinted = {(check.part, check.variant) for check in claim.checks if check.variant == "as printed"}
    missed = MISSED.get(claim.id, set())
    assert {(row.part, row.variant) for row in rows if not row.measure.holds} == misprinted | missed
    if misprinted:
        assert verdicts(claim, rows) == {"as corrected": "reproduced", "as printed": "not reproduced"}
    else:
        assert verdicts(claim, rows) == {"": "not reproduced" if missed else "reproduced"}
