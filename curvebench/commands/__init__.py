"""The commands of the terminal. Each module has the commands for one subject.

A command is a function of the parsed arguments; its docstring is the command's help text. A study compares
methods on workloads; a published set is a folder with the results of a report that never changes again; a job
is a process that Snakemake starts, and its spec file says what the job computes.
"""
