"""Execution of bundles: inputs of segments, evaluations, checkpoints, schedules, and checks before a run.

`bundle.py` defines the runs that advance together, and `execution.py` executes them on an engine of
`curvebench.backends`. The engine computes; this package decides when steps, evaluations and checkpoints
follow each other.
"""
