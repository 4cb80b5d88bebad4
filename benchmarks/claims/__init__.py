"""Claims that property checks decide: one file a subject, each with its `CLAIMS`."""
