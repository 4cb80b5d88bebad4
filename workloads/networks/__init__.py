"""Networks of more than one workload: residual networks and transformers."""
