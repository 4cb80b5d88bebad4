"""Measurement of step times and memory.

Runs that are compared are timed in turn, with threads pinned to processors, so that drift of the machine's
speed affects all runs equally. Step times are compared only if they were measured in this way.
"""
