"""Property claims, which are true or false on random instances, and the evaluation of their checks.

A property claim consists of subclaims, each with a verdict of its own. A check tests one subclaim: it draws
instances, such as random matrices, and measures numbers on each of them, for which the claim gives limits. If
the source has a misprint, a subclaim has two variants, as printed and as corrected.
"""

from __future__ import annotations

import importlib
import math
import time
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Final, get_args

import numpy as np

from curvebench.property_checks.searching import nearest
from curvebench.results import verdicts as recorded
from curvebench.spec.definitions import path_of
from curvebench.spec.errors import InputError, put_aside

PACKAGE = "curvebench.benchmarks.claims"
FOLDER = Path(__file__).resolve().parents[2].joinpath(*PACKAGE.split("."))
DEFAULT_SCALE = "paper"
PRINTED: Final = "as printed"
CORRECTED: Final = "as corrected"
MIN_TRIES = 60  # minimum number of instances that a search draws


@dataclass(frozen=True)
class Measure:
    """A number measured on one instance, and the limit that the claim gives for it.

    Args:
        quantity: name of the number, with its unit if it has one; the same for all instances.
        value: the measured number.
        relation: relation of value to limit that the claim requires, such as "<=".
        limit: limit that the claim states.
        tolerance: accepted violation of the limit, to allow for rounding or sampling errors.
        sampled: whether the value is an estimate from random samples. The tolerance must then be half of the
            length of the confidence interval of the estimate.

    Raises:
        ValueError: for an unknown relation, and for a limit or tolerance that no value could violate, such as
            NaN.
        TypeError: if value, limit or tolerance is not a single number.

    Example:
        >>> from curvebench import Measure
        >>> Measure("largest eigenvalue", value=1.9, relation="<=", limit=2.0).holds
        True
        >>> Measure("loss after 10 steps", value=0.51, relation="<=", limit=0.5, tolerance=0.02).holds
        True
    """

    quantity: str
    value: float
    relation: recorded.Relation
    limit: float
    tolerance: float = 0.0
    sampled: bool = False

    def __post_init__(self) -> None:
        # Claims calculate with NumPy, whose scalars would be written to tables with other types.
        for name in ("value", "limit", "tolerance"):
            object.__setattr__(self, name, float(getattr(self, name)))
        if self.relation not in get_args(recorded.Relation):
            valid = ", ".join(get_args(recorded.Relation))
            raise ValueError(f"{self.quantity}: the relation {self.relation!r} is none; give one of {valid}")
        if not (math.isfinite(self.limit) and 0 <= self.tolerance < math.inf):
            limit = f"{self.limit} with the tolerance {self.tolerance}"
            raise ValueError(
                f"{self.quantity}: the limit {limit} is none; give finite ones, the tolerance not below 0"
            )

    @property
    def holds(self) -> bool | None:
        """Whether the value satisfies the claim's relation; None if this is undecided, because the value is
        an estimate whose confidence interval contains the limit.
        """
        return recorded.satisfies(self.value, self.relation, self.limit, self.tolerance, self.sampled)


@dataclass(frozen=True)
class Series:
    """A line in a figure, as one instance gives it. Figures do not influence the verdict.

    Args:
        figure: the figure of the source that is reproduced, such as "000 Fig. 3".
        label: name of the line. Lines with the same label in several instances are samples of the same line.
        x: abscissas of the points, of shape (n,).
        y: ordinates of the points, of shape (n,).
        axes: labels of the two axes, with units.
        kind: kind of the line: measured, fitted law, reference value, level set, or path of an optimizer. The
            label of a path is the label of the method.
        panel: panel of the figure; empty if the figure has only one panel.
        log: names of the logarithmic axes.

    Raises:
        ValueError: for an unknown kind, or if x and y are not two vectors of equal length above 0.
    """

    figure: str
    label: str
    x: np.ndarray
    y: np.ndarray
    axes: tuple[str, str]
    kind: recorded.SeriesKind = "line"
    panel: str = ""
    log: recorded.LogAxes = ""

    def __post_init__(self) -> None:
        if self.kind not in get_args(recorded.SeriesKind):
            valid = ", ".join(get_args(recorded.SeriesKind))
            raise ValueError(f"{self.label} of {self.figure}: the kind {self.kind!r} is none of {valid}")
        x, y = np.shape(self.x), np.shape(self.y)
        if len(x) != 1 or x != y or not x[0]:
            raise ValueError(f"{self.label} of {self.figure}: x is {x} and y is {y}; give as many, (n,)")


Measures = Callable[[np.random.Generator], Iterable[Measure | Series]]


@dataclass(frozen=True)
class Check:
    """Test of one subclaim.

    Args:
        part: the subclaim, in one line.
        source: number of the source and place where the subclaim is stated, such as `002 eq. 22`.
        measures: function that draws one instance from a random generator and yields its measures, and lines
            for figures.
        instances: number of instances by scale, such as `quick`; a scale that is not listed uses the number
            for the scale `paper`.
        variant: for a misprinted statement, `as printed` or `as corrected`; empty if there is no misprint.
        by_scale: functions that replace `measures` at some scales, for example to draw fewer samples.
        sampled: whether the measures are estimates from random samples, so that their tolerances are half of
            the length of a confidence interval.
        bound: whether the subclaim is a bound. For each measured quantity, a search then starts at the
            instance that comes nearest to the limit and tries to exceed the limit
            (`curvebench.property_checks.searching`). The instance with which each search ends is measured
            too.

    Raises:
        ValueError: for an unknown variant, or numbers of instances that lack `paper` or are below 1.
    """

    part: str
    source: str
    measures: Measures
    instances: Mapping[str, int]
    variant: recorded.Variant = ""
    by_scale: Mapping[str, Measures] = field(default_factory=dict)
    sampled: bool = False
    bound: bool = False

    def __post_init__(self) -> None:
        if self.variant not in get_args(recorded.Variant):
            raise ValueError(
                f"{self.part}: variant is {self.variant!r}; give {PRINTED!r}, {CORRECTED!r} or ''"
            )
        if not {DEFAULT_SCALE, *self.by_scale} <= set(self.instances) or min(self.instances.values()) < 1:
            raise ValueError(
                f"{self.part}: instances are {dict(self.instances)}; give a number above 0 for "
                f"{DEFAULT_SCALE!r}, and for each scale with measures of its own"
            )

    def count(self, scale: str) -> int:
        """Return the number of random instances at a scale; instances that a search adds are not counted."""
        return self.instances.get(scale, self.instances[DEFAULT_SCALE])

    def at(self, scale: str) -> Measures:
        """Return the function that draws and measures an instance at a scale."""
        return self.by_scale.get(scale, self.measures)


# `eq=False` makes two claims equal only if they are the same object. Claims can therefore be keys of the
# cache of `check_rule`.
@dataclass(frozen=True, eq=False)
class PropertyClaim:
    """A claim that is decided by checks on random instances.

    Args:
        id: stable identifier, such as `notes.regret`.
        sentence: the claim, in a sentence.
        source: number of the source and place of the claim in it, such as `002 eq. 22`.
        setting: description of the instances, and of choices that were made because the source is silent or
            wrong.
        checks: tests of the subclaims.
        workloads: names of the workloads whose data the checks read, with default settings. If the data is
            missing, the claim is not checked.
        at_most_partly: reason why the claim cannot be fully reproduced, such as reduced data; empty if there
            is no such reason.

    Raises:
        ValueError: if there are no checks, or two checks have the same subclaim and variant.

    Example:
        A module of `benchmarks/claims` contains a tuple `CLAIMS` of such claims:

        >>> import numpy as np
        >>> from curvebench import Check, Measure, PropertyClaim
        >>> def row_sums(generator):
        ...     matrix = generator.random((3, 3))
        ...     stochastic = matrix / matrix.sum(axis=1, keepdims=True)
        ...     yield Measure("spectral radius", max(abs(np.linalg.eigvals(stochastic))), "==", 1.0, 1e-12)
        >>> CLAIM = PropertyClaim(
        ...     id="examples.stochastic",
        ...     sentence="A stochastic matrix has the spectral radius 1.",
        ...     source="an example",
        ...     setting="3 x 3 matrices with uniform entries, divided by their row sums",
        ...     checks=(Check("the spectral radius is 1", "an example", row_sums, instances={"paper": 100}),),
        ... )
        >>> [measure.holds for measure in CLAIM.checks[0].measures(np.random.default_rng(0))]
        [True]
    """

    id: str
    sentence: str
    source: str
    setting: str
    checks: tuple[Check, ...]
    workloads: tuple[str, ...] = ()
    at_most_partly: str = ""

    def __post_init__(self) -> None:
        parts = {(check.part, check.variant) for check in self.checks}
        if not parts or len(parts) < len(self.checks):
            raise ValueError(f"{self.id}: give a check for each part; parts of a variant must differ")


@dataclass(frozen=True)
class OfInstance:
    """Identification of an instance.

    Args:
        claim: id of the claim.
        part: the subclaim.
        variant: `as printed` or `as corrected` if the source has a misprint; otherwise empty.
        instance: number of the instance.
    """

    claim: str
    part: str
    variant: recorded.Variant
    instance: int


@dataclass(frozen=True)
class Row(OfInstance):
    """A measure of an instance, with the seconds in which the whole instance was drawn and measured."""

    measure: Measure
    seconds: float = field(default=0.0, compare=False)  # two runs of the same instance give equal rows


@dataclass(frozen=True)
class Trace(OfInstance):
    """A line that an instance adds to a figure."""

    series: Series


# --- finding claims ------------------------------------------------------------------------------


def modules(folder: Path | None = None) -> tuple[str, ...]:
    """Return the names of the modules in benchmarks/claims that define claims, without the package's name."""
    files = (FOLDER if folder is None else folder).glob("*.py")
    return tuple(sorted(path.stem for path in files if not path.stem.startswith("_")))


def file_of(module: str) -> str:
    """Return the path of a module of claims relative to the root of the project."""
    return path_of(f"{PACKAGE}.{module}")


def claims_of(module: str) -> tuple[PropertyClaim, ...]:
    """Return the claims that a module defines.

    Raises:
        InputError: if the module cannot be imported or defines no claims. The message names its file.
    """
    path = file_of(module)
    try:
        claims = getattr(importlib.import_module(f"{PACKAGE}.{module}"), "CLAIMS", None)
    # Importing a module can raise any exception.
    except Exception as error:
        raise InputError(f"{path}: cannot be imported ({type(error).__name__}: {error}); mend it") from error
    if not (claims and isinstance(claims, tuple) and all(isinstance(c, PropertyClaim) for c in claims)):
        raise InputError(
            f"{path}: CLAIMS is not there, is empty, or is no tuple of PropertyClaim; define CLAIMS = (...,)"
        )
    return claims


def claims_by_id(
    folder: Path | None = None, broken: dict[str, str] | None = None
) -> dict[str, tuple[str, PropertyClaim]]:
    """Return the claims of all modules, each with the name of its module, by id of the claim.

    Args:
        folder: folder of the modules; by default benchmarks/claims.
        broken: a dictionary to which the reason is added, by file, for each module that is left out because
            it cannot be imported or defines no claims. If it is None, such a module is an error.

    Raises:
        InputError: as `claims_of` unless `broken` is given, and if two modules use the same id.
    """
    claims: dict[str, tuple[str, PropertyClaim]] = {}
    for module in modules(folder):
        defined: tuple[PropertyClaim, ...] = ()
        with put_aside(broken, file_of(module)):
            defined = claims_of(module)
        for claim in defined:
            first, _ = claims.setdefault(claim.id, (module, claim))
            if claims[claim.id][1] is not claim:
                raise InputError(
                    f"{file_of(module)}: the id {claim.id!r} is also in {file_of(first)}; ids must differ"
                )
    return claims


# --- checking claims -----------------------------------------------------------------------------


def part_results(claim: str, check: Check, scale: str, rule: str = "") -> Iterator[Row | Trace]:
    """Yield the measures of all instances of one check, each followed by its lines for figures.

    The claim's id, the subclaim, the hash of the rule and the number of an instance determine the instance.
    If the rule is changed after its results were seen, the new rule is tested on new instances.

    Args:
        claim: id of the claim.
        check: the check.
        scale: name of the scale, which decides the number of instances.
        rule: hash of the claim's decision rule (`curvebench.property_checks.check_rules`).

    Raises:
        ValueError: for an instance without measures, which could never violate the claim.
    """
    # The variant is not part of the key, so that a statement as printed and the same statement as corrected
    # are tested on the same instances.
    key = zlib.crc32(f"{claim} {check.part} {rule}".rstrip().encode())
    draw, count = check.at(scale), check.count(scale)
    # By quantity: the largest value so far as a share of its limit, and minus the number of the instance with
    # this value (minus, so that of equal shares the first instance is the maximum)
    nearest_by: dict[str, tuple[float, int]] = {}
    for instance in range(count):
        began = time.perf_counter()
        items = list(draw(np.random.default_rng([key, instance])))
        for quantity, share in _bound_shares(items).items():
            nearest_by[quantity] = max(nearest_by.get(quantity, (0.0, 0)), (share, -instance))
        yield from _of_instance(claim, check, instance, items, time.perf_counter() - began)
    for instance, (quantity, (_, start)) in enumerate(nearest_by.items() if check.bound else (), count):
        began = time.perf_counter()
        items = list(draw(nearest(partial(_share, draw, quantity), [key, -start], max(MIN_TRIES, count))))
        yield from _of_instance(claim, check, instance, items, time.perf_counter() - began)


def _of_instance(
    claim: str, check: Check, instance: int, items: Sequence[Measure | Series], seconds: float
) -> Iterator[Row | Trace]:
    """Yield the rows of an instance's measures, then its lines for figures.

    Args:
        claim: id of the claim.
        check: the check.
        instance: number of the instance.
        items: measures and lines that the check's function has yielded for this instance.
        seconds: seconds in which the instance was drawn and measured.
    """
    if not any(isinstance(item, Measure) for item in items):
        raise ValueError(f"instance {instance} has no measures; every instance must give one")
    identity = (claim, check.part, check.variant, instance)
    for item in items:
        if isinstance(item, Measure):
            yield Row(*identity, replace(item, sampled=check.sampled), seconds)
    for item in items:
        if isinstance(item, Series):
            yield Trace(*identity, item)


def _share(draw: Measures, quantity: str, random: np.random.Generator) -> float:
    """Return a quantity of an instance as a share of its limit; 0 if the quantity is not measured.

    Args:
        draw: function that draws and measures an instance.
        quantity: name of the quantity.
        random: random generator from which the instance is drawn.
    """
    return _bound_shares(draw(random)).get(quantity, 0.0)


def _bound_shares(items: Iterable[Measure | Series]) -> dict[str, float]:
    """Return, by quantity, the largest measured value as a share of its limit.

    Args:
        items: measures of an instance; lines for figures are ignored.
    """
    measures = [item for item in items if isinstance(item, Measure)]
    return recorded.bound_shares((m.quantity, m.value, m.relation, m.limit, m.tolerance) for m in measures)


def verdicts(claim: PropertyClaim, rows: Sequence[Row]) -> dict[recorded.Variant, recorded.Verdict]:
    """Return the verdict on each variant of a claim; if the source has no misprint, the only variant is "".

    A subclaim is satisfied if it has measures and all of them satisfy their relations.

    Args:
        claim: the claim.
        rows: measures of the claim's instances.
    """
    holding: dict[tuple[str, recorded.Variant], list[bool | None]] = {
        (check.part, check.variant): [] for check in claim.checks
    }
    for row in rows:
        holding[row.part, row.variant].append(row.measure.holds)
    parts = {part: recorded.all_hold(holds) for part, holds in holding.items()}
    bounds = [(check.part, check.variant) for check in claim.checks if check.bound]
    shares = {
        part: _bound_shares(row.measure for row in rows if (row.part, row.variant) == part) for part in bounds
    }
    untested = [part for part, top in shares.items() if recorded.least_tested(top)[1] < recorded.TESTED]
    return recorded.verdicts(parts, claim.at_most_partly, untested)
