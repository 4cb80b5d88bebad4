"""Property claims, which are true or false on random instances, and the evaluation of their checks.

A property claim consists of subclaims, each with a verdict of its own. A check tests one subclaim: it draws
instances, such as random matrices, and measures numbers on each instance. The claim states a limit for each
number. If the source has a misprint, a subclaim has two variants, as printed and as corrected.
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
from curvebench.spec.claim import Cause
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
    """A number measured on one instance, and the limit that the claim states for the number.

    Args:
        quantity: name of the number, with a unit if the number has one. All instances use the same name.
        value: the measured number.
        relation: relation between value and limit that the claim requires, such as "<=" for value <= limit.
        limit: limit that the claim states.
        tolerance: amount by which the value may violate the limit, to allow for rounding or sampling errors.
        sampled: whether the value is an estimate from random samples. The tolerance must then be half of the
            length of the estimate's confidence interval.

    Raises:
        ValueError: for an unknown relation, and for a limit or tolerance, such as NaN, that no value could
            violate.
        TypeError: if `value`, `limit` or `tolerance` is not a single number.

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
        # Convert NumPy's scalars, which the code of claims computes, because tables would have other types.
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
        """Whether the value satisfies the relation to the limit.

        None means undecided: the value is an estimate whose confidence interval contains the limit.
        """
        return recorded.satisfies(self.value, self.relation, self.limit, self.tolerance, self.sampled)


@dataclass(frozen=True)
class Series:
    """A line in a figure, computed for one instance. Figures do not influence the verdict.

    Args:
        figure: the figure of the source that is reproduced, such as "000 Fig. 3".
        label: name of the line. Lines with the same label in several instances are samples of the same line.
        x: abscissas of the points, of shape (n,).
        y: ordinates of the points, of shape (n,).
        axes: labels of the two axes, with units.
        kind: kind of the line (`SeriesKind`): measured, fitted law, reference value, level set, or path of an
            optimizer. A path has the label of the optimizer's method.
        panel: name of the panel of the figure; empty if the figure has only one panel.
        log: names of the logarithmic axes.

    Raises:
        ValueError: for an unknown kind, or if x and y are not two non-empty vectors of equal length.
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
        source: number of the source (docs/sources.md), and place in it where the subclaim is stated, such as
            `002 eq. 22`.
        measures: function that draws one instance from a random generator, and yields the measures of the
            instance and lines for figures.
        instances: number of instances for each scale, such as `quick`. A scale that is not listed uses the
            number for `paper`.
        variant: if the source has a misprint in the statement, `as printed` or `as corrected`; otherwise
            empty.
        by_scale: for some scales, a function that replaces `measures`, for example to draw fewer samples.
        sampled: whether the measured values are estimates from random samples. Their tolerances are then half
            of the lengths of confidence intervals.
        bound: whether the subclaim is a bound. A search then tries to exceed the limit of each measured
            quantity, starting from the instance that comes nearest to the limit
            (`curvebench.property_checks.searching`). The best instance that a search finds is measured, too.
        where: domain of the subclaim, in words: values of a quantity that the source leaves open, such as
            "distinct S_0, beta_2 n <= 0.1". The claim is decided in each domain by the subclaims of that
            domain and by the subclaims without a domain. Empty for a subclaim that belongs to every domain.

    Raises:
        ValueError: for an unknown variant, if `instances` has no number for `paper` or for a scale in
            `by_scale`, or if a number is below 1.
    """

    part: str
    source: str
    measures: Measures
    instances: Mapping[str, int]
    variant: recorded.Variant = ""
    by_scale: Mapping[str, Measures] = field(default_factory=dict)
    sampled: bool = False
    bound: bool = False
    where: str = ""

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
        """Return the number of random instances at a scale, without the instances that searches add."""
        return self.instances.get(scale, self.instances[DEFAULT_SCALE])

    def at(self, scale: str) -> Measures:
        """Return the function that draws and measures an instance at a scale."""
        return self.by_scale.get(scale, self.measures)


# With `eq=False`, a claim is equal only to itself and can be hashed. The cache of `check_rule` needs this.
@dataclass(frozen=True, eq=False)
class PropertyClaim:
    """A claim that is decided by checks on random instances.

    Args:
        id: stable identifier, such as `notes.regret`.
        sentence: the claim, in a sentence.
        source: number of the source (docs/sources.md), and place in it where the claim is stated, such as
            `002 eq. 22`.
        setting: description of the instances, and of choices that were made where the source says nothing or
            is wrong.
        checks: tests of the subclaims.
        workloads: names of the workloads whose data, with default settings, the checks read. If data is
            missing, the claim is not checked.
        at_most_partly: reason why the claim cannot be fully reproduced, such as reduced data; empty if there
            is no such reason.
        cause: cause of a verdict other than reproduced, if the cause is a matter of judgment:
            `unstated_setting`, `resolution` or `other_data`. The docstring of a measuring function then gives
            the reason. None if the cause follows from the measures. The hash of the decision rule does not
            depend on the cause.

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
    cause: Cause | None = None

    def __post_init__(self) -> None:
        parts = {(check.part, check.variant) for check in self.checks}
        if not parts or len(parts) < len(self.checks):
            raise ValueError(f"{self.id}: give a check for each part; parts of a variant must differ")


@dataclass(frozen=True)
class OfInstance:
    """Identification of an instance: the subclaim for which it was drawn, and its number.

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
    """A measure of an instance, and the seconds in which the whole instance was drawn and measured."""

    measure: Measure
    # Rows are compared without the seconds, which differ in each measurement.
    seconds: float = field(default=0.0, compare=False)


@dataclass(frozen=True)
class Trace(OfInstance):
    """A line that an instance adds to a figure."""

    series: Series


# --- finding claims ------------------------------------------------------------------------------


def modules(folder: Path | None = None) -> tuple[str, ...]:
    """Return the names of the modules of claims in a folder, without the name of the package.

    The default folder is benchmarks/claims.
    """
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
    """Return a mapping from the id of each claim to a pair: the name of its module, and the claim.

    Args:
        folder: folder of the modules; by default benchmarks/claims.
        broken: a dictionary to which an entry is added for each module that cannot be imported or defines no
            claims: its file, and the reason. Such modules are left out. If `broken` is None, such a module is
            an error.

    Raises:
        InputError: if two modules use the same id; without `broken`, also for the reasons of `claims_of`.
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


def part_results(
    claim: str,
    check: Check,
    scale: str,
    rule: str = "",
    only: Sequence[int] | None = None,
    generator: Callable[[list[int]], np.random.Generator] | None = None,
) -> Iterator[Row | Trace]:
    """Yield the measures of all instances of a check; the lines of an instance follow its measures.

    An instance is determined by the claim's id, the subclaim, the hash of the decision rule and the number of
    the instance. If the decision rule is changed after its results were seen, the new rule is tested on new
    instances.

    Args:
        claim: id of the claim.
        check: the check.
        scale: name of the scale, which decides the number of instances.
        rule: hash of the claim's decision rule (`curvebench.property_checks.check_rules`).
        only: numbers of the random instances to measure, without a search; None for all instances.
        generator: function of a seed that returns the random generator of an instance; None for NumPy's
            `default_rng`.

    Raises:
        ValueError: for an instance without measures, which could never violate the claim.
    """
    # The variant, as printed or as corrected, is not part of the key.
    # Both variants of a statement are therefore tested on the same instances.
    key = zlib.crc32(f"{claim} {check.part} {rule}".rstrip().encode())
    draw, count = check.at(scale), check.count(scale)
    # Largest share and minus the number of its instance, for each quantity with an upper limit.
    # The share is the value divided by (limit + tolerance).
    # The minus makes the first of several instances with equal shares the maximum.
    nearest_by: dict[str, tuple[float, int]] = {}
    for instance in range(count) if only is None else only:
        began = time.perf_counter()
        items = list(draw((generator or np.random.default_rng)([key, instance])))
        for quantity, share in _bound_shares(items).items():
            nearest_by[quantity] = max(nearest_by.get(quantity, (0.0, 0)), (share, -instance))
        yield from _of_instance(claim, check, instance, items, time.perf_counter() - began)
    searched = nearest_by.items() if check.bound and only is None else ()
    for instance, (quantity, (_, start)) in enumerate(searched, count):
        began = time.perf_counter()
        items = list(draw(nearest(partial(_share, draw, quantity), [key, -start], max(MIN_TRIES, count))))
        yield from _of_instance(claim, check, instance, items, time.perf_counter() - began)


def _of_instance(
    claim: str, check: Check, instance: int, items: Sequence[Measure | Series], seconds: float
) -> Iterator[Row | Trace]:
    """Yield the rows of an instance's measures, and then the instance's lines for figures.

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
    """Return the share of an instance for one quantity: the value divided by (limit + tolerance).

    The result is 0 if the instance does not measure the quantity, or measures it without an upper limit.

    Args:
        draw: function that draws and measures an instance.
        quantity: name of the quantity.
        random: random generator from which the instance is drawn.
    """
    return _bound_shares(draw(random)).get(quantity, 0.0)


def _bound_shares(items: Iterable[Measure | Series]) -> dict[str, float]:
    """Return, for each quantity, the largest share: a measured value divided by (limit + tolerance).

    Only measures with the relation `<=` and a positive limit have a share.

    Args:
        items: measures of an instance; lines for figures are ignored.
    """
    measures = [item for item in items if isinstance(item, Measure)]
    return recorded.bound_shares((m.quantity, m.value, m.relation, m.limit, m.tolerance) for m in measures)


def verdicts(claim: PropertyClaim, rows: Sequence[Row]) -> dict[recorded.Variant, recorded.Verdict]:
    """Return the verdict on each variant of a claim.

    If the source has no misprint, the only variant is "".

    A subclaim is satisfied if it has measures, and each measure satisfies its relation.

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
    where = {(check.part, check.variant): check.where for check in claim.checks}
    decided = recorded.verdicts(parts, claim.at_most_partly, untested, where)
    return {variant: verdict for variant, (verdict, _) in decided.items()}
