"""Claims of sources: sentences, the conditions that decide them, and the keys of their comparisons."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal, NamedTuple, Protocol

from pydantic import BeforeValidator, Discriminator, Field, Tag, ValidationInfo, model_validator

from curvebench.spec.document import Direction, Document, JudgedWords, Which, as_list, is_written

Relation = Literal["better", "no_worse", "same"]
Effect = Literal["ratio", "difference"]
Quantity = Literal[
    "value",
    "steps_to_stop",
    "gradients_to_stop",
    "steps_to_target",
    "seconds_to_nearly_best",
    "training_seconds_to_nearly_best",
    "run_seconds",
    "log_linearity",
    "best_learning_rate",
    "trend",
    "rates_won",
    "share_of_gain",
]
OF_TUNING = ("best_learning_rate", "trend", "rates_won")  # quantities that are of tuning runs
TO_STOP = ("steps_to_stop", "gradients_to_stop")  # the second with the basis' gradients
TO_THRESHOLD = (*TO_STOP, "steps_to_target")  # those that a run may end without
TO_NEARLY_BEST = ("seconds_to_nearly_best", "training_seconds_to_nearly_best")  # with and without the basis
COSTS = (*TO_THRESHOLD, *TO_NEARLY_BEST, "run_seconds")  # those that are costs of final runs: less is better


class HasMetrics(Protocol):
    """A workload as conditions see it."""

    @property
    def name(self) -> str:
        """What tables call it."""

    @property
    def metrics(self) -> Mapping[str, Any]:
        """Its metrics by name."""


class ComparisonKey(NamedTuple):
    """What one comparison of a condition is of: by this alone it is found again.

    Args:
        claim: id of the claim.
        condition: its place among the claim's conditions, from 0.
        workload: label of the workload that the treated method runs on.
        treated: label of the method that the relation is said of.
        control: label of the method that it is held against; None where that is the condition's number.
        control_workload: label of the workload that the control runs on; None for a number.
    """

    claim: str
    condition: int
    workload: str
    treated: str
    control: str | None
    control_workload: str | None

    @property
    def sides(self) -> tuple[tuple[str, str], ...]:
        """Workload and method of the treated side and of the control; a number is none."""
        treated = (self.workload, self.treated)
        if self.control is None or self.control_workload is None:
            return (treated,)
        return (treated, (self.control_workload, self.control))


def effect_of(given: Literal["difference"] | None, direction: str) -> Effect:
    """Return how a pair is compared: as it is given, otherwise as a ratio where less is better."""
    return given or ("ratio" if direction == "minimize" else "difference")


def _share(value: Any, info: ValidationInfo) -> Any:
    """Read `5 %` as 0.05."""
    if not is_written(info):
        return value
    match = re.fullmatch(r"(\d+(?:\.\d+)?) ?%", value) if isinstance(value, str) else None
    if match is None:
        raise ValueError(f"{value!r} is not a percentage such as '5 %'")
    return float(match[1]) / 100.0


def _methods_or_number(value: Any) -> Any:
    if isinstance(value, list | tuple) or (isinstance(value, int | float) and not isinstance(value, bool)):
        return value
    raise ValueError(f"{value!r} is neither a list of methods, such as [adam], nor a number, such as 0.95")


Methods = Annotated[tuple[str, ...], Field(strict=False, min_length=1)]
# what a condition holds methods against
Rivals = Annotated[
    Annotated[Methods, Tag("methods")] | Annotated[float, Tag("number")],
    Discriminator(lambda value: "methods" if isinstance(value, list | tuple) else "number"),
    BeforeValidator(_methods_or_number),
]


class Condition(Document):
    """A relation between methods that a claim asserts.

    One of `better`, `no_worse` and `same` lists methods, `than` those they are held against: pair by
    pair, or each against each with `pairs: all`; on the same workload, unless `than_on` names another one. It
    may be a number, against which each method is held. The effect is a difference where that is given, and
    where the metric is maximized; otherwise it is a ratio. Final runs are compared, at equal steps, unless
    `quantity` asks for a cost, the shape of a curve or the tuning runs, or `at_equal` for another cost.

    Args:
        gain_from, gain_to: of `share_of_gain`, for each method those between which the gain lies that it
            keeps a share of, seed by seed: log(from / method) / log(from / to).
        gain_in: of what that is: the metric's value, or the steps to its target.
        down_to: the value of the metric down to which `log_linearity` is of its curve.
        target: of `steps_to_target`, where it is not the study's.
        floor: the value of the metric that rounding leaves, beyond which runs are known to bounds only, and
            learning rates tie.
        positive_control: where it is what the source says in passing, that sentence; the claim is decided
            only where it is supported.
        workload: the only one it is about; None for all that have the metric.
        smallest_effect: the smallest share that matters; None where it is not given.
        at_equal: at what equal cost values are read.
    """

    judged: JudgedWords = Field(alias="metric")
    better: Methods | None = None
    no_worse: Methods | None = None
    same: Methods | None = None
    than: Rivals
    pairs: Literal["matched", "all"] = "matched"
    workload: str | None = None
    than_on: str | None = None
    smallest_effect: Annotated[float, BeforeValidator(_share)] | None = None
    effect: Literal["difference"] | None = None
    quantity: Quantity = "value"
    gain_from: Methods | None = None
    gain_to: Methods | None = None
    gain_in: Literal["value", "steps_to_target"] = "value"
    floor: Annotated[float, Field(gt=0.0, allow_inf_nan=False)] | None = None
    positive_control: Annotated[str, Field(min_length=1)] | None = None
    down_to: Annotated[float, Field(gt=0.0)] | None = None
    target: float | None = None
    at_equal: Literal["steps", "gradients", "seconds"] = "steps"

    @model_validator(mode="after")
    def _is_consistent(self) -> Condition:
        quantity, number, other = self.quantity, self.number, self.than_on
        asked = "at_equal" if self.at_a_cost else quantity
        pairs = f"{len(self.methods)} methods cannot be paired with the {len(self.controls)} of `than`"
        straight, shared = quantity == "log_linearity", other is not None
        judges = "final" if quantity in (*TO_STOP, "log_linearity", "run_seconds") else self.which
        judges = "best" if self.counted in ("steps_to_target", *TO_NEARLY_BEST) else judges
        gains = list(zip(self.methods, self.gain_from or (), self.gain_to or (), strict=False))
        refused = {
            "give exactly one of better, no_worse and same": (
                sum(methods is not None for methods in (self.better, self.no_worse, self.same)) != 1
            ),
            f"{pairs}; give equally many, or pairs: all": (
                number is None and self.pairs == "matched" and len(self.methods) != len(self.controls)
            ),
            f"at_equal: {quantity} is no value that is read at a cost; leave one out": (
                self.at_a_cost and quantity != "value"
            ),
            f"effect: {quantity} has its own; leave it out": quantity != "value" and self.effect is not None,
            f"metric: {self.counted} is of the {judges} value; say {judges}": judges != self.which,
            f"quantity: {quantity} is of a gain; name the methods in `better`": (
                quantity in ("trend", "rates_won") and self.better is None
            ),
            "down_to: is missing; log_linearity is of curves down to a value, such as 1e-12": (
                straight and self.down_to is None
            ),
            "down_to: it is of quantity: log_linearity alone; leave it out": (
                not straight and self.down_to is not None
            ),
            "target: it is of quantity: steps_to_target alone; leave it out": (
                self.target is not None and self.counted != "steps_to_target"
            ),
            f"than: a number is held against values, log_linearity and share_of_gain, not with {asked}": (
                number is not None and asked not in ("value", "log_linearity", "share_of_gain")
            ),
            "gain_from and gain_to: share_of_gain has as many as methods, all else none": (
                {len(methods or ()) for methods in (self.gain_from, self.gain_to)}
                != {len(self.methods) if self.of_gain else 0}
            ),
            "than: a share of a gain is held against a number above 0, such as 0.5, in `better`": self.of_gain
            and (number is None or number <= 0 or self.better is None),
            "gain_in: it is of quantity: share_of_gain alone; leave it out": not self.of_gain
            and self.gain_in != "value",
            "gain_to: a method gains nothing over itself; name another": any(
                start == end for _, start, end in gains
            ),
            "better: a method stands here twice, of two gains; give each a condition of its own": (
                self.of_gain and len(set(self.methods)) < len(self.methods)
            ),
            "floor: it bounds values alone; leave it out": self.floor is not None
            and (quantity not in ("value", "share_of_gain", *OF_TUNING) or self.gain_in != "value"),
            f"than: {number} is beyond the floor, {self.floor}, which no run is known to pass": (
                number is not None and self.floor is not None and not self.of_gain and number <= self.floor
            ),
            "pairs: a number is held against each method as it is; leave it out": (
                number is not None and self.pairs == "all"
            ),
            "than_on: a number is of no workload; leave one out": shared and number is not None,
            "than_on: name another one in workload, whose runs are held against its runs": (
                shared and self.workload in (None, other)
            ),
            f"than_on: {asked} compares methods on one workload; leave one out": (
                shared and (self.at_a_cost or self.of_tuning)
            ),
        }
        for message, wrong in refused.items():
            if wrong:
                raise ValueError(message)
        return self

    @property
    def metric(self) -> str:
        """The metric that is compared."""
        return self.judged.metric

    @property
    def which(self) -> Which:
        """Whether that is its value at the end of a run or at its best."""
        return self.judged.which

    @property
    def relation(self) -> Relation:
        """How the methods stand to those of `than`, or to its number."""
        return "better" if self.better else "no_worse" if self.no_worse else "same"

    @property
    def methods(self) -> tuple[str, ...]:
        """The methods that the relation is said of."""
        return self.better or self.no_worse or self.same or ()

    @property
    def controls(self) -> tuple[str, ...]:
        """The methods of `than`; none where it is a number."""
        return self.than if isinstance(self.than, tuple) else ()

    @property
    def number(self) -> float | None:
        """The number of `than`; None where it lists methods."""
        return None if isinstance(self.than, tuple) else self.than

    @property
    def named(self) -> tuple[str, ...]:
        """All methods that it names."""
        return (*self.methods, *self.controls, *(self.gain_from or ()), *(self.gain_to or ()))

    @property
    def contests(self) -> tuple[tuple[str, str | None], ...]:
        """What is compared on a workload: each method with its control; None is the number."""
        if self.number is not None:
            return tuple((method, None) for method in self.methods)
        if self.pairs == "all":
            return tuple((method, other) for method in self.methods for other in self.controls)
        return tuple(zip(self.methods, self.controls, strict=True))

    @property
    def of_gain(self) -> bool:
        """Whether it asks what share of a gain is kept."""
        return self.quantity == "share_of_gain"

    @property
    def counted(self) -> Quantity:
        """The quantity that is read of each run: of a share of a gain that which is gained in."""
        return self.gain_in if self.of_gain else self.quantity

    @property
    def of_tuning(self) -> bool:
        """Whether tuning runs are compared."""
        return self.quantity in OF_TUNING

    @property
    def at_a_cost(self) -> bool:
        """Whether values are read at another equal cost than steps."""
        return self.at_equal != "steps"

    @property
    def of_curves(self) -> bool:
        """Whether more is read of final runs than what they are at their end, at their best or at targets."""
        of_curves = self.quantity in ("log_linearity", *TO_NEARLY_BEST)
        return of_curves or self.at_a_cost or self.target is not None

    @property
    def at_one_step(self) -> bool:
        """Whether of each curve one step is read, nearly the same of all seeds: the last that is paid for."""
        return self.at_equal == "gradients" and self.which == "final"

    @property
    def direction(self) -> Direction | None:
        """Whether less of the quantity is better; None where that is the metric's to say."""
        if self.quantity in ("value", *OF_TUNING):
            return None
        return "minimize" if self.quantity in COSTS else "maximize"

    def is_about(self, workload: HasMetrics) -> bool:
        """Whether methods are compared on a workload: it has the metric, and no other one is named."""
        return self.metric in workload.metrics and self.workload in (None, workload.name)

    def reads(self, workload: HasMetrics) -> bool:
        """Whether runs on a workload are compared: it is about the workload, or holds methods against it."""
        return self.is_about(workload) or self.than_on == workload.name

    def sides(self, key: ComparisonKey) -> tuple[tuple[str, str], ...]:
        """Workload and method of all runs that one of its comparisons is of."""
        place = self.methods.index(key.treated)
        others = [methods[place] for methods in (self.gain_from, self.gain_to) if methods]
        return (*key.sides, *((key.workload, method) for method in others))

    def keys(self, claim: str, index: int, workload: str) -> tuple[ComparisonKey, ...]:
        """The keys of its comparisons on a workload.

        Args:
            claim: id of the claim that it is a condition of.
            index: its place there.
        """
        other = self.than_on or workload
        return tuple(
            ComparisonKey(claim, index, workload, treated, control, None if control is None else other)
            for treated, control in self.contests
        )


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
        tuple[Condition, ...], BeforeValidator(as_list), Field(strict=False, min_length=1, alias="holds_if")
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
                "holds_if: all conditions are positive controls; give what decides the claim too"
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
        for written, condition in zip(dumped["holds_if"], self.conditions, strict=True):
            written |= {"pairs": condition.pairs, "test": "sign"}  # are said even where they are as usual
        return dumped
