"""Quadratic workload, as in a third party's package."""

import dataclasses

from curvebench.workloads.convex import WORKLOADS as CONVEX

BOWL = dataclasses.replace(CONVEX[1], name="bowl", description="least squares under another name")
WORKLOADS = (BOWL,)
