"""Computation of one job, by its stage: basis estimation, runs, timing, parity or property checks.

A job is the unit that Snakemake schedules: a process that reads a spec file and writes tables. The stage of a
job is its kind. `supervision.py` starts a job in a process of its own and records a crash of the process.
`jobs.py` executes the job, from its spec file to its tables. `parity.py` and the modules `*_jobs.py` do the
computations of each stage.
"""
