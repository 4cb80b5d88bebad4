"""Exchange of optimizers with other libraries, in both directions.

Update rules of this project are exported as a `torch.optim.Optimizer` (`torch_optimizer`,
`torch_layer_optimizer`) and as a transformation of Optax (`optax_transformation`). With `replaying`, plain
Python code calls rules with gradients. Optimizers of other libraries are imported as rules (`foreign`).
Models in a user's file are imported as workloads (`models`). This module has the checks that all exports
share. The kind of a parameter is its role in a model, such as weight, bias or embedding. The needs of a rule
are values that it uses in addition to the gradient, such as a Hessian.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from curvebench.optimizers import HyperparameterError, Rule, rules
from curvebench.optimizers.layer_statistics import fisher_of
from curvebench.optimizers.options import OptionError, Options
from curvebench.spec.errors import InputError, check_known
from curvebench.steps.layout import KINDS

FLOATS = ("float32", "float64")  # precisions of parameters that a user may pass to a rule


@contextmanager
def as_input_errors() -> Iterator[None]:
    """Return a context that turns a rule's errors about options and hyperparameters into an InputError.

    Raises:
        InputError: with the message of the rule.
    """
    try:
        yield
    except (OptionError, HyperparameterError) as error:
        raise InputError(str(error)) from error


def chosen(rule: str | Rule, options: Options | None) -> Rule:
    """Return a rule with other options.

    Args:
        rule: the name of a registered rule, or a rule. All options that are not in `options` stay as they are
            in this rule.
        options: a mapping from names of options to new values; None to change no option.

    Raises:
        InputError: when a name or option is unknown, or a value is wrong.
    """
    if isinstance(rule, str):
        check_known("curvebench", "optimizer", [rule], rules())
        rule = rules()[rule]
    with as_input_errors():
        return rule.choose({**rule.chosen, **options}) if options else rule


def completed(rule: Rule, given: Mapping[str, Any], later: Sequence[str] = ()) -> dict[str, float]:
    """Check the given hyperparameters, and return them with defaults for the other hyperparameters.

    Args:
        rule: the rule.
        given: values of hyperparameters by full name.
        later: names of hyperparameters whose values are not known yet, for example because a schedule
            computes the values. These hyperparameters are neither checked nor returned.

    Raises:
        InputError: when a name is unknown, or a value is missing or outside of the legal interval.
    """
    if "lr" in given:
        raise InputError(f"{rule.name}: the learning rate is called learning_rate, not lr")
    unchecked = {*later} & {*rule.hyperparameters}
    numbers = {name: value for name, value in given.items() if name not in unchecked}
    with as_input_errors():
        return rule.complete(numbers, later)


def refuse_needs(rule: Rule, interface: str) -> None:
    """Check that a rule needs no other values of the loss than its gradient, and is judged at its parameters.

    Args:
        rule: the rule.
        interface: name of the interface that receives only gradients, for the message.

    Raises:
        InputError: when the rule has needs, such as the Hessian, or is judged at an average.
    """
    if rule.evaluated_at is not None:
        raise InputError(
            f"{rule.name} is judged at an average of the parameters, which {interface} does not return; run "
            "it in a study, or with curvebench.Online"
        )
    elsewhere = ", or as_torch with the model" if fisher_of(rule.needs) else ""
    for need in rule.needs:
        raise InputError(
            f"{rule.name} needs {need.description} of the loss at every step, and {interface} receives only "
            f"gradients; run it in a study{elsewhere}"
        )


def check_kind(owner: str, kind: Any) -> None:
    """Check that `kind` is a kind of parameters, or None.

    None means that the number of a parameter's axes will decide the kind.

    Args:
        owner: beginning of the message, such as `the parameter 'w'`.
        kind: the value to check.

    Raises:
        InputError: when `kind` is neither a kind of parameters nor None.
    """
    if kind is not None:
        check_known(owner, "kind", [kind], KINDS)


def check_array(owner: str, shape: tuple[int, ...], dtype: str, remedy: str) -> None:
    """Check that rules can update an array of the given shape and precision.

    Args:
        owner: beginning of the message, such as `the parameter 'w'`.
        shape: shape of the array.
        dtype: name of the array's precision.
        remedy: end of the message about an unsupported precision.

    Raises:
        InputError: when the array has no entries, or its precision is not one of FLOATS.
    """
    if 0 in shape:
        raise InputError(f"{owner} has the shape {shape} and no entries; leave it out")
    if dtype not in FLOATS:
        raise InputError(f"{owner} is {dtype}, and rules compute in {' and '.join(FLOATS)}; {remedy}")


def label(rule: Rule) -> str:
    """Return the name of a rule, followed by the options that differ from their defaults."""
    changed = [f"{key} {value}" for key, value in rule.chosen.items() if value != rule.options[key].default]
    return f"{rule.name} ({', '.join(changed)})" if changed else rule.name
