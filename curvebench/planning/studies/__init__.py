"""Studies: study files in which all names have been looked up and all defaults are filled in."""
