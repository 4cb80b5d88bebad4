"""Claims of sources. A claim is a sentence of a paper, with the conditions under which runs support it.

A condition is a comparison of methods, such as: the final loss of one method is lower than the final loss of
another. A method is an optimizer in a basis, that is a change of coordinates of the parameters.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal, get_args

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
# Causes of a verdict. A cause says why runs do not support a claim, or support it only under conditions.
# The conditions may be a domain, a search, or other hardware.
Cause = Literal[
    "contradicts",  # the measured effect is opposite to the claim, or far from it
    "other_hardware",  # the source measured times on another kind of machine
    "other_data",  # the data, scale or problem is a stand-in for the source's
    "saturated",  # the target is met at once by most runs, or by none
    "resolution",  # evaluations, tuning or sampling are too coarse
    "threshold",  # the effect is as claimed, but smaller than the margin, target or limit requires
    "unstated_setting",  # the effect depends on a setting that the source leaves open
    "rival",  # the effect depends on how well the compared methods were tuned
]


def _with_quantity(raw: Any) -> Any:
    """Add the keys `quantity` and `at_equal` to a condition if the study file leaves these keys out.

    The two keys select the class of the condition. Their defaults select the comparison of values of a metric
    after equal numbers of steps.
    """
    return {"quantity": "value", "at_equal": "steps", **raw} if isinstance(raw, Mapping) else raw


class Claim(Document):
    """A sentence of a paper, with conditions on runs. Runs support the claim if they satisfy all conditions.

    A claim with the key `repeats` tests the sentence of another claim once more under changed circumstances,
    such as another precision. The result does not count for the verdict on the other claim. Sentence, source
    and conditions are taken from the other claim (`curvebench.spec.study.read_study_file`).

    Args:
        id: name of the claim, unique among all studies and property checks.
        sentence: the claim in words.
        source: number of the source (`curvebench.spec.sources`) and place of the sentence in the source, such
            as `000 Fig. 1`.
        conditions: comparisons that runs must satisfy; the key `supported_if` of study files.
        repeats: id of the repeated claim; empty if the claim repeats no other one.
        changed: changed circumstances of a claim that repeats another one, in words that can follow a
            verdict: "in float64".
        bases: for a claim that repeats another one, a mapping from each label that the repeated claim uses
            for a basis to the label of that basis in this study; None if the labels are the same.
        hardware: kind of machine that the source timed, for a claim about seconds. Runs on another kind of
            machine are shown, but do not decide the claim. Empty if any machine decides the claim. The hash
            of the decision rule does not depend on this key.
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
    hardware: Literal["", "gpu"] = ""

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
        """Whether at least one condition compares tuning runs, which are the runs that choose a setting."""
        return any(condition.of_tuning for condition in self.conditions)

    @property
    def written_rule(self) -> Mapping[str, Any]:
        """Id and conditions of the claim in plain JSON types. Values that equal their default are left out.

        The hash of the claim's decision rule is computed from this mapping.
        """
        dumped = self.model_dump(mode="json", exclude_defaults=True, include={"id", "conditions"})
        for written, condition in zip(dumped["supported_if"], self.conditions, strict=True):
            # The hash always includes the key `pairs`, even with its default value.
            # The hash also includes the name of the statistical test.
            # Both values were in the hash when the first sets were published.
            # The decision rules of published claims must keep their hashes.
            written |= {"pairs": condition.pairs, "test": "sign"}
        return dumped
