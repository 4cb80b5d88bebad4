"""Networks that more than one workload uses: residual networks and transformers."""
