"""Rules that leave the project: what the ways out to other libraries have in common."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from curvebench.optimizers import HyperparameterError, Rule, rules
from curvebench.optimizers.layer_statistics import fisher_of
from curvebench.optimizers.options import OptionError, Options
from curvebench.spec.errors import InputError, unknown
from curvebench.steps.layout import KINDS

FLOATS = ("float32", "float64")  # what rules compute in


@contextmanager
def as_input_errors() -> Iterator[None]:
    """What a rule refuses inside, such as an option, a precision or parameters, as bad input.

    Raises:
        InputError: with what the rule says.
    """
    try:
        yield
    except (OptionError, HyperparameterError) as error:
        raise InputError(str(error)) from error


def chosen(rule: str | Rule, options: Options | None) -> Rule:
    """A rule by its name or as it is, with options.

    Raises:
        InputError: for an unknown name or option, or a wrong value.
    """
    if isinstance(rule, str):
        if rule not in rules():
            raise InputError(unknown("the suite", "optimizer", rule, rules()))
        rule = rules()[rule]
    with as_input_errors():
        return rule.choose({**rule.chosen, **options}) if options else rule


def completed(rule: Rule, given: Mapping[str, Any], later: Sequence[str] = ()) -> dict[str, float]:
    """Hyperparameters by full name, checked and completed, but for those that are known later.

    Raises:
        InputError: for an unknown name, a missing value or one outside its interval.
    """
    if "lr" in given:
        raise InputError(f"{rule.name}: the learning rate is called learning_rate, not lr")
    now = {
        name: value for name, value in given.items() if not (name in later and name in rule.hyperparameters)
    }
    with as_input_errors():
        return rule.complete(now, later)


def refuse_needs(rule: Rule, what: str) -> None:
    """Refuse a rule that needs more of the loss than its gradient.

    Raises:
        InputError: for such a rule.
    """
    elsewhere = ", or as_torch with the model" if fisher_of(rule.needs) else ""
    for need in rule.needs:
        raise InputError(
            f"{rule.name} needs {need.description} of the loss at every step, and {what} is given gradients "
            f"alone; run it in a study{elsewhere}"
        )


def check_kind(owner: str, kind: Any) -> None:
    """Whether a kind is one, or None, which means: by the number of axes.

    Raises:
        InputError: for anything else.
    """
    if kind is not None and kind not in KINDS:
        raise InputError(unknown(owner, "kind", kind, KINDS))


def check_array(owner: str, shape: tuple[int, ...], dtype: str, remedy: str) -> None:
    """Whether rules can update such an array.

    Raises:
        InputError: for one without entries, or in a precision that rules do not compute in.
    """
    if 0 in shape:
        raise InputError(f"{owner} has the shape {shape} and no entries; leave it out")
    if dtype not in FLOATS:
        raise InputError(f"{owner} is {dtype}, and rules compute in {' and '.join(FLOATS)}; {remedy}")


def label(rule: Rule) -> str:
    """A rule's name, with the options that are not at their defaults."""
    different = [
        f"{name} {value}" for name, value in rule.chosen.items() if value != rule.options[name].default
    ]
    return f"{rule.name} ({', '.join(different)})" if different else rule.name
