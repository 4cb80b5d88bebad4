"""Claims of sources. A claim is a sentence of a paper, with the conditions under which runs support it.

A condition is a comparison of methods, such as: the final loss of one method is lower than that of another. A
method is an optimizer in a basis, that is a change of coordinates of the parameters.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, get_args

from pydantic import BeforeValidator, Field, model_validator

from curvebench.spec.conditions import costs, learning_rates, log_linearity, share_of_gain, value
from curvebench.spec.document import Document, as_list, models_of

OfQuantity = Annotated[
    Annotated[value.Value | value.ValueAtEqualCost, Field(discriminator="at_equal")]
    | costs.CostToStop
    | costs.StepsToTarget
    | costs.SecondsToNearlyBest
    | costs.RunSeconds
    | log_linearity.LogLinearity
    | learning_rates.BestLearningRate
    | learning_rates.GainOverRates
    | share_of_gain.ShareOfGain,
    Field(discriminator="quantity"),
]
NAMES = [get_args(model.model_fields["quantity"].annotation) for model in models_of(OfQuantity)]
QUANTITIES = tuple(dict.fromkeys(name for names in NAMES for name in names))


def _with_quantity(raw: Any) -> Any:
    """Add the keys that select the class of a condition if the study file leaves them out.

    By default a condition compares values of a metric at equal steps.
    """
    return {"quantity": "value", "at_equal": "steps", **raw} if isinstance(raw, Mapping) else raw


class Claim(Document):
    """A sentence of a paper with the conditions that decide it, all of which must hold.

    A claim with the key `repeats` tests the sentence of another claim once more under changed circumstances,
    such as another precision, and does not count for the verdict on that claim. It takes sentence, source and
    conditions from the other claim (`curvebench.spec.study.read_study_file`).

    Args:
        id: name of the claim, unique among all studies and property checks.
        sentence: the claim in words.
        source: number of the source (`curvebench.spec.sources`) and place of the sentence in it, such as
            `000 Fig. 1`.
        conditions: comparisons that runs must satisfy; the key `supported_if` of study files.
        repeats: id of the repeated claim; empty if the claim repeats no other one.
        changed: changed circumstances of a claim that repeats another one, in words that can follow a
            verdict: "in float64".
        bases: for a claim that repeats another one, the label of each basis in this study by the label that
            the repeated claim uses; None if the labels are the same.
    """

    id: str
    sentence: str
    source: str
    conditions: Annotated[
        tuple[Annotated[OfQuantity, BeforeValidator(_with_quantity)], ...],
        BeforeValidator(as_list),
        Field(strict=False, min_length=1, alias="supported_if"),
    ]
    repeats: str = ""
    changed: str = ""
    bases: dict[str, str] | None = None

    @model_validator(mode="after")
    def _says_what(self) -> Claim:
        if bool(self.repeats) != bool(self.changed) or (self.bases and not self.repeats):
            raise ValueError(
                "repeats, changed and bases: a claim that repeats another needs changed, and may have bases"
            )
        if all(condition.positive_control for condition in self.conditions):
            raise ValueError("supported_if: all conditions are positive controls; add one that decides")
        return self

    @property
    def methods(self) -> frozenset[str]:
        """Labels of all methods in the conditions."""
        return frozenset(name for condition in self.conditions for name in condition.named)

    @property
    def of_tuning(self) -> bool:
        """Whether a condition compares tuning runs."""
        return any(condition.of_tuning for condition in self.conditions)

    @property
    def written_rule(self) -> Mapping[str, Any]:
        """Id and conditions in plain JSON types, without values that are unset or equal to their default.

        The hash of the claim's decision rule is computed from these values.
        """
        dumped = self.model_dump(mode="json", exclude_defaults=True, include={"id", "conditions"})
        for written, condition in zip(dumped["supported_if"], self.conditions, strict=True):
            # The hash includes `pairs`, even if it has its default, and the name of the test. They were in
            # the hash when the first sets were published, and the rules of published claims must keep their
            # hashes.
            written |= {"pairs": condition.pairs, "test": "sign"}
        return dumped
