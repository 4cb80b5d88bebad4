"""The process that times one commit for the gate: it prepares cases, then takes a block of calls when asked.

Lines of JSON go both ways. It first writes `{"ready": {label: {"seconds", "sizes"}}}`; then for
each line `{"label", "calls"}` it writes `{"seconds"}`, those of a call. It imports the kernel cases of the
checkout that its PYTHONPATH names.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import IO, Any


def main(arguments: Sequence[str]) -> None:
    """Serve until the input ends; the arguments are a checkout and labels of cases."""
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w")
    sys.stdout = sys.stderr  # what libraries print is no answer
    from curvebench.benchmarks.kernels.clock import one_thread

    with one_thread(), ExitStack() as stack:
        serve(Path(arguments[0]), arguments[1:], answers, stack)


def serve(checkout: Path, labels: Sequence[str], answers: IO[str], stack: ExitStack) -> None:
    """Prepare the cases and answer requests.

    Raises:
        RuntimeError: when the cases are not those of the checkout.
    """
    from curvebench.benchmarks.kernels import cases
    from curvebench.benchmarks.kernels.clock import calls_for, seconds_of

    if not Path(cases.__file__).resolve().is_relative_to(checkout.resolve()):
        raise RuntimeError(f"{cases.__file__} is not below {checkout}: another copy of the project is first")
    known, ready, facts = cases.timed(), {}, {}
    for label in labels:
        each = known[label]
        prepared = each.case.prepare(each.backend, each.dtype)
        ready[label] = prepared
        with prepared.context():
            calls = calls_for(prepared.run, 0.02)
            facts[label] = {
                "seconds": seconds_of(prepared.run, calls),
                "sizes": dict(each.case.sizes),
            }
    _answer(answers, {"ready": facts})
    for line in sys.stdin:
        request = json.loads(line)
        prepared = ready[request["label"]]
        with prepared.context():
            _answer(answers, {"seconds": seconds_of(prepared.run, request["calls"])})


def _answer(answers: IO[str], value: dict[str, Any]) -> None:
    answers.write(json.dumps(value) + "\n")
    answers.flush()


if __name__ == "__main__":
    main(sys.argv[1:])
