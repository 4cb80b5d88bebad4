"""Rules of the battery, one file per family as in `optimizers/`: loops, oracles and entries."""
