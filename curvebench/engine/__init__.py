"""One step of a bundle of lanes, and how a bundle is run to its budget."""
