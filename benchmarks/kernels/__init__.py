"""What is timed over commits: one list of kernel cases, its peers, and the clocks that compare them."""
