"""Studies: study files with every name looked up and every default filled in."""
