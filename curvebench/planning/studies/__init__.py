"""Studies: study files whose names are resolved and whose defaults are filled in."""
