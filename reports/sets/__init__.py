"""Published sets: written, verified, compared and run again."""
