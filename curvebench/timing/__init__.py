"""Measurement of step times and memory.

Runs that are compared are timed in turn, with pinned threads, so that drift of the machine affects all of
them equally. Step times are compared only if they were measured in this way.
"""
