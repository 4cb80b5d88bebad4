"""Worker process of the gate (`benchmarks.gate`, the test for slowdowns between two commits).

The worker prepares the kernel cases of one commit, and takes samples on request. Its arguments are the folder
of the checkout and a pattern. The gate and the worker exchange lines of JSON. The worker first writes
`{label: {"calls": ..., "sizes": ...}}` for the cases whose label contains the pattern; `calls` is a number of
calls that takes long enough for a sample. The worker then answers each line `{"label": ..., "calls": ...}`
with the seconds of one call. The kernel cases are imported from the checkout that PYTHONPATH names.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

# Duration of one sample, long enough for the resolution of the clock and interrupts to be negligible.
SAMPLE_SECONDS = 0.02


def main(checkout: str, pattern: str) -> None:
    """Answer requests until the input ends.

    Raises:
        RuntimeError: if the kernel cases were imported from another folder than the checkout.
    """
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w")
    # Libraries may print to stdout, where the gate expects nothing but answers.
    sys.stdout = sys.stderr
    from curvebench.benchmarks.kernels import cases
    from curvebench.timing.clocks import calls_for, one_thread, seconds_of

    if not Path(cases.__file__).resolve().is_relative_to(Path(checkout).resolve()):
        raise RuntimeError(f"{cases.__file__} is not below {checkout}: another copy of the project is first")
    ready, facts = {}, {}
    with one_thread():
        for label, timed_case in cases.timed(pattern).items():
            ready[label] = timed_case.case.prepare(timed_case.backend, timed_case.dtype)
            with ready[label].context():
                calls = calls_for(ready[label].run, SAMPLE_SECONDS)
            facts[label] = {"calls": calls, "sizes": dict(timed_case.case.sizes)}
        print(json.dumps(facts), file=answers, flush=True)
        for line in sys.stdin:
            request = json.loads(line)
            case = ready[request["label"]]
            with case.context():
                print(seconds_of(case.run, request["calls"]), file=answers, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
