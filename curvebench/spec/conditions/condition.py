"""The base of conditions: methods, what these are compared with, and how a quantity describes itself."""

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
    """Key of one comparison of a condition: tables and pages find the comparison by it.

    Args:
        claim: id of the claim.
        condition: place of the condition among those of the claim, from 0.
        workload: label of the workload that the treated method runs on.
        treated: label of the method that the relation is said of.
        control: label of the method that it is compared with; None where that is the condition's number.
        control_workload: label of the workload that the control runs on; None for a number.
    """

    claim: str
    condition: int
    workload: str
    treated: str
    control: str | None
    control_workload: str | None

    @property
    def arms(self) -> tuple[tuple[str, str], ...]:
        """Workload and method of the treated side and of the control; a number is none."""
        treated = (self.workload, self.treated)
        if self.control is None or self.control_workload is None:
            return (treated,)
        return (treated, (self.control_workload, self.control))


def _share(value: Any, info: ValidationInfo) -> Any:
    """Read `5 %` as 0.05."""
    if not is_written(info):
        return value
    match = re.fullmatch(r"(\d+(?:\.\d+)?) ?%", value) if isinstance(value, str) else None
    if match is None:
        raise ValueError(f"{value!r} is not a percentage such as '5 %'")
    return float(match[1]) / 100.0


def _methods(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return value
    raise ValueError(f"{value!r} is no list of methods, such as [adam]")


Methods = Annotated[tuple[str, ...], Field(strict=False, min_length=1), BeforeValidator(_methods)]
# what a condition compares methods with
Controls = Annotated[
    Annotated[Methods, Tag("methods")] | Annotated[float, Tag("number")],
    Discriminator(lambda value: "number" if type(value) in (int, float) else "methods"),
]


def refuse(*rules: tuple[bool, str]) -> None:
    """Raise a ValueError with the message of the first rule that is broken.

    Args:
        rules: whether each is broken, and its message.
    """
    if message := next((message for broken, message in rules if broken), None):
        raise ValueError(message)


class Condition(Document):
    """A relation between methods that a claim asserts of a quantity; each quantity is a class of its own.

    One of `better`, `no_worse` and `same` lists methods, and `compared_to` lists their controls. They are
    compared pair by pair, or each method with each control where `pairs` is `all`. Both run on the same
    workload, unless `control_workload` names another one for the controls. For some quantities `compared_to`
    may be a number, with which each method is compared.

    The class of a quantity adds its own keys, and narrows the types of keys that it takes less of. It joins
    `curvebench.spec.claim.OfQuantity`; `curvebench.reports.claims.quantities.QUANTITIES` says how it is read
    from runs, and the macro `reading` of reports/templates/verdicts.jinja in which words.

    Args:
        quantity: the name of the quantity in study files and tables.
        workload: the only workload that the condition is about; None for all that have the metric.
        smallest_effect: the smallest share that matters; None where it is not given.
        positive_control: where the condition is what the source says in passing, that sentence; the claim is
            decided only where it is supported.
        at_equal: the cost at which two methods are compared.

    Attributes:
        direction: whether less of the quantity is better; None where that is the metric's to say.
        judges: which value of the metric the quantity is of; None for either.
        of_tuning: whether tuning runs are compared.
        undecided: what is said of a median where no pair's effect is known.
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

    direction: ClassVar[Direction | None] = None
    judges: ClassVar[Which | None] = None
    of_tuning: ClassVar[bool] = False
    undecided: ClassVar[str] = "both stopped"

    @model_validator(mode="after")
    def _is_consistent(self) -> Condition:
        number, other, judges = self.number, self.control_workload, self.judges
        relations = [methods for methods in (self.better, self.no_worse, self.same) if methods is not None]
        counts = (
            f"{len(self.methods)} methods cannot be paired with the {len(self.controls)} of `compared_to`"
        )
        unpaired = self.pairs == "matched" and len(self.methods) != len(self.controls)
        elsewhere = "control_workload: name another one in workload, whose runs are held against its runs"
        refuse(
            (len(relations) != 1, "give exactly one of better, no_worse and same"),
            (number is None and unpaired, f"{counts}; give equally many, or pairs: all"),
            (
                judges not in (None, self.which),
                f"metric: {self.quantity} is of the {judges} value; say {judges}",
            ),
            (
                number is not None and self.pairs == "all",
                "pairs: a number is held against each method as it is; leave it out",
            ),
            (None not in (other, number), "control_workload: a number is of no workload; leave one out"),
            (other is not None and self.workload in (None, other), elsewhere),
        )
        return self

    def misfits(self, stop: float | None, has_target: bool, direction: Direction | None) -> Iterator[str]:
        """Yield the reasons why a study cannot decide the condition, each after the key that is wrong.

        Args:
            stop: the value of the metric at which the study's runs stop; None without.
            has_target: whether the study has a target of the metric.
            direction: whether less of the metric is better; None where that is not known.
        """
        if self.meets_targets and not has_target:
            yield f"quantity: there is no target of {self.metric}; give it here or in targets"

    @property
    def meets_targets(self) -> bool:
        """Whether the study's targets decide what is read."""
        return False

    @property
    def charges_bases(self) -> bool:
        """Whether the cost of bases counts, so that no basis may be estimated during a run."""
        return False

    @property
    def of_curves(self) -> bool:
        """Whether whole curves of final runs are read."""
        return False

    def effect_on(self, direction: Direction) -> Effect:
        """Return how a pair is compared: as a ratio where less is better."""
        return "ratio" if direction == "minimize" else "difference"

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
        """How the methods stand to those of `compared_to`, or to its number."""
        return "better" if self.better else "no_worse" if self.no_worse else "same"

    @property
    def methods(self) -> tuple[str, ...]:
        """The methods that the relation is said of."""
        return self.better or self.no_worse or self.same or ()

    @property
    def controls(self) -> tuple[str, ...]:
        """The methods of `compared_to`; none where it is a number."""
        return self.compared_to if isinstance(self.compared_to, tuple) else ()

    @property
    def number(self) -> float | None:
        """The number of `compared_to`; None where it lists methods."""
        return None if isinstance(self.compared_to, tuple) else self.compared_to

    @property
    def named(self) -> tuple[str, ...]:
        """All methods that the condition names."""
        return (*self.methods, *self.controls)

    @property
    def compared_pairs(self) -> tuple[tuple[str, str | None], ...]:
        """What is compared on a workload: each method with its control; None is the number."""
        if self.pairs == "all" or self.number is not None:
            return tuple(product(self.methods, self.controls or (None,)))
        return tuple(zip(self.methods, self.controls, strict=True))

    def is_about(self, workload: str, metrics: Container[str]) -> bool:
        """Return whether methods are compared on a workload: it has the metric, and no other one is named."""
        return self.metric in metrics and self.workload in (None, workload)

    def arms(self, key: ComparisonKey) -> tuple[tuple[str, str], ...]:
        """Workload and method of all runs that one of the comparisons is of."""
        return key.arms

    def keys(self, claim: str, index: int, workload: str) -> tuple[ComparisonKey, ...]:
        """Return the keys of the comparisons on a workload.

        Args:
            claim: id of the claim that has the condition.
            index: place of the condition there.
        """
        other = self.control_workload or workload
        return tuple(
            ComparisonKey(claim, index, workload, treated, control, None if control is None else other)
            for treated, control in self.compared_pairs
        )
