"""EGOP: the eigenbasis of the expected gradient outer product, of all parameters or block by block.

V is the matrix with the eigenvectors of the expected gradient outer product in columns. The change of
coordinates is made from V (`change.py`).
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from curvebench.optimizers.bases.basis import Basis, Estimator, Group, Reestimation, Sampling, Shapes
from curvebench.optimizers.bases.change import AUXILIARY, DATA, REDUCED, ROTATION, SHARED, Change
from curvebench.optimizers.bases.estimators import (
    Changed,
    Decomposition,
    Randomized,
    Streaming,
    Whole,
    by_numpy,
    completed,
    with_random_null_space,
)
from curvebench.optimizers.layers import LAYER_KINDS
from curvebench.optimizers.options import Option, OptionError, Options
from curvebench.spec.errors import unknown
from curvebench.spec.values import choice, is_number

MULTIPLE_OF_DIMENSION = re.compile(r"((?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:e[+-]?[0-9]+)?)\s*d")
PERIOD = re.compile(r"([1-9][0-9]*)\s*(epochs?|steps?)")
# For each value of the option `blocks`, the kinds of parameters that get a basis of their own.
BLOCKS = {"weights": ("weight", "head"), "layers": LAYER_KINDS}
ESTIMATORS: Mapping[str, Callable[[int, int, np.random.Generator, Decomposition], Whole | Streaming]] = {
    "whole": Whole,
    "randomized": lambda size, rank, random, decompose: Randomized(size, rank, random),
    "streaming": lambda size, rank, random, decompose: Streaming(size, rank, random),
}
# By the kind of a parameter: the option that says whether the parameter's filters or rows share one V.
SHARING = {"convolution": "filters", "weight": "rows", "head": "rows"}
COMPLEMENTS: Mapping[str, Change] = {"random": ROTATION, "auxiliary": AUXILIARY, "none": REDUCED}


def _read_blocks(value: Any) -> Any:
    if value in ("all", *BLOCKS):
        return str(value)
    if isinstance(value, (list, tuple)) and value and all(isinstance(name, str) for name in value):
        if len(set(value)) < len(value):
            raise OptionError("names a parameter twice; name each once")
        return [str(name) for name in value]
    raise OptionError("is not one of all, weights, layers, or a list of parameter names")


def _multiple(text: str) -> float | None:
    """Return the factor in a text such as `1.0 d` (a multiple of the dimension); None for any other text."""
    match = MULTIPLE_OF_DIMENSION.fullmatch(text.strip())
    factor = float(match[1]) if match else math.nan
    return factor if 0 < factor < math.inf else None


def _read_samples(value: Any) -> Any:
    if isinstance(value, int) and not isinstance(value, bool) and value > 0:
        return int(value)
    factor = _multiple(value) if isinstance(value, str) else None
    if factor is None:
        raise OptionError(
            "is neither a positive whole number nor a multiple of the dimension such as '1.0 d'"
        )
    return f"{factor!r} d"


def _read_sampling(value: Any) -> Any:
    if value == "initialization":
        return "initialization"
    if isinstance(value, Mapping) and list(value) in (["normal"], ["normal_around_start"]):
        ((kind, scale),) = value.items()
        if is_number(scale) and 0 < scale < math.inf:
            return {str(kind): float(scale)}
    raise OptionError(
        "is none of initialization, {normal: <standard deviation above 0>} and "
        "{normal_around_start: <standard deviation above 0>}"
    )


def _read_every(value: Any) -> Any:
    if value is None:
        return None
    match = PERIOD.fullmatch(value.strip()) if isinstance(value, str) else None
    if match is None:
        raise OptionError("is neither null nor a number of epochs or steps such as '1 epoch' or '500 steps'")
    return f"{match[1]} {match[2].rstrip('s')}s"


def _count(size: int | str, dimension: int) -> int:
    """Return a number `size` unchanged, and for a text such as `1.0 d` that multiple of `dimension`.

    The multiple is rounded, and is at least 1.
    """
    if isinstance(size, int):
        return size
    factor = _multiple(size)
    assert factor is not None, "options were completed"
    return max(1, round(factor * dimension))


def _groups(options: Options, shapes: Shapes, kinds: Mapping[str, str]) -> tuple[Group, ...]:
    blocks = options["blocks"]
    change = ROTATION if options["rank"] is None else COMPLEMENTS[options["complement"]]
    _check_together(options, change)
    if blocks == "all":
        return (Group(tuple(shapes), sum(map(math.prod, shapes.values())), change),)
    if isinstance(blocks, str):
        chosen = BLOCKS[blocks]
        names = [name for name in shapes if kinds[name] in chosen]
        if not names:
            raise OptionError(
                f"egop: blocks = {blocks!r}, but no parameter of this workload is a {' or a '.join(chosen)}; "
                f"use blocks: all, or name some of {', '.join(shapes)}"
            )
        blocks = names
    groups = []
    for name in blocks:
        if name not in shapes:
            raise OptionError(f"egop: blocks: {unknown('the workload', 'parameter', name, shapes)}")
        shape = shapes[name]
        option = SHARING.get(kinds[name])
        if options["applied_to"] == "data" and option != "rows":
            raise OptionError(
                f"egop: applied_to = 'data' changes the inputs of a weight matrix, and {name} is a "
                f"{kinds[name]}; set applied_to: parameters"
            )
        if option is not None and options[option] == "shared":
            if change is not ROTATION:
                raise OptionError(
                    f"egop: complement = {options['complement']!r}, but the {option} of {name} share a basis"
                    f", which can be completed at random only; set {option}: joint, or leave it out of blocks"
                )
            form = DATA if options["applied_to"] == "data" else SHARED
            groups.append(Group((name,), math.prod(shape[1:]), form))
        else:
            groups.append(Group((name,), math.prod(shape), change))
    return tuple(groups)


def _check_together(options: Options, change: Change) -> None:
    """Check that the options are consistent with each other and with the change of coordinates.

    Raises:
        OptionError: for options that exclude each other.
    """
    if options["every"] is not None and change is REDUCED:
        raise OptionError(
            f"egop: every = {options['every']!r}, but complement: none keeps parameters in the span of one "
            "V_r, which the next does not hold; set complement: auxiliary or random, or leave every out"
        )
    if options["applied_to"] == "parameters":
        return
    if options["rows"] != "shared" or not isinstance(options["blocks"], list):
        raise OptionError(
            "egop: applied_to = 'data' changes the inputs of one weight; set rows: shared, and blocks to the "
            "name of the weight that the data enter, such as [W1]"
        )
    if len(options["blocks"]) > 1 or options["every"] is not None:
        raise OptionError(
            "egop: applied_to = 'data' changes the data once, for one weight; name one in blocks and leave "
            "every out, or set applied_to: parameters"
        )


def _sampling(options: Options) -> Sampling:
    if options["sampling"] == "initialization":
        return Sampling("initialization")
    ((kind, scale),) = options["sampling"].items()
    return Sampling("normal", scale, around_start=kind == "normal_around_start")


def _reestimation(options: Options) -> Reestimation | None:
    if options["every"] is None:
        return None
    count, unit = options["every"].split()
    return Reestimation(int(count), unit)


def rank_of(options: Options, group: Group) -> int:
    """Return the number of columns of V for a group, as the option `rank` requires."""
    return group.size if options["rank"] is None else min(group.size, _count(options["rank"], group.size))


def _estimator(
    options: Options, group: Group, random: np.random.Generator, decompose: Decomposition = by_numpy
) -> Estimator:
    rank = rank_of(options, group)
    leading = ESTIMATORS[options["estimator"]](group.size, rank, random, decompose)
    completes = rank < group.size and not group.change.leading
    inner = Changed(leading, completed, random) if completes else leading
    return Changed(inner, with_random_null_space, random) if options["null_space"] == "random" else inner


EGOP = Basis(
    name="egop",
    source="000 Alg. 2.1, Sec. 5, App. D",
    description="eigenbasis of the expected gradient outer product, global or block by block",
    options={
        "blocks": Option(
            "all",
            "what is rotated together: all (one block), weights (a block a weight matrix), layers (a block a "
            "weight matrix or convolution), or a list of parameter names (a block each)",
            _read_blocks,
        ),
        "filters": Option(
            "shared",
            "what a convolution's block is: shared, one V for all of its filters (Alg. D.2), or joint, one V "
            "for the whole tensor",
            choice("shared", "joint"),
        ),
        "rows": Option(
            "joint",
            "what a weight matrix's block is: joint, one V for the whole matrix, or shared, one V for all of "
            "its rows, which acts on the layer's inputs",
            choice("joint", "shared"),
        ),
        "applied_to": Option(
            "parameters",
            "what is changed: parameters, or data, the inputs of the first weight once and up front, where "
            "its rows share V (App. D)",
            choice("parameters", "data"),
        ),
        "samples": Option(
            "1.0 d",
            "the number of gradients M: whole, or a multiple of the number d of all parameters' entries",
            _read_samples,
        ),
        "sampling": Option(
            "initialization",
            "where gradients are taken: initialization, {normal: standard deviation} around 0, or "
            "{normal_around_start: standard deviation} around a run's first parameters",
            _read_sampling,
        ),
        "rank": Option(
            None,
            "how many leading eigenvectors are estimated: whole, or a multiple of the number d of a block's "
            "entries; null: all",
            lambda value: None if value is None else _read_samples(value),
        ),
        "complement": Option(
            "random",
            "what is beside the leading eigenvectors: random, a random orthonormal basis; auxiliary, "
            "variables of their own (Alg. D.1); none, parameters stay in their span (D.1.1)",
            choice(*COMPLEMENTS),
        ),
        "estimator": Option(
            "whole",
            "how eigenvectors are found: whole, by a decomposition; randomized, by Halko's random range; "
            "streaming, in one pass that keeps no gradients",
            choice(*ESTIMATORS),
        ),
        "null_space": Option(
            "lapack",
            "which of its many orthonormal bases the null space of the EGOP has: lapack, that of the "
            "decomposition, or random, a uniformly random one",
            choice("lapack", "random"),
        ),
        "every": Option(
            None,
            "how often V is estimated anew, from gradients around the run's iterate, such as 1 epoch or 500 "
            "steps (Sec. 5), where first moments are turned into the new coordinates; null: once, up front",
            _read_every,
        ),
    },
    groups=_groups,
    samples=lambda options, dimension: _count(options["samples"], dimension),
    sampling=_sampling,
    estimator=_estimator,
    reestimation=_reestimation,
)

BASES = (EGOP,)
