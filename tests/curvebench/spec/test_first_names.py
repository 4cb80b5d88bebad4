"""Hashes have the first names of keys, so that the hashes of published runs stay."""

from __future__ import annotations

from curvebench.spec.document import FIRST_NAMES, under_first_names


def test_hashed_values_have_the_first_names_of_keys():
    conditions = [{new: {"until": 1}} for new in FIRST_NAMES]
    assert under_first_names(conditions) == [{old: {"down_to": 1}} for old in FIRST_NAMES.values()]
