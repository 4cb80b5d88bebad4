"""The work of one job, by its stage: bases, runs, timing, parity or property checks.

`supervision.py` starts a job in a process of its own and records a crash; `jobs.py` executes the job, from
its spec file to its tables; the modules `*_jobs.py` do the work of the stages.
"""
