"""The commands of the terminal. Each module has the commands for one subject.

A command is a function of the parsed arguments. The docstring of the function is the help text of the
command. A study compares methods on workloads. A published set is a folder with the results of a report, and
never changes again. A job is a process that Snakemake starts. The spec file of a job says what the job
computes.
"""
