"""The table of mutations of claims: each row is as it says, and each subclaim is broken by one."""

from __future__ import annotations

import dataclasses

import pytest

from curvebench.property_checks.checks import PRINTED
from tests.benchmarks.claim_mutations import (
    Mutation,
    faults,
    few_instances,
    mutations,
    property_claims,
    subclaims,
)
from tests.curvebench.property_checks.claim_rows import part_rows

TABLE = tuple(mutations())
UNBROKEN = {  # subclaims that miss without a mutation, so that there is nothing to break
    ("notes.amsgrad", "and little later, steady gradients")
}
UNMEASURED = {  # subclaims checked on given spectra, since spectra of networks take minutes
    *("egop.spectrum-digits", "egop.spectrum-sampling", "egop.spectrum-layers", "egop.eigenvector-density")
}
LONG = {  # an instance is an ensemble or a sweep of networks, one in two precisions, or thousands of steps
    "notes.weight-decay",
    *("symo.factor-estimates", "symo.factor-momentum", "spectral.half-precision", "spectral.log-det"),
    "spectral.metric-nearness",
}


def broken(rows: tuple[Mutation, ...]) -> set[tuple[str, str]]:
    return {(row.claim, check.part) for row in rows for check in subclaims(row.claim, row.breaks)}


FIRST = {row.claim.split(".")[0]: number for number, row in reversed([*enumerate(TABLE)]) if not row.slow}


@pytest.mark.parametrize(
    "row",
    [  # `make test` runs the first row of each source, CI and `make test-all` all of them
        pytest.param(
            row, id=f"{row.claim}-{number}", marks=[] if number in FIRST.values() else [pytest.mark.long]
        )
        for number, row in enumerate(TABLE)
    ],
)
def test_a_row_is_as_it_says(row: Mutation):
    assert faults(row) == []


def test_each_subclaim_is_broken_by_a_mutation():
    every = {(name, check.part) for name, claim in property_claims().items() for check in claim.checks}
    assert every - broken(TABLE) == UNBROKEN


@pytest.mark.parametrize(
    "claim",
    [
        pytest.param(name, marks=[pytest.mark.long] if name in LONG else [])
        for name in sorted({*property_claims()} - UNMEASURED)
    ],
)
def test_what_no_row_measures_as_it_is_can_be_measured(claim: str):
    """Statements as they are printed, and those printed well for which rows give something or take long."""
    measured = broken(tuple(row for row in TABLE if not row.given and not row.slow))
    for check in property_claims()[claim].checks:
        if check.variant == PRINTED or (not check.variant and (claim, check.part) not in measured):
            found = part_rows(claim, few_instances(check, 1), "quick")
            assert {(row.part, row.variant) for row in found} == {(check.part, check.variant)}


ROW = Mutation(
    "notes.mirror",
    {"rule mirror_descent": {"learning_rate": "-value"}},
    ("regret with projections",),
    (),
    {},
    20,
)


@pytest.mark.parametrize(
    ("changed", "fault"),
    [
        ({"mutation": {"rule mirror_descent": {"learning_rate": "value"}}}, "regret with projections: holds"),
        ({"mutation": {"_online_games.play": "result"}}, "regret with projections: holds"),
        ({"keeps": ROW.breaks}, "regret with projections: misses"),
        ({"given": ROW.mutation, "mutation": {}}, "regret with projections: misses without the mutation too"),
    ],
    ids=["a rule as it is", "a function as it is", "kept", "missed as it is"],
)
def test_a_row_that_is_not_as_it_says_is_noticed(changed, fault):
    assert faults(ROW) == []
    assert faults(dataclasses.replace(ROW, **changed)) == [fault]


@pytest.mark.parametrize(
    ("changed", "error"),
    [
        ({"breaks": ("regret with projection",)}, ValueError),
        ({"mutation": {"notes_mirror.NONE": "0"}}, AttributeError),
        ({"mutation": {"curvebench.optimizers.spheres.NORMS[l3]": "0"}}, KeyError),
    ],
    ids=["subclaim", "place", "item"],
)
def test_what_is_not_there_is_an_error(changed, error):
    with pytest.raises(error):
        faults(dataclasses.replace(ROW, **changed))
