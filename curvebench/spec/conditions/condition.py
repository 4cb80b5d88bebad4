"""Base class of conditions: the compared methods, their controls, and the interface of a quantity.

A condition compares treated methods, about which a claim says something, with control methods. A method is
an optimizer in a basis (a change of coordinates of the parameters). The two methods of a comparison are its
arms.
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterator
from itertools import product
from typing import Annotated, Any, ClassVar, Literal, NamedTuple

from pydantic import BeforeValidator, Discriminator, Field, Tag, ValidationInfo, model_validator

from curvebench.spec.document import Direction, Document, JudgedWords, Which, is_written

Relation = Literal["better", "no_worse", "same"]
Effect = Literal["ratio", "difference"]


class ComparisonKey(NamedTuple):
    """Key of one comparison of a condition, by which tables and pages refer to the comparison.

    Args:
        claim: id of the claim.
        condition: index of the condition in the claim, from 0.
        workload: label of the workload that the treated method runs on.
        treated: label of the treated method, about which the claim asserts the relation.
        control: label of the control method; None if the treated method is compared with a number.
        control_workload: label of the workload that the control runs on; None if `control` is None.
    """

    claim: str
    condition: int
    workload: str
    treated: str
    control: str | None
    control_workload: str | None

    @property
    def arms(self) -> tuple[tuple[str, str], ...]:
        """Pairs (workload, method) of the treated arm and, if the control is a method, of the control arm."""
        treated = (self.workload, self.treated)
        if self.control is None or self.control_workload is None:
            return (treated,)
        return (treated, (self.control_workload, self.control))


def _share(value: Any, info: ValidationInfo) -> Any:
    """Convert a percentage such as `5 %` to 0.05."""
    if not is_written(info):
        return value
    match = re.fullmatch(r"(\d+(?:\.\d+)?) ?%", value) if isinstance(value, str) else None
    if match is None:
        raise ValueError(f"{value!r} is not a percentage such as '5 %'")
    return float(match[1]) / 100.0


def _methods(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return value
    raise ValueError(f"{value!r} is not a list of methods, such as [adam]")


Methods = Annotated[tuple[str, ...], Field(strict=False, min_length=1), BeforeValidator(_methods)]
# Value of `compared_to`: labels of control methods, or a number with which the treated methods are compared
Controls = Annotated[
    Annotated[Methods, Tag("methods")] | Annotated[float, Tag("number")],
    Discriminator(lambda value: "number" if type(value) in (int, float) else "methods"),
]


def refuse(*rules: tuple[bool, str]) -> None:
    """Raise a ValueError with the message of the first rule that is broken; do nothing if none is broken.

    Args:
        rules: pairs of a flag that is true if the rule is broken, and the message about that rule.
    """
    if message := next((message for broken, message in rules if broken), None):
        raise ValueError(message)


class Condition(Document):
    """A relation between methods that a claim asserts about a quantity, such as a metric or a cost.

    One of the keys `better`, `no_worse` and `same` lists the treated methods. The key `compared_to` lists the
    control methods. The first treated method is compared with the first control method, the second with the
    second, and so on. If `pairs` is `all`, each treated method is compared with each control method. Both
    methods of a comparison run on the same workload, unless `control_workload` names another workload for the
    control methods. For some quantities `compared_to` may be a number, with which each treated method is
    compared.

    Each quantity is a subclass, which adds its own keys and restricts the types of keys. A new subclass joins
    `curvebench.spec.claim.OfQuantity`; `curvebench.reports.claims.quantities.QUANTITIES` computes the
    quantity from runs, and the macro `reading` of reports/templates/verdicts.jinja expresses the condition in
    words.

    Args:
        quantity: name of the quantity in study files and tables.
        judged: the metric, and whether its final or its best value counts; the key `metric` of study files.
        workload: label of the only workload that the condition is about; None if the condition is about all
            workloads that have the metric.
        smallest_effect: smallest effect that matters, as a fraction; None if the study sets no such limit.
        positive_control: for a condition that is a positive control, a sentence that the source takes for
            granted. The claim is decided only if the runs support the positive control too. None for a
            condition of the claim itself.
        at_equal: unit of the cost that both methods have spent at the point where they are compared.
        where: domain to which the condition belongs, in words: values of a quantity that the source leaves
            open. A claim is decided in each domain by the conditions of that domain and by the conditions
            without a domain. Empty for a condition that belongs to every domain.

    Attributes:
        direction: whether less or more of the quantity is better; None if that depends on the metric.
        judges: the value of the metric, final or best, for which the quantity is defined; None if the
            quantity is defined for both values.
        of_tuning: whether runs that tune a method are compared, instead of final runs (runs with the tuned
            setting).
        undecided: words for a median effect that no pair of runs determines, because both runs are censored.
    """

    quantity: str
    judged: JudgedWords = Field(alias="metric")
    better: Methods | None = None
    no_worse: Methods | None = None
    same: Methods | None = None
    compared_to: Controls
    pairs: Literal["matched", "all"] = "matched"
    workload: str | None = None
    control_workload: str | None = None
    smallest_effect: Annotated[float, BeforeValidator(_share)] | None = None
    positive_control: Annotated[str, Field(min_length=1)] | None = None
    at_equal: Literal["steps"] = "steps"
    where: str = ""

    direction: ClassVar[Direction | None] = None
    judges: ClassVar[Which | None] = None
    of_tuning: ClassVar[bool] = False
    undecided: ClassVar[str] = "both stopped"

    @model_validator(mode="after")
    def _is_consistent(self) -> Condition:
        number, control_workload, judges = self.number, self.control_workload, self.judges
        relations = [methods for methods in (self.better, self.no_worse, self.same) if methods is not None]
        treated, controls = len(self.methods), len(self.controls)
        counts = f"{treated} methods cannot be paired with the {controls} of `compared_to`"
        unpaired = self.pairs == "matched" and treated != controls
        defined = f"metric: {self.quantity} is defined for the {judges} value; write {judges}"
        elsewhere = "control_workload: name the workload of the treated methods, another one, in workload"
        refuse(
            (len(relations) != 1, "give exactly one of better, no_worse and same"),
            (number is None and unpaired, f"{counts}; give equally many, or pairs: all"),
            (judges not in (None, self.which), defined),
            (number is not None and self.pairs == "all", "pairs: has no effect with a number; leave it out"),
            (None not in (control_workload, number), "control_workload: a number has none; leave one out"),
            (control_workload is not None and self.workload in (None, control_workload), elsewhere),
        )
        return self

    def misfits(self, stop: float | None, has_target: bool, direction: Direction | None) -> Iterator[str]:
        """Yield the reasons why a study cannot decide the condition.

        Each text begins with the key of the condition that has to change.

        Args:
            stop: value of the metric at which runs of the study stop; None if runs have their full length.
            has_target: whether the study has a target (a threshold whose first step is recorded) for the
                metric.
            direction: whether less or more of the metric is better; None for an unknown metric.
        """
        if self.meets_targets and not has_target:
            yield f"quantity: there is no target of {self.metric}; give it here or in targets"

    @property
    def meets_targets(self) -> bool:
        """Whether the quantity depends on the targets of the study."""
        return False

    @property
    def charges_bases(self) -> bool:
        """Whether the quantity includes the cost of estimating bases.

        In that case the study may not have bases that are estimated again during a run, because the quantity
        includes only the cost of estimates before a run.
        """
        return False

    @property
    def of_curves(self) -> bool:
        """Whether the quantity is computed from the metric values at every evaluation of the final runs."""
        return False

    @property
    def by_clock(self) -> bool:
        """Whether the quantity or the equal cost is a number of seconds, which depends on the machine."""
        return "seconds" in self.quantity or "seconds" in self.at_equal

    def effect_on(self, direction: Direction) -> Effect:
        """Return how the values of treated method and control are compared: by ratio or by difference.

        By default, values of a metric are compared by ratio if less is better, otherwise by difference.

        Args:
            direction: whether less or more of the metric is better.
        """
        return "ratio" if direction == "minimize" else "difference"

    @property
    def metric(self) -> str:
        """Name of the compared metric."""
        return self.judged.metric

    @property
    def which(self) -> Which:
        """Whether the final or the best value of the metric counts."""
        return self.judged.which

    @property
    def relation(self) -> Relation:
        """Relation of the treated methods to their controls that the condition asserts."""
        return "better" if self.better else "no_worse" if self.no_worse else "same"

    @property
    def methods(self) -> tuple[str, ...]:
        """Labels of the treated methods."""
        return self.better or self.no_worse or self.same or ()

    @property
    def controls(self) -> tuple[str, ...]:
        """Labels of the control methods; empty if the treated methods are compared with a number."""
        return self.compared_to if isinstance(self.compared_to, tuple) else ()

    @property
    def number(self) -> float | None:
        """The number with which treated methods are compared; None if there are control methods instead."""
        return None if isinstance(self.compared_to, tuple) else self.compared_to

    @property
    def named(self) -> tuple[str, ...]:
        """Labels of all methods in the condition."""
        return (*self.methods, *self.controls)

    @property
    def compared_pairs(self) -> tuple[tuple[str, str | None], ...]:
        """Labels of the treated method and the control method in each comparison on a workload.

        The label of the control is None if the treated methods are compared with a number.
        """
        if self.pairs == "all" or self.number is not None:
            return tuple(product(self.methods, self.controls or (None,)))
        return tuple(zip(self.methods, self.controls, strict=True))

    def is_about(self, workload: str, metrics: Container[str]) -> bool:
        """Return whether the condition compares methods on a workload.

        Args:
            workload: label of the workload.
            metrics: names of the workload's metrics.
        """
        return self.metric in metrics and self.workload in (None, workload)

    def arms(self, key: ComparisonKey) -> tuple[tuple[str, str], ...]:
        """Return the pairs (workload, method) whose runs a comparison uses."""
        return key.arms

    def keys(self, claim: str, index: int, workload: str) -> tuple[ComparisonKey, ...]:
        """Return the keys of the condition's comparisons on a workload.

        Args:
            claim: id of the claim that has the condition.
            index: index of the condition in the claim.
            workload: label of the workload of the treated methods.
        """
        control_workload = self.control_workload or workload
        return tuple(
            ComparisonKey(claim, index, workload, treated, control, control and control_workload)
            for treated, control in self.compared_pairs
        )
