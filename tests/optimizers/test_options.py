"""Options: one plain form, defaults, errors that say what would be right, and what they cost in state."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from curvebench.arrays.numpy_ops import numpy_ops
from curvebench.optimizers import rules
from curvebench.optimizers.options import Option, OptionError, complete
from curvebench.spec.values import choice, flag, whole
from curvebench.steps.layout import layout
from curvebench.steps.update import Update
from curvebench.workloads.workload import Role
from tests.optimizers.paths import leaves

OPTIONS = {
    "way": Option("short", "which way", choice("short", "long")),
    "again": Option(False, "whether again", flag),
    "every": Option(None, "how often", whole(2, none="never")),
}
CHOOSABLE = [name for name, rule in rules().items() if rule.options]


def test_what_is_left_out_has_its_default() -> None:
    assert complete("walk", OPTIONS, {}) == {"way": "short", "again": False, "every": None}
    given = {"every": 3, "way": "long", "again": True}
    assert complete("walk", OPTIONS, given) == given
    assert complete("walk", OPTIONS, {"every": None})["every"] is None


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"wai": "short"}, r"walk has no option 'wai'; did you mean 'way'\? \(valid: way, again, every\)"),
        ({"way": "round"}, "walk: way = 'round' is not one of short, long"),
        ({"way": ["short"]}, r"walk: way = \['short'\] is not one of short, long"),
        ({"again": "yes"}, "walk: again = 'yes' is neither true nor false"),
        ({"again": 0}, "walk: again = 0 is neither true nor false"),
        ({"every": 1}, r"walk: every = 1 is not a whole number from 2 on, or null \(never\)"),
        ({"every": 2.0}, "walk: every = 2.0 is not a whole number"),
        ({"every": True}, "walk: every = True is not a whole number"),
    ],
)
def test_wrong_options_are_refused(given: dict[str, Any], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        complete("walk", OPTIONS, given)


@pytest.mark.parametrize("optimizer", CHOOSABLE)
def test_a_rule_knows_what_was_chosen(optimizer: str) -> None:
    rule = rules()[optimizer]
    assert rule.chosen == {name: option.default for name, option in rule.options.items()}
    again = rule.choose(json.loads(json.dumps(rule.chosen)))
    assert (again.name, again.chosen, again.source) == (rule.name, rule.chosen, rule.source)
    for name, option in rule.options.items():
        assert option.description, name
        assert option.default is None or option.read(option.default) == option.default


@pytest.mark.parametrize("optimizer", [name for name, rule in rules().items() if not rule.options])
def test_a_rule_without_options_takes_none(optimizer: str) -> None:
    assert rules()[optimizer].choose({}) is rules()[optimizer]
    with pytest.raises(OptionError, match=f"{optimizer} has no option 'steps'.*valid: none"):
        rules()[optimizer].choose({"steps": 5})


@pytest.mark.parametrize(
    ("optimizer", "shape", "options", "numbers"),
    [
        ("shampoo", (6, 4), {}, 2 * 36 + 2 * 16),
        ("shampoo", (6, 4), {"block_size": 2}, 6 * (2 * 4 + 2 * 4)),  # 6 of 2 x 2: 2 m n (b / n + b / m)
        ("shampoo", (6, 4), {"grafting": "adam"}, 2 * 36 + 2 * 16 + 2 * 24),
        ("soap", (6, 4), {}, 2 * 24 + 2 * 36 + 2 * 16),
        ("soap", (10_001, 2), {}, 2 * 20_002 + 2 * 4),
        ("soap", (6,), {}, 2 * 6),
        ("soap", (1, 6), {}, 2 * 6),
        ("soap", (), {}, 2),
        ("soap", (4, 3, 2, 2), {}, 2 * 48 + 2 * (16 + 9 + 4 + 4)),
        ("spectral", (6, 4), {"velocity": False}, 36 + 16 + 6 + 4 + 1),
        ("spectral", (6, 4), {}, 36 + 16 + 6 + 4 + 1 + 24),
        ("spectral", (4, 3, 2, 2), {"velocity": False}, 16 + 9 + 4 + 4 + 4 + 3 + 2 + 2 + 1),
        ("spectral", (6,), {}, 2 * 6),  # AdamW's
        ("spectral_full", (6, 4), {"velocity": False}, 24**2 + 24),
        ("spectral_full", (6, 4), {}, 24**2 + 2 * 24),
        ("spectral_diagonal", (6, 4), {"velocity": False}, 24),
        ("spectral_diagonal", (6, 4), {}, 2 * 24),
    ],
)
def test_state_sizes(optimizer: str, shape: tuple[int, ...], options: dict[str, Any], numbers: int) -> None:
    update = Update(rules()[optimizer].choose(options), layout({"w": shape}, {"w": Role("weight")}))
    state = update.init(numpy_ops("float64"), np.zeros((1, 1, int(np.prod(shape)))))
    assert sum(leaf.size for leaf in leaves(state)) == numbers
