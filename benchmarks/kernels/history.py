"""Run asv on the last commits that touch code: `python -m benchmarks.kernels.history`.

asv cannot install commits into an existing environment, and a separate environment for each commit would take
2.4 GB. Therefore each commit is checked out, and its kernel cases run with the code of the checkout in the
current environment. asv stores the results under the hash of the commit.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from curvebench.timing.clocks import one_thread_environment

from .worktrees import last_commits, worktree

CODE = ("benchmarks/kernels", "curvebench", "optimizers", "workloads")
KERNELS = "benchmarks/kernels"
CONFIGURATION = "asv.conf.json"
# Number of hexadecimal digits of a commit's hash in the names of asv's files.
SHORT = 8


def settings(root: Path) -> dict[str, Any]:
    """Return the project's asv settings. Comments in the file must be on separate lines."""
    text = (root / CONFIGURATION).read_text()
    return json.loads(re.sub(r"^\s*//.*$", "", text, flags=re.MULTILINE))


def settings_for(root: Path, checkout: Path) -> dict[str, Any]:
    """Return asv settings that run the benchmarks of a checkout and store results in the project's folder."""
    options = settings(root)
    folders = {name: str(root / options[name]) for name in ("results_dir", "html_dir", "env_dir")}
    return {**options, **folders, "repo": str(root), "benchmark_dir": str(checkout / KERNELS)}


def recorded(results: Path, commit: str) -> bool:
    """Return whether results of a commit are stored, from any machine."""
    return any(results.glob(f"*/{commit[:SHORT]}-*.json"))


def run_asv(root: Path, commit: str, checkout: Path, arguments: Sequence[str]) -> int:
    """Run asv on a checkout, and return its exit status."""
    environment = one_thread_environment(os.environ) | {"ASV_PYTHONPATH": str(checkout)}
    configuration = checkout.parent / CONFIGURATION
    configuration.write_text(json.dumps(settings_for(root, checkout)))
    asv = [sys.executable, "-m", "asv"]
    common = ["--config", str(configuration)]
    subprocess.run([*asv, "machine", *common, "--yes"], env=environment, check=True, stdout=subprocess.PIPE)
    command = [*asv, "run", *common, "--python=same", f"--set-commit-hash={commit}", *arguments]
    return subprocess.run(command, env=environment, check=False).returncode


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure the commits that have no stored results, and return the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.kernels.history",
        description="Measure the kernel cases of the last commits that touch code, with asv.",
    )
    parser.add_argument("--commits", type=int, default=3, help="how many of the last commits (3)")
    parser.add_argument("--case", default="", metavar="REGEX", help="only cases whose label contains this")
    parser.add_argument("--again", action="store_true", help="commits with stored results too")
    options = parser.parse_args(arguments)
    root = Path.cwd()
    results = root / settings(root)["results_dir"]
    # One round, that is one process, suffices: asv stores the spread of the calls in a round.
    asv_options = ["--attribute", "rounds=1", *(["--bench", options.case] if options.case else [])]
    failed = 0
    for commit in last_commits(root, options.commits, CODE):
        if recorded(results, commit) and not options.again:
            print(f"{commit[:SHORT]}: recorded already")
            continue
        with (
            tempfile.TemporaryDirectory(prefix="curvebench-asv-") as folder,
            worktree(root, commit, Path(folder) / "code") as checkout,
        ):
            if not (checkout / KERNELS).is_dir():
                print(f"{commit[:SHORT]}: has no {KERNELS}")
                continue
            failed += run_asv(root, commit, checkout, asv_options) != 0
    print(f"Results: {results}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
