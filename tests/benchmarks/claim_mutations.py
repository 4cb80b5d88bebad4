"""Mutations of property claims: tables of replacements, and of the subclaims that must then miss.

The tables are `mutations/*.yaml`, one per source document. Each claim has a list of rows. A row has

    breaks: subclaims, each of which must miss under the mutation; `*` stands for any text
    keeps: subclaims that must hold under it (default: none)
    mutation: the replacement of each target
    given: targets that are replaced with and without the mutation, such as a scheme by its baseline
    instances: number of instances of each subclaim, one of which must miss (default: 1)
    slow: true if this takes seconds; only `make test-all` tries it

A target is `rule NAME`, an optimizer, or the dotted path of a function, a property or a constant, from the
root of the project or from benchmarks/claims: `notes_muon.THRESHOLD`, or
`curvebench.optimizers.spheres.NORMS[l1]` for an item.

The replacement of a path is a Python expression, which sees the names of the path's module and `NAMES` below.
The expression for a constant sees the right constant as `value`. The expression for a function is evaluated
at each call. It sees the arguments by their names, the right function as `original`, its result for these
arguments as `result`, and the number of the call as `call`. The replacement of a rule is a mapping:

    instead: the rule that takes its place
    options: options in addition to those that it gets
    any other key: an expression for the hyperparameter of this name, which sees the right number as `value`
"""

from __future__ import annotations

import dataclasses
import inspect
import itertools
import pkgutil
import re
from ast import literal_eval
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache, cached_property, wraps
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ruamel.yaml import YAML

from curvebench import interop
from curvebench.benchmarks.claims._matrices import orthonormal
from curvebench.benchmarks.claims._trained_lanes import SeedProblems, Training
from curvebench.interop import replaying
from curvebench.optimizers.options import Options
from curvebench.optimizers.rule import Rule
from curvebench.property_checks.checks import (
    PACKAGE,
    PRINTED,
    Check,
    Measure,
    PropertyClaim,
    claims_by_id,
    verdicts,
)
from curvebench.results.intervals import MedianInterval
from curvebench.timing.interleaving import Ratios
from tests.curvebench.property_checks.claim_rows import part_rows, rows

TABLES = Path(__file__).with_name("mutations")
Targets = Mapping[str, Any]


@dataclasses.dataclass(frozen=True)
class Mutation:
    """Row of a table; the module's docstring explains the keys."""

    claim: str
    mutation: Targets
    breaks: tuple[str, ...] = ()
    keeps: tuple[str, ...] = ()
    given: Targets = dataclasses.field(default_factory=dict)
    instances: int = 1
    slow: bool = False


def mutations() -> Iterator[Mutation]:
    """Read the rows of all tables."""
    for path in sorted(TABLES.glob("*.yaml")):
        for claim, table in YAML(typ="safe").load(path).items():
            yield from (Mutation(claim, **row) for row in table)


@cache
def property_claims() -> dict[str, PropertyClaim]:
    """Return the claims of benchmarks/claims by id."""
    return {name: claim for name, (_, claim) in claims_by_id().items()}


def subclaims(claim: str, patterns: tuple[str, ...]) -> list[Check]:
    """Return the checks that match the patterns; misprinted statements are checked as corrected.

    Raises:
        ValueError: if a pattern matches none.
    """
    checks = [check for check in property_claims()[claim].checks if check.variant != PRINTED]
    matching = {
        pattern: [
            check for check in checks if re.fullmatch(re.escape(pattern).replace(r"\*", ".*"), check.part)
        ]
        for pattern in patterns
    }
    for pattern, found in matching.items():
        if not found:
            raise ValueError(
                f"{claim} has no subclaim {pattern!r}; give one of {[one.part for one in checks]}"
            )
    return [check for found in matching.values() for check in found]


def faults(row: Mutation) -> list[str]:
    """Return a message for each deviation from a row; an empty list means that the row is right.

    A subclaim that misses under the mutation must hold without it on the same instance. A mutation that
    changes nothing is therefore a fault.
    """
    broken, kept = subclaims(row.claim, row.breaks), subclaims(row.claim, row.keeps)
    with replaced(row.given, row.mutation):
        misses = [first_miss(row.claim, check, row.instances) for check in broken]
        messages = [
            f"{one.part}: misses" for one in kept if first_miss(row.claim, one, row.instances) is not None
        ]
    for check, instance in zip(broken, misses, strict=True):
        if instance is None:
            messages.append(f"{check.part}: holds")
        elif not holds_unchanged(row.claim, check.part, check.variant, instance, str(row.given)):
            messages.append(f"{check.part}: misses without the mutation too")
    return messages


def first_miss(claim: str, check: Check, instances: int) -> int | None:
    """Return the number of the first instance on which a subclaim misses, at scale quick, or None."""
    measured = part_rows(claim, few_instances(check, instances), "quick")
    return next((row.instance for row in measured if not row.measure.holds), None)


@cache
def holds_unchanged(claim: str, part: str, variant: str, instance: int, given: str) -> bool:
    """Return whether a subclaim holds on one instance without a mutation. Rows that need the same result
    share it.
    """
    (check,) = (one for one in property_claims()[claim].checks if (one.part, one.variant) == (part, variant))
    numbers = itertools.count()

    def measures(random: np.random.Generator) -> Any:
        return check.at("quick")(random) if next(numbers) == instance else [Measure("", 0.0, "<=", 0.0)]

    with replaced(literal_eval(given)):
        return (
            first_miss(claim, dataclasses.replace(check, measures=measures, by_scale={}), instance + 1)
            is None
        )


def few_instances(check: Check, instances: int) -> Check:
    """Return a check with this number of instances, and no search for worse ones."""
    return dataclasses.replace(check, instances={"quick": instances, "paper": instances}, bound=False)


def few(claim: PropertyClaim, instances: int, parts: set[str] | None = None) -> PropertyClaim:
    """Return a claim, or some of its subclaims, with this number of instances each, and no search."""
    checks = (check for check in claim.checks if parts is None or check.part in parts)
    return dataclasses.replace(claim, checks=tuple(few_instances(check, instances) for check in checks))


def verdicts_of(claim: PropertyClaim) -> dict[Any, str]:
    """Return the verdicts of a claim by variant, at scale quick."""
    return dict(verdicts(claim, list(rows(claim, "quick"))))


# --- replacing -------------------------------------------------------------------------------------------


@contextmanager
def replaced(*targets: Targets) -> Iterator[None]:
    """Replace the targets inside the block, one mapping after another."""
    with pytest.MonkeyPatch.context() as patch, np.errstate(all="ignore"):
        for target, by in itertools.chain.from_iterable(mapping.items() for mapping in targets):
            if target.startswith("rule "):
                replace_rule(patch, target.removeprefix("rule "), **by)
            else:
                replace_place(patch, target, str(by))
        yield


def replace_place(patch: pytest.MonkeyPatch, place: str, expression: str) -> None:
    """Replace a function, a property or a constant by an expression.

    Raises:
        AttributeError, ImportError: if the path does not exist.
        KeyError: if the item does not exist.
    """
    path, _, item = place.removesuffix("]").partition("[")
    home, name = path.rsplit(".", 1)
    owner = pkgutil.resolve_name(home if find_spec(home.split(".")[0]) else f"{PACKAGE}.{home}")
    right = inspect.getattr_static(owner, name)
    if item:
        patch.setitem(right, item, replacement(right[item], expression, owner))
    elif isinstance(right, property | cached_property):
        getter = right.fget if isinstance(right, property) else right.func
        patch.setattr(owner, name, property(replacement(getter, expression, owner)))
    else:
        patch.setattr(owner, name, replacement(right, expression, owner))


def replacement(right: Any, expression: str, owner: Any) -> Any:
    """Return the value of an expression, or a function that evaluates it at each call."""
    home = owner if inspect.ismodule(owner) else inspect.getmodule(owner)
    names_in_scope = {**vars(home), **NAMES}
    if not callable(right):
        return eval(expression, {**names_in_scope, "value": right})
    names_in_scope = {**names_in_scope, **vars(inspect.getmodule(right) or home), **NAMES}
    signature, calls = inspect.signature(right), itertools.count()

    @wraps(right)  # the wrapper keeps the signature and module, so that it can be replaced in turn
    def wrong(*values: Any, **by_name: Any) -> Any:
        bound = signature.bind(*values, **by_name)
        bound.apply_defaults()
        names = {**names_in_scope, **bound.arguments, "original": right, "call": next(calls)}
        if re.search(r"\bresult\b", expression):
            names["result"] = right(*values, **by_name)
        return eval(expression, names)

    return wrong


def replace_rule(
    patch: pytest.MonkeyPatch,
    optimizer: str,
    instead: str | None = None,
    options: Mapping[str, Any] | None = None,
    **hyperparameters: Any,
) -> None:
    """Replace a rule by another one, add options, or change its hyperparameters."""
    choose, complete = interop.chosen, interop.completed
    changed: list[Rule] = []

    def chosen(name: str | Rule, given: Options | None) -> Rule:
        if name != optimizer:
            return choose(name, given)
        changed.append(dataclasses.replace(choose(instead or name, {**(given or {}), **(options or {})})))
        return changed[-1]

    def completed(rule: Rule, hyper: Mapping[str, Any]) -> dict[str, float]:
        values = complete(rule, hyper)
        if any(rule is rule_changed for rule_changed in changed):
            # the options decide which hyperparameters there are
            for name in values.keys() & hyperparameters.keys():
                values[name] = eval(str(hyperparameters[name]), {**NAMES, "value": values[name]})
        return values

    patch.setattr(replaying, "chosen", chosen)
    patch.setattr(replaying, "completed", completed)


# --- what expressions may use besides, each in place of what is expensive -----------------------------------


def numbering(rule: Rule) -> Rule:
    """Return a rule whose steps get shorter with the number of a coordinate."""

    def update(ops: Any, grad: Any, state: Any, param: Any, hyper: Any) -> tuple[Any, Any]:
        new, state = rule.update(ops, grad, state, param, hyper)
        return param + (new - param) / (1 + np.arange(param.shape[-1])), state

    return dataclasses.replace(rule, update=update)


def with_spectra(
    random: np.random.Generator, of: tuple[str, ...], dense: bool = True, **spectra: np.ndarray
) -> dict[str, np.ndarray]:
    """Return, by parameter, n random mixtures of gradients (n, n) whose EGOP has these eigenvalues (n,).

    Args:
        random: generator of the instance.
        of: names of the parameters; empty for all.
        dense: whether the eigenvectors are dense, or unit vectors.
        spectra: eigenvalues of each parameter.
    """
    gradients = {}
    for name, values in spectra.items():
        size = len(values)
        basis = orthonormal(random, size, size) if dense else np.eye(size)
        if name in (of or spectra):
            gradients[name] = orthonormal(random, size, size) @ (np.sqrt(size * values)[:, None] * basis.T)
    return gradients


def ending(
    lanes: SeedProblems,
    options: Options,
    hyper: Mapping[str, float],
    precision: str,
    ratio: float = 1.0,
    values: float = 1.0,
) -> Training:
    """Return a training that ends with `ratio` times the loss of its baseline, and with all d equal to
    `values`.
    """
    seeds = len(lanes.start)
    baseline = precision == "float32" and (options["cayley"] == "exact" or "rotation_rate" not in hyper)
    losses = np.ones((21, seeds)) * (1.0 if baseline else ratio * (1 + 1e-3 * np.arange(seeds)))
    return Training(np.arange(21), losses, np.zeros(21), np.full(21, values))


def times(low: float, high: float) -> Ratios:
    """Return ratios of times with this interval around their median."""
    around = MedianInterval((low + high) / 2, low, high, 0.95, 6)
    return Ratios(around, around, (1.0, 1.0))


def drop(steps: int, betas: Sequence[float], level: float, raised: float, timescales: float) -> np.ndarray:
    """Return correlations (betas, steps) that momentum raises for `timescales` of its timescales."""
    ends = [round(timescales / (1 - beta)) if beta else 0 for beta in betas]
    return np.array([np.where(np.arange(1, steps + 1) < end, raised, level) for end in ends])


NAMES = {"np": np, "replace": dataclasses.replace} | {
    one.__name__: one for one in (numbering, with_spectra, ending, times, drop)
}
