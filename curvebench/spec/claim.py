"""Claims of sources: sentences, and the conditions that decide them."""

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
NAMES = [get_args(one.model_fields["quantity"].annotation) for one in models_of(OfQuantity)]
QUANTITIES = tuple(dict.fromkeys(name for names in NAMES for name in names))


def _with_quantity(raw: Any) -> Any:
    """Name the class of a condition where the study file leaves it out: values, at equal steps."""
    return {"quantity": "value", "at_equal": "steps", **raw} if isinstance(raw, Mapping) else raw


class Claim(Document):
    """A sentence of a paper with the conditions that decide it: all of them must hold.

    One that `repeats` another has sentence, source and conditions from there (`read_study_file`), and decides
    nothing. `changed` says how its runs differ, in words that follow a verdict, such as "in float64"; `bases`
    which basis stands for which.
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
            raise ValueError("repeats, changed and bases: a claim that repeats another says what is changed")
        if all(one.positive_control for one in self.conditions):
            raise ValueError(
                "supported_if: all conditions are positive controls; give what decides the claim too"
            )
        return self

    @property
    def methods(self) -> frozenset[str]:
        """The methods that its conditions name."""
        return frozenset(name for one in self.conditions for name in one.named)

    @property
    def of_tuning(self) -> bool:
        """Whether tuning runs are among those that judge it."""
        return any(one.of_tuning for one in self.conditions)

    @property
    def written_rule(self) -> Mapping[str, Any]:
        """The id and conditions in plain JSON types, without unset and default values, for the rule hash."""
        dumped = self.model_dump(mode="json", exclude_defaults=True, include={"id", "conditions"})
        for written, condition in zip(dumped["supported_if"], self.conditions, strict=True):
            # the pairs and the test that decides are a part of the rule whatever the study file says
            written |= {"pairs": condition.pairs, "test": "sign"}
        return dumped
