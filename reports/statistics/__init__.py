"""Statistics of runs, as pure functions on arrays and frames.

Infinity stands for a run that diverged, or that was censored because it ended before it met its goal. Each
function states its assumptions and cites its source; tests measure its coverage or false-positive rate by
simulation.
"""
