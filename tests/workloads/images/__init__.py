"""Images in folders."""
