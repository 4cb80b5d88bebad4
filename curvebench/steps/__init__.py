"""What one step of a bundle computes, written once for all backends, and what a backend adds to it."""
