"""From study files to jobs: what is run, in which order, from which sources."""
