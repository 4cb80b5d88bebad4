"""Checks of settings that several workload families share."""

from __future__ import annotations

import math

from workloads.workload import Settings


def require_counts(settings: Settings, *keys: str) -> None:
    """Require whole numbers above 0.

    Raises:
        ValueError: with the first key whose value is anything else.
    """
    for key in keys:
        value = settings[key]
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise ValueError(f"{key} = {value!r} is not a whole number above 0")


def require_number(settings: Settings, key: str, low: float, low_open: bool = False) -> None:
    """Require a finite number that is at least `low`, or above it where `low_open`.

    Raises:
        ValueError: for anything else.
    """
    value = settings[key]
    numeric = isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
    if not numeric or value < low or (low_open and value == low):
        bound = f"{'above' if low_open else 'of at least'} {low:g}"
        raise ValueError(f"{key} = {value!r} is not a number {bound}")


def require_batch(settings: Settings, examples: int) -> None:
    """Require a `batch_size` that the training examples can fill, or None for the full batch.

    Raises:
        ValueError: for anything else.
    """
    if settings["batch_size"] is None:
        return
    require_counts(settings, "batch_size")
    if settings["batch_size"] > examples:
        raise ValueError(
            f"batch_size = {settings['batch_size']} is larger than the {examples} training examples "
            "(null: full batch)"
        )
