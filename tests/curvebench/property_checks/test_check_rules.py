"""The rules of property claims: what changes their hash, and that fresh instances follow."""

from __future__ import annotations

import json

import pytest

from curvebench.property_checks.check_rules import check_rule
from curvebench.property_checks.checks import Row, claims_by_id, claims_of, part_results
from tests.conftest import ROOT
from tests.curvebench.property_checks.toy_claims import ToyClaims

HELPER = "HALF = 0.5\n\n\ndef limit():\n    return HALF\n\n\ndef _corrected"
USED = (("def _corrected", HELPER), ('"==", 0.5, 0.5', '"==", limit(), 0.5'))


def rules(toys: ToyClaims, *changes: tuple[str, str]) -> list[str]:
    toys.write(*changes)
    return [check_rule(claim) for claim in claims_of("toy")]


@pytest.mark.parametrize(
    ("old", "new", "changed"),
    [
        ('"==", 1.0, 1e-12', '"==", 1.0, 1e-11', (True, False)),
        ('"<=", 1.0)', '"<=", 1.5)', (True, True)),
        ("HALF = 0.5", "HALF = 0.6", (True, False)),
        ("return HALF", "return 0.6", (True, False)),
        (", CORRECTED)", ", CORRECTED, sampled=True)", (True, False)),
        (", CORRECTED)", ", CORRECTED, where='')", (False, False)),
        (", CORRECTED)", ", CORRECTED, where='n = 2')", (True, False)),
        ("    return HALF", '    """A half."""\n    return HALF  # exactly', (False, False)),
        ('{"quick": 3, "paper": 5}', '{"quick": 4, "paper": 6}', (False, False)),
        ("8 numbers", "Eight numbers", (False, False)),
    ],
)
def test_what_decides_a_claim_is_in_its_rule(toys, old, new, changed):
    before = rules(toys, *USED)
    after = rules(toys, *USED, (old, new))
    assert tuple(one != other for one, other in zip(before, after, strict=True)) == changed


def test_the_rules_of_published_claims_are_those_of_today():
    """They seed the instances of these claims, which therefore are the published ones."""
    plans = [json.loads(path.read_text()) for path in (ROOT / "results/published").glob("*/plan.json")]
    # If a claim is in several sets, the newest has its rule.
    plans.sort(key=lambda plan: plan["published"].split(".")[-1])
    rules = {
        claim["id"]: claim["rule"] for plan in plans if plan["checks"] for claim in plan["checks"]["claims"]
    }
    assert rules.keys() == claims_by_id().keys()
    assert {name: check_rule(claim) for name, (_, claim) in claims_by_id().items()} == rules


def test_another_rule_has_fresh_instances(toys):
    toys.write()
    claim, _ = claims_of("toy")
    drawn = [
        [
            row.measure.value
            for row in part_results(claim.id, claim.checks[0], "quick", rule)
            if isinstance(row, Row)
        ]
        for rule in ("a", "a", "b")
    ]
    assert drawn[0] == drawn[1]
    assert not set(drawn[0]) & set(drawn[2])
