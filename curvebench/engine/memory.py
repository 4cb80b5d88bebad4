"""Estimation of the memory of runs on a device, and from it the number of runs that are computed together.

A bundle has one run, called a lane, for each of its seeds and settings. The tuning rounds and the final round
of a method on a workload are bundles with different numbers of lanes. A tile is a shape (slots, width) to
which the lanes of all rounds are padded, so that they share compiled programs. A basis is a change of
coordinates given by a matrix V.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from curvebench.arrays.numpy_ops import numpy_ops
from curvebench.arrays.ops import separate_copies
from curvebench.engine.bundle import Bundle
from curvebench.engine.tiles import Tile
from curvebench.optimizers.rule import Rule
from curvebench.steps.engine import Engine
from curvebench.steps.layout import Layout
from curvebench.steps.torch_rule import TorchRule
from curvebench.steps.update import Update
from curvebench.workloads.workload import Split, Workload, examples_in

# Rounds share a tile only if all rounds together have at most this number of multiplications.
# A step of a lane counts as (parameters x examples of a minibatch + entries of V) multiplications.
# If there are more multiplications, it is faster to compile each round for its own number of lanes.
# All settings of a seed then share the products with the seed's basis (docs/performance.md).
MAX_TILED_PRODUCTS = 10**10


def lanes_per_bundle(bundle: Bundle, itemsize: int, memory_limit_bytes: int) -> tuple[int, int]:
    """Return the numbers of seeds and of settings that are computed together within the memory limit.

    The result depends only on shapes, precision and the limit, so that it is the same on every machine. A
    second seed is added only if all settings of the first seed fit. Lanes that are computed one after another
    take less memory than this function assumes.

    Args:
        bundle: all lanes.
        itemsize: number of bytes of one number.
        memory_limit_bytes: the limit for lanes that are computed together.
    """
    seeds, settings = bundle.lanes
    settings = 1 if bundle.reestimation_steps else settings
    if runs_singly(bundle):
        return 1, 1
    seed, lane = bytes_of(bundle, itemsize)
    fitting = max(1, min(settings, (memory_limit_bytes - seed) // lane))
    if fitting < settings:
        return 1, fitting
    return max(1, min(seeds, memory_limit_bytes // (seed + settings * lane))), settings


def runs_singly(bundle: Bundle) -> bool:
    """Return whether each lane must be computed separately, since workload or optimizer cannot be batched."""
    workload = bundle.workload
    rule = bundle.rule
    return workload.separate_jobs or not workload.mapped or (isinstance(rule, TorchRule) and rule.runs_singly)


def bytes_of(bundle: Bundle, itemsize: int) -> tuple[int, int]:
    """Estimate the memory on the device: bytes that the lanes of a seed share, and bytes of each lane.

    The lanes of a seed share the basis of the seed, which counts twice if V^T may be stored in addition to V.
    The lanes of a seed also share the data of the seed. The data count if they are on the device and differ
    between seeds. Each lane has

    - four copies of its parameters, two copies of the rule's state, and the needs of the rule;
    - more copies of gradient and needs for accumulation and clipping (`StepProtocol.gradient_copies`);
    - twice the activations of the examples that are evaluated at once, in a microbatch or in an evaluation,
      estimated as one number for each example and each row of a parameter.

    If bases are estimated again during the run, each run has a basis of its own; such bundles have one
    setting.

    Args:
        bundle: the bundle.
        itemsize: number of bytes of one number.
    """
    problem, workload = bundle.problems[0], bundle.workload
    shapes = [matrix.shape[1:] for matrix in bundle.matrices.values()]
    basis = sum(math.prod(shape) * max(1, separate_copies(*shape)) for shape in shapes)
    resident = [arrays_of(split) for name, split in problem.splits.items() if is_resident(workload, name)]
    evaluated = [problem.splits[name] for name in workload.evaluated_splits]
    examples = max(map(examples_in, evaluated), default=0)
    protocol, evaluated_at_once = bundle.protocol, min(examples, workload.evaluation_batch or examples)
    at_once = max(protocol.microbatch_size(bundle.batch_size), evaluated_at_once)
    rows = sum(value.shape[0] if value.ndim else 1 for value in problem.parameters.values())
    total = bundle.layout.total
    copies = 4 + protocol.gradient_copies
    lane = copies * total + 2 * state_entries(bundle.rule, bundle.layout) + 2 * at_once * rows
    lane += (1 + protocol.accumulates) * sum(need.entries(bundle.model) for need in bundle.needs)
    data = 0 if workload.shared_data else sum(array.size for split in resident for array in split.values())
    return itemsize * (basis + data), itemsize * lane


def tile_of(
    bundle: Bundle, rounds: Sequence[tuple[int, int]], engine: Engine, memory_limit_bytes: int
) -> Tile | None:
    """Choose the tile to which the lanes of all rounds are padded, so that they share compiled programs.

    The tile with the fewest lanes is chosen. Among several such tiles, the widest is chosen, because the
    settings of a seed share the seed's minibatch and basis. Like the result of `lanes_per_bundle`, the tile
    does not depend on the machine.

    Args:
        bundle: lanes of one round, with the schedule of the longest round.
        rounds: numbers of seeds and settings of each round.
        engine: the backend.
        memory_limit_bytes: memory limit of a bundle.

    Returns:
        The tile; None if the rounds do not share a tile. Rounds share no tile if all rounds have the same
        numbers of seeds and settings; if bases are estimated during runs, so that a basis belongs to one
        setting; if the engine's programs serve any number of lanes (`Engine.compiles_lanes` is false); or if
        the steps take much longer than compilation (MAX_TILED_PRODUCTS).
    """
    if len(set(rounds)) < 2 or bundle.reestimation_steps:
        return None
    if runs_singly(bundle):
        return Tile(1, 1)
    basis = sum(math.prod(matrix.shape[1:]) for matrix in bundle.matrices.values())
    products = len(bundle.schedule) * (bundle.batch_size * bundle.layout.total + basis)
    if not engine.compiles_lanes or products * sum(map(math.prod, rounds)) > MAX_TILED_PRODUCTS:
        return None
    seed, lane = bytes_of(bundle, engine.itemsize)
    widest = max(1, min(max(settings for _, settings in rounds), (memory_limit_bytes - seed) // lane))

    def slots(width: int) -> int:
        return max(seeds * math.ceil(settings / width) for seeds, settings in rounds)

    width = min(range(1, widest + 1), key=lambda width: (slots(width) * width, -width))
    fitting = max(1, memory_limit_bytes // (seed + width * lane))
    return Tile(math.ceil(slots(width) / math.ceil(slots(width) / fitting)), width)


def state_entries(rule: Rule, lay: Layout) -> int:
    """Return the number of entries in the state of a rule for one lane.

    The state of an optimizer of PyTorch is not known before the run, and is assumed to be two moments.
    """
    if isinstance(rule, TorchRule):
        return 2 * lay.total
    param = np.broadcast_to(np.float32(0), (1, 1, lay.total))
    return sum(leaf.size for leaf in leaves(Update(rule, lay).init(numpy_ops("float32"), param)))


def leaves(state: Any) -> list[np.ndarray]:
    """Return all arrays in the state of a rule, which consists of nested tuples, lists and mappings."""
    if not isinstance(state, tuple | list | Mapping):
        return [state]
    children = state.values() if isinstance(state, Mapping) else state
    return [leaf for child in children for leaf in leaves(child)]


def is_resident(workload: Workload, split: str) -> bool:
    """Return whether a split stays on the device during the run, instead of being sent in batches."""
    if split == "train" and not workload.streamed:
        return True
    return workload.evaluation_batch is None and split in workload.evaluated_splits


def arrays_of(split: Split) -> dict[str, np.ndarray]:
    """Return a split as a mapping from fields to arrays. A data source, which has no arrays, is refused."""
    assert isinstance(split, Mapping), "data sources are streamed"
    return dict(split)
