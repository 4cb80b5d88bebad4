"""Measurement of step times and memory.

Runs that are compared are timed in turn, so that drift of the machine's speed affects all runs equally. The
threads of the process are pinned to processors. Only step times that were measured in this way are compared.
"""
