"""Options: one plain form, defaults, and errors that say what would be right."""

from __future__ import annotations

import json
from typing import Any

import pytest

from optimizers import rules
from optimizers.options import Option, OptionError, choice, complete, flag, whole

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


def test_null_is_refused_where_it_means_nothing() -> None:
    with pytest.raises(OptionError, match=r"every = None is not a whole number from 1 on$"):
        complete("walk", {"every": Option(1, "how often", whole(1))}, {"every": None})


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
