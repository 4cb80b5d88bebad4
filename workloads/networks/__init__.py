"""Networks of any size as pure functions of their parameters, which workloads give data."""
