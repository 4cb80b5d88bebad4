"""`python -m benchmarks.kernels.bandwidth`: how near a step of AdamW comes to the memory's bandwidth.

A step on a vector that no cache holds is bound by memory: 28 bytes a parameter in float32 (gradient,
parameter and both moments are read; parameter and moments are written). It is timed in turn with a copy that
moves as many bytes, read and written together, so that the ratio of seconds is the ratio of bandwidths.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass

import numpy as np

from harness.backends import BACKENDS
from optimizers import rules

from .case import ITEM_BYTES, ReadyCase
from .clock import one_thread
from .command import timing_parser
from .interleaving import Ratios, interleaved
from .peers import peers
from .shapes import Shapes
from .steps import optimizer_step, step_entries

OPTIMIZER, DTYPE = "adamw", "float32"
ENTRIES = (2**24, 2**23)  # 256 and 128 MiB of parameters, gradients and moments: out of every cache
TARGET = 0.7  # of the copy's bandwidth, on one backend
Copy = Callable[[], None]


@dataclass(frozen=True)
class BandwidthRatio:
    """A step beside a copy of equal traffic.

    Args:
        name: whose step it is.
        entries: the number of parameters.
        traffic: bytes that a step must move.
        ratios: seconds of the step over seconds of the copy.
    """

    name: str
    entries: int
    traffic: int
    ratios: Ratios

    @property
    def share(self) -> tuple[float, float, float]:
        """The step's bandwidth as a share of the copy's: median, low and high."""
        ratio = self.ratios.ratio
        return 1 / ratio.median, 1 / ratio.high, 1 / ratio.low


def traffic(entries: int) -> int:
    """Bytes that a step on so many parameters must move: what is read and what is written, each once."""
    return step_entries(rules()[OPTIMIZER], {"parameter": (1,)}) * entries * ITEM_BYTES[DTYPE]


def copies(moved: int) -> dict[str, Copy]:
    """Copies of a large array by library, each moving `moved` bytes: one half is read, the other written."""
    import torch

    read = np.ones(moved // 2 // ITEM_BYTES[DTYPE], DTYPE)
    written = np.zeros_like(read)
    source, target = torch.from_numpy(read), torch.from_numpy(written)

    def torch_copy() -> None:
        target.copy_(source)

    return {"numpy": lambda: np.copyto(written, read), "torch": torch_copy}


def in_place(moved: int) -> ReadyCase:
    """A negation in place that moves `moved` bytes.

    A copy makes most processors read what it overwrites, which nobody counts; this is the bound without.
    """
    import torch

    array = torch.ones(moved // 2 // ITEM_BYTES[DTYPE])

    def run() -> None:
        array.neg_()

    return ReadyCase(run, array.numpy)


def faster(contestants: dict[str, Copy], repetitions: int) -> tuple[str, Ratios]:
    """The faster of two copies by name, and the first over the second; call inside `one_thread`."""
    first, second = contestants
    ratios = interleaved(contestants[first], contestants[second], repetitions)
    return (first if ratios.ratio.median < 1 else second), ratios


def contestants(shapes: Shapes, moved: int) -> Iterator[tuple[str, ReadyCase]]:
    """A negation in place, our step on each backend and the peers' steps, each prepared when asked for."""
    yield "negation in place", in_place(moved)
    for backend in BACKENDS:
        yield f"ours, {backend}", optimizer_step(backend, rules()[OPTIMIZER], shapes, DTYPE)
        for label, prepare in peers(OPTIMIZER, backend).items():
            yield label, prepare(shapes, DTYPE)


def measure(entries: int, copy: Copy, repetitions: int) -> Iterator[BandwidthRatio]:
    """Every contestant on a vector of so many entries; call inside `one_thread`."""
    shapes = {"vector": (entries,)}
    for name, prepared in contestants(shapes, traffic(entries)):
        with ExitStack() as stack:
            stack.enter_context(prepared.context())
            ratios = interleaved(prepared.run, copy, repetitions)
        yield BandwidthRatio(name, entries, traffic(entries), ratios)


def line(measured: BandwidthRatio) -> str:
    """A measurement as a row of the printed table."""
    step, copy = (measured.traffic / seconds / 1e9 for seconds in measured.ratios.seconds)
    share, low, high = measured.share
    same = measured.ratios.same
    return (
        f"{measured.entries:>10,} {measured.name:22} {step:8.2f} {copy:8.2f}   "
        f"{share:6.1%} [{low:.1%}, {high:.1%}]   [{same.low:.3f}, {same.high:.3f}]"
    )


def verdict(measured: Sequence[BandwidthRatio]) -> str:
    """Whether our step reaches the target on a backend, at every size."""
    shares = []
    for backend in BACKENDS:
        ours = [each.share[0] for each in measured if each.name == f"ours, {backend}"]
        shares.append(f"{backend} {min(ours):.0%} ({'reached' if min(ours) >= TARGET else 'missed'})")
    return f"Target {TARGET:.0%} of the copy's bandwidth, least of all sizes: {', '.join(shares)}"


def entries_of(text: str) -> int:
    """A number of entries from the command line; 2**24 is read too.

    Raises:
        argparse.ArgumentTypeError: for what is no whole number from 1,024 on.
    """
    base, _, power = text.partition("**")
    try:
        entries = int(base) ** int(power) if power else int(base)
    except ValueError:
        entries = 0
    if entries < 1024:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 1024 on, such as 2**24")
    return entries


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table and whether the target is reached."""
    description = "Time a step of AdamW in turn with a copy of equal traffic, on one thread."
    parser = timing_parser("bandwidth", description, 21)
    parser.add_argument(
        "--entries", nargs="+", type=entries_of, default=ENTRIES, help="parameters (2**24 2**23)"
    )
    given = parser.parse_args(arguments)
    measured = []
    with one_thread():
        for entries in given.entries:
            both = copies(traffic(entries))
            name, ratios = faster(both, given.repetitions)
            sentence = f"{' / '.join(both)} {ratios.ratio.median:.3f} of the seconds"
            print(f"{entries:>10,} copies: {sentence}; {name} is taken")
            print(
                f"{'entries':>10} {'step':22} {'GB/s':>8} {'copy':>8}   share of copy [95 %]     A/A [95 %]"
            )
            for each in measure(entries, both[name], given.repetitions):
                measured.append(each)
                print(line(each), flush=True)
    print(verdict(measured))
    return 0


if __name__ == "__main__":
    sys.exit(main())
