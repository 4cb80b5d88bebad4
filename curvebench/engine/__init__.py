"""Execution of bundles: inputs of segments, evaluations, checkpoints, schedules, and checks before a run."""
