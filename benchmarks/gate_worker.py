"""The process that times one commit for the gate: it prepares kernel cases, then takes a sample when asked.

Lines of JSON go both ways. The process first writes `{label: {"calls": ..., "sizes": ...}}` of the cases that
contain the pattern; then it answers each line `{"label": ..., "calls": ...}` with the seconds of a call. It
imports the kernel cases of the checkout that its PYTHONPATH names.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

SAMPLE_SECONDS = 0.02  # so long that clock and interrupts are small


def main(checkout: str, pattern: str) -> None:
    """Serve until the input ends.

    Raises:
        RuntimeError: when the kernel cases are not those of the checkout.
    """
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w")
    sys.stdout = sys.stderr  # what libraries print is no answer
    from curvebench.benchmarks.kernels import cases
    from curvebench.timing.clocks import calls_for, one_thread, seconds_of

    if not Path(cases.__file__).resolve().is_relative_to(Path(checkout).resolve()):
        raise RuntimeError(f"{cases.__file__} is not below {checkout}: another copy of the project is first")
    ready, facts = {}, {}
    with one_thread():
        for label, each in cases.timed(pattern).items():
            ready[label] = each.case.prepare(each.backend, each.dtype)
            with ready[label].context():
                calls = calls_for(ready[label].run, SAMPLE_SECONDS)
            facts[label] = {"calls": calls, "sizes": dict(each.case.sizes)}
        print(json.dumps(facts), file=answers, flush=True)
        for line in sys.stdin:
            request = json.loads(line)
            case = ready[request["label"]]
            with case.context():
                print(seconds_of(case.run, request["calls"]), file=answers, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
