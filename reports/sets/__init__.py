"""Published sets: writing, verifying, comparing and rerunning them."""
