"""Property claims: their checks on random instances, and the identity of a claim's rule."""
