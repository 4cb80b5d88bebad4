"""`python -m benchmarks.kernels.costs`: what a step of each rule costs, and what its state holds.

A step is timed in turn with one of AdamW on the same parameters and gradients, on each backend; amortized
work is spread over its cadence. A rule that needs a matrix of all parameters by all parameters is timed on a
few.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import prod

from harness.backends import BACKENDS
from optimizers import rules

from .case import ITEM_BYTES
from .clock import one_thread
from .command import nothing_fits, timing_parser
from .interleaving import Ratios, interleaved, repeated
from .shapes import FEW, SHAPE_SETS, Shapes
from .steps import EVERY_RULE_ON, SMALL_PROBLEMS_ONLY, STEPS, optimizer_step, state_entries

UNIT = "adamw"
DTYPE = "float32"


@dataclass(frozen=True)
class Cost:
    """What a rule costs.

    Args:
        optimizer: its name.
        state_bytes: of its state, for each parameter, in float32.
        ratios: its step over AdamW's, by backend.
    """

    optimizer: str
    state_bytes: float
    ratios: dict[str, Ratios]


def shapes_of(optimizer: str) -> Shapes:
    """The parameters that a rule's cost is measured on."""
    return FEW if optimizer in SMALL_PROBLEMS_ONLY else SHAPE_SETS[EVERY_RULE_ON]


def state_bytes(optimizer: str) -> float:
    """Bytes of a rule's state in float32, for each parameter."""
    shapes = shapes_of(optimizer)
    return state_entries(rules()[optimizer], shapes) * ITEM_BYTES[DTYPE] / sum(map(prod, shapes.values()))


def step_ratio(optimizer: str, backend: str, repetitions: int) -> Ratios:
    """A rule's step over AdamW's, the mean over a cadence; call inside `one_thread`."""
    shapes, rule = shapes_of(optimizer), rules()[optimizer]
    ours = optimizer_step(backend, rule, shapes, DTYPE)
    unit = optimizer_step(backend, rules()[UNIT], shapes, DTYPE)
    every = rule.refresh_every or 1
    with ours.context(), unit.context():
        for _ in range(STEPS):
            ours.run()
        return interleaved(repeated(ours.run, every), repeated(unit.run, every), repetitions)


def costs(pattern: str, repetitions: int) -> Iterator[Cost]:
    """The cost of every rule whose name has the pattern; call inside `one_thread`."""
    for optimizer in rules():
        if re.search(pattern, optimizer):
            ratios = {backend: step_ratio(optimizer, backend, repetitions) for backend in BACKENDS}
            yield Cost(optimizer, state_bytes(optimizer), ratios)


def line(cost: Cost) -> str:
    """A cost as a row of the printed table."""
    shown = [
        f"{each.median:8.2f} [{each.low:.2f}, {each.high:.2f}]"
        for each in (cost.ratios[backend].ratio for backend in BACKENDS)
    ]
    few = "  (few parameters)" if cost.optimizer in SMALL_PROBLEMS_ONLY else ""
    return f"{cost.optimizer:28} {cost.state_bytes:10.1f}   " + " ".join(f"{each:26}" for each in shown) + few


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table."""
    description = "Time each rule's step in turn with AdamW's, and count the bytes of its state."
    given = timing_parser("costs", description, 21, "rule", "rules whose name contains this").parse_args(
        arguments
    )
    heads = " ".join(f"{backend + ', steps of AdamW [95 %]':26}" for backend in BACKENDS)
    print(f"{'rule':28} {'bytes':>10}   {heads}")
    found = 0
    with one_thread():
        for cost in costs(given.rule, given.repetitions):
            print(line(cost), flush=True)
            found += 1
    return 0 if found else nothing_fits("rule", given.rule, f"no rule has such a name ({', '.join(rules())})")


if __name__ == "__main__":
    sys.exit(main())
