"""Statistics of runs, as pure functions; infinity stands for a run that diverged or was censored."""
