"""Step times and memory: pinned clocks, interleaved methods."""
