"""Run a function in a process of its own, whose memory nothing else has touched."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import Any, TypeVar

Result = TypeVar("Result")


def alone(function: Callable[..., Result], *arguments: Any) -> Result:
    """What a function of a module returns in a new process: resident memory is the whole process's."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        return pool.submit(function, *arguments).result()
