"""Every property claim is measured on an instance of each part; no test says what follows for the claim."""

import pytest

from curvebench.property_checks.checks import PropertyClaim, claims_by_id, verdicts
from tests.benchmarks.claim_mutations import few, found_rows

ELSEWHERE = {  # test_claims_egop_network_spectra.py, on spectra that are given
    *("egop.spectrum-digits", "egop.spectrum-sampling", "egop.spectrum-layers", "egop.eigenvector-density"),
}
TESTED_APART = {"sensitivity to the learning rate"}  # a network is trained
DEAR = {  # an instance is an ensemble of networks, a network in two precisions, or thousands of steps
    *("symo.factor-estimates", "symo.factor-momentum"),
    *("spectral.half-precision", "spectral.metric-nearness", "spectral.log-det"),
}
CLAIMS = {name: claim for name, (_, claim) in claims_by_id().items()}


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[pytest.mark.long] if name in DEAR else [])
        for name in sorted({*CLAIMS} - ELSEWHERE)
    ],
)
def test_every_part_is_measured_and_the_claim_is_decided(name: str):
    claim: PropertyClaim = CLAIMS[name]
    claim = few(claim, 1, {check.part for check in claim.checks} - TESTED_APART)
    rows = found_rows(claim)
    assert {(row.part, row.variant) for row in rows} == {(one.part, one.variant) for one in claim.checks}
    misprinted = any(check.variant for check in claim.checks)
    assert {*verdicts(claim, rows)} == ({"as printed", "as corrected"} if misprinted else {""})
