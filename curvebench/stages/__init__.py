"""What a job does at each stage: bases, runs, timing, parity and property checks."""
