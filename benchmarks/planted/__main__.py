"""Decide all planted claims: `python -m benchmarks.planted --size small --block 0`."""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from curvebench.benchmarks.planted import SIZES, decide, store

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", choices=SIZES, default=SIZES[0])
    parser.add_argument("--block", type=int, default=0, help="number of the block of seeds")
    parser.add_argument("--results", type=Path, help="folder for the runs (default: a temporary folder)")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        claims, run = decide(args.size, args.block, args.results or Path(folder))
    store(claims, run)
    for claim in claims:
        sys.stdout.write(f"{'true ' if claim.holds else 'false'}  {run.verdicts[claim.id]:<18} {claim.id}\n")
    sys.stdout.write(f"{run.seconds} s of processor time\n")
