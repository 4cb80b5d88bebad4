"""Execution of bundles: inputs of steps, evaluations, checkpoints, schedules, and checks before a run.

A bundle (`bundle.py`) is a set of runs, called lanes, that advance together: one lane for each of S seeds and
K settings of the hyperparameters. `execution.py` executes a bundle on an engine of `curvebench.backends`, in
segments: numbers of consecutive steps that one call of the device computes. The engine computes; this package
decides on the order of steps, evaluations and checkpoints.
"""
