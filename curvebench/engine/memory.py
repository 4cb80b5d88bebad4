"""Bytes that lanes take on a device, and how many of them are computed together."""

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
from curvebench.steps.derivatives import model_of
from curvebench.steps.engine import Engine
from curvebench.steps.layout import Layout
from curvebench.steps.torch_rule import TorchRule
from curvebench.steps.update import Update
from curvebench.workloads.workload import Split, Workload, examples_in

# Products of a parameter and an example, and of a basis and a gradient, in all rounds of a cell, up to which
# the rounds share a tile. With more work, a round's steps are so much faster in its own shape, where settings
# of a seed share its basis, that this saves more than compiling once: docs/performance.md has the times.
MOST_PRODUCTS = 10**10


def lanes_per_bundle(bundle: Bundle, itemsize: int, memory_limit_bytes: int) -> tuple[int, int]:
    """Seeds and settings that fit into the memory limit: a function of shapes, precision and the limit alone.

    An upper bound where lanes are evaluated in turn (`bytes_of`).
    """
    seeds, settings = bundle.lanes
    settings = 1 if bundle.points else settings
    if runs_singly(bundle):
        return 1, 1
    seed, lane = bytes_of(bundle, itemsize)
    fitting = max(1, min(settings, (memory_limit_bytes - seed) // lane))
    if fitting < settings:
        return 1, fitting
    return max(1, min(seeds, memory_limit_bytes // (seed + settings * lane))), settings


def runs_singly(bundle: Bundle) -> bool:
    """Whether each lane of a bundle is a program of its own."""
    workload = bundle.workload
    rule = bundle.rule
    return workload.alone or not workload.mapped or (isinstance(rule, TorchRule) and rule.runs_singly)


def bytes_of(bundle: Bundle, itemsize: int) -> tuple[int, int]:
    """Bytes on the device of what the lanes of a seed share, and of each lane.

    The basis of a seed counts twice where V may be stored with V^T. A lane counts four copies of its
    parameters, two of its state, what the rule needs besides the gradient, and twice the activations of the
    part of a minibatch, or of the largest split, that is evaluated at once, taken as one number for every
    example and row of a parameter. A seed's data count where they are stored on the device. Accumulation
    stores the gradient and the needs of a part beside their sums, and clipping the gradient as it was.
    Settings do not share a basis that is estimated anew around each one's iterate.
    """
    problem, workload = bundle.problems[0], bundle.workload
    shapes = [matrix.shape[1:] for matrix in bundle.matrices.values()]
    basis = sum(math.prod(shape) * max(1, separate_copies(*shape)) for shape in shapes)
    held = [arrays_of(split) for name, split in problem.splits.items() if is_resident(workload, name)]
    evaluated = [problem.splits[name] for name in workload.evaluated_splits]
    examples = max(map(examples_in, evaluated), default=0)
    protocol, evaluated_at_once = bundle.protocol, min(examples, workload.evaluation_batch or examples)
    at_once = max(protocol.microbatch_size(bundle.batch_size), evaluated_at_once)
    rows = sum(value.shape[0] if value.ndim else 1 for value in problem.parameters.values())
    total = bundle.layout.total
    copies = 4 + protocol.gradient_copies
    lane = copies * total + 2 * state_entries(bundle.rule, bundle.layout) + 2 * at_once * rows
    lane += (1 + protocol.accumulates) * sum(need.entries(model_of(bundle.layout)) for need in bundle.needs)
    data = 0 if workload.shared_data else sum(array.size for split in held for array in split.values())
    return itemsize * (basis + data), itemsize * lane


def tile_of(
    bundle: Bundle, rounds: Sequence[tuple[int, int]], engine: Engine, memory_limit_bytes: int
) -> Tile | None:
    """The tile for all rounds of a cell, by shapes alone; None where rounds keep their own shapes.

    It is the one that computes the fewest lanes, of those the widest: settings of a seed share its minibatch
    and its basis. Rounds keep their shapes where there is one round, where bases are estimated anew (each
    belongs to one setting), where the backend runs several lanes without compiling, and where the work of the
    steps outweighs compiling (`MOST_PRODUCTS`).

    Args:
        bundle: lanes of the cell with the schedule of its longest round.
        rounds: seeds and settings of each round.
        engine: the backend.
        memory_limit_bytes: as of `lanes_per_bundle`.
    """
    if len(set(rounds)) < 2 or bundle.points:
        return None
    if runs_singly(bundle):
        return Tile(1, 1)
    basis = sum(math.prod(matrix.shape[1:]) for matrix in bundle.matrices.values())
    products = len(bundle.schedule) * (bundle.batch_size * bundle.layout.total + basis)
    if not engine.compiles_lanes or products * sum(map(math.prod, rounds)) > MOST_PRODUCTS:
        return None
    seed, lane = bytes_of(bundle, engine.itemsize)
    widest = max(1, min(max(settings for _, settings in rounds), (memory_limit_bytes - seed) // lane))

    def slots(width: int) -> int:
        return max(seeds * math.ceil(settings / width) for seeds, settings in rounds)

    width = min(range(1, widest + 1), key=lambda width: (slots(width) * width, -width))
    fitting = max(1, memory_limit_bytes // (seed + width * lane))
    return Tile(math.ceil(slots(width) / math.ceil(slots(width) / fitting)), width)


def state_entries(rule: Rule, lay: Layout) -> int:
    """Return the number of floats in a rule's state of one lane; of a torch.optim.Optimizer, two moments."""
    if isinstance(rule, TorchRule):
        return 2 * lay.total
    param = np.broadcast_to(np.float32(0), (1, 1, lay.total))
    return sum(leaf.size for leaf in leaves(Update(rule, lay).init(numpy_ops("float32"), param)))


def leaves(state: Any) -> list[np.ndarray]:
    """The arrays of a state, which is made of tuples, lists and mappings."""
    if not isinstance(state, tuple | list | Mapping):
        return [state]
    return [
        leaf for child in (state.values() if isinstance(state, Mapping) else state) for leaf in leaves(child)
    ]


def is_resident(workload: Workload, split: str) -> bool:
    """Whether a split is held on the device, and not sent in pieces."""
    if split == "train" and not workload.streamed:
        return True
    return workload.evaluation_batch is None and split in workload.evaluated_splits


def arrays_of(split: Split) -> dict[str, np.ndarray]:
    """The fields of a split that is held on the device."""
    assert isinstance(split, Mapping), "data sources are streamed"
    return dict(split)
