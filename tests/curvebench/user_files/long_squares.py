"""Least squares with a separate job for each run."""

from dataclasses import replace

from curvebench.workloads.convex import LEAST_SQUARES

WORKLOADS = (replace(LEAST_SQUARES, name="long_squares", separate_jobs=True),)
