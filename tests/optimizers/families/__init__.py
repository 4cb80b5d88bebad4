"""The battery's rules, one file a family as in `optimizers/`: loops, oracles and entries."""
